"""The GRU with layer normalisation over a whole sequence, forward and backward, in Triton.

    r, z = σ(x_t + LayerNorm(W h_{t−1}))     n = tanh(x_t + r LayerNorm(W h_{t−1}))     h_t = z h_{t−1} + (1 − z) n

The plain one is in `gru.py`; how programs compute a mean together is in `layer_norm.py`. The recurrent products of
reset and update gate have one norm together, that of the candidate has its own. Both are known at the same time, so a
step forward has two exchanges: hidden values and statistics. The projected input x_t comes with its own norms applied.
In the backward pass 64 units belong to four programs, three of which multiply the gradients of one gate each.

Layout: packed rows (`packed_rows.py`), D directions, U units: gates (N, D, 3U) as r, z, n, as are gains and biases
(D, 3U); hidden (B + N + B, D, U) with the initial states; last states (B, D, U); statistics (N, D, 4), mean and
1 / √(variance + ε) of both norms. Gradients of weights are computed elsewhere (`scans.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    differentiate_norm,
    load_statistics,
    normalize_gates,
    store_norm_grads,
    store_statistics,
    sum_over_units,
    two_norm_statistics,
)
from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    locate_outputs,
    locate_previous_states,
    locate_sequences,
    locate_step,
)
from seqwise.kernels.recurrence.gpu.step_matmul import multiply_by_gate, multiply_previous_states
from seqwise.kernels.recurrence.gpu.sync import load_weight_chunks, publish, sigmoid, split_gates, tanh
from seqwise.kernels.recurrence.gpu.tile_io import (
    add_products,
    load_float,
    load_gates,
    load_optional_grad,
    publish_gates,
    publish_initial_state,
    store_gates,
    zero_tiles,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def layer_norm_gru_forward(
    gates, weight, gains, biases, initial_h, hidden, statistics, last_h,
    lengths, step_offsets, statistics_ring, num_steps, batch_size, num_rows, reverse, first_sequence,
    NUM_PROGRAMS: tl.constexpr, ROUNDS: tl.constexpr, UPDATE_REPLACES: tl.constexpr, SAVE: tl.constexpr,
    config: tl.constexpr,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE also the statistics, and the gates in place of their
    projected inputs."""
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gains += direction * 3 * U
    biases += direction * 3 * U
    gates += direction * 3 * U
    hidden += direction * U
    line = tl.arange(0, 4 * OWN)  # three rows of the matrix for each unit, and an empty one
    unit_of_row, gate = block * OWN + line // 4, line % 4
    rows, row_mask = gate * U + unit_of_row, (unit_of_row < U) & (gate < 3)
    chunks = load_weight_chunks(weight, rows * U, row_mask, 1, U, config)
    gain, bias = load_float(gains + rows, row_mask)[:, None], load_float(biases + rows, row_mask)[:, None]
    is_candidate, is_gate = (row_mask & (gate == 2))[:, None], (row_mask & (gate < 2))[:, None]
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.exist[None, :]
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    states = sequences.initial
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + begin * (3 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_r, x_z, x_n = load_gates(gate_pointers, step_mask, U, 3)
        product = multiply_previous_states(
            chunks, weight, rows * U, row_mask, hidden, step, states, active, sequences, stride, config
        )
        mean, inverse, n_mean, n_inverse = two_norm_statistics(
            product, is_gate, is_candidate, statistics_ring, step, 2, 1, NUM_PROGRAMS, ROUNDS, config
        )
        centre = tl.where(is_candidate, n_mean[None, :], mean[None, :])
        scale = tl.where(is_candidate, n_inverse[None, :], inverse[None, :])
        u_r, u_z, u_n, _ = split_gates((product - centre) * scale * gain + bias, OWN)
        r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
        n = tanh(x_n + r * u_n)
        share = 1 - z if UPDATE_REPLACES else z
        h = tl.where(active[None, :], share * h + (1 - share) * n, h)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, h, step_mask, config)
        if SAVE:
            store_gates(gate_pointers, (r, z, n), step_mask, 3, config)
            store_statistics(statistics, begin + sequences.index, (mean, inverse, n_mean, n_inverse), active, 4)
    store_gates(last_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit
def differentiate_step(
    grad_h, h, gates, products, gains, bias, inverse, n_inverse, statistics_ring, turn,
    NUM_PROGRAMS: tl.constexpr, ROUNDS: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Return the gradients of the gates' pre-activations, of the norms' results, and of the recurrent products, and the
    part of grad h_{t−1} that passes z alone.

    products: normalised. bias: that of the candidate's norm.
    """
    U: tl.constexpr = config.units
    r, z, n = gates
    u_r, u_z, u_n = products
    gain_r, gain_z, gain_n = gains
    share = 1 - z if UPDATE_REPLACES else z
    grad_z = grad_h * (n - h if UPDATE_REPLACES else h - n) * z * (1 - z)
    grad_n = grad_h * (1 - share) * (1 - n * n)
    grad_r = grad_n * (u_n * gain_n + bias) * r * (1 - r)
    value_r, value_z, value_n = grad_r * gain_r, grad_z * gain_z, grad_n * r * gain_n
    parts = tl.join(tl.join(value_r + value_z, value_r * u_r + value_z * u_z), tl.join(value_n, value_n * u_n))
    M: tl.constexpr = grad_h.shape[1]
    parts = tl.reshape(parts, (grad_h.shape[0], M, 4))
    sums = sum_over_units(parts, statistics_ring, turn, NUM_PROGRAMS, ROUNDS)
    gate_sums, candidate_sums = tl.split(tl.reshape(sums, (M, 2, 2)))
    mean, product = tl.split(gate_sums / (2 * U))
    n_mean, n_product = tl.split(candidate_sums / U)
    product_r = differentiate_norm(value_r, u_r, mean, product, inverse)
    product_z = differentiate_norm(value_z, u_z, mean, product, inverse)
    product_n = differentiate_norm(value_n, u_n, n_mean, n_product, n_inverse)
    grad_norms = grad_r, grad_z, grad_n * r
    return (grad_r, grad_z, grad_n), grad_norms, (product_r, product_z, product_n), grad_h * share


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def layer_norm_gru_backward(
    gates, weight, gains, biases, products, grad_products, hidden, statistics, grad_outputs, grad_last_h,
    grad_initial_h, grad_norms,
    lengths, step_offsets, ring, statistics_ring, step_stride, sequence_stride, direction_stride, num_steps,
    batch_size, num_rows, reverse, first_sequence,
    NUM_PROGRAMS: tl.constexpr, ROUNDS: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the recurrent products (N, D, 3U), of all gains and of the candidate's bias, summed over
    each group of sequences, in grad_norms (D, groups, 4U), and of the initial states (B, D, U).

    products (N, D, 3U): the recurrent products, overwritten by the gradients of the projected inputs. grad_outputs,
    grad_last_h and ring: as in `lstm.py`.
    """
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    share, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gains += direction * 3 * U
    hidden += direction * U
    gates += direction * 3 * U
    products += direction * 3 * U
    grad_products += direction * 3 * U
    unit_of_row, gate = block * (4 * OWN) + tl.arange(0, 4 * OWN), share % 3
    weight_rows, row_mask = gate * U * U + unit_of_row, (unit_of_row < U) & (share < 3)  # the fourth adds zeros
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, U, config)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.exist[None, :]
    offsets = direction * U + sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    own_gains = load_gates(gains + unit, unit_mask, U, 3)
    candidate_bias = load_float(biases + direction * 3 * U + 2 * U + unit, unit_mask)
    grad_h = load_optional_grad(grad_last_h, offsets, mask, config)
    grad_gains, grad_candidate_bias = zero_tiles(grad_h, 3), tl.zeros_like(grad_h)
    direct = tl.zeros_like(grad_h)  # the part of grad_h without the matrix
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    done_begin, done_active = tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        step_offset = begin * (3 * stride)
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        states = tl.where(step > 0, batch_size + next_begin, sequences.initial)
        previous_rows = locate_previous_states(step, states, sequences, config)
        saved_gates = load_gates(gates + step_offset + gate_offsets, step_mask, U, 3)
        u = load_gates(products + step_offset + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit, step_mask)
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        mean, inverse, n_mean, n_inverse = load_statistics(statistics, begin + sequences.index, active, 4)
        if turn > 0:
            product = multiply_by_gate(
                chunks, weight, weight_rows, row_mask, grad_products + done_begin * (3 * stride), gate, done_active,
                sequences, 3 * stride, ring, turn - 1, ROUNDS, config,
            )  # fmt: skip
            grad_h = tl.where(done_active[None, :], direct + product, grad_h)
        if step >= 0:
            grad_new_h = tl.where(active[None, :], grad_h + grad_output, 0.0)
            values = normalize_gates(u[:2], mean, inverse, 2) + normalize_gates(u[2:], n_mean, n_inverse, 1)
            step_grad_gates, step_grad_norms, step_grad_products, direct = differentiate_step(
                grad_new_h, h, saved_gates, values, own_gains, candidate_bias, inverse, n_inverse, statistics_ring,
                turn, NUM_PROGRAMS, ROUNDS, UPDATE_REPLACES, config,
            )  # fmt: skip
            publish_gates(grad_products + step_offset + gate_offsets, step_grad_products, step_mask, U, 3, config)
            store_gates(products + step_offset + gate_offsets, step_grad_gates, step_mask, 3, config)
            grad_gains = add_products(grad_gains, step_grad_norms, values, 3)
            grad_candidate_bias += step_grad_norms[2]
        done_begin, done_active = begin, active
        time, begin, active = next_time, next_begin, next_active
    grad_gains += (grad_candidate_bias,)
    store_norm_grads(grad_norms + unit, grad_gains, unit_mask, batch_size, first_sequence, 4, config)
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)
