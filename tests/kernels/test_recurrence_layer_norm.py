"""The persistent kernels with layer normalisation under Triton's interpreter, compared with the cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from interpreter import run_concurrently
from packed_scans import mark_slow, pack, reverse_steps, run_packed
from torch import Tensor

from seqwise.layers import cells
from seqwise.layers.norm import LayerNorm
from seqwise.layers.scan import select_state, zero_padding

pytest.importorskip("triton")

from triton.language import constexpr

from seqwise.kernels.recurrence.gpu import launch, layer_norm
from seqwise.kernels.recurrence.gpu.cell_scans import LayerNormGRUScan, LSTMScan, RNNScan
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import Scan, ScanInputs
from seqwise.kernels.recurrence.packing import SequencePacking

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

FORWARD, REVERSE = (False,), (True,)
CELLS: dict[str, tuple[Callable[[int, int], cells.Cell], Scan]] = {
    "rnn": (cells.LayerNormRNNCell, RNNScan(True, ACTIVATION="tanh")),
    **{
        f"rnn {name}": (
            lambda inputs, units, name=name: cells.LayerNormRNNCell(inputs, units, name),
            RNNScan(True, ACTIVATION=name),
        )
        for name in ("relu", "sigmoid", "identity")
    },
    "lstm": (cells.LayerNormLSTMCell, LSTMScan(True)),
    "gru": (cells.LayerNormGRUCell, LayerNormGRUScan(True, UPDATE_REPLACES=False)),
    "gru z replaces": (cells.LayerNormReplacingGRUCell, LayerNormGRUScan(True, UPDATE_REPLACES=True)),
}
NORMS = ("norm", "hidden_norm", "gates_norm", "candidate_norm", "cell_norm")  # of a step
SHAPES = {  # cell, which directions are reversed, steps, sequences, units, lengths
    "rnn, one program": ("rnn", FORWARD, 3, 3, 16, None),
    "rnn, the second program not full": ("rnn", FORWARD, 3, 4, 70, [3, 0, 2, 3]),
    "rnn, reversed": ("rnn", REVERSE, 3, 2, 16, None),
    "rnn, reversed, with lengths": ("rnn", REVERSE, 4, 10, 16, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "rnn, two directions": ("rnn", FORWARD + REVERSE, 3, 2, 16, None),
    "rnn, two directions, two groups of sequences": ("rnn", FORWARD + REVERSE, 3, 9, 20, [3, 0, 1, 3, 2, 3, 1, 0, 2]),
    "rnn, only empty sequences": ("rnn", FORWARD + REVERSE, 2, 2, 16, [0, 0]),
    "rnn relu": ("rnn relu", FORWARD, 3, 2, 16, None),
    "rnn sigmoid": ("rnn sigmoid", FORWARD, 3, 2, 16, None),
    "rnn identity": ("rnn identity", FORWARD, 3, 2, 16, None),
    "lstm, one program forward": ("lstm", FORWARD, 2, 2, 16, None),
    "lstm, the second program not full": ("lstm", FORWARD, 3, 4, 20, [3, 0, 2, 1]),
    "lstm, reversed": ("lstm", REVERSE, 2, 1, 5, None),
    "lstm, reversed, with lengths": ("lstm", REVERSE, 3, 4, 5, [1, 3, 0, 2]),
    "lstm, two directions, a group without steps": ("lstm", FORWARD + REVERSE, 2, 9, 5, [2, 2, 1, 2, 2, 1, 2, 1, 0]),
    "gru, the second program not full": ("gru", FORWARD, 3, 4, 20, [3, 0, 2, 1]),
    "gru, reversed, with lengths": ("gru", REVERSE, 3, 4, 5, [1, 3, 0, 2]),
    "gru, two directions, with lengths": ("gru", FORWARD + REVERSE, 2, 3, 5, [1, 2, 0]),
    "gru z replaces, reversed": ("gru z replaces", REVERSE, 2, 2, 5, None),
}


class Case:
    """Random tensors of D directions, and the results of the cell's own equation in float64."""

    def __init__(
        self, cell: str, reverse: tuple[bool, ...], steps: int, batch: int, units: int, lengths: list[int] | None = None
    ):
        torch.manual_seed(0)
        directions = len(reverse)
        build_cell, self.scan = CELLS[cell]
        self.cells = [build_cell(1, units).double() for _ in range(directions)]
        blocks, names = self.cells[0].blocks, [name for name in NORMS if hasattr(self.cells[0], name)]
        widths = [getattr(self.cells[0], name).weight.numel() for name in names]
        states = len(self.cells[0].start(1, torch.empty(1)))
        shapes = [(directions, steps, batch, blocks * units), (directions, blocks * units, units)]
        shapes += [(directions, width) for width in widths for _ in range(2)] + [(directions, batch, units)] * states
        self.inputs = [torch.randn(shape) for shape in shapes]
        self.norms, self.names = slice(2, 2 + 2 * len(widths)), names
        for gain in self.inputs[self.norms][::2]:
            gain.mul_(0.3).add_(1)
        for tensor in self.inputs:
            tensor.requires_grad_()
        self.lengths, self.reverse = lengths, reverse

    def run(self, record: bool = False) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Returns outputs and last states by the kernel, and the recorded activations in packed order."""
        norms, states = self.inputs[self.norms], self.inputs[self.norms.stop :]
        return run_packed(self.scan, *self.inputs[:2], norms, states, self.lengths, self.reverse, record)

    def run_cell(self) -> tuple[list[Tensor], list[Tensor], list[dict[str, Tensor]]]:
        """Returns leaves in float64, outputs and last states, and per direction the recorded activations, (T, B, …)."""
        leaves = [tensor.detach().double().requires_grad_() for tensor in self.inputs]
        gates, weight, *_ = leaves
        steps = gates.shape[1]
        results, activations = [], []
        valid = torch.ones(gates.shape[2], steps, dtype=torch.bool)
        if self.lengths is not None:
            valid = torch.arange(steps) < torch.tensor(self.lengths)[:, None]
        for n, cell in enumerate(self.cells):
            for m, name in enumerate(self.names):
                norm, index = getattr(cell, name), self.norms.start + 2 * m
                replace_parameters(norm, leaves[index][n], leaves[index + 1][n])
            state = tuple(leaf[n] for leaf in leaves[self.norms.stop :])
            outputs = []
            recorded: dict[str, list[Tensor]] = {}
            inputs = self.reorder(gates[n], n)
            for t in range(steps):
                after = cell.step(inputs[t], state, weight[n], record_into(recorded))
                outputs.append(zero_padding(after[0], valid[:, t]))
                state = select_state(valid[:, t], after, state)
            results.append((self.reorder(torch.stack(outputs), n), *state))
            activations.append({name: self.reorder(torch.stack(values), n) for name, values in recorded.items()})
        return leaves, [torch.stack(parts) for parts in zip(*results, strict=True)], activations

    def reorder(self, values: Tensor, direction: int) -> Tensor:
        """Returns (T, B, …) in the order in which the direction reads its sequences, or back from there."""
        return reverse_steps(values, self.lengths) if self.reverse[direction] else values


def record_into(recorded: dict[str, list[Tensor]]) -> cells.RecordFunction:
    def add(name: str, value: Tensor) -> Tensor:
        recorded.setdefault(name, []).append(value)
        return value

    return add


def replace_parameters(norm: LayerNorm, gain: Tensor, bias: Tensor) -> None:
    """Replaces the parameters of a norm by tensors that are part of a graph."""
    del norm.weight, norm.bias
    norm.weight, norm.bias = gain, bias  # type: ignore[assignment]


def assert_matches_reference(case: Case, tolerance: float = 1e-5) -> None:
    """Checks that values and all gradients equal those of the reference implementation."""
    leaves, expected, _ = case.run_cell()
    grads = [torch.randn_like(part) for part in expected]
    with run_concurrently():
        results, _ = case.run()
        gradients = torch.autograd.grad(results, case.inputs, [grad.float() for grad in grads])
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), reference, atol=tolerance, rtol=tolerance)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected, leaves, grads), strict=True):
        torch.testing.assert_close(gradient.double(), reference, atol=3 * tolerance, rtol=10 * tolerance)


FAST = ("rnn, one program", "lstm, one program forward", "gru z replaces, reversed")


@pytest.mark.parametrize("name", mark_slow(SHAPES, *FAST))
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    assert_matches_reference(Case(*SHAPES[name]))


@pytest.mark.slow
def test_statistics_that_are_loaded_in_parts_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs, two at a time: the last part is a program that is not full and one that does not exist."""
    monkeypatch.setattr(layer_norm, "MAX_LOADED_NUMBERS", constexpr(32))
    assert_matches_reference(Case("rnn", FORWARD, 3, 3, 130))


@pytest.mark.slow
def test_statistics_of_two_norms_are_loaded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_norm, "MAX_LOADED_NUMBERS", constexpr(32))
    assert_matches_reference(Case("gru", FORWARD, 2, 2, 20))


@pytest.mark.slow
def test_a_batch_that_needs_several_launches_equals_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of eight sequences at a time; in the second launch, a group beyond the end of the batch."""
    choose_tiling = launch.choose_tiling
    monkeypatch.setattr(
        launch, "choose_tiling", lambda *sizes: dataclasses.replace(choose_tiling(*sizes), batch_groups=2, batch_tile=8)
    )
    assert_matches_reference(Case("rnn", REVERSE, 3, 20, 20, [3, 1, 2, 1, 3] * 3 + [3, 1, 2, 0, 3]))


@pytest.mark.slow
def test_a_mean_far_from_zero_costs_no_precision() -> None:
    """The difference of the mean square and the squared mean would be off by a tenth here."""
    case = Case("rnn", FORWARD, 2, 3, 130)
    case.inputs[0] = (case.inputs[0].detach() + 1000).requires_grad_()
    assert_matches_reference(case, tolerance=1e-3)


def test_the_kernel_uses_the_epsilon_of_the_layer() -> None:
    assert layer_norm.EPSILON.value == LayerNorm(1).eps


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize(("reverse", "lengths"), [(FORWARD, None), (FORWARD + REVERSE, [1, 2, 0])])
def test_recorded_activations_are_those_of_the_cell(
    cell: str, reverse: tuple[bool, ...], lengths: list[int] | None
) -> None:
    case = Case(cell, reverse, 2, 3, 20, lengths)
    _, _, expected = case.run_cell()
    packing = SequencePacking(3, 2, None if lengths is None else torch.tensor(lengths))
    with run_concurrently(), torch.no_grad():
        _, activations = case.run(record=True)
    assert set(activations) == set(expected[0])
    for name, value in activations.items():
        reference = pack(torch.stack([direction[name] for direction in expected]), packing)
        torch.testing.assert_close(value.double(), reference, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_without_a_recording_the_inputs_are_not_overwritten(cell: str) -> None:
    case = Case(cell, FORWARD, 2, 2, 5)
    gates = pack(case.inputs[0], SequencePacking(2, 2))
    weight, states = case.inputs[1], case.inputs[case.norms.stop :]
    initial = [state.transpose(0, 1).contiguous() for state in states]
    unchanged = gates.clone()
    with run_concurrently(), torch.no_grad():
        *_, activations = case.scan.run(
            ScanInputs(unchanged, weight, case.inputs[case.norms], initial, PackedLayout(2, 2, 4))
        )
    assert activations == {}
    assert torch.equal(unchanged, gates)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_nan_gradient_of_an_empty_sequence_reaches_its_initial_state_only(cell: str) -> None:
    case = Case(cell, FORWARD, 1, 2, 5, [1, 0])
    with run_concurrently():
        results, _ = case.run()
        grads = [torch.ones_like(part) for part in results]
        for grad in grads[1:]:
            grad[0, 1] = torch.nan
        gradients = torch.autograd.grad(results, case.inputs, grads)
    assert not any(gradient.isnan().any() for gradient in gradients[: case.norms.stop])
    for grad_initial in gradients[case.norms.stop :]:
        assert grad_initial[0, 1].isnan().all()
        assert not grad_initial[0, 0].isnan().any()


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_second_backward_pass_gives_the_same_bits(cell: str) -> None:
    case = Case(cell, FORWARD, 2, 2, 16)
    with run_concurrently():
        (outputs, *_), _ = case.run()
        first = torch.autograd.grad(outputs, case.inputs, torch.ones_like(outputs), retain_graph=True)
        second = torch.autograd.grad(outputs, case.inputs, torch.ones_like(outputs))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_a_nan_stays_in_its_sequence_and_blocks_no_program(cell: str) -> None:
    case = Case(cell, FORWARD, 3, 3, 20)
    with torch.no_grad():
        case.inputs[0][0, 1, 2, 3] = float("nan")
    with run_concurrently(), torch.no_grad():
        (outputs, *_), _ = case.run()
    assert outputs[0, 2, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()
    assert not outputs[0, 0].isnan().any()
