"""Which backend computes the loss, and what happens where Triton's kernels cannot be launched."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels import loss as kernel
from seqwise.kernels.loss import describe_backend, linear_cross_entropy
from seqwise.kernels.recurrence import availability

N, D, V = 9, 4, 7
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def fake_gpu(monkeypatch):
    """Pretends that there is a GPU with this version of Triton and this compute capability."""

    def configure(triton: str | None = "3.6.0", capability: tuple[int, int] = (9, 0)) -> None:
        monkeypatch.delenv("SEQWISE_KERNELS", raising=False)
        monkeypatch.setattr(availability, "get_package_version", lambda name: triton)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        kernel._get_unavailable_reason.cache_clear()

    monkeypatch.setattr(kernel, "_failed_devices", set())
    yield configure
    kernel._get_unavailable_reason.cache_clear()


def test_triton_is_used_on_gpus_with_bfloat16_and_plain_operations_elsewhere(fake_gpu, monkeypatch):
    fake_gpu(capability=(8, 0))
    assert kernel._choose_backend(GPU, torch.bfloat16) == kernel._choose_backend(GPU, torch.float32) == "triton"
    assert kernel._choose_backend(GPU, torch.float64) == "plain"
    assert describe_backend(GPU) == "triton"
    assert describe_backend(CPU) == "cpu"
    assert describe_backend(torch.device("meta")) == "plain (there are no kernels for meta)"
    fake_gpu(capability=(7, 5))
    assert describe_backend(GPU) == "plain (compute capability 7.5 has no bfloat16)"
    fake_gpu(triton=None)
    assert describe_backend(GPU) == "plain (Triton is not installed)"
    assert kernel._choose_backend(GPU, torch.bfloat16) == "plain"
    fake_gpu(triton="3.5.1")
    assert describe_backend(GPU) == "plain (Triton 3.5.1 is older than 3.6)"
    fake_gpu()
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    assert describe_backend(GPU) == "plain (SEQWISE_KERNELS=off)"


@pytest.mark.parametrize("min_scores", [0, 1000])
def test_losses_of_meta_tensors_are_meta_tensors(monkeypatch, min_scores):
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, min_scores))
    with torch.device("meta"):
        losses = linear_cross_entropy(
            torch.empty(N, D), torch.empty(V, D), torch.empty(V), torch.empty(N, dtype=torch.int64)
        )
    assert losses.shape == (N,)


def draw_leaves_and_targets() -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(0)
    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((N, D), (V, D), (V,))]
    return leaves, torch.randint(V, (N,))


@pytest.fixture
def failing_triton(monkeypatch):
    """The Triton backend on a CPU, whose kernel overwrites the scores with NaN and fails, as a launch may.

    fail(error, after) makes it fail after so many calls, and returns the list of failures.
    """
    loss_triton = pytest.importorskip("seqwise.kernels.loss_triton")
    monkeypatch.setattr(
        kernel, "_choose_backend", lambda device, dtype: "plain" if device in kernel._failed_devices else "triton"
    )
    monkeypatch.setattr(kernel, "_failed_devices", set())
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, 0))
    monkeypatch.setattr(kernel, "MAX_SCORES", dict.fromkeys(kernel.MAX_SCORES, 2 * V))
    monkeypatch.setattr(kernel, "MIN_ROWS", dict.fromkeys(kernel.MIN_ROWS, 1))
    failures: list[Exception] = []

    def fail(error: Exception, after: int) -> list[Exception]:
        calls = [0]

        def compute_row_losses(
            scores: Tensor, targets: Tensor, factors: Tensor | None = None, write_grad: bool = True
        ) -> Tensor:
            calls[0] += 1
            if calls[0] > after:
                scores.fill_(math.nan)
                failures.append(error)
                raise error
            losses = kernel._compute_plain_losses_and_grads(scores, targets)
            if factors is not None:
                scores *= factors[:, None]
            return losses

        monkeypatch.setattr(loss_triton, "compute_row_losses", compute_row_losses)
        return failures

    return fail


@pytest.mark.parametrize("after", [0, 2, 5], ids=["at once", "in the third chunk", "in the second pass"])
def test_a_failed_launch_warns_once_and_the_result_is_right(failing_triton, after):
    failures = failing_triton(RuntimeError("first line\nout of resource: shared memory"), after)
    leaves, targets = draw_leaves_and_targets()
    factors = torch.linspace(-1, 2, N)
    expected = F.cross_entropy(F.linear(*leaves), targets, reduction="none")
    with warnings.catch_warnings(record=True) as recorded_warnings:
        warnings.simplefilter("always")
        for _ in range(3):
            losses = linear_cross_entropy(*leaves, targets)
            torch.testing.assert_close(losses, expected)
            actual = torch.autograd.grad(losses, leaves, factors)
            torch.testing.assert_close(actual, torch.autograd.grad(expected, leaves, factors, retain_graph=True))
    (message,) = [str(warning.message) for warning in recorded_warnings]
    assert message.startswith("the fused loss cannot run on cpu; using PyTorch's instead.")
    assert message.endswith("(RuntimeError: out of resource: shared memory)")
    assert len(failures) == 1, "a failed kernel was launched again"


@pytest.mark.filterwarnings("error")
def test_out_of_memory_errors_are_raised(failing_triton):
    failing_triton(torch.OutOfMemoryError("simulated"), 0)
    leaves, targets = draw_leaves_and_targets()
    with pytest.raises(torch.OutOfMemoryError, match="simulated"):
        linear_cross_entropy(*leaves, targets)
    assert not kernel._failed_devices


@pytest.mark.filterwarnings("error")
def test_a_wrong_target_does_not_disable_the_kernel(failing_triton):
    failing_triton(RuntimeError("index out of bounds"), 0)
    leaves, targets = draw_leaves_and_targets()
    targets[1] = V
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        linear_cross_entropy(*leaves, targets)
    assert not kernel._failed_devices


def test_torch_compile_uses_the_plain_backend_forward_and_backward(fake_gpu, monkeypatch):
    fake_gpu()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert kernel._choose_backend(GPU, torch.bfloat16) == "plain"
    backends: list[str] = []
    compute_in_chunks = kernel._compute_in_chunks
    monkeypatch.setattr(
        kernel,
        "_compute_in_chunks",
        lambda *arguments: (backends.append(arguments[0].backend), compute_in_chunks(*arguments))[1],
    )
    monkeypatch.setattr(kernel, "_choose_backend", lambda device, dtype: "plain")
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, 0))
    leaves, targets = draw_leaves_and_targets()
    losses = linear_cross_entropy(*leaves, targets)
    monkeypatch.setattr(
        kernel,
        "_choose_backend",
        lambda device, dtype: pytest.fail("the backend was chosen again in the backward pass"),
    )
    torch.autograd.grad(losses, leaves, torch.linspace(-1, 2, N))
    assert backends == ["plain", "plain"]
