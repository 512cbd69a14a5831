"""The GRU over a whole sequence, with the reset gate before the product, forward and backward, in Triton.

    r, z = σ(x_t + W h_{t−1})     n = tanh(x_t + W (r h_{t−1}))     h_t = z h_{t−1} + (1 − z) n

A step has two products, one after the other, so values are exchanged twice: h and r h forward, the gradients of n and
of r backward. The gradient of z is multiplied while those of r are on their way. Layout and conventions are those of
`gru.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.gru import differentiate_blend
from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    locate_outputs,
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
from seqwise.kernels.recurrence.gpu.sync import (
    load_weight_chunks,
    matmul_published,
    publish,
    sigmoid,
    split_gates,
    tanh,
)
from seqwise.kernels.recurrence.gpu.tile_io import (
    load_float,
    load_gates,
    load_optional_grad,
    publish_gates,
    publish_initial_state,
    store_gates,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def gru_reset_before_forward(
    gates, weight, initial_h, hidden, reset_hidden, last_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    SAVE: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE also the gates, in place of their projected inputs.

    reset_hidden (N, D, U): memory in which r h_{t−1} is published.
    """
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gates += direction * 3 * U
    hidden += direction * U
    reset_hidden += direction * U
    line = tl.arange(0, 4 * OWN)  # three rows of the matrix for each unit, and an empty one
    unit_of_row = block * OWN + line // 4
    weight_rows, row_mask = ((line % 4) * U + unit_of_row) * U, (unit_of_row < U) & (line % 4 < 3)
    chunks = load_weight_chunks(weight, weight_rows, row_mask, 1, U, config)
    unit = block * OWN + tl.arange(0, OWN)
    unit_mask = (unit < U)[:, None]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit[:, None]
    mask = unit_mask & sequences.exist[None, :]
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    states = sequences.initial
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + begin * (3 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        step_reset_hidden = reset_hidden + begin * stride
        x_r, x_z, x_n = load_gates(gate_pointers, step_mask, U, 3)
        product = multiply_previous_states(
            chunks, weight, weight_rows, row_mask, hidden, step, states, active, sequences, stride, config
        )
        u_r, u_z, _, _ = split_gates(product, OWN)
        r = sigmoid(x_r + u_r)
        publish(step_reset_hidden + offsets, r * h, step_mask, config)
        z = sigmoid(x_z + u_z)
        if SAVE:
            store_gates(gate_pointers, (r, z), step_mask, 2, config)
        product = matmul_published(
            chunks, weight, weight_rows, row_mask, step_reset_hidden, sequences.index * stride, active,
            sequences.first * stride, 1, U, OWN, config,
        )  # fmt: skip
        _, _, u_n, _ = split_gates(product, OWN)
        n = tanh(x_n + u_n)
        share = 1 - z if UPDATE_REPLACES else z
        h = tl.where(active[None, :], share * h + (1 - share) * n, h)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, h, step_mask, config)
        if SAVE:
            tl.store(gate_pointers + 2 * U, n.to(config.dtype), mask=step_mask)
    tl.store(last_h + direction * U + offsets, h.to(config.dtype), mask=mask)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_reset_before_backward(
    gates, weight, hidden, grad_gates, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, ROUNDS: tl.constexpr, UPDATE_REPLACES: tl.constexpr,
    config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the gates' pre-activations (N, D, 3V) and of the initial states (B, D, U).

    PADDED_UNITS (V), grad_outputs, grad_last_h and ring: as in `gru.py`.
    """
    U: tl.constexpr = config.units
    V: tl.constexpr = PADDED_UNITS
    K: tl.constexpr = V // 4
    direction = tl.program_id(2)
    stride, grad_stride = tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * V * U
    gates += direction * 3 * U
    grad_gates += direction * 3 * V
    weight_rows, row_mask, starts, num_steps_of = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks_r = load_weight_chunks(weight, weight_rows, row_mask, U, K, config)
    chunks_z = load_weight_chunks(weight + V * U, weight_rows, row_mask, U, K, config)
    chunks_n = load_weight_chunks(weight + 2 * V * U, weight_rows, row_mask, U, K, config)
    probes = sequences.first * grad_stride + tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = (tl.program_id(0) * config.own_units + tl.arange(0, config.own_units))[:, None]
    unit_mask = unit < U
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_offsets = sequences.index[None, :] * grad_stride + unit
    offsets = direction * U + sequences.index[None, :] * stride + unit
    mask = unit_mask & sequences.exist[None, :]
    grad_h = load_optional_grad(grad_last_h, offsets, mask, config)
    OWN: tl.constexpr = config.own_units
    M: tl.constexpr = config.batch_tile
    direct = tl.zeros((OWN, M), tl.float32)  # grad_h, without the products of r and z
    hidden += direction * U + unit
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        # Computed again rather than kept from the last turn: the compiler would keep every address of its product.
        done_time, done_begin, done_active = locate_step(step_offsets, step + 1, sequences, config)
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        states = tl.where(step > 0, batch_size + next_begin, sequences.initial)
        previous_offsets = locate_previous_states(step, states, sequences, config)[None, :] * stride
        values = load_gates(gates + begin * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_offsets, step_mask)
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        if turn > 0:
            done_grads = grad_gates + done_begin * grad_stride
            parts = multiply_quarters(
                chunks_z, weight + V * U, weight_rows, row_mask, done_grads + V, starts,
                done_time < num_steps_of, probes, K, SPLIT, config,
            ) + multiply_quarters(
                chunks_r, weight, weight_rows, row_mask, done_grads, starts,
                done_time < num_steps_of, probes, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(parts, ring, 2 * turn - 1, ROUNDS, SPLIT, config)
            grad_h = tl.where(done_active[None, :], direct + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct = differentiate_blend(values, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_gates + begin * grad_stride + grad_offsets
            publish_gates(grads + V, (grad_z, grad_n), step_mask, V, 2, config)
            parts = multiply_quarters(
                chunks_n, weight + 2 * V * U, weight_rows, row_mask, grad_gates + begin * grad_stride + 2 * V, starts,
                time < num_steps_of, probes, K, SPLIT, config,
            )  # fmt: skip
            through_reset = sum_quarters(parts, ring, 2 * turn, ROUNDS, SPLIT, config) * values[0]
            publish(grads, through_reset * h * (1 - values[0]), step_mask, config)
            direct += through_reset
        time, begin, active = next_time, next_begin, next_active
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)
