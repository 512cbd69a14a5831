"""Triton's losses and their gradients p − y for scores in float32 and 16 bits, at block edges and extreme values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels import loss as kernel
from seqwise.kernels.loss import linear_cross_entropy

pytest.importorskip("triton")
from seqwise.kernels import loss_triton
from seqwise.kernels.loss_triton import compute_row_losses

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # without a GPU Triton is interpreted
# Relative rounding error of a data type; the interpreter truncates where a GPU rounds.
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 2**-8 if DEVICE.type == "cuda" else 2**-7, torch.float16: 2**-10}


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch):
    monkeypatch.setattr(loss_triton, "BLOCK_SIZES", (128,))


def to_kernel_layout(scores: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns the scores with the strides that the kernel requires, and NaN in the padding between rows."""
    rows, vocabulary_size = scores.shape
    actual = torch.full((rows, -(-vocabulary_size // 8) * 8), math.nan, dtype=dtype, device=DEVICE)[:, :vocabulary_size]
    return actual.copy_(scores)


def get_padding_between_rows(scores: Tensor) -> Tensor:
    """Returns the memory between rows."""
    rows, stride = len(scores), scores.stride(0)
    return scores.as_strided((rows, stride), (stride, 1))[:, scores.shape[1] :]


def compute_expected(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns losses and p − y in float64."""
    float64_scores = scores.detach().double().requires_grad_()
    losses = F.cross_entropy(float64_scores, targets, reduction="none")
    (grad_scores,) = torch.autograd.grad(losses.sum(), float64_scores)
    return losses.detach(), grad_scores


def draw_scores(rows: int, vocabulary_size: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(vocabulary_size)
    scores = torch.randn(rows, vocabulary_size, device=DEVICE) * scale
    return scores, torch.randint(vocabulary_size, (rows,), device=DEVICE)


@pytest.mark.parametrize("vocabulary_size", [1, 2, 7, 8, 9, 127, 128, 129, 255, 257, 520])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_losses_and_gradients_equal_those_in_float64(vocabulary_size, dtype):
    scores, targets = draw_scores(5, vocabulary_size)
    scores = to_kernel_layout(scores, dtype)
    losses, grad_scores = compute_expected(scores, targets)
    actual = compute_row_losses(scores, targets)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.double(), grad_scores, rtol=ROUNDING[dtype], atol=1e-7)
    assert not get_padding_between_rows(scores).any(), "a matrix product may read the padding too"


def test_each_row_is_multiplied_by_its_factor():
    scores, targets = draw_scores(6, 130)
    factors = torch.linspace(-2, 3, 6, device=DEVICE)
    _, grad_scores = compute_expected(scores, targets)
    scores = to_kernel_layout(scores)
    compute_row_losses(scores, targets, factors)
    torch.testing.assert_close(scores.double(), grad_scores * factors[:, None], rtol=1e-5, atol=1e-7)
    factor = torch.tensor(0.25, device=DEVICE).expand(6)  # as autograd passes it: with a stride of 0
    scores = to_kernel_layout(draw_scores(6, 130)[0])
    compute_row_losses(scores, targets, factor)
    torch.testing.assert_close(scores.double(), grad_scores * 0.25, rtol=1e-5, atol=1e-7)


def test_losses_without_gradients_are_the_same_and_leave_the_scores_unchanged():
    scores, targets = draw_scores(4, 300)
    unchanged, overwritten = to_kernel_layout(scores), to_kernel_layout(scores)
    assert torch.equal(
        compute_row_losses(unchanged, targets, write_grad=False), compute_row_losses(overwritten, targets)
    )
    assert torch.equal(unchanged, scores)
    assert not torch.equal(overwritten, scores)


def test_scores_of_any_size_neither_overflow_nor_vanish():
    scores, _ = draw_scores(4, 200)
    scores[0, 150] = 1e4
    scores[1] -= 1e4
    scores[2, 3], scores[2, 199] = 1e4, -1e4
    scores[3, 1:] = -math.inf
    targets = torch.tensor([150, 7, 199, 0], device=DEVICE)
    losses, grad_scores = compute_expected(scores, targets)
    scores = to_kernel_layout(scores)
    actual = compute_row_losses(scores, targets)
    torch.testing.assert_close(actual.double(), losses, rtol=1e-6, atol=1e-6)
    assert actual[2] == 20_000
    assert actual[3] == 0
    torch.testing.assert_close(scores.double(), grad_scores, rtol=1e-5, atol=1e-7)


def test_a_score_of_minus_infinity_has_probability_zero():
    scores, _ = draw_scores(3, 140)
    scores[:, :130] = -math.inf  # the whole first block
    scores[2, 139] = -math.inf
    targets = torch.tensor([130, 139, 5], device=DEVICE)  # the last one has probability zero
    losses, grad_scores = compute_expected(scores, targets)
    scores = to_kernel_layout(scores)
    actual = compute_row_losses(scores, targets)
    assert math.isinf(actual[2])
    torch.testing.assert_close(actual.double(), losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.double(), grad_scores, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 131, 200])
def test_a_nan_or_infinite_score_affects_only_its_row(value, column):
    scores, targets = draw_scores(3, 201)
    targets[1] = 131
    _, grad_scores = compute_expected(scores, targets)
    scores[1, column] = value
    scores = to_kernel_layout(scores)
    actual = compute_row_losses(scores, targets)
    assert actual.isnan().tolist() == [False, True, False]
    assert scores[1].isnan().any()
    torch.testing.assert_close(scores[[0, 2]].double(), grad_scores[[0, 2]], rtol=1e-5, atol=1e-7)


def test_the_lowest_finite_scores_are_valid():
    lowest = torch.finfo(torch.float32).min
    scores, targets = torch.full((2, 9), lowest, device=DEVICE), torch.tensor([3, 4], device=DEVICE)
    scores[1, 5] = lowest / 2
    losses, grad_scores = compute_expected(scores, targets)
    scores = to_kernel_layout(scores)
    torch.testing.assert_close(compute_row_losses(scores, targets).double(), losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.double(), grad_scores, rtol=1e-5, atol=1e-7)


def test_the_loss_of_a_row_without_a_finite_score_is_nan():
    scores = to_kernel_layout(torch.full((1, 9), -math.inf, device=DEVICE), torch.bfloat16)
    assert compute_row_losses(scores, torch.zeros(1, dtype=torch.int64, device=DEVICE)).isnan().all()


@pytest.mark.parametrize("lead", [2.0, 8.0, 14.0, 30.0, 80.0])
def test_the_small_gradient_of_a_likely_target_is_exact(lead):
    scores, targets = torch.zeros(1, 150, device=DEVICE), torch.tensor([77], device=DEVICE)
    scores[0, 77] = lead
    losses, grad_scores = compute_expected(scores, targets)
    sum_of_others = 149 * math.exp(-lead)
    assert float(losses) == pytest.approx(math.log1p(sum_of_others), rel=1e-3, abs=1e-12)
    for dtype in (torch.float32, torch.bfloat16):
        kernel_scores = to_kernel_layout(scores, dtype)
        assert float(compute_row_losses(kernel_scores, targets)) == pytest.approx(math.log1p(sum_of_others), rel=1e-5)
        assert float(kernel_scores[0, 77]) == pytest.approx(-sum_of_others / (1 + sum_of_others), rel=ROUNDING[dtype])
    assert float(grad_scores[0, 77]) == pytest.approx(-sum_of_others / (1 + sum_of_others), rel=1e-3, abs=1e-12)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="on a GPU the failed assertion ends the process")
@pytest.mark.parametrize("target", [-1, -100, 9])
def test_a_target_outside_the_vocabulary_is_rejected(target):
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        compute_row_losses(to_kernel_layout(torch.zeros(2, 9)), torch.tensor([0, target]))


def test_scores_with_other_strides_are_rejected():
    targets = torch.zeros(2, dtype=torch.int64, device=DEVICE)
    for scores in (torch.zeros(2, 9, device=DEVICE), torch.zeros(2, 32, device=DEVICE)[:, :9]):
        with pytest.raises(ValueError, match="multiples of 8"):
            compute_row_losses(scores, targets)


def test_zero_rows_give_no_losses():
    assert compute_row_losses(to_kernel_layout(torch.zeros(0, 9)), torch.empty(0, dtype=torch.int64)).shape == (0,)


def test_chunks_cover_all_rows_and_limit_memory():
    for rows, width, vocabulary_size in [
        (8192, 768, 128_000),
        (8192, 768, 256_000),
        (32_768, 768, 50_304),
        (9, 8, 3),
        (0, 8, 3),
    ]:
        chunks = kernel._split_rows(rows, width, vocabulary_size, "triton")
        assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))
        size = chunks[0].stop
        assert size * vocabulary_size <= 1.1 * max(
            kernel.MAX_SCORES["triton"], vocabulary_size * width, rows * vocabulary_size / kernel.MIN_CHUNKS
        )
        assert size * vocabulary_size <= 1.1 * max(2 * kernel.MAX_SCORES["triton"], vocabulary_size * width)
        assert all(chunk.stop - chunk.start == size for chunk in chunks[:-1])
    assert kernel._split_rows(8192, 768, 128_000, "triton")[0].stop == 768


# On a GPU

SHAPES = [(8192, 128_000, 768), (4096, 50_257, 512), (1000, 32_001, 100)]


def draw_inputs(rows: int, vocabulary_size: int, width: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(0)
    vectors, weight, bias = torch.randn(rows, width), torch.randn(vocabulary_size, width), torch.randn(vocabulary_size)
    leaves = [tensor.to("cuda", dtype).requires_grad_() for tensor in (vectors, weight * width**-0.5, bias)]
    return leaves, torch.randint(vocabulary_size, (rows,), device="cuda")


def compute_reference_losses(vectors: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(vectors, weight, bias), targets, reduction="none")


@pytest.fixture
def _default_blocks(monkeypatch, _several_blocks):
    monkeypatch.undo()


@pytest.mark.gpu
@pytest.mark.usefixtures("_default_blocks")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_our_loss_is_as_near_to_float32_as_the_eager_one(shape, dtype):
    leaves, targets = draw_inputs(*shape, dtype)
    with torch.autocast("cuda", enabled=False):
        expected = [leaf.detach().float().requires_grad_() for leaf in leaves]
        float32_losses = compute_reference_losses(*expected, targets)
        float32_gradients = torch.autograd.grad(float32_losses.mean(), expected)
    relative_errors = {}
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.float32):
        for name, loss in (("ours", linear_cross_entropy), ("eager", compute_reference_losses)):
            losses = loss(*leaves, targets)
            gradients = torch.autograd.grad(losses.float().mean(), leaves)
            assert all(gradient.dtype == dtype for gradient in gradients)
            pairs = zip((losses, *gradients), (float32_losses, *float32_gradients))
            relative_errors[name] = [float((actual - expected).norm() / expected.norm()) for actual, expected in pairs]
    assert kernel._choose_backend(DEVICE, dtype) == "triton"
    for ours, eager in zip(relative_errors["ours"], relative_errors["eager"]):
        assert ours < 1.1 * eager + 1e-5, relative_errors


@pytest.mark.gpu
@pytest.mark.usefixtures("_default_blocks")
def test_on_a_gpu_16_bit_products_are_added_in_float32():
    assert kernel._can_add_in_float32(DEVICE, torch.bfloat16)
    assert kernel._can_add_in_float32(DEVICE, torch.float16)


@pytest.mark.gpu
@pytest.mark.usefixtures("_default_blocks")
def test_on_a_gpu_repeated_runs_are_the_same_to_the_bit():
    leaves, targets = draw_inputs(8192, 32_001, 256, torch.bfloat16)
    factors = torch.rand(8192, device="cuda")

    def run() -> list[Tensor]:
        losses = linear_cross_entropy(*leaves, targets)
        uniform = torch.autograd.grad(losses.mean(), leaves, retain_graph=True)
        return [losses.detach(), *uniform, *torch.autograd.grad(losses, leaves, factors)]

    assert all(torch.equal(first, second) for first, second in zip(run(), run()))


@pytest.mark.gpu
@pytest.mark.usefixtures("_default_blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_a_tenth_of_the_memory_is_enough(dtype):
    leaves, targets = draw_inputs(8192, 128_000, 768, dtype)

    def measure_peak(loss) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.float32):
            gradients = torch.autograd.grad(loss(*leaves, targets).sum(), leaves)
        del gradients
        return torch.cuda.max_memory_allocated() - before

    measure_peak(linear_cross_entropy)  # allocates the workspaces of the matrix products
    assert measure_peak(linear_cross_entropy) < 0.1 * measure_peak(compute_reference_losses)
