"""Compiled scans equal the open ones: values, states, gradients, gates; with any lengths, directions and windows."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from compiled_scans import (
    PLAIN,
    SHAPES,
    build_cell,
    build_projection,
    compute_gradients,
    each_cell_spec,
    get_vectors,
    random_inputs,
    run_compiled,
    run_reference,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwise.kernels.recurrence import packing as packing_module
from seqwise.kernels.recurrence.cpu import scan as compiled_scan
from seqwise.kernels.recurrence.cpu.compiled import CellSpec, Direction, Projection, SequencePacking, scan
from seqwise.kernels.recurrence.cpu.linear import PackedWeight, multiply_transposed
from seqwise.layers.record import record
from seqwise.layers.recurrent import valid_steps
from seqwise.layers.scan import zero_padding

# --- against the reference implementation -----------------------------------------------------------------------------


@each_cell_spec
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("dtype", "near", "nearer"), [(torch.float32, 1e-5, 1e-4), (torch.float64, 1e-13, 1e-12)])
def test_values_states_and_gradients_equal_the_reference_implementation(kind, reverse, padded, dtype, near, nearer):
    for batch, time, inputs, units in SHAPES:
        cell = build_cell(kind, inputs, units, dtype)
        x, state = random_inputs(kind, batch, time, inputs, units, dtype)
        lengths = torch.arange(batch) * 3 % (time + 1) if padded else None  # from empty to full
        ours = run_compiled(kind, cell, x, state, lengths, reverse)
        theirs = run_reference(cell, x, state, lengths, reverse)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, atol=near, rtol=near)
        leaves = [x, *state, *cell.parameters()]
        for mine, other in zip(compute_gradients(ours, leaves), compute_gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(mine, other, atol=nearer, rtol=nearer)


@each_cell_spec
@pytest.mark.parametrize("lengths", [None, [2, 0, 3]])
def test_gradients_are_those_of_finite_differences(kind, lengths):
    cell = build_cell(kind, 2, 3, torch.float64)
    x, state = random_inputs(kind, 3, 3, 2, 3, torch.float64)
    sizes = None if lengths is None else torch.tensor(lengths)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        names, count = [name for name, _ in cell.named_parameters()], len(state)
        given = dict(zip(names, rest[count:], strict=True))

        class Once(nn.Module):
            def forward(self, x: Tensor) -> tuple[Tensor, ...]:
                return tuple(run_compiled(kind, cell, x, list(rest[:count]), sizes, reverse=False))

        module = Once()
        module.cell = cell
        swapped = {f"cell.{name}": value for name, value in given.items()}
        return torch.func.functional_call(module, swapped, (x,))

    assert torch.autograd.gradcheck(run, (x, *state, *cell.parameters()))


@each_cell_spec
@pytest.mark.parametrize("lengths", [None, [4, 0, 2]])
def test_recorded_gates_equal_the_reference_implementation(kind, lengths):
    cell = build_cell(kind, 3, 5, torch.float64)
    x, state = random_inputs(kind, 3, 4, 3, 5, torch.float64)
    sizes = None if lengths is None else torch.tensor(lengths)
    with record(cell) as recording:
        run_reference(cell, x, state, sizes, reverse=False)
    one = Direction(build_projection(cell), cell.weight_hidden, get_vectors(cell), tuple(state))
    _, _, (gates,) = scan(kind, x, [one], SequencePacking(3, 4, sizes), record=True)
    assert list(gates) == list(cell.gates)
    for name in cell.gates:
        torch.testing.assert_close(gates[name], recording[name], atol=1e-13, rtol=1e-13)


# --- against PyTorch's own layers -------------------------------------------------------------------------------------


def test_one_step_of_an_lstm_by_hand():
    sigmoid, (i, f, g, o) = lambda a: 1 / (1 + math.exp(-a)), (0.3, -0.2, 0.5, 1.1)
    projected = torch.tensor([[i, f, g, o]])
    one = Direction(lambda _: projected, torch.zeros(4, 1), (), (torch.tensor([[0.7]]), torch.tensor([[0.4]])))
    outputs, ((h, c),), _ = scan(CellSpec("lstm"), torch.zeros(1, 1, 1), [one], SequencePacking(1, 1))
    cell = sigmoid(f) * 0.4 + sigmoid(i) * math.tanh(g)
    assert c.item() == pytest.approx(cell, abs=1e-6)
    assert h.item() == outputs.item() == pytest.approx(sigmoid(o) * math.tanh(cell), abs=1e-6)


@pytest.mark.parametrize("lengths", [None, [6, 3, 1, 6, 2]])
@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_bidirectional_scans_equal_pytorch(kind, lengths):
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
        directions.append(Direction(project, weight, beside, tuple(one[place] for one in state), reverse=place == 1))
    found, states, _ = scan(kind, x, directions, SequencePacking(5, 6, sizes))
    torch.testing.assert_close(found, expected.transpose(0, 1), atol=1e-5, rtol=1e-5)
    finals = [torch.stack(parts) for parts in zip(*states, strict=True)]
    for mine, other in zip(finals, after if len(state) == 2 else [after], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
    leaves = [x, *state, *theirs.parameters()]
    mine, other = compute_gradients([found], leaves), compute_gradients([expected.transpose(0, 1)], leaves)
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


# --- what must not matter ---------------------------------------------------------------------------------------------


@each_cell_spec
def test_padding_affects_no_result(kind):
    cell = build_cell(kind, 3, 5, torch.float32)
    x, state = random_inputs(kind, 3, 4, 3, 5, torch.float32)
    lengths = torch.tensor([2, 0, 4])
    spoilt = zero_padding(x.detach(), valid_steps(x, 3, lengths))
    spoilt[0, 2:], spoilt[1] = math.nan, math.nan
    spoilt.requires_grad_()
    results = run_compiled(kind, cell, spoilt, state, lengths, reverse=False)
    leaves = [spoilt, *state, *cell.parameters()]
    assert all(bool(one.isfinite().all()) for one in [*results, *compute_gradients(results, leaves)])
    assert not results[0][0, 2:].any()
    assert not results[0][1].any()
    torch.testing.assert_close(results[1][1], state[0][1])  # an empty row keeps its state


@each_cell_spec
def test_results_without_gradients_are_bit_identical(kind):
    cell = build_cell(kind, 6, 20, torch.float32)
    x, state = random_inputs(kind, 4, 5, 6, 20, torch.float32)
    lengths = torch.tensor([5, 2, 4, 1])
    for sizes in (None, lengths):
        trained = run_compiled(kind, cell, x, state, sizes, reverse=False)
        with torch.inference_mode():
            used = run_compiled(kind, cell, x, state, sizes, reverse=False)
        assert all(torch.equal(mine, other) for mine, other in zip(trained, used, strict=True))


@each_cell_spec
def test_backward_can_run_twice(kind):
    cell = build_cell(kind, 3, 5, torch.float32)
    x, state = random_inputs(kind, 2, 3, 3, 5, torch.float32)
    results, leaves = run_compiled(kind, cell, x, state, None, reverse=False), [x, *state, *cell.parameters()]
    first, second = compute_gradients(results, leaves, keep=True), compute_gradients(results, leaves)
    assert all(torch.equal(mine, other) for mine, other in zip(first, second, strict=True))


@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_inputs_may_have_any_strides(lengths):
    kind, sizes = CellSpec("lstm"), None if lengths is None else torch.tensor(lengths)
    cell = build_cell(kind, 3, 5, torch.float32)
    x, state = random_inputs(kind, 2, 3, 3, 5, torch.float32)
    reverse = cell.weight_hidden.detach().t().contiguous().t().requires_grad_()
    mixed = x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0).requires_grad_()
    mixed = torch.stack([mixed.detach(), mixed.detach()], 3).flatten(2)[..., ::2].requires_grad_()
    wide = [torch.cat([part, part], 1)[:, ::2].detach() for part in state]
    one = Direction(cell.project, reverse, (), tuple(wide))
    outputs, _, _ = scan(kind, mixed, [one], SequencePacking(2, 3, sizes))
    expected, *_ = run_reference(cell, x, wide, sizes, reverse=False)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    outputs.sum().backward()  # a gradient whose every entry is the same one in memory
    expected.sum().backward()
    torch.testing.assert_close(mixed.grad, x.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(reverse.grad, cell.weight_hidden.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("batch", "lengths"), [(0, None), (0, []), (2, [0, 0])])
@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_empty_batches_are_no_error(kind, batch, lengths):
    cell = build_cell(kind, 3, 5, torch.float32)
    x, state = random_inputs(kind, batch, 4, 3, 5, torch.float32)
    sizes = None if lengths is None else torch.tensor(lengths, dtype=torch.long)
    outputs, *after = run_compiled(kind, cell, x, state, sizes, reverse=False)
    assert outputs.shape == (batch, 4, 5)
    assert not outputs.any()
    assert all(torch.equal(mine, before) for mine, before in zip(after, state, strict=True))
    weights = [torch.ones_like(outputs), *(torch.full_like(part, 3.0) for part in after)]
    leaves = [x, *state, *cell.parameters()]
    found = torch.autograd.grad([outputs, *after], leaves, weights)
    for leaf, gradient in zip(leaves, found, strict=True):  # states pass as they are, nothing else has any effect
        expected = 3.0 if any(leaf is part for part in state) else 0.0
        assert torch.equal(gradient, torch.full_like(leaf, expected))


def test_nan_stays_nan():
    kind = CellSpec("lstm")
    cell = build_cell(kind, 3, 5, torch.float32)
    x, state = random_inputs(kind, 2, 3, 3, 5, torch.float32)
    with torch.no_grad():
        x[0, 1, 0] = math.nan
    outputs, *_ = run_compiled(kind, cell, x, state, None, reverse=False)
    assert outputs[0, 1:].isnan().all()
    assert outputs[0, 0].isfinite().all()
    assert outputs[1].isfinite().all()


def test_steps_pack_and_unpack():
    lengths = torch.tensor([2, 0, 3])
    x = torch.arange(9.0).view(3, 3, 1)
    packing = SequencePacking(3, 3, lengths)
    packed = packing.pack(x)
    assert packed.flatten().tolist() == [6, 0, 7, 1, 8]  # row 2 is the longest, then row 0; step by step
    expected = torch.tensor([[0.0, 1, 0], [0, 0, 0], [6, 7, 8]])
    assert torch.equal(packing.unpack(packed)[..., 0], expected)
    assert torch.equal(packing.unsort(packing.sort(x[:, 0])), x[:, 0])


def test_a_scan_packs_its_rows_once(monkeypatch):
    found, flat = [], packing_module._flatten
    monkeypatch.setattr(packing_module, "_flatten", lambda *given: found.append(given) or flat(*given))
    monkeypatch.setattr(compiled_scan, "WINDOW_ROWS", 5)
    kind, lengths = CellSpec("rnn"), torch.tensor([9, 2, 7, 0])
    cell = build_cell(kind, 6, 20, torch.float32)
    x, state = random_inputs(kind, 4, 9, 6, 20, torch.float32)
    with torch.no_grad():
        run_compiled(kind, cell, x, state, lengths, reverse=False)
    assert len(SequencePacking(4, 9, lengths).split_windows(5)) > 1
    assert len(found) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_equal_pytorch(dtype):
    torch.manual_seed(0)
    near = 1e-4 if dtype == torch.float32 else 1e-12
    shapes = [(49, 1, 1), (700, 17, 33), (650, 130, 7), (53, 600, 100), (67, 64, 256), (3, 5, 7), (140, 170, 187)]
    for rows, depth, width in shapes:
        x, weight = torch.randn(rows, depth + 3, dtype=dtype)[:, :depth], torch.randn(depth, width, dtype=dtype)
        bias, before = torch.randn(width, dtype=dtype), torch.randn(rows, width + 2, dtype=dtype)
        for factor in (PackedWeight(weight, transposed=False), PackedWeight(weight.t().contiguous(), transposed=True)):
            torch.testing.assert_close(factor.multiply_rows(x), x @ weight, atol=near, rtol=near)
            torch.testing.assert_close(factor.multiply_rows(x, bias), bias + x @ weight, atol=near, rtol=near)
            wide = before.clone()
            place = wide[:, :width]
            factor.multiply_rows(x, place, place)
            torch.testing.assert_close(place, before[:, :width] + x @ weight, atol=near, rtol=near)
            assert torch.equal(wide[:, width:], before[:, width:])  # what lies behind a row is not touched
        for accumulate in (False, True):
            wide = torch.ones(depth, width + 1, dtype=dtype)
            out = wide[:, :width]
            multiply_transposed(x, before[:, :width], out, accumulate)
            torch.testing.assert_close(out, x.t() @ before[:, :width] + int(accumulate), atol=near, rtol=near)
            assert (wide[:, width] == 1).all()


@pytest.mark.parametrize(
    "kind", [CellSpec("lstm"), CellSpec("gru"), CellSpec("gru", reset="before"), CellSpec("rnn")], ids=str
)
@pytest.mark.parametrize("padded", [False, True])
def test_the_window_size_does_not_change_the_result(kind, padded, monkeypatch):
    cell = build_cell(kind, 6, 20, torch.float64)
    x, state = random_inputs(kind, 4, 9, 6, 20, torch.float64)
    lengths = torch.tensor([9, 2, 7, 0]) if padded else None
    project = Projection(cell.weight_input, cell.bias)
    one = Direction(project, cell.weight_hidden, get_vectors(cell), tuple(state))
    leaves, found = [x, *state, *cell.parameters()], []
    for rows in (5, 1000):
        monkeypatch.setattr(compiled_scan, "WINDOW_ROWS", rows)
        packing = SequencePacking(4, 9, lengths)
        assert (len(packing.split_windows(rows)) > 1) == (rows == 5)
        outputs, (first, second), gates = scan(kind, x, [one, one._replace(reverse=True)], packing, record=True)
        with torch.no_grad():
            again, *_ = scan(kind, x, [one, one._replace(reverse=True)], packing)
        assert torch.equal(again, outputs)
        seen = [value for direction in gates for value in direction.values()]
        found.append([outputs, *first, *second, *seen, *compute_gradients([outputs, *first, *second], leaves)])
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-13, rtol=1e-13)
