"""The GRU's persistent kernels under Triton's interpreter, compared with the reference implementation and PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from interpreter import run_concurrently
from packed_scans import mark_slow, run_packed, run_reference
from torch import Tensor, nn

from seqwise.layers.cells import EarlyResetGRUCell, EarlyResetReplacingGRUCell, GatedCell, GRUCell, ReplacingGRUCell

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.cell_scans import GRUScan, ResetBeforeGRUScan
from seqwise.kernels.recurrence.gpu.launch import build_options, build_quarter_options, choose_tiling
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import Scan, ScanInputs

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

CPU = torch.device("cpu")
CELLS: dict[str, type[GatedCell]] = {
    "reset after, z keeps": GRUCell,
    "reset after, z replaces": ReplacingGRUCell,
    "reset before, z keeps": EarlyResetGRUCell,
    "reset before, z replaces": EarlyResetReplacingGRUCell,
}
FORWARD, REVERSE = (False,), (True,)
SHAPES = {  # which directions are reversed, steps, sequences, units, lengths
    "one program": (FORWARD, 3, 3, 16, None),
    "part of a program, no multiple of four units": (FORWARD + REVERSE, 2, 2, 5, None),
    "three blocks": (FORWARD, 2, 3, 36, None),
    "reversed": (REVERSE, 3, 2, 6, None),
    "reversed, with lengths": (REVERSE, 4, 10, 6, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "two directions, two groups, lengths": (FORWARD + REVERSE, 3, 9, 18, [3, 0, 1, 3, 2, 3, 1, 0, 2]),
    "a group without steps": (FORWARD, 3, 10, 16, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
    "only empty sequences": (FORWARD + REVERSE, 2, 3, 4, [0, 0, 0]),
}


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU on which a batch of more than 128 sequences takes two launches."""
    choose_tiling.cache_clear()
    monkeypatch.setattr(launch, "get_device_limits", lambda device: (8, 232448))
    yield
    choose_tiling.cache_clear()


@pytest.fixture
def always_split(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs split every product, as they do where there is much to read."""
    build_quarter_options.cache_clear()
    monkeypatch.setattr(launch, "MAX_UNSPLIT_BYTES", 0)
    yield
    build_quarter_options.cache_clear()


def draw_tensors(variant: str, directions: int, steps: int, batch: int, units: int) -> list[Tensor]:
    """Returns projected inputs, recurrent weights, the hidden bias of the candidate if there is one, states."""
    torch.manual_seed(0)
    weight = torch.randn(directions, 3 * units, units) / units**0.5
    bias = [torch.randn(directions, units)] if variant.startswith("reset after") else []
    inputs = torch.randn(directions, steps, batch, 3 * units)
    tensors = [inputs, weight, *bias, torch.randn(directions, batch, units)]
    return [tensor.requires_grad_() for tensor in tensors]


def get_scan(variant: str) -> Scan:
    scan = GRUScan if variant.startswith("reset after") else ResetBeforeGRUScan
    return scan(UPDATE_REPLACES=variant.endswith("replaces"))


def run(
    variant: str, tensors: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = FORWARD
) -> list[Tensor]:
    """Runs the scan. Call it inside `run_concurrently`, which cannot be nested."""
    gates, weight, *bias, h = tensors
    return run_packed(get_scan(variant), gates, weight, bias, (h,), lengths, reverse)[0]


def run_cell(
    variant: str, tensors: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = FORWARD
) -> list[Tensor]:
    gates, weight, *bias, h = tensors
    parameters = {"bias_hidden": bias[0]} if bias else None
    return run_reference(CELLS[variant](1, weight.shape[2]), gates, weight, (h,), lengths, reverse, parameters)


def assert_matches_reference(
    variant: str, inputs: list[Tensor], lengths: list[int] | None, reverse: tuple[bool, ...] = FORWARD
) -> None:
    """Checks that values and all gradients equal those of the reference implementation."""
    expected = run_cell(variant, inputs, lengths, reverse)
    grads = [torch.randn_like(part) for part in expected]
    with run_concurrently():
        results = run(variant, inputs, lengths, reverse)
        gradients = torch.autograd.grad(results, inputs, grads)
    torch.testing.assert_close(results, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs, grads), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
@pytest.mark.parametrize("name", mark_slow(SHAPES, "one program"))
def test_values_and_gradients_are_those_of_the_cell(variant: str, name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    assert_matches_reference(variant, draw_tensors(variant, len(reverse), *sizes), lengths, reverse)


@pytest.mark.slow
@pytest.mark.usefixtures("always_split")
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
@pytest.mark.parametrize(("units", "reverse"), [(22, REVERSE), (70, FORWARD)])
def test_four_programs_that_share_64_units_agree(variant: str, units: int, reverse: tuple[bool, ...]) -> None:
    assert_matches_reference(variant, draw_tensors(variant, len(reverse), 2, 3, units), [2, 0, 1], reverse)


@pytest.mark.slow
@pytest.mark.usefixtures("small_gpu")
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
@pytest.mark.parametrize("padded", [False, True])
def test_the_last_of_several_launches_may_be_partly_filled(variant: str, padded: bool) -> None:
    tiling = choose_tiling(4, 16, 150, 1, 4, CPU)
    assert tiling is not None
    assert (tiling.batch_capacity, tiling.batch_tile) == (128, 64), "a group of the second launch is empty"
    lengths = [row % 3 for row in range(150)] if padded else None
    assert_matches_reference(variant, draw_tensors(variant, 1, 2, 150, 4), lengths, REVERSE if padded else FORWARD)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z replaces", "reset before, z replaces"])
def test_a_replacing_update_gate_equals_the_cell(variant: str) -> None:
    assert_matches_reference(variant, draw_tensors(variant, 1, 3, 3, 20), [3, 1, 2])


def test_values_and_gradients_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    layer, x, h = nn.GRU(4, 6), torch.randn(3, 2, 4), torch.randn(1, 2, 6, requires_grad=True)
    nn.init.zeros_(layer.bias_hh_l0[:12])  # this GRU has a hidden bias only for n
    expected = layer(x, h)
    gates = nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)[None]
    with run_concurrently():
        outputs, last = run("reset after, z keeps", [gates, layer.weight_hh_l0[None], layer.bias_hh_l0[None, 12:], h])
    torch.testing.assert_close((outputs[0], last), expected)
    leaves, grads = [h, *layer.parameters()], [torch.randn_like(part) for part in expected]
    reference = torch.autograd.grad(expected, leaves, grads)
    with run_concurrently():
        gradients = torch.autograd.grad([outputs[0], last], leaves, grads)
    torch.testing.assert_close(gradients[:4], reference[:4], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gradients[4][12:], reference[4][12:], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
def test_the_gates_overwrite_the_projected_inputs_only_where_they_are_needed(variant: str) -> None:
    gates, weight, *bias, h = (tensor.detach() for tensor in draw_tensors(variant, 1, 3, 2, 20))
    layout, gates, h = PackedLayout(2, 3, 6), gates[0].flatten(0, 1)[:, None], h[0, :, None]  # rows, directions, units
    with run_concurrently():
        overwritten, unchanged = gates.clone(), gates.clone()
        outputs, (last,), _ = get_scan(variant).run(
            ScanInputs(overwritten, weight, bias, [h], layout), should_record=True
        )
        unrecorded, *_ = get_scan(variant).run(ScanInputs(unchanged, weight, bias, [h], layout))
    previous = torch.cat([h[None], outputs[:-1]])
    r, z, n = overwritten.view(3, 2, 1, 60).chunk(3, dim=-1)
    torch.testing.assert_close(outputs, z * previous + (1 - z) * n, atol=1e-5, rtol=1e-5)
    u_r, u_z, u_n = (previous @ weight[0].mT).chunk(3, dim=-1)
    x_r, x_z, x_n = gates.view(3, 2, 1, 60).chunk(3, dim=-1)
    torch.testing.assert_close(r, torch.sigmoid(x_r + u_r), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(z, torch.sigmoid(x_z + u_z), atol=1e-5, rtol=1e-5)
    u_n = r * (u_n + bias[0]) if bias else (r * previous) @ weight[0, 40:].mT
    torch.testing.assert_close(n, torch.tanh(x_n + u_n), atol=1e-5, rtol=1e-5)
    assert torch.equal(unrecorded, outputs)
    assert torch.equal(last, outputs[-1])
    assert torch.equal(unchanged, gates)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
def test_a_nan_propagates_and_blocks_no_program(variant: str) -> None:
    inputs = [tensor.detach() for tensor in draw_tensors(variant, 1, 3, 3, 20)]
    inputs[0][0, 1, 2].view(torch.int32).fill_(-1)  # the bits of `UNWRITTEN`
    with run_concurrently():
        outputs, _ = run(variant, inputs)
    assert outputs[0, 1:, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
def test_a_second_backward_pass_gives_the_same_bits(variant: str) -> None:
    inputs = draw_tensors(variant, 1, 3, 3, 20)
    with run_concurrently():
        outputs, _ = run(variant, inputs)
        runs = [torch.autograd.grad(outputs.sum(), inputs, retain_graph=True) for _ in range(2)]
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
def test_the_gradient_of_one_input_does_not_depend_on_which_others_require_one(variant: str) -> None:
    inputs = draw_tensors(variant, 1, 2, 2, 8)
    expected = torch.autograd.grad(run_cell(variant, inputs)[0].sum(), inputs)
    for index, reference in enumerate(expected[1:], 1):
        leaves = [tensor.detach().requires_grad_(n == index) for n, tensor in enumerate(inputs)]
        with run_concurrently():
            (gradient,) = torch.autograd.grad(run(variant, leaves)[0].sum(), leaves[index])
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["reset after, z keeps", "reset before, z keeps"])
def test_half_precision_stays_near_float32(variant: str) -> None:
    float32_leaves = draw_tensors(variant, 1, 3, 3, 20)
    float16_leaves = [tensor.detach().half().requires_grad_() for tensor in float32_leaves]
    expected = run_cell(variant, float32_leaves)
    with run_concurrently():
        results = run(variant, float16_leaves)
        gradients = torch.autograd.grad(results[0].float().sum(), float16_leaves)
    torch.testing.assert_close(results[0].float(), expected[0], atol=5e-3, rtol=5e-3)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected[0].sum(), float32_leaves), strict=True):
        assert gradient.dtype == torch.float16
        assert float((gradient.float() - reference).norm() / reference.norm()) < 5e-3


@pytest.mark.parametrize(
    ("units", "batch"), [(16, 1), (100, 3), (256, 64), (512, 64), (1024, 64), (1536, 20), (2048, 64)]
)
@pytest.mark.parametrize(("size", "precision"), [(2, "tf32"), (4, "tf32"), (4, "tf32x3")])
@pytest.mark.parametrize("num_matrices", [1, 3])
def test_the_memory_of_a_program_fits_on_chip(
    units: int, batch: int, size: int, precision: str, num_matrices: int
) -> None:
    tiling = choose_tiling(units, 16, batch, 1, size, CPU, precision)
    assert tiling is not None
    columns = -(-units // 4) * 4 * (3 if num_matrices == 1 else 1)
    dtype = {2: torch.float16, 4: torch.float32}[size]
    config = build_options(tiling, 16, dtype, False, precision)["config"]
    options = build_quarter_options(config, columns, num_matrices, size, CPU)
    k_tile, resident = options["config"].k_tile, options["config"].resident_chunks
    is_resident = resident * k_tile >= columns // 4
    vectors = tiling.batch_tile if options["SPLIT"] else 4 * tiling.batch_tile
    chunks = num_matrices * resident + (not is_resident)
    bytes_per_number = size * (2 if precision == "tf32x3" else 1)  # split in two
    assert (64 * chunks + vectors) * k_tile * bytes_per_number < 232448
    assert is_resident or units * bytes_per_number > 4000, "a small matrix stays on chip as a whole"
