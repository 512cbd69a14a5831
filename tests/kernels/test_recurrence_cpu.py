"""Compiled scans equal the open ones: values, states, gradients, gates; with any lengths, directions and threads."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwise.config import RecurrentSettings
from seqwise.kernels.recurrence.cpu import choice, memory, team
from seqwise.kernels.recurrence.cpu.compiled import Direction, Kind, Projection, Steps, fits, obstacle, pays, scan
from seqwise.kernels.recurrence.cpu.linear import Factor, across
from seqwise.layers import cells
from seqwise.layers.record import record
from seqwise.layers.recurrent import real_steps, turn
from seqwise.layers.scan import blank
from seqwise.layers.scan import scan as open_scan

KINDS = [
    *(Kind("rnn", activation=name, normed=normed) for name in cells.ACTIVATIONS for normed in (False, True)),
    *(Kind("lstm", normed=normed) for normed in (False, True)),
    *(Kind("gru", reset=reset, update=update, normed=normed) for reset, update, normed in cells.GRU_CELLS),
]
PLAIN = [Kind("rnn"), Kind("rnn", activation="relu"), Kind("lstm"), Kind("gru")]
SHAPES = [(1, 1, 3, 5), (3, 4, 5, 16), (7, 5, 4, 37)]  # batch, time, inputs, units: less than a vector, one, odd
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, vars(kind).values())))


def make(kind: Kind, inputs: int, units: int, dtype: torch.dtype) -> cells.Cell:
    """A cell with no parameter at its usual zero or one."""
    torch.manual_seed(1)
    settings = RecurrentSettings(
        activation=kind.activation, reset=kind.reset, update=kind.update, layer_norm=kind.normed
    )
    cell = cells.make_cell(kind.name, inputs, units, settings)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.5 / math.sqrt(units) if parameter.dim() == 2 else 0.5)
    return cell.to(dtype)


def vectors(cell: cells.Cell) -> tuple[Tensor, ...]:
    """What stands beside the matrix, as `Direction` lists it."""
    norms = {
        cells.LayerNormRNNCell: ["norm"],
        cells.LayerNormLSTMCell: ["hidden_norm", "cell_norm"],
        cells.LayerNormGRUCell: ["gates_norm", "candidate_norm"],
    }
    for kind, names in norms.items():
        if isinstance(cell, kind):
            found = [cell.get_submodule(name) for name in names]
            return tuple(part for norm in found for part in (norm.weight, norm.bias))
    return (cell.bias_hidden,) if isinstance(cell, cells.GRUCell) else ()


def projection(cell: cells.Cell) -> Callable[[Tensor], Tensor]:
    """A plain product goes into the scan; a cell that normalises its input does that before."""
    normalised = (cells.LayerNormLSTMCell, cells.LayerNormGRUCell)
    return cell.project if isinstance(cell, normalised) else Projection(cell.weight_input, cell.bias)


def some(kind: Kind, batch: int, time: int, inputs: int, units: int, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """An input and a state that want gradients."""
    torch.manual_seed(2)
    x = torch.randn(batch, time, inputs, dtype=dtype, requires_grad=True)
    count = 2 if kind.name == "lstm" else 1
    return x, [torch.randn(batch, units, dtype=dtype, requires_grad=True) for _ in range(count)]


def compiled(kind: Kind, cell: cells.Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None, turned: bool):
    one = Direction(projection(cell), cell.weight_hidden, vectors(cell), tuple(state), turned)
    outputs, (after,), _ = scan(kind, x, [one], Steps(len(x), x.shape[1], lengths))
    return [outputs, *after]


def opened(cell: cells.Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None, turned: bool):
    real = real_steps(x, cell.inputs, lengths)
    x = blank(turn(x, lengths) if turned else x, real)
    outputs, after = open_scan(cell, x, tuple(state), cell.weight_hidden, real)
    return [turn(outputs, lengths) if turned else outputs, *after]


def gradients(results: list[Tensor], leaves: list[Tensor], keep: bool = False) -> list[Tensor]:
    """Of one random weighing of all results, zero where there is none."""
    torch.manual_seed(3)
    weights = [torch.randn(one.shape, dtype=one.dtype) for one in results]
    found = torch.autograd.grad(results, leaves, weights, allow_unused=True, retain_graph=keep)
    return [torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, leaves, strict=True)]


# --- against the open scan --------------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("dtype", "near", "nearer"), [(torch.float32, 1e-5, 1e-4), (torch.float64, 1e-13, 1e-12)])
def test_values_states_and_gradients_are_those_of_the_open_scan(kind, turned, padded, dtype, near, nearer):
    for batch, time, inputs, units in SHAPES:
        cell = make(kind, inputs, units, dtype)
        x, state = some(kind, batch, time, inputs, units, dtype)
        lengths = torch.arange(batch) * 3 % (time + 1) if padded else None  # from empty to full
        ours, theirs = compiled(kind, cell, x, state, lengths, turned), opened(cell, x, state, lengths, turned)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, atol=near, rtol=near)
        leaves = [x, *state, *cell.parameters()]
        for mine, other in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(mine, other, atol=nearer, rtol=nearer)


@each_kind
@pytest.mark.parametrize("lengths", [None, [2, 0, 3]])
def test_gradients_are_those_of_finite_differences(kind, lengths):
    cell = make(kind, 2, 3, torch.float64)
    x, state = some(kind, 3, 3, 2, 3, torch.float64)
    sizes = None if lengths is None else torch.tensor(lengths)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        names, count = [name for name, _ in cell.named_parameters()], len(state)
        given = dict(zip(names, rest[count:], strict=True))

        class Once(nn.Module):
            def forward(self, x: Tensor) -> tuple[Tensor, ...]:
                return tuple(compiled(kind, cell, x, list(rest[:count]), sizes, turned=False))

        module = Once()
        module.cell = cell
        swapped = {f"cell.{name}": value for name, value in given.items()}
        return torch.func.functional_call(module, swapped, (x,))

    assert torch.autograd.gradcheck(run, (x, *state, *cell.parameters()))


@each_kind
@pytest.mark.parametrize("lengths", [None, [4, 0, 2]])
def test_a_look_inside_shows_the_gates_of_the_open_scan(kind, lengths):
    cell = make(kind, 3, 5, torch.float64)
    x, state = some(kind, 3, 4, 3, 5, torch.float64)
    sizes = None if lengths is None else torch.tensor(lengths)
    with record(cell) as seen:
        opened(cell, x, state, sizes, turned=False)
    one = Direction(projection(cell), cell.weight_hidden, vectors(cell), tuple(state))
    _, _, (gates,) = scan(kind, x, [one], Steps(3, 4, sizes), look=True)
    assert list(gates) == list(cell.gates)
    for name in cell.gates:
        torch.testing.assert_close(gates[name], seen[name], atol=1e-13, rtol=1e-13)


# --- against PyTorch's own layers -------------------------------------------------------------------------------------


def test_one_step_of_an_lstm_by_hand():
    sigmoid, (i, f, g, o) = lambda a: 1 / (1 + math.exp(-a)), (0.3, -0.2, 0.5, 1.1)
    projected = torch.tensor([[i, f, g, o]])
    one = Direction(lambda _: projected, torch.zeros(4, 1), (), (torch.tensor([[0.7]]), torch.tensor([[0.4]])))
    outputs, ((h, c),), _ = scan(Kind("lstm"), torch.zeros(1, 1, 1), [one], Steps(1, 1))
    cell = sigmoid(f) * 0.4 + sigmoid(i) * math.tanh(g)
    assert c.item() == pytest.approx(cell, abs=1e-6)
    assert h.item() == outputs.item() == pytest.approx(sigmoid(o) * math.tanh(cell), abs=1e-6)


@pytest.mark.parametrize("lengths", [None, [6, 3, 1, 6, 2]])
@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_both_directions_at_once_are_those_of_pytorch(kind, lengths):
    torch.manual_seed(0)
    extra = {"nonlinearity": kind.activation} if kind.name == "rnn" else {}
    theirs = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind.name](8, 20, bidirectional=True, **extra)
    x = torch.randn(5, 6, 8, requires_grad=True)
    state = [torch.randn(2, 5, 20, requires_grad=True) for _ in range(2 if kind.name == "lstm" else 1)]
    given, sizes = tuple(state) if len(state) == 2 else state[0], None if lengths is None else torch.tensor(lengths)
    if sizes is None:
        expected, after = theirs(x.transpose(0, 1), given)
    else:
        packed, after = theirs(pack_padded_sequence(x.transpose(0, 1), sizes, enforce_sorted=False), given)
        expected, _ = pad_packed_sequence(packed)
    directions = []
    for place, end in enumerate(("", "_reverse")):
        part = partial(getattr, theirs)
        weight, bias, inner = part(f"weight_hh_l0{end}"), part(f"bias_ih_l0{end}"), part(f"bias_hh_l0{end}")
        whole = torch.cat([bias[:40] + inner[:40], bias[40:]]) if kind.name == "gru" else bias + inner
        project = Projection(part(f"weight_ih_l0{end}"), whole)
        beside = (inner[40:],) if kind.name == "gru" else ()
        directions.append(Direction(project, weight, beside, tuple(one[place] for one in state), turned=place == 1))
    found, states, _ = scan(kind, x, directions, Steps(5, 6, sizes))
    torch.testing.assert_close(found, expected.transpose(0, 1), atol=1e-5, rtol=1e-5)
    finals = [torch.stack(parts) for parts in zip(*states, strict=True)]
    for mine, other in zip(finals, after if len(state) == 2 else [after], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
    leaves = [x, *state, *theirs.parameters()]
    mine, other = gradients([found], leaves), gradients([expected.transpose(0, 1)], leaves)
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


# --- what must not matter ---------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("openmp", [True, False])
@pytest.mark.parametrize("kind", [Kind("lstm"), Kind("gru", reset="before"), Kind("rnn", normed=True)], ids=str)
def test_the_number_of_threads_changes_no_bit(kind, openmp, threads, monkeypatch):
    if not openmp:
        monkeypatch.setattr(team, "_openmp", lambda: None)
    cell = make(kind, 48, 64, torch.float32)
    x, state = some(kind, 9, 12, 48, 64, torch.float32)
    lengths = torch.tensor([12, 3, 0, 7, 12, 1, 9, 2, 5])
    project = Projection(cell.weight_input, cell.bias)
    one = Direction(project, cell.weight_hidden, vectors(cell), tuple(state))
    beside = {name for name, part in cell.named_parameters() if any(part is vector for vector in vectors(cell))}
    results = []
    for count in (1, 2, 3):
        threads(count)
        outputs, (first, second), _ = scan(kind, x, [one, one._replace(turned=True)], Steps(9, 12, lengths))
        leaves = [x, *state, *(part for name, part in cell.named_parameters() if name not in beside)]
        results.append([outputs, *first, *second, *gradients([outputs, *first, *second], leaves)])
    for other in results[1:]:
        assert all(torch.equal(mine, its) for mine, its in zip(results[0], other, strict=True))


@each_kind
def test_nothing_in_the_padding_reaches_anything(kind):
    cell = make(kind, 3, 5, torch.float32)
    x, state = some(kind, 3, 4, 3, 5, torch.float32)
    lengths = torch.tensor([2, 0, 4])
    spoilt = blank(x.detach(), real_steps(x, 3, lengths))
    spoilt[0, 2:], spoilt[1] = math.nan, math.nan
    spoilt.requires_grad_()
    results = compiled(kind, cell, spoilt, state, lengths, turned=False)
    leaves = [spoilt, *state, *cell.parameters()]
    assert all(bool(one.isfinite().all()) for one in [*results, *gradients(results, leaves)])
    assert not results[0][0, 2:].any()
    assert not results[0][1].any()
    torch.testing.assert_close(results[1][1], state[0][1])  # an empty row keeps its state


@each_kind
def test_without_gradients_the_result_is_the_same_to_the_bit(kind):
    cell = make(kind, 6, 20, torch.float32)
    x, state = some(kind, 4, 5, 6, 20, torch.float32)
    lengths = torch.tensor([5, 2, 4, 1])
    for sizes in (None, lengths):
        trained = compiled(kind, cell, x, state, sizes, turned=False)
        with torch.inference_mode():
            used = compiled(kind, cell, x, state, sizes, turned=False)
        assert all(torch.equal(mine, other) for mine, other in zip(trained, used, strict=True))


@each_kind
def test_the_way_back_may_be_gone_twice(kind):
    cell = make(kind, 3, 5, torch.float32)
    x, state = some(kind, 2, 3, 3, 5, torch.float32)
    results, leaves = compiled(kind, cell, x, state, None, turned=False), [x, *state, *cell.parameters()]
    first, second = gradients(results, leaves, keep=True), gradients(results, leaves)
    assert all(torch.equal(mine, other) for mine, other in zip(first, second, strict=True))


@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_memory_in_any_order_is_read_rightly(lengths):
    kind, sizes = Kind("lstm"), None if lengths is None else torch.tensor(lengths)
    cell = make(kind, 3, 5, torch.float32)
    x, state = some(kind, 2, 3, 3, 5, torch.float32)
    turned = cell.weight_hidden.detach().t().contiguous().t().requires_grad_()
    mixed = x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0).requires_grad_()
    mixed = torch.stack([mixed.detach(), mixed.detach()], 3).flatten(2)[..., ::2].requires_grad_()
    wide = [torch.cat([part, part], 1)[:, ::2].detach() for part in state]
    one = Direction(cell.project, turned, (), tuple(wide))
    outputs, _, _ = scan(kind, mixed, [one], Steps(2, 3, sizes))
    expected, *_ = opened(cell, x, wide, sizes, turned=False)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    outputs.sum().backward()  # a gradient whose every entry is the same one in memory
    expected.sum().backward()
    torch.testing.assert_close(mixed.grad, x.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(turned.grad, cell.weight_hidden.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("batch", "lengths"), [(0, None), (0, []), (2, [0, 0])])
@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_nothing_to_scan_is_no_error(kind, batch, lengths):
    cell = make(kind, 3, 5, torch.float32)
    x, state = some(kind, batch, 4, 3, 5, torch.float32)
    sizes = None if lengths is None else torch.tensor(lengths, dtype=torch.long)
    outputs, *after = compiled(kind, cell, x, state, sizes, turned=False)
    assert outputs.shape == (batch, 4, 5)
    assert not outputs.any()
    assert all(torch.equal(mine, before) for mine, before in zip(after, state, strict=True))
    gradients([outputs, *after], [x, *state, *cell.parameters()])


def test_numbers_that_are_none_stay_none():
    kind = Kind("lstm")
    cell = make(kind, 3, 5, torch.float32)
    x, state = some(kind, 2, 3, 3, 5, torch.float32)
    with torch.no_grad():
        x[0, 1, 0] = math.nan
    outputs, *_ = compiled(kind, cell, x, state, None, turned=False)
    assert outputs[0, 1:].isnan().all()
    assert outputs[0, 0].isfinite().all()
    assert outputs[1].isfinite().all()


def test_steps_pack_and_unpack():
    lengths = torch.tensor([2, 0, 3])
    x = torch.arange(9.0).view(3, 3, 1)
    steps = Steps(3, 3, lengths)
    packed = steps.pack(x)
    assert packed.flatten().tolist() == [6, 0, 7, 1, 8]  # row 2 is the longest, then row 0; step by step
    expected = torch.tensor([[0.0, 1, 0], [0, 0, 0], [6, 7, 8]])
    assert torch.equal(steps.unpack(packed)[..., 0], expected)
    assert torch.equal(steps.unsort(steps.sort(x[:, 0])), x[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_those_of_pytorch(dtype):
    torch.manual_seed(0)
    near = 1e-4 if dtype == torch.float32 else 1e-12
    for rows, depth, width in [(49, 1, 1), (700, 17, 33), (650, 130, 7), (53, 600, 100), (67, 64, 256), (3, 5, 7)]:
        x, weight = torch.randn(rows, depth + 3, dtype=dtype)[:, :depth], torch.randn(depth, width, dtype=dtype)
        bias, before = torch.randn(width, dtype=dtype), torch.randn(rows, width + 2, dtype=dtype)
        for factor in (Factor(weight, turned=False), Factor(weight.t().contiguous(), turned=True)):
            torch.testing.assert_close(factor.times(x), x @ weight, atol=near, rtol=near)
            torch.testing.assert_close(factor.times(x, bias), bias + x @ weight, atol=near, rtol=near)
            place = before.clone()[:, :width]
            factor.times(x, place, place)
            torch.testing.assert_close(place, before[:, :width] + x @ weight, atol=near, rtol=near)
        for more in (False, True):
            out = torch.ones(depth, width + 1, dtype=dtype)[:, :width]
            across(x, before[:, :width], out, more)
            torch.testing.assert_close(out, x.t() @ before[:, :width] + int(more), atol=near, rtol=near)


@pytest.mark.parametrize("kind", [Kind("lstm"), Kind("gru"), Kind("gru", reset="before"), Kind("rnn")], ids=str)
@pytest.mark.parametrize("padded", [False, True])
def test_windows_change_nothing(kind, padded, monkeypatch):
    cell = make(kind, 6, 20, torch.float64)
    x, state = some(kind, 4, 9, 6, 20, torch.float64)
    lengths = torch.tensor([9, 2, 7, 0]) if padded else None
    project = Projection(cell.weight_input, cell.bias)
    one = Direction(project, cell.weight_hidden, vectors(cell), tuple(state))
    leaves, found = [x, *state, *cell.parameters()], []
    for rows in (5, 1000):
        monkeypatch.setattr(memory, "ROWS", rows)
        steps = Steps(4, 9, lengths)
        assert (len(steps.windows(rows)) > 1) == (rows == 5)
        outputs, (first, second), gates = scan(kind, x, [one, one._replace(turned=True)], steps, look=True)
        with torch.no_grad():
            again, *_ = scan(kind, x, [one, one._replace(turned=True)], steps)
        assert torch.equal(again, outputs)
        seen = [value for direction in gates for value in direction.values()]
        found.append([outputs, *first, *second, *seen, *gradients([outputs, *first, *second], leaves)])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("given", ["weight", "bias", "matrix", "input"])
def test_only_what_wants_a_gradient_gets_one(given):
    torch.manual_seed(0)
    parts = {"weight": torch.randn(20, 3), "bias": torch.randn(20), "matrix": torch.randn(20, 5)}
    parts["input"] = torch.randn(2, 4, 3)
    parts[given].requires_grad_()
    state = (torch.zeros(2, 5), torch.zeros(2, 5))
    one = Direction(Projection(parts["weight"], parts["bias"]), parts["matrix"], (), state)
    outputs, _, _ = scan(Kind("lstm"), parts["input"], [one], Steps(2, 4))
    outputs.sum().backward()
    assert [name for name, part in parts.items() if part.grad is not None] == [given]
    assert parts[given].grad.any()


# --- when to take it --------------------------------------------------------------------------------------------------


def test_it_takes_floats_on_cpus_outside_autocast():
    x = torch.zeros(2, 3, 4)
    assert fits(x)
    assert fits(x.double())
    assert not fits(x.bfloat16())
    assert not fits(torch.zeros(2, 3, 4, device="meta"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fits(x)


def test_single_steps_and_what_onednn_does_as_well_are_left_to_aten():
    lstm, gru = Kind("lstm"), Kind("gru")
    batch = torch.empty(64, 128, 256)
    assert pays(gru, batch, 256)
    assert not pays(gru, batch[:1, :1], 256)
    assert pays(lstm, batch, 256)
    with torch.no_grad():
        assert not pays(lstm, batch, 256)
        assert pays(lstm, batch, 256, padded=True)
        assert pays(lstm, batch, 256, scans=2)


def test_a_machine_that_cannot_compile_is_named(monkeypatch):
    assert obstacle() is None
    obstacle.cache_clear()

    def broken(*_: object, turned: bool) -> None:
        raise RuntimeError("no target")

    with monkeypatch.context() as patch:
        patch.setattr(choice, "Factor", broken)
        assert "no target" in obstacle()
    obstacle.cache_clear()


def test_nothing_is_imported_before_it_is_needed():
    script = (
        "import sys, seqwise.kernels.recurrence.cpu.compiled; print('llvmlite' in sys.modules, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
