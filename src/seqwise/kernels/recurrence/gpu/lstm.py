"""The LSTM over a whole sequence, forward and backward, in Triton.

    i, f, o = σ(x_t + W h_{t−1})     g = tanh(x_t + W h_{t−1})     c_t = f c_{t−1} + i g     h_t = o tanh(c_t)

A program of the forward pass owns 16 units, so 64 rows of the recurrent matrix. In the backward pass 64 units belong to
four programs, which divide the product by gates (`step_matmul.py`).

Layout: packed rows (`packed_rows.py`), D directions, U units: gates (N, D, 4U) as i, f, g, o; hidden and cell
(B + N + B, D, U) with the initial states; last states (B, D, U). Gradients of weights are products over all steps,
computed elsewhere (`scans.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    locate_previous_states,
    locate_sequences,
    locate_step,
)
from seqwise.kernels.recurrence.gpu.step_matmul import multiply_by_gate, multiply_previous_states
from seqwise.kernels.recurrence.gpu.sync import load_weight_chunks, publish, sigmoid, split_gates, tanh
from seqwise.kernels.recurrence.gpu.tile_io import (
    load_float,
    load_gates,
    load_optional_grad,
    publish_gates,
    publish_initial_state,
    store_gates,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def lstm_forward(
    gates, weight, initial_h, initial_c, hidden, cell, last_h, last_c,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    SAVE: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write all hidden states and the last states; with SAVE also all cells, and the gates in place of their projected
    inputs."""
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 4 * U * U
    gates += direction * 4 * U
    hidden += direction * U
    cell += direction * U
    line = tl.arange(0, 4 * OWN)  # four rows of the matrix for each unit
    unit_of_row = block * OWN + line // 4
    weight_rows, row_mask = ((line % 4) * U + unit_of_row) * U, unit_of_row < U
    chunks = load_weight_chunks(weight, weight_rows, row_mask, 1, U, config)
    unit = block * OWN + tl.arange(0, OWN)
    unit_mask = (unit < U)[:, None]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit[:, None]
    mask = unit_mask & sequences.exist[None, :]
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    c = load_float(initial_c + direction * U + offsets, mask)
    if SAVE:
        tl.store(cell + sequences.initial * stride + offsets, c.to(config.dtype), mask=mask)
    states = sequences.initial
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + begin * (4 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_i, x_f, x_g, x_o = load_gates(gate_pointers, step_mask, U, 4)
        product = multiply_previous_states(
            chunks, weight, weight_rows, row_mask, hidden, step, states, active, sequences, stride, config
        )
        u_i, u_f, u_g, u_o = split_gates(product, OWN)
        i, f, g, o = sigmoid(u_i + x_i), sigmoid(u_f + x_f), tanh(u_g + x_g), sigmoid(u_o + x_o)
        c = tl.where(active[None, :], f * c + i * g, c)
        h = tl.where(active[None, :], o * tanh(c), h)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, h, step_mask, config)
        if SAVE:
            store_gates(gate_pointers, (i, f, g, o), step_mask, 4, config)
            tl.store(cell + states * stride + offsets, c.to(config.dtype), mask=step_mask)
    tl.store(last_h + direction * U + offsets, h.to(config.dtype), mask=mask)
    tl.store(last_c + direction * U + offsets, c.to(config.dtype), mask=mask)


@triton.jit
def differentiate_step(gates, grad_h, grad_c, previous_c, tanh_c, grad_output, active):
    """Return the gradients of the four pre-activations and of the cell before the step, from those of h and c."""
    i, f, g, o = gates
    grad_h += grad_output
    through = grad_c + grad_h * o * (1 - tanh_c * tanh_c)
    grad_i, grad_f = through * g * i * (1 - i), through * previous_c * f * (1 - f)
    grad_g, grad_o = through * i * (1 - g * g), grad_h * tanh_c * o * (1 - o)
    return (grad_i, grad_f, grad_g, grad_o), tl.where(active, through * f, grad_c)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def lstm_backward(
    gates, weight, grad_gates, cell, grad_outputs, grad_last_h, grad_last_c, grad_initial_h, grad_initial_c,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence,
    ROUNDS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the gates' pre-activations (N, D, 4U) and of the initial states (B, D, U).

    grad_outputs: (T, B, D, U) with any strides or, with lengths, (N, D, U), where a step is as far as a sequence.
    grad_last_h, grad_last_c (B, D, U): may be None. ring: partial sums (`sync.py`).
    """
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    gate, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 4 * U * U
    cell += direction * U
    gates += direction * 4 * U
    grad_gates += direction * 4 * U
    unit_of_row = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    weight_rows, row_mask = gate * U * U + unit_of_row, unit_of_row < U
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, U, config)
    unit = block * (4 * OWN) + gate * OWN + tl.arange(0, OWN)
    unit_mask = (unit < U)[:, None]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit[:, None]
    mask = unit_mask & sequences.exist[None, :]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    grad_c = load_optional_grad(grad_last_c, direction * U + offsets, mask, config)
    grad_outputs += (
        direction * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride + unit[:, None]
    )
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    done_begin, done_active = tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        states = tl.where(step > 0, batch_size + next_begin, sequences.initial)
        previous_rows = locate_previous_states(step, states, sequences, config)
        values = load_gates(gates + begin * (4 * stride) + gate_offsets, step_mask, U, 4)
        previous_c = load_float(cell + previous_rows[None, :] * stride + unit[:, None], step_mask)
        tanh_c = tanh(load_float(cell + (batch_size + begin) * stride + offsets, step_mask))
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        if turn > 0:
            product = multiply_by_gate(
                chunks, weight, weight_rows, row_mask, grad_gates + done_begin * (4 * stride), gate, done_active,
                sequences, 4 * stride, ring, turn - 1, ROUNDS, config,
            )  # fmt: skip
            grad_h = tl.where(done_active[None, :], product, grad_h)
        if step >= 0:
            grads, grad_c = differentiate_step(values, grad_h, grad_c, previous_c, tanh_c, grad_output, active[None, :])
            publish_gates(grad_gates + begin * (4 * stride) + gate_offsets, grads, step_mask, U, 4, config)
        done_begin, done_active = begin, active
        time, begin, active = next_time, next_begin, next_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
    tl.store(grad_initial_c + direction * U + offsets, grad_c, mask=mask)
