"""The LSTM's persistent kernels under Triton's interpreter, compared with the reference implementation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interpreter import run_concurrently
from packed_scans import mark_slow, run_packed, run_reference
from torch import Tensor

from seqwise.layers.cells import CappedLSTMCell, LSTMCell

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.cell_scans import LSTMScan
from seqwise.kernels.recurrence.gpu.launch import UNITS_PER_PROGRAM, choose_tiling
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import ScanInputs

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

FORWARD, REVERSE = (False,), (True,)
SHAPES = {  # which directions are reversed, steps, sequences, units, lengths
    "one program": (FORWARD, 3, 3, 16, None),
    "two blocks, the second not full": (FORWARD, 4, 5, 20, None),
    "a block of 64 units and a part": (FORWARD, 3, 4, 70, None),
    "two groups of sequences": (FORWARD, 3, 11, 18, None),
    "reversed": (REVERSE, 3, 4, 18, None),
    "reversed, with lengths": (REVERSE, 4, 10, 18, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "two directions": (FORWARD + REVERSE, 3, 4, 20, None),
    "two directions, with lengths": (FORWARD + REVERSE, 4, 9, 40, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "a group without steps": (FORWARD, 3, 10, 16, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
    "only empty sequences": (FORWARD + REVERSE, 2, 3, 16, [0, 0, 0]),
    "one step, one sequence, one unit": (FORWARD, 1, 1, 1, None),
}


def draw_tensors(directions: int, steps: int, batch: int, units: int) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [
        (directions, steps, batch, 4 * units),
        (directions, 4 * units, units),
        (directions, batch, units),
        (directions, batch, units),
    ]
    tensors = [torch.randn(shape) for shape in shapes]
    tensors[1] /= units**0.5
    return [tensor.requires_grad_() for tensor in tensors]


def assert_matches_reference(
    inputs: list[Tensor],
    lengths: list[int] | None,
    reverse: tuple[bool, ...],
    capped: bool = False,
    state_mask: Tensor | None = None,
) -> None:
    """Checks that values and all gradients equal those of the reference implementation."""
    cell = (CappedLSTMCell if capped else LSTMCell)(1, inputs[1].shape[2])
    expected = run_reference(cell, *inputs[:2], inputs[2:], lengths, reverse, state_mask=state_mask)
    grads = [torch.randn_like(part) for part in expected]
    with run_concurrently():
        scan = LSTMScan(CAPPED=capped)
        results, _ = run_packed(scan, *inputs[:2], (), inputs[2:], lengths, reverse, state_mask=state_mask)
        gradients = torch.autograd.grad(results, inputs, grads)
    torch.testing.assert_close(results, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs, grads), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", mark_slow(SHAPES, "one step, one sequence, one unit"))
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    assert_matches_reference(draw_tensors(len(reverse), *sizes), lengths, reverse)


VARIANT_SHAPES = ("one step, one sequence, one unit", "two blocks, the second not full", "two directions, with lengths")


@pytest.mark.parametrize("name", mark_slow(dict.fromkeys(VARIANT_SHAPES), "two blocks, the second not full"))
@pytest.mark.parametrize(("capped", "masked"), [(True, False), (False, True), (True, True)])
def test_a_capped_input_gate_and_a_masked_state_give_those_of_the_cell(name: str, capped: bool, masked: bool) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    inputs = draw_tensors(len(reverse), *sizes)
    state_mask = torch.bernoulli(torch.full_like(inputs[2], 0.6)).div(0.6) if masked else None
    assert_matches_reference(inputs, lengths, reverse, capped, state_mask)


@pytest.mark.slow
def test_recorded_hidden_values_are_those_before_the_mask() -> None:
    inputs = [tensor.detach() for tensor in draw_tensors(1, 3, 2, 20)]
    mask = torch.zeros_like(inputs[2])
    with run_concurrently():
        (outputs, *_), activations = run_packed(LSTMScan(), *inputs[:2], (), inputs[2:], record=True, state_mask=mask)
    assert torch.equal(activations["hidden"].view(3, 2, 20), outputs[0])
    assert outputs.abs().min() > 0


@pytest.mark.slow
def test_a_matrix_that_does_not_fit_on_chip_and_several_launches_equal_the_cell(monkeypatch) -> None:
    tiling = choose_tiling(40, UNITS_PER_PROGRAM, 5, 1, 4, torch.device("cpu"))
    small_tiling = replace(tiling, k_tile=32, resident_chunks=1, batch_tile=2, batch_groups=1)
    monkeypatch.setattr(launch, "choose_tiling", lambda *_: small_tiling)
    assert_matches_reference(draw_tensors(2, 3, 5, 40), [3, 1, 0, 2, 3], FORWARD + REVERSE)


@pytest.mark.slow
def test_the_gates_overwrite_the_projected_inputs_only_where_they_are_needed() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in draw_tensors(1, 3, 2, 20))
    layout, gates = PackedLayout(2, 3, 6), gates.transpose(0, 2).transpose(0, 1).flatten(0, 1)
    h, c = h[0, :, None], c[0, :, None]
    with run_concurrently():
        overwritten, unchanged = gates.clone(), gates.clone()
        outputs, _, activations = LSTMScan().run(
            ScanInputs(overwritten, weight, (), (h, c), layout), should_record=True
        )
        unrecorded, *_ = LSTMScan().run(ScanInputs(unchanged, weight, (), (h, c), layout))
    i, f, g, o = overwritten.view(3, 2, 1, -1).chunk(4, dim=-1)
    cells = activations["cell"].view(3, 2, 1, -1)
    previous = torch.cat([c[None], cells[:-1]])
    torch.testing.assert_close(cells, f * previous + i * g, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs, o * cells.tanh(), atol=1e-5, rtol=1e-5)
    assert torch.equal(unrecorded, outputs)
    assert torch.equal(unchanged, gates)


@pytest.mark.slow
def test_a_nan_propagates_and_blocks_no_program() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in draw_tensors(1, 3, 3, 20))
    gates[0, 1, 2] = float("nan")
    gates[0, 1, 2, ::2].view(torch.int32).fill_(-1)  # the bits of `UNWRITTEN`
    h[0, 1].view(torch.int32).fill_(-1)
    with run_concurrently():
        (outputs, *_), _ = run_packed(LSTMScan(), gates, weight, (), (h, c))
    assert outputs[0, 1:, 2].isnan().all()
    assert outputs[0, :, 1].isnan().all()
    assert not outputs[0, :, 0].isnan().any()


@pytest.mark.slow
def test_two_runs_give_the_same_bits() -> None:
    inputs = draw_tensors(1, 4, 5, 40)
    runs = []
    with run_concurrently():
        for _ in range(2):
            (outputs, *_), _ = run_packed(LSTMScan(), *inputs[:2], (), inputs[2:])
            runs.append([outputs, *torch.autograd.grad(outputs, inputs, torch.ones_like(outputs))])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))
