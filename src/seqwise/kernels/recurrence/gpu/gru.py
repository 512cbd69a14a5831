"""The GRU over a whole sequence, with the reset gate after the product, forward and backward, in Triton.

    r, z = σ(x_t + W h_{t−1})     n = tanh(x_t + r (W h_{t−1} + b))     h_t = z h_{t−1} + (1 − z) n

With UPDATE_REPLACES the update gate has the other convention, h_t = (1 − z) h_{t−1} + z n. The reset gate before the
product is in `gru_reset_before.py`. A program of the forward pass owns 16 units, so 48 rows of the recurrent matrix and
16 empty ones. The backward pass multiplies the gradients of all gates by quarters (`step_matmul.py`).

Layout: packed rows (`packed_rows.py`), D directions, U units: gates (N, D, 3U) as r, z, n; hidden (B + N + B, D, U)
with the initial states; last states (B, D, U). Gradients of weights are products over all steps, computed elsewhere
(`scans.py`).
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
from seqwise.kernels.recurrence.gpu.step_matmul import (
    locate_quarters,
    multiply_previous_states,
    multiply_quarters,
    sum_quarters,
)
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
def gru_forward(
    gates, weight, bias, initial_h, hidden, last_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    SAVE: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE also the gates, in place of their projected inputs."""
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gates += direction * 3 * U
    hidden += direction * U
    line = tl.arange(0, 4 * OWN)  # three rows of the matrix for each unit, and an empty one
    unit_of_row = block * OWN + line // 4
    weight_rows, row_mask = ((line % 4) * U + unit_of_row) * U, (unit_of_row < U) & (line % 4 < 3)
    chunks = load_weight_chunks(weight, weight_rows, row_mask, 1, U, config)
    unit = block * OWN + tl.arange(0, OWN)
    unit_mask = (unit < U)[:, None]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit[:, None]
    b = load_float(bias + direction * U + unit, unit < U)[:, None]
    mask = unit_mask & sequences.exist[None, :]
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    states = sequences.initial
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + begin * (3 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_r, x_z, x_n = load_gates(gate_pointers, step_mask, U, 3)
        product = multiply_previous_states(
            chunks, weight, weight_rows, row_mask, hidden, step, states, active, sequences, stride, config
        )
        u_r, u_z, u_n, _ = split_gates(product, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * (u_n + b))
        share = 1 - z if UPDATE_REPLACES else z
        h = tl.where(active[None, :], share * h + (1 - share) * n, h)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, h, step_mask, config)
        if SAVE:
            store_gates(gate_pointers, (r, z, n), step_mask, 3, config)
    tl.store(last_h + direction * U + offsets, h.to(config.dtype), mask=mask)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_backward(
    gates, weight, hidden, candidate, grad_gates, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, ROUNDS: tl.constexpr, UPDATE_REPLACES: tl.constexpr,
    config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of W h_{t−1} for r, z and n, (N, D, 3V), and of the initial states (B, D, U).

    V = PADDED_UNITS is U rounded up to a multiple of 32, also in the rows of `weight`, so that quarters are whole; the
    surplus holds zeros. candidate (N, D, U): W h_{t−1} + b of n, which r multiplies; it is overwritten by the gradient
    of the pre-activation of n. grad_outputs and grad_last_h: as in `lstm.py`. ring: partial sums (`sync.py`).
    """
    U: tl.constexpr = config.units
    V: tl.constexpr = PADDED_UNITS
    K: tl.constexpr = 3 * V // 4
    direction = tl.program_id(2)
    stride, grad_stride = tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * V * U
    gates += direction * 3 * U
    grad_gates += direction * 3 * V
    hidden += direction * U
    candidate += direction * U
    weight_rows, row_mask, starts, num_steps_of = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, K, config)
    # The values that each program publishes last.
    probes = sequences.first * grad_stride + 2 * V
    probes += tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    unit_mask = (unit < U)[:, None]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit[:, None]
    grad_offsets = sequences.index[None, :] * grad_stride + unit[:, None]
    mask = unit_mask & sequences.exist[None, :]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    OWN: tl.constexpr = config.own_units
    M: tl.constexpr = config.batch_tile
    direct = tl.zeros((OWN, M), tl.float32)  # the part of grad_h without the matrix
    grad_outputs += (
        direction * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride + unit[:, None]
    )
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    done_time, done_begin, done_active = sequences.longest, tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        states = tl.where(step > 0, batch_size + next_begin, sequences.initial)
        previous_rows = locate_previous_states(step, states, sequences, config)
        values = load_gates(gates + begin * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit[:, None], step_mask)
        u = load_float(candidate + begin * stride + offsets, step_mask)
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        if turn > 0:
            parts = multiply_quarters(
                chunks, weight, weight_rows, row_mask, grad_gates + done_begin * grad_stride, starts,
                done_time < num_steps_of, probes, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(parts, ring, turn - 1, ROUNDS, SPLIT, config)
            grad_h = tl.where(done_active[None, :], direct + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct = differentiate_blend(values, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_n * u * values[0] * (1 - values[0]), grad_z, grad_n * values[0]
            publish_gates(grad_gates + begin * grad_stride + grad_offsets, grads, step_mask, V, 3, config)
            tl.store(candidate + begin * stride + offsets, grad_n.to(config.dtype), mask=step_mask)
        done_time, done_begin, done_active = time, begin, active
        time, begin, active = next_time, next_begin, next_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)


@triton.jit
def differentiate_blend(gates, h, grad_new_h, UPDATE_REPLACES: tl.constexpr):
    """Return the gradients of the pre-activations of z and n, and the part of grad h_{t−1} that passes z alone."""
    _, z, n = gates
    share = 1 - z if UPDATE_REPLACES else z
    grad_z = grad_new_h * (n - h if UPDATE_REPLACES else h - n) * z * (1 - z)
    return grad_z, grad_new_h * (1 - share) * (1 - n * n), grad_new_h * share
