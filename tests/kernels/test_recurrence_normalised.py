"""The normalised cells' persistent kernels under Triton's interpreter, every program a process, beside the cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from interpreted import side_by_side
from laid_out import in_slots, scanned, turn
from torch import Tensor

from seqwise.layers import cells
from seqwise.layers.norm import EPSILON, LayerNorm
from seqwise.layers.scan import choose, zero_padding

pytest.importorskip("triton")

from triton.language import constexpr

from seqwise.kernels.recurrence.gpu import launch, moments
from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.gpu.normalised import normalised_gru, normalised_lstm, normalised_rnn
from seqwise.kernels.recurrence.kinds import Kind
from seqwise.kernels.recurrence.steps import Steps

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

ON, BACK = (False,), (True,)
Run = Callable[..., Any]
CELLS: dict[str, tuple[Callable[[int, int], cells.Cell], Run, Kind]] = {
    "rnn": (cells.LayerNormRNNCell, normalised_rnn, Kind("rnn")),
    **{
        f"rnn {name}": (lambda i, u, name=name: cells.LayerNormRNNCell(i, u, name), normalised_rnn, Kind("rnn", name))
        for name in ("relu", "sigmoid", "identity")
    },
    "lstm": (cells.LayerNormLSTMCell, normalised_lstm, Kind("lstm")),
    "gru": (cells.LayerNormGRUCell, normalised_gru, Kind("gru")),
    "gru replaces": (cells.LayerNormReplacingGRUCell, normalised_gru, Kind("gru", update="replaces")),
}
NORMS = ("norm", "hidden_norm", "gates_norm", "candidate_norm", "cell_norm")  # of a step
SHAPES = {  # cell, which scans are reversed, steps, rows, units, lengths
    "rnn, one program": ("rnn", ON, 3, 3, 16, None),
    "rnn, the second program not full": ("rnn", ON, 3, 4, 70, [3, 0, 2, 3]),
    "rnn, from the end": ("rnn", BACK, 3, 2, 16, None),
    "rnn, from the end, and lengths": ("rnn", BACK, 4, 10, 16, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "rnn, two directions": ("rnn", ON + BACK, 3, 2, 16, None),
    "rnn, two directions, two groups of rows": ("rnn", ON + BACK, 3, 9, 20, [3, 0, 1, 3, 2, 3, 1, 0, 2]),
    "rnn, nothing but padding": ("rnn", ON + BACK, 2, 2, 16, [0, 0]),
    "rnn relu": ("rnn relu", ON, 3, 2, 16, None),
    "rnn sigmoid": ("rnn sigmoid", ON, 3, 2, 16, None),
    "rnn identity": ("rnn identity", ON, 3, 2, 16, None),
    "lstm, one program forward": ("lstm", ON, 2, 2, 16, None),
    "lstm, the second program not full": ("lstm", ON, 3, 4, 20, [3, 0, 2, 1]),
    "lstm, from the end": ("lstm", BACK, 2, 1, 5, None),
    "lstm, from the end, and lengths": ("lstm", BACK, 3, 4, 5, [1, 3, 0, 2]),
    "lstm, two directions, a group of padding": ("lstm", ON + BACK, 2, 9, 5, [2, 2, 1, 2, 2, 1, 2, 1, 0]),
    "gru, the second program not full": ("gru", ON, 3, 4, 20, [3, 0, 2, 1]),
    "gru, from the end, and lengths": ("gru", BACK, 3, 4, 5, [1, 3, 0, 2]),
    "gru, two directions and lengths": ("gru", ON + BACK, 2, 3, 5, [1, 2, 0]),
    "gru replaces, from the end": ("gru replaces", BACK, 2, 2, 5, None),
}


class Case:
    """Random tensors of S scans, and what the cell's own equation makes of them in float64."""

    def __init__(
        self, cell: str, reverse: tuple[bool, ...], steps: int, batch: int, units: int, lengths: list[int] | None = None
    ):
        torch.manual_seed(0)
        scans = len(reverse)
        make, self.run, self.kind = CELLS[cell]
        self.cells = [make(1, units).double() for _ in range(scans)]
        blocks, names = self.cells[0].blocks, [name for name in NORMS if hasattr(self.cells[0], name)]
        widths = [getattr(self.cells[0], name).width for name in names]
        states = len(self.cells[0].start(1, torch.empty(1)))
        shapes = [(scans, steps, batch, blocks * units), (scans, blocks * units, units)]
        shapes += [(scans, width) for width in widths for _ in range(2)] + [(scans, batch, units)] * states
        self.inputs = [torch.randn(shape) for shape in shapes]
        self.norms, self.names = slice(2, 2 + 2 * len(widths)), names
        for gain in self.inputs[self.norms][::2]:
            gain.mul_(0.3).add_(1)
        for tensor in self.inputs:
            tensor.requires_grad_()
        self.lengths, self.reverse = lengths, reverse

    def found(self, look: bool = False) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Outputs and last states by the kernel, and what is inside, in slots."""
        norms, states = self.inputs[self.norms], self.inputs[self.norms.stop :]

        def scan(gates: Tensor, weight: Tensor, *others: Any) -> tuple[Any, ...]:
            *start, rows = others
            assert isinstance(rows, RowLayout)
            outputs, after, seen = self.run(self.kind, gates, weight, norms, start, rows, look)
            return outputs, *after, seen

        *found, seen = scanned(scan, *self.inputs[:2], (), states, self.lengths, self.reverse)
        return found, seen

    def expected(self) -> tuple[list[Tensor], list[Tensor], list[dict[str, Tensor]]]:
        """Leaves in float64, outputs and last states, and per scan what a step saw, (T, B, …)."""
        leaves = [tensor.detach().double().requires_grad_() for tensor in self.inputs]
        gates, weight, *_ = leaves
        steps, results, looks = gates.shape[1], [], []
        real = torch.ones(gates.shape[2], steps, dtype=torch.bool)
        if self.lengths is not None:
            real = torch.arange(steps) < torch.tensor(self.lengths)[:, None]
        for s, cell in enumerate(self.cells):
            for n, name in enumerate(self.names):
                norm, at = getattr(cell, name), self.norms.start + 2 * n
                replace(norm, leaves[at][s], leaves[at + 1][s])
            state, outputs = tuple(leaf[s] for leaf in leaves[self.norms.stop :]), []
            seen: dict[str, list[Tensor]] = {}
            inputs = self.ordered(gates[s], s)
            for t in range(steps):
                after = cell.step(inputs[t], state, weight[s], into(seen))
                outputs.append(zero_padding(after[0], real[:, t]))
                state = choose(real[:, t], after, state)
            results.append((self.ordered(torch.stack(outputs), s), *state))
            looks.append({name: self.ordered(torch.stack(values), s) for name, values in seen.items()})
        return leaves, [torch.stack(parts) for parts in zip(*results, strict=True)], looks

    def ordered(self, values: Tensor, scan: int) -> Tensor:
        """(T, B, …) in the order in which the scan reads its rows, or back from there."""
        return turn(values, self.lengths) if self.reverse[scan] else values


def into(seen: dict[str, list[Tensor]]) -> cells.See:
    def see(name: str, value: Tensor) -> Tensor:
        seen.setdefault(name, []).append(value)
        return value

    return see


def replace(norm: LayerNorm, gain: Tensor, bias: Tensor) -> None:
    """Tensors with a history in the place of a module's parameters."""
    del norm.weight, norm.bias
    norm.weight, norm.bias = gain, bias  # type: ignore[assignment]


def check(case: Case, tolerance: float = 1e-5) -> None:
    """Values, and gradients into everything."""
    leaves, wanted, _ = case.expected()
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found, _ = case.found()
        gradients = torch.autograd.grad(found, case.inputs, [slope.float() for slope in slopes])
    for mine, true in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.double(), true, atol=tolerance, rtol=tolerance)
    for mine, true in zip(gradients, torch.autograd.grad(wanted, leaves, slopes), strict=True):
        torch.testing.assert_close(mine.double(), true, atol=3 * tolerance, rtol=10 * tolerance)


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    check(Case(*SHAPES[name]))


def test_what_is_heard_in_parts_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three programs, two at a time: the last part is a program that is not full and one that is not there."""
    monkeypatch.setattr(moments, "SMALL", constexpr(32))
    check(Case("rnn", ON, 3, 3, 130))


def test_two_norms_are_heard_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "SMALL", constexpr(32))
    check(Case("gru", ON, 2, 2, 20))


def test_rows_that_need_several_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of eight rows at a time; in the second launch, a group beyond the end of the batch."""
    whole = launch.cut
    monkeypatch.setattr(launch, "cut", lambda *sizes: dataclasses.replace(whole(*sizes), groups=2, rows=8))
    check(Case("rnn", BACK, 3, 20, 20, [3, 1, 2, 1, 3] * 3 + [3, 1, 2, 0, 3]))


def test_a_mean_far_from_zero_costs_no_precision() -> None:
    """The difference of the mean square and the squared mean would be off by a tenth here."""
    case = Case("rnn", ON, 2, 3, 130)
    case.inputs[0] = (case.inputs[0].detach() + 1000).requires_grad_()
    check(case, tolerance=1e-3)


def test_epsilon_is_that_of_the_layer() -> None:
    assert moments.EPSILON.value == EPSILON


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize(("reverse", "lengths"), [(ON, None), (ON + BACK, [1, 2, 0])])
def test_what_is_inside_is_what_the_cell_sees(cell: str, reverse: tuple[bool, ...], lengths: list[int] | None) -> None:
    case = Case(cell, reverse, 2, 3, 20, lengths)
    _, _, wanted = case.expected()
    steps = Steps(3, 2, None if lengths is None else torch.tensor(lengths))
    with side_by_side(), torch.no_grad():
        _, seen = case.found(look=True)
    assert set(seen) == set(wanted[0])
    for name, value in seen.items():
        true = in_slots(torch.stack([scan[name] for scan in wanted]), steps)
        torch.testing.assert_close(value.double(), true, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_who_does_not_look_gets_nothing_and_the_inputs_stay(cell: str) -> None:
    case = Case(cell, ON, 2, 2, 5)
    gates, weight, states = in_slots(case.inputs[0], Steps(2, 2)), case.inputs[1], case.inputs[case.norms.stop :]
    start, consumed = [state.transpose(0, 1).contiguous() for state in states], gates.clone()
    with side_by_side(), torch.no_grad():
        *_, nothing = case.run(case.kind, consumed, weight, case.inputs[case.norms], start, RowLayout(2, 2, 4), False)
    assert nothing == {}
    assert torch.equal(consumed, gates), "without a reader nothing but outputs is written"


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_gradient_that_is_nan_stays_in_a_row_without_steps(cell: str) -> None:
    """It is handed on to the start, and no weight and no norm hears of it."""
    case = Case(cell, ON, 1, 2, 5, [1, 0])
    with side_by_side():
        found, _ = case.found()
        slopes = [torch.ones_like(part) for part in found]
        for slope in slopes[1:]:
            slope[0, 1] = torch.nan
        gradients = torch.autograd.grad(found, case.inputs, slopes)
    assert not any(gradient.isnan().any() for gradient in gradients[: case.norms.stop])
    for of_start in gradients[case.norms.stop :]:
        assert of_start[0, 1].isnan().all()
        assert not of_start[0, 0].isnan().any()


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_a_second_backward_pass_gives_the_same_bits(cell: str) -> None:
    case = Case(cell, ON, 2, 2, 16)
    with side_by_side():
        (outputs, *_), _ = case.found()
        first = torch.autograd.grad(outputs, case.inputs, torch.ones_like(outputs), retain_graph=True)
        second = torch.autograd.grad(outputs, case.inputs, torch.ones_like(outputs))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_a_nan_stays_in_its_row_and_nobody_waits_for_it(cell: str) -> None:
    case = Case(cell, ON, 3, 3, 20)
    with torch.no_grad():
        case.inputs[0][0, 1, 2, 3] = float("nan")
    with side_by_side(), torch.no_grad():
        (outputs, *_), _ = case.found()
    assert outputs[0, 2, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()
    assert not outputs[0, 0].isnan().any()
