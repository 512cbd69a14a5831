"""The simple recurrent network over a whole sequence, forward and backward, in Triton.

    h_t = f(x_t + W h_{t−1})        x_t: the projected input, with the bias

With one matrix, a program owns 64 units in both passes, so a step has one exchange. The derivative of every activation
f follows from its value: the outputs are all that the backward pass needs.

Layout: packed rows (`packed_rows.py`), D directions, U units: inputs (N, D, U); hidden (B + N + B, D, U) with the
initial states; last states (B, D, U). Gradients of weights are products over all steps, computed elsewhere
(`scans.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    locate_sequences,
    locate_step,
)
from seqwise.kernels.recurrence.gpu.step_matmul import multiply_previous_states
from seqwise.kernels.recurrence.gpu.sync import load_weight_chunks, matmul_published, publish, sigmoid, tanh
from seqwise.kernels.recurrence.gpu.tile_io import load_float, load_optional_grad, publish_initial_state


@triton.jit
def activate(a, ACTIVATION: tl.constexpr):
    if ACTIVATION == "tanh":
        a = tanh(a)
    elif ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)  # a NaN stays one
    elif ACTIVATION == "sigmoid":
        a = sigmoid(a)
    return a


@triton.jit
def activation_derivative(h, ACTIVATION: tl.constexpr):
    """The derivative of the activation, from its value h."""
    if ACTIVATION == "tanh":
        derivative = 1 - h * h
    elif ACTIVATION == "relu":
        derivative = (h > 0).to(tl.float32)
    elif ACTIVATION == "sigmoid":
        derivative = h * (1 - h)
    else:
        derivative = tl.full(h.shape, 1.0, tl.float32)
    return derivative


@triton.jit(do_not_specialize=UNSPECIALIZED)
def rnn_forward(
    inputs, weight, initial_h, hidden, last_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    ACTIVATION: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write all states to `hidden` and the last ones to `last_h`. The inputs are only read."""
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * U * U
    inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    weight_rows, unit_mask = unit * U, unit < U
    chunks = load_weight_chunks(weight, weight_rows, unit_mask, 1, U, config)
    offsets = sequences.index[None, :] * stride + unit[:, None]
    mask = unit_mask[:, None] & sequences.exist[None, :]
    states = sequences.initial
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, states * stride, mask, config)
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        step_mask = unit_mask[:, None] & active[None, :]
        x = load_float(inputs + begin * stride + offsets, step_mask)
        product = multiply_previous_states(
            chunks, weight, weight_rows, unit_mask, hidden, step, states, active, sequences, stride, config
        )
        new = activate(x + product, ACTIVATION)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, new, step_mask, config)
        h = tl.where(active[None, :], new, h)
    tl.store(last_h + direction * U + offsets, h.to(config.dtype), mask=mask)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def rnn_backward(
    weight, hidden, grad_inputs, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows, reverse,
    first_sequence,
    ACTIVATION: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the inputs (N, D, U) and of the initial states (B, D, U).

    grad_outputs: (T, B, D, U) with any strides or, with lengths, (N, D, U), where a step is as far as a sequence.
    grad_last_h (B, D, U): may be None.
    """
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * U * U
    grad_inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    unit_mask = unit < U
    chunks = load_weight_chunks(weight, unit, unit_mask, U, U, config)
    offsets = sequences.index[None, :] * stride + unit[:, None]
    mask = unit_mask[:, None] & sequences.exist[None, :]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    grad_outputs += (
        direction * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride + unit[:, None]
    )
    done_begin, done_active = tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        time, begin, active = locate_step(step_offsets, step, sequences, config)
        step_mask = unit_mask[:, None] & active[None, :]
        h = load_float(hidden + (batch_size + begin) * stride + offsets, step_mask)
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        if turn > 0:
            product = matmul_published(
                chunks, weight, unit, unit_mask, grad_inputs + done_begin * stride, sequences.index * stride,
                done_active, sequences.first * stride, U, U, config.own_units, config,
            )  # fmt: skip
            grad_h = tl.where(done_active[None, :], product, grad_h)
        if step >= 0:
            grad_input = (grad_h + grad_output) * activation_derivative(h, ACTIVATION)
            publish(grad_inputs + begin * stride + offsets, grad_input, step_mask, config)
        done_begin, done_active = begin, active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
