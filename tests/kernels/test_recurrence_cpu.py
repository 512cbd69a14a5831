"""Compiled scans equal the reference implementation: values, states, gradients, gates; for all lengths and windows."""

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
    draw_inputs,
    each_cell_spec,
    get_vectors,
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
from seqwise.layers.recurrent import build_step_mask
from seqwise.layers.scan import build_direction, zero_padding

# --- against the reference implementation ----------------------------------------------------------------------------


SINGLE, DOUBLE = (torch.float32, 1e-5, 1e-4), (torch.float64, 1e-13, 1e-12)  # and tolerances of values and gradients


@each_cell_spec
@pytest.mark.parametrize(
    ("dtype", "tolerance", "gradient_tolerance", "reverse", "padded"),
    [
        *((*SINGLE, reverse, padded) for reverse in (False, True) for padded in (False, True)),
        (*DOUBLE, True, True),
        *(
            pytest.param(*DOUBLE, *case, marks=pytest.mark.slow)
            for case in ((False, False), (False, True), (True, False))
        ),
    ],
)
def test_values_states_and_gradients_equal_the_reference_implementation(
    spec, reverse, padded, dtype, tolerance, gradient_tolerance
):
    for batch, time, inputs, units in SHAPES:
        cell = build_cell(spec, inputs, units, dtype)
        x, state = draw_inputs(spec, batch, time, inputs, units, dtype)
        lengths = torch.arange(batch) * 3 % (time + 1) if padded else None  # from empty to full
        ours = run_compiled(spec, cell, x, state, lengths, reverse)
        theirs = run_reference(cell, x, state, lengths, reverse)
        for actual, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
        leaves = [x, *state, *cell.parameters()]
        for actual, expected in zip(compute_gradients(ours, leaves), compute_gradients(theirs, leaves), strict=True):
            torch.testing.assert_close(actual, expected, atol=gradient_tolerance, rtol=gradient_tolerance)


@each_cell_spec
@pytest.mark.parametrize("lengths", [None, [2, 0, 3]])
def test_gradients_are_those_of_finite_differences(spec, lengths):
    run, leaves = build_function_of_parameters(spec, lengths, units=3)
    assert torch.autograd.gradcheck(run, leaves)


@each_cell_spec
def test_second_derivatives_are_those_of_finite_differences(spec):
    """Also where `functional_call` has replaced the parameters, as in meta-learning."""
    run, leaves = build_function_of_parameters(spec, [2, 0, 3], units=2)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


@each_cell_spec
@pytest.mark.parametrize("lengths", [None, [2, 0, 3]])
def test_gradients_with_a_graph_equal_those_of_the_kernel(spec, lengths):
    lengths = None if lengths is None else torch.tensor(lengths)
    forward_cell, backward_cell = (build_cell(spec, 2, 5, torch.float64) for _ in range(2))
    x, state = draw_inputs(spec, 3, 4, 2, 5, torch.float64)
    directions = [
        build_direction(cell, cell.weight_hidden, tuple(state), reverse=cell is backward_cell)
        for cell in (forward_cell, backward_cell)
    ]
    outputs, states, _ = scan(spec, x, directions, SequencePacking(3, 4, lengths))
    leaves = [x, *state, *forward_cell.parameters(), *backward_cell.parameters()]
    loss = outputs.square().sum() + sum((part**3).sum() for each in states for part in each)
    expected = torch.autograd.grad(loss, leaves, retain_graph=True)
    for actual, kernel in zip(torch.autograd.grad(loss, leaves, create_graph=True), expected, strict=True):
        torch.testing.assert_close(actual, kernel, atol=1e-12, rtol=1e-12)


def build_function_of_parameters(spec, lengths, units):
    """Returns the compiled scan of three sequences as a function of input, state and parameters, and their values."""
    cell = build_cell(spec, 2, units, torch.float64)
    x, state = draw_inputs(spec, 3, 3, 2, units, torch.float64)
    length_tensor = None if lengths is None else torch.tensor(lengths)

    def run(x: Tensor, *state_and_parameters: Tensor) -> tuple[Tensor, ...]:
        names = [name for name, _ in cell.named_parameters()]
        count = len(state)
        parameters = dict(zip(names, state_and_parameters[count:], strict=True))

        class Scan(nn.Module):
            def forward(self, x: Tensor) -> tuple[Tensor, ...]:
                return tuple(
                    run_compiled(spec, cell, x, list(state_and_parameters[:count]), length_tensor, reverse=False)
                )

        module = Scan()
        module.cell = cell
        replacements = {f"cell.{name}": value for name, value in parameters.items()}
        return torch.func.functional_call(module, replacements, (x,))

    return run, (x, *state, *cell.parameters())


@each_cell_spec
@pytest.mark.parametrize("lengths", [None, [4, 0, 2]])
def test_recorded_gates_equal_the_reference_implementation(spec, lengths):
    cell = build_cell(spec, 3, 5, torch.float64)
    x, state = draw_inputs(spec, 3, 4, 3, 5, torch.float64)
    length_tensor = None if lengths is None else torch.tensor(lengths)
    with record(cell) as recording:
        run_reference(cell, x, state, length_tensor, reverse=False)
    direction = Direction(build_projection(cell), cell.weight_hidden, get_vectors(cell), tuple(state))
    _, _, (gates,) = scan(spec, x, [direction], SequencePacking(3, 4, length_tensor), should_record=True)
    assert list(gates) == list(cell.gates)
    for name in cell.gates:
        torch.testing.assert_close(gates[name], recording[name], atol=1e-13, rtol=1e-13)


# --- against PyTorch's own layers ------------------------------------------------------------------------------------


def test_an_lstm_step_equals_a_hand_computed_result():
    def sigmoid(a: float) -> float:
        return 1 / (1 + math.exp(-a))

    i, f, g, o = 0.3, -0.2, 0.5, 1.1
    projected = torch.tensor([[i, f, g, o]])
    direction = Direction(lambda _: projected, torch.zeros(4, 1), (), (torch.tensor([[0.7]]), torch.tensor([[0.4]])))
    outputs, ((h, c),), _ = scan(CellSpec("lstm"), torch.zeros(1, 1, 1), [direction], SequencePacking(1, 1))
    cell = sigmoid(f) * 0.4 + sigmoid(i) * math.tanh(g)
    assert c.item() == pytest.approx(cell, abs=1e-6)
    assert h.item() == outputs.item() == pytest.approx(sigmoid(o) * math.tanh(cell), abs=1e-6)


@pytest.mark.parametrize("lengths", [None, [6, 3, 1, 6, 2]])
@pytest.mark.parametrize("spec", PLAIN, ids=str)
def test_bidirectional_scans_equal_pytorch(spec, lengths):
    torch.manual_seed(0)
    extra = {"nonlinearity": spec.activation} if spec.name == "rnn" else {}
    theirs = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[spec.name](8, 20, bidirectional=True, **extra)
    x = torch.randn(5, 6, 8, requires_grad=True)
    state = [torch.randn(2, 5, 20, requires_grad=True) for _ in range(2 if spec.name == "lstm" else 1)]
    initial = tuple(state) if len(state) == 2 else state[0]
    length_tensor = None if lengths is None else torch.tensor(lengths)
    if length_tensor is None:
        expected, after = theirs(x.transpose(0, 1), initial)
    else:
        packed, after = theirs(pack_padded_sequence(x.transpose(0, 1), length_tensor, enforce_sorted=False), initial)
        expected, _ = pad_packed_sequence(packed)
    directions = []
    for index, suffix in enumerate(("", "_reverse")):
        parameter = partial(getattr, theirs)
        weight, bias = parameter(f"weight_hh_l0{suffix}"), parameter(f"bias_ih_l0{suffix}")
        bias_hidden = parameter(f"bias_hh_l0{suffix}")
        if spec.name == "gru":  # the hidden bias of the candidate is inside the reset
            total_bias = torch.cat([bias[:40] + bias_hidden[:40], bias[40:]])
        else:
            total_bias = bias + bias_hidden
        project = Projection(parameter(f"weight_ih_l0{suffix}"), total_bias)
        vectors = (bias_hidden[40:],) if spec.name == "gru" else ()
        initial_state = tuple(part[index] for part in state)
        directions.append(Direction(project, weight, vectors, initial_state, reverse=index == 1))
    outputs, states, _ = scan(spec, x, directions, SequencePacking(5, 6, length_tensor))
    torch.testing.assert_close(outputs, expected.transpose(0, 1), atol=1e-5, rtol=1e-5)
    finals = [torch.stack(parts) for parts in zip(*states, strict=True)]
    for actual, last in zip(finals, after if len(state) == 2 else [after], strict=True):
        torch.testing.assert_close(actual, last, atol=1e-5, rtol=1e-5)
    leaves = [x, *state, *theirs.parameters()]
    gradients = compute_gradients([outputs], leaves)
    expected_gradients = compute_gradients([expected.transpose(0, 1)], leaves)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-4, rtol=1e-4)


# --- what must not change the result ---------------------------------------------------------------------------------


@each_cell_spec
def test_padding_affects_no_result(spec):
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, 3, 4, 3, 5, torch.float32)
    lengths = torch.tensor([2, 0, 4])
    with_nan = zero_padding(x.detach(), build_step_mask(x, 3, lengths))
    with_nan[0, 2:], with_nan[1] = math.nan, math.nan
    with_nan.requires_grad_()
    results = run_compiled(spec, cell, with_nan, state, lengths, reverse=False)
    leaves = [with_nan, *state, *cell.parameters()]
    assert all(bool(value.isfinite().all()) for value in [*results, *compute_gradients(results, leaves)])
    assert not results[0][0, 2:].any()
    assert not results[0][1].any()
    torch.testing.assert_close(results[1][1], state[0][1])  # an empty sequence keeps its state


@each_cell_spec
def test_results_without_gradients_are_bit_identical(spec):
    cell = build_cell(spec, 6, 20, torch.float32)
    x, state = draw_inputs(spec, 4, 5, 6, 20, torch.float32)
    lengths = torch.tensor([5, 2, 4, 1])
    for length_tensor in (None, lengths):
        with_grad = run_compiled(spec, cell, x, state, length_tensor, reverse=False)
        with torch.inference_mode():
            without_grad = run_compiled(spec, cell, x, state, length_tensor, reverse=False)
        assert all(torch.equal(actual, expected) for actual, expected in zip(with_grad, without_grad, strict=True))


@each_cell_spec
def test_backward_can_run_twice(spec):
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, 2, 3, 3, 5, torch.float32)
    results = run_compiled(spec, cell, x, state, None, reverse=False)
    leaves = [x, *state, *cell.parameters()]
    first, second = compute_gradients(results, leaves, retain_graph=True), compute_gradients(results, leaves)
    assert all(torch.equal(actual, expected) for actual, expected in zip(first, second, strict=True))


@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_inputs_may_have_any_strides(lengths):
    spec = CellSpec("lstm")
    length_tensor = None if lengths is None else torch.tensor(lengths)
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, 2, 3, 3, 5, torch.float32)
    column_major = cell.weight_hidden.detach().t().contiguous().t().requires_grad_()
    strided = x.detach().permute(2, 0, 1).contiguous().permute(1, 2, 0).requires_grad_()
    strided = torch.stack([strided.detach(), strided.detach()], 3).flatten(2)[..., ::2].requires_grad_()
    wide = [torch.cat([part, part], 1)[:, ::2].detach() for part in state]
    direction = Direction(cell.project, column_major, (), tuple(wide))
    outputs, _, _ = scan(spec, strided, [direction], SequencePacking(2, 3, length_tensor))
    expected, *_ = run_reference(cell, x, wide, length_tensor, reverse=False)
    torch.testing.assert_close(outputs, expected, atol=1e-5, rtol=1e-5)
    outputs.sum().backward()  # its gradient is expanded: all entries share one address
    expected.sum().backward()
    torch.testing.assert_close(strided.grad, x.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(column_major.grad, cell.weight_hidden.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("batch", "lengths"), [(0, None), (0, []), (2, [0, 0])])
@pytest.mark.parametrize("spec", PLAIN, ids=str)
def test_empty_batches_are_accepted(spec, batch, lengths):
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, batch, 4, 3, 5, torch.float32)
    length_tensor = None if lengths is None else torch.tensor(lengths, dtype=torch.long)
    outputs, *after = run_compiled(spec, cell, x, state, length_tensor, reverse=False)
    assert outputs.shape == (batch, 4, 5)
    assert not outputs.any()
    assert all(torch.equal(actual, before) for actual, before in zip(after, state, strict=True))
    weights = [torch.ones_like(outputs), *(torch.full_like(part, 3.0) for part in after)]
    leaves = [x, *state, *cell.parameters()]
    gradients = torch.autograd.grad([outputs, *after], leaves, weights)
    # States are returned unchanged; nothing else has any effect.
    for leaf, gradient in zip(leaves, gradients, strict=True):
        expected = 3.0 if any(leaf is part for part in state) else 0.0
        assert torch.equal(gradient, torch.full_like(leaf, expected))


def test_nan_stays_nan():
    spec = CellSpec("lstm")
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, 2, 3, 3, 5, torch.float32)
    with torch.no_grad():
        x[0, 1, 0] = math.nan
    outputs, *_ = run_compiled(spec, cell, x, state, None, reverse=False)
    assert outputs[0, 1:].isnan().all()
    assert outputs[0, 0].isfinite().all()
    assert outputs[1].isfinite().all()


def test_unpacking_restores_the_packed_sequences():
    lengths = torch.tensor([2, 0, 3])
    x = torch.arange(9.0).view(3, 3, 1)
    packing = SequencePacking(3, 3, lengths)
    packed = packing.pack(x)
    assert packed.flatten().tolist() == [6, 0, 7, 1, 8]  # sequence 2 is the longest, then sequence 0; step by step
    expected = torch.tensor([[0.0, 1, 0], [0, 0, 0], [6, 7, 8]])
    assert torch.equal(packing.unpack(packed)[..., 0], expected)
    assert torch.equal(packing.unsort(packing.sort(x[:, 0])), x[:, 0])


def test_a_scan_packs_its_rows_once(monkeypatch):
    calls = []
    flatten = packing_module._flatten
    monkeypatch.setattr(packing_module, "_flatten", lambda *arguments: calls.append(arguments) or flatten(*arguments))
    monkeypatch.setattr(compiled_scan, "MIN_WINDOW_ROWS", 5)
    spec, lengths = CellSpec("rnn"), torch.tensor([9, 2, 7, 0])
    cell = build_cell(spec, 6, 20, torch.float32)
    x, state = draw_inputs(spec, 4, 9, 6, 20, torch.float32)
    with torch.no_grad():
        run_compiled(spec, cell, x, state, lengths, reverse=False)
    assert len(SequencePacking(4, 9, lengths).split_windows(5)) > 1
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_equal_pytorch(dtype):
    torch.manual_seed(0)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    shapes = [(49, 1, 1), (700, 17, 33), (650, 130, 7), (53, 600, 100), (67, 64, 256), (3, 5, 7), (140, 170, 187)]
    for rows, depth, width in shapes:
        x, weight = torch.randn(rows, depth + 3, dtype=dtype)[:, :depth], torch.randn(depth, width, dtype=dtype)
        bias, before = torch.randn(width, dtype=dtype), torch.randn(rows, width + 2, dtype=dtype)
        for factor in (PackedWeight(weight, transposed=False), PackedWeight(weight.t().contiguous(), transposed=True)):
            torch.testing.assert_close(factor.multiply_rows(x), x @ weight, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(factor.multiply_rows(x, bias), bias + x @ weight, atol=tolerance, rtol=tolerance)
            wide = before.clone()
            out = wide[:, :width]
            factor.multiply_rows(x, out, out)
            torch.testing.assert_close(out, before[:, :width] + x @ weight, atol=tolerance, rtol=tolerance)
            assert torch.equal(wide[:, width:], before[:, width:])  # the memory after a row is not written
        for accumulate in (False, True):
            wide = torch.ones(depth, width + 1, dtype=dtype)
            out = wide[:, :width]
            multiply_transposed(x, before[:, :width], out, accumulate)
            torch.testing.assert_close(out, x.t() @ before[:, :width] + int(accumulate), atol=tolerance, rtol=tolerance)
            assert (wide[:, width] == 1).all()


@pytest.mark.parametrize(
    "spec", [CellSpec("lstm"), CellSpec("gru"), CellSpec("gru", reset="before"), CellSpec("rnn")], ids=str
)
@pytest.mark.parametrize("padded", [False, True])
def test_the_window_size_does_not_change_the_result(spec, padded, monkeypatch):
    cell = build_cell(spec, 6, 20, torch.float64)
    x, state = draw_inputs(spec, 4, 9, 6, 20, torch.float64)
    lengths = torch.tensor([9, 2, 7, 0]) if padded else None
    project = Projection(cell.weight_input, cell.bias)
    direction = Direction(project, cell.weight_hidden, get_vectors(cell), tuple(state))
    leaves = [x, *state, *cell.parameters()]
    results = []
    for rows in (5, 1000):
        monkeypatch.setattr(compiled_scan, "MIN_WINDOW_ROWS", rows)
        packing = SequencePacking(4, 9, lengths)
        assert (len(packing.split_windows(rows)) > 1) == (rows == 5)
        outputs, (first, second), gates = scan(
            spec, x, [direction, direction._replace(reverse=True)], packing, should_record=True
        )
        with torch.no_grad():
            without_gradients, *_ = scan(spec, x, [direction, direction._replace(reverse=True)], packing)
        assert torch.equal(without_gradients, outputs)
        recorded = [value for direction in gates for value in direction.values()]
        results.append([outputs, *first, *second, *recorded, *compute_gradients([outputs, *first, *second], leaves)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-13, rtol=1e-13)
