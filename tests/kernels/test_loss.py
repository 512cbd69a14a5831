"""The fused projection and cross-entropy equals its two parts, forward and backward, for all sizes of chunks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels import loss as kernel
from seqwise.kernels.loss import linear_cross_entropy

N, D, V = 23, 6, 11
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

BACKENDS = ["plain", "triton"]
CHUNKS = {"one chunk": N * V, "chunks of three rows": 3 * V, "row by row": 1}
CASES = [(backend, chunks) for backend in BACKENDS for chunks in CHUNKS]
CASES[-1:] = [pytest.param(CASES[-1], marks=pytest.mark.slow)]  # many launches of interpreted kernels


@pytest.fixture(params=CASES, ids=", ".join, autouse=True)
def _choose_backend(request, monkeypatch):
    backend, chunks = request.param
    monkeypatch.setattr(kernel, "MAX_SCORES", dict.fromkeys(kernel.MAX_SCORES, CHUNKS[chunks]))
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, 0))
    monkeypatch.setattr(kernel, "MIN_ROWS", dict.fromkeys(kernel.MIN_ROWS, 1))
    if backend == "triton":
        pytest.importorskip("triton")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU: Triton is not interpreted, and the tests on the GPU use this backend")
        monkeypatch.setattr(
            kernel, "_choose_backend", lambda device, dtype: "plain" if dtype == torch.float64 else "triton"
        )
        monkeypatch.setattr(kernel, "_failed_devices", set())


def draw_inputs(dtype: torch.dtype = torch.float32, device: str = "cpu", scale: float = 1.0) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    vectors, weight, bias = torch.randn(N, D) * scale, torch.randn(V, D), torch.randn(V)
    leaves = (tensor.to(device, dtype).requires_grad_() for tensor in (vectors, weight, bias))
    return *leaves, torch.randint(V, (N,), device=device)


def compute_reference_losses(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(vectors, weight, bias), targets, reduction="none")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", [Tensor.sum, Tensor.mean, lambda losses: losses @ torch.arange(N).to(losses)])
def test_losses_and_gradients_equal_those_of_the_parts(device, reduce):
    *leaves, targets = draw_inputs(device=device)
    ours, theirs = linear_cross_entropy(*leaves, targets), compute_reference_losses(*leaves, targets)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(reduce(ours), leaves), torch.autograd.grad(reduce(theirs), leaves))


@pytest.mark.parametrize("reduce", [Tensor.sum, lambda losses: losses @ torch.arange(N).to(losses)])
def test_weighted_losses_have_the_same_gradients_to_rounding(reduce):
    *leaves, targets = draw_inputs()
    losses = linear_cross_entropy(*leaves, targets, defer_gradients=True)
    expected = linear_cross_entropy(*leaves, targets)
    assert torch.equal(losses, expected)
    grads = torch.autograd.grad(reduce(losses), leaves)
    torch.testing.assert_close(grads, torch.autograd.grad(reduce(expected), leaves))


@pytest.mark.slow
def test_gradients_equal_finite_differences():
    *leaves, targets = draw_inputs(torch.float64)
    assert torch.autograd.gradcheck(lambda *inputs: linear_cross_entropy(*inputs, targets), leaves)
    assert torch.autograd.gradcheck(lambda *inputs: linear_cross_entropy(*inputs, targets).sum(), leaves)


def test_second_derivatives_equal_those_of_the_parts():
    *leaves, targets = draw_inputs(torch.float64)
    penalties = []
    for compute in (linear_cross_entropy, compute_reference_losses):
        grads = torch.autograd.grad(compute(*leaves, targets).square().sum(), leaves, create_graph=True)
        penalties.append(torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves))
    torch.testing.assert_close(*penalties)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_gradient_of_one_input_does_not_depend_on_which_others_require_one(index):
    *leaves, targets = draw_inputs()
    one_requires_gradient = [leaf.detach().requires_grad_(position == index) for position, leaf in enumerate(leaves)]
    for factors in (torch.ones(()).expand(N), torch.linspace(-1, 1, N)):
        expected = torch.autograd.grad(compute_reference_losses(*leaves, targets), leaves[index], factors)
        torch.testing.assert_close(
            torch.autograd.grad(
                linear_cross_entropy(*one_requires_gradient, targets), one_requires_gradient[index], factors
            ),
            expected,
        )


def test_a_second_backward_pass_gives_the_same_gradients():
    *leaves, targets = draw_inputs()
    total = linear_cross_entropy(*leaves, targets).sum() / 7
    first = torch.autograd.grad(total, leaves, retain_graph=True)
    copies = [gradient.clone() for gradient in first]
    second = torch.autograd.grad(total, leaves)
    torch.testing.assert_close(second, tuple(copies))
    assert all(torch.equal(gradient, copy) for gradient, copy in zip(first, copies))


def test_a_target_too_improbable_for_a_float_has_its_true_loss():
    *leaves, targets = draw_inputs(scale=300.0)
    losses = linear_cross_entropy(*leaves, targets)
    assert losses.max() > 500  # exp(−500) is zero in float32
    torch.testing.assert_close(losses, compute_reference_losses(*leaves, targets))


def test_without_gradients_the_losses_are_the_same_to_the_bit():
    *leaves, targets = draw_inputs()
    with torch.no_grad():
        losses = linear_cross_entropy(*leaves, targets)
    assert not losses.requires_grad
    assert torch.equal(losses, linear_cross_entropy(*leaves, targets))


def test_zero_rows_give_no_losses_and_gradients_of_zero():
    *leaves, _ = draw_inputs()
    losses = linear_cross_entropy(leaves[0][:0], *leaves[1:], torch.empty(0, dtype=torch.int64))
    assert losses.shape == (0,)
    assert all(not gradient.any() for gradient in torch.autograd.grad(losses.sum(), leaves))


@pytest.mark.parametrize("device", DEVICES)
def test_under_autocast_products_are_rounded_and_sums_are_not(device):
    *leaves, targets = draw_inputs(device=device)
    with torch.autocast(device, torch.bfloat16):
        losses = linear_cross_entropy(*leaves, targets)
    assert losses.dtype == torch.float32
    float32_losses = compute_reference_losses(*leaves, targets)
    torch.testing.assert_close(losses, float32_losses, rtol=2e-2, atol=2e-2)
    for gradient, expected in zip(
        torch.autograd.grad(losses.sum(), leaves), torch.autograd.grad(float32_losses.sum(), leaves)
    ):
        assert gradient.dtype == torch.float32
        assert (gradient - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", [Tensor.mean, lambda losses: losses @ torch.arange(N).to(losses)])
def test_16_bit_weights_get_gradients_near_the_exact_ones(device, reduce):
    *leaves, targets = draw_inputs(torch.bfloat16, device)
    float64_leaves = [leaf.detach().double().requires_grad_() for leaf in leaves]
    gradients = torch.autograd.grad(reduce(linear_cross_entropy(*leaves, targets)), leaves)
    for gradient, expected in zip(
        gradients, torch.autograd.grad(reduce(compute_reference_losses(*float64_leaves, targets)), float64_leaves)
    ):
        assert gradient.dtype == torch.bfloat16
        assert (gradient - expected).norm() < 0.01 * expected.norm()


def test_the_same_call_gives_the_same_bits():
    def run() -> tuple[Tensor, ...]:
        *leaves, targets = draw_inputs()
        losses = linear_cross_entropy(*leaves, targets)
        return losses, *torch.autograd.grad(losses.mean(), leaves)

    assert all(torch.equal(first, second) for first, second in zip(run(), run()))


def test_16_bit_vectors_get_16_bit_gradients():
    *leaves, targets = draw_inputs()
    vectors = leaves[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        linear_cross_entropy(vectors, *leaves[1:], targets).sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.dtype == torch.bfloat16


def test_a_target_outside_the_vocabulary_is_rejected():
    *leaves, targets = draw_inputs()
    targets[5] = V
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        linear_cross_entropy(*leaves, targets)


@pytest.fixture
def few_scores(monkeypatch):
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, N * V + 1))
    monkeypatch.setattr(kernel, "_compute", lambda *_: pytest.fail("the loss was computed in chunks"))


@pytest.mark.usefixtures("few_scores")
def test_small_losses_use_pytorchs_separate_functions():
    *leaves, targets = draw_inputs()
    assert torch.equal(linear_cross_entropy(*leaves, targets), compute_reference_losses(*leaves, targets))


@pytest.mark.usefixtures("few_scores")
@pytest.mark.parametrize("autocast", [False, True])
def test_small_losses_of_16_bit_products_are_float32_and_exact(autocast):
    *leaves, targets = draw_inputs(torch.float32 if autocast else torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        losses = linear_cross_entropy(*leaves, targets)
    assert losses.dtype == torch.float32
    scores = F.linear(*(leaf.detach().bfloat16() for leaf in leaves))
    assert torch.equal(losses, F.cross_entropy(scores.float(), targets, reduction="none"))
    gradients = torch.autograd.grad(losses.sum(), leaves)
    assert [gradient.dtype for gradient in gradients] == [leaf.dtype for leaf in leaves]


@pytest.mark.parametrize("min_scores", [0, N * V + 1], ids=["in chunks", "few scores"])
def test_autocast_does_not_change_float64(monkeypatch, min_scores):
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, min_scores))
    *leaves, targets = draw_inputs(torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        losses = linear_cross_entropy(*leaves, targets)
    assert losses.dtype == torch.float64
    torch.testing.assert_close(losses, compute_reference_losses(*leaves, targets), rtol=1e-12, atol=1e-12)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(linear_cross_entropy(*leaves, targets), losses, rtol=1e-12, atol=1e-12)
