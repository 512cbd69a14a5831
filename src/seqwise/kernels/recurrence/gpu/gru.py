"""The GRU over a whole sequence, in Triton, in three variants:

    reset after the product     r, z = σ(x_t + W h_{t−1})                n = tanh(x_t + r (W h_{t−1} + b))
    reset before the product    r, z = σ(x_t + W h_{t−1})                n = tanh(x_t + W (r h_{t−1}))
    layer normalisation         r, z = σ(x_t + LayerNorm(W h_{t−1}))     n = tanh(x_t + r LayerNorm(W h_{t−1}))

Then h_t = z h_{t−1} + (1 − z) n. With UPDATE_REPLACES the update gate has the other convention, (1 − z) h_{t−1} + z n.

A program of the forward pass owns 16 units, so 48 rows of the recurrent matrix and 16 empty ones. The backward pass of
the plain variants multiplies the gradients of all gates by quarters (`sync.py`). With the reset gate before the product
a step has two products, one after the other, so values are exchanged twice: h and r h, or the gradients of n and of r.
The gradient of z is multiplied while those of r are on their way.

With norms, the recurrent products of reset and update gate share one, and that of the candidate has its own. Both
are known at the same time, so a step forward has two exchanges: hidden values and statistics (`layer_norm.py`). The
projected input x_t comes with its own norms applied. In the backward pass 64 units belong to four programs, three of
which multiply the gradients of one gate each.

Layout: as in `lstm.py`, with gates (N, D, 3U), gains and biases (D, 3U) in the order r, z, n; statistics (N, D, 4),
mean and 1 / √(variance + ε) of both norms. bias (D, U) is b; where the reset gate is before the product, r h_{t−1} is
published in reset_hidden (N, D, U).
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
    add_products,
    load_float,
    load_gates,
    load_grad_output,
    load_optional_grad,
    locate_outputs,
    locate_previous_states,
    locate_sequences,
    locate_step,
    store_gates,
    zero_tiles,
)
from seqwise.kernels.recurrence.gpu.sync import (
    load_weight_chunks,
    locate_quarters,
    matmul_published,
    multiply_by_gate,
    multiply_previous_states,
    multiply_quarters,
    publish,
    publish_gates,
    publish_initial_state,
    sigmoid,
    split_gates,
    sum_quarters,
    tanh,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def gru_forward(
    gates, weight, initial_h, hidden, last_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    SAVE: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
    bias=None, reset_hidden=None,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE also statistics, and gates in place of projected inputs."""
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gates += direction * 3 * U
    hidden += direction * U
    local_row = tl.arange(0, 4 * OWN)  # three rows of the matrix for each unit, and an empty one
    unit_of_row, gate = block * OWN + local_row // 4, local_row % 4
    rows, row_mask = gate * U + unit_of_row, (unit_of_row < U) & (gate < 3)
    chunks = load_weight_chunks(weight, rows * U, row_mask, 1, U, config)
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    if gains is not None:
        gain = load_float(gains + direction * 3 * U + rows, row_mask)[:, None]
        norm_bias = load_float(biases + direction * 3 * U + rows, row_mask)[:, None]
        is_candidate, is_gate = (row_mask & (gate == 2))[:, None], (row_mask & (gate < 2))[:, None]
    if bias is not None:
        candidate_bias = load_float(bias + direction * U + unit, unit_mask)
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial_row * stride, mask, config)
    state_row = sequences.initial_row
    for step in range(sequences.max_length):
        _, first_row, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + first_row * (3 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_r, x_z, x_n = load_gates(gate_pointers, step_mask, U, 3)
        product = multiply_previous_states(
            chunks, weight, rows * U, row_mask, hidden, step, state_row, active, sequences, stride, config
        )
        if gains is not None:
            norms = two_norm_statistics(
                product, is_gate, is_candidate, statistics_ring, step, 2, 1, NUM_PROGRAMS, config
            )
            centre = tl.where(is_candidate, norms[2][None, :], norms[0][None, :])
            scale = tl.where(is_candidate, norms[3][None, :], norms[1][None, :])
            product = (product - centre) * scale * gain + norm_bias
        u_r, u_z, u_n, _ = split_gates(product, OWN)
        r = sigmoid(x_r + u_r)
        if reset_hidden is not None:
            step_reset_hidden = reset_hidden + direction * U + first_row * stride
            publish(step_reset_hidden + offsets, r * h, step_mask, config)
        z = sigmoid(x_z + u_z)
        if reset_hidden is not None:
            if SAVE:  # while the other programs publish
                store_gates(gate_pointers, (r, z), step_mask, 2, config)
            product = matmul_published(
                chunks, weight, rows * U, row_mask, step_reset_hidden, sequences.index * stride, active,
                sequences.first * stride, 1, U, OWN, config,
            )  # fmt: skip
            _, _, u_n, _ = split_gates(product, OWN)
            n = tanh(x_n + u_n)
        elif bias is not None:
            n = tanh(x_n + r * (u_n + candidate_bias))
        else:
            n = tanh(x_n + r * u_n)
        old_share = 1 - z if UPDATE_REPLACES else z
        h = tl.where(active[None, :], old_share * h + (1 - old_share) * n, h)
        state_row = batch_size + first_row
        publish(hidden + state_row * stride + offsets, h, step_mask, config)
        if SAVE:
            if reset_hidden is not None:
                store_gates(gate_pointers + 2 * U, (n,), step_mask, 1, config)
            else:
                store_gates(gate_pointers, (r, z, n), step_mask, 3, config)
            if gains is not None:
                store_statistics(statistics, first_row + sequences.index, norms, active, 4)
    store_gates(last_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit
def differentiate_blend(gates, h, grad_new_h, UPDATE_REPLACES: tl.constexpr):
    """Return the gradients of the pre-activations of z and n, and the part of grad h_{t−1} without the matrix."""
    _, z, n = gates
    old_share = 1 - z if UPDATE_REPLACES else z
    grad_z = grad_new_h * (n - h if UPDATE_REPLACES else h - n) * z * (1 - z)
    return grad_z, grad_new_h * (1 - old_share) * (1 - n * n), grad_new_h * old_share


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_backward(
    gates, weight, hidden, grad_gates, candidate, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
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
    weight_rows, row_mask, starts, sequence_lengths = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, K, config)
    probes = sequences.first * grad_stride + 2 * V  # the values that each program publishes last
    probes += tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = (tl.program_id(0) * config.own_units + tl.arange(0, config.own_units))[:, None]
    unit_mask = unit < U
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_offsets = sequences.index[None, :] * grad_stride + unit
    mask = unit_mask & sequences.in_batch[None, :]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    direct_grad_h = tl.zeros_like(grad_h)  # the part of grad_h without the matrix
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    later_time, later_first_row, later_active = sequences.max_length, tl.zeros((), tl.int64), sequences.in_batch
    # `later_…` is the step of the iteration before, `earlier_…` that of the next one.
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_rows = locate_previous_states(step, state_row, sequences, config)
        saved_gates = load_gates(gates + first_row * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit, step_mask)
        u = load_float(candidate + first_row * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if iteration > 0:
            parts = multiply_quarters(
                chunks, weight, weight_rows, row_mask, grad_gates + later_first_row * grad_stride, starts,
                later_time < sequence_lengths, probes, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(parts, ring, iteration - 1, SPLIT, config)
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct_grad_h = differentiate_blend(saved_gates, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_n * u * saved_gates[0] * (1 - saved_gates[0]), grad_z, grad_n * saved_gates[0]
            publish_gates(grad_gates + first_row * grad_stride + grad_offsets, grads, step_mask, V, 3, config)
            tl.store(candidate + first_row * stride + offsets, grad_n.to(config.dtype), mask=step_mask)
        later_time, later_first_row, later_active = time, first_row, active
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_reset_before_backward(
    gates, weight, hidden, grad_gates, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the gates' pre-activations (N, D, 3V) and of the initial states (B, D, U). Other arguments
    are as in `gru_backward`."""
    U: tl.constexpr = config.units
    V: tl.constexpr = PADDED_UNITS
    K: tl.constexpr = V // 4
    direction = tl.program_id(2)
    stride, grad_stride = tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * V * U
    gates += direction * 3 * U
    grad_gates += direction * 3 * V
    weight_rows, row_mask, starts, sequence_lengths = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks_r = load_weight_chunks(weight, weight_rows, row_mask, U, K, config)
    chunks_z = load_weight_chunks(weight + V * U, weight_rows, row_mask, U, K, config)
    chunks_n = load_weight_chunks(weight + 2 * V * U, weight_rows, row_mask, U, K, config)
    probes = sequences.first * grad_stride + tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = (tl.program_id(0) * config.own_units + tl.arange(0, config.own_units))[:, None]
    unit_mask = unit < U
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_offsets = sequences.index[None, :] * grad_stride + unit
    offsets = direction * U + sequences.index[None, :] * stride + unit
    mask = unit_mask & sequences.in_batch[None, :]
    grad_h = load_optional_grad(grad_last_h, offsets, mask, config)
    direct_grad_h = tl.zeros_like(grad_h)  # grad_h, without the products of r and z
    hidden += direction * U + unit
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        # Computed again, not reused from the iteration before: the compiler would keep all addresses of its product.
        later_time, later_first_row, later_active = locate_step(step_offsets, step + 1, sequences, config)
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_offsets = locate_previous_states(step, state_row, sequences, config)[None, :] * stride
        saved_gates = load_gates(gates + first_row * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if iteration > 0:
            later_grads = grad_gates + later_first_row * grad_stride
            parts = multiply_quarters(
                chunks_z, weight + V * U, weight_rows, row_mask, later_grads + V, starts,
                later_time < sequence_lengths, probes, K, SPLIT, config,
            ) + multiply_quarters(
                chunks_r, weight, weight_rows, row_mask, later_grads, starts,
                later_time < sequence_lengths, probes, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(parts, ring, 2 * iteration - 1, SPLIT, config)
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct_grad_h = differentiate_blend(saved_gates, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_gates + first_row * grad_stride + grad_offsets
            publish_gates(grads + V, (grad_z, grad_n), step_mask, V, 2, config)
            parts = multiply_quarters(
                chunks_n, weight + 2 * V * U, weight_rows, row_mask, grad_gates + first_row * grad_stride + 2 * V,
                starts, time < sequence_lengths, probes, K, SPLIT, config,
            )  # fmt: skip
            grad_h_through_reset = sum_quarters(parts, ring, 2 * iteration, SPLIT, config) * saved_gates[0]
            publish(grads, grad_h_through_reset * h * (1 - saved_gates[0]), step_mask, config)
            direct_grad_h += grad_h_through_reset
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)


@triton.jit
def differentiate_layer_norm_step(
    grad_h, h, gates, products, gains, bias, inverse, n_inverse, statistics_ring, iteration,
    NUM_PROGRAMS: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Return the gradients of the gates' pre-activations, of the norms' results, and of the recurrent products, and the
    part of grad h_{t−1} without the matrix. products: normalised. bias: that of the candidate's norm."""
    U: tl.constexpr = config.units
    r = gates[0]
    u_r, u_z, u_n = products
    gain_r, gain_z, gain_n = gains
    grad_z, grad_n, direct_grad_h = differentiate_blend(gates, h, grad_h, UPDATE_REPLACES)
    grad_r = grad_n * (u_n * gain_n + bias) * r * (1 - r)
    grad_value_r, grad_value_z, grad_value_n = grad_r * gain_r, grad_z * gain_z, grad_n * r * gain_n
    gate_parts = tl.join(grad_value_r + grad_value_z, grad_value_r * u_r + grad_value_z * u_z)
    parts = tl.join(gate_parts, tl.join(grad_value_n, grad_value_n * u_n))
    M: tl.constexpr = grad_h.shape[1]
    parts = tl.reshape(parts, (grad_h.shape[0], M, 4))
    sums = sum_over_units(parts, statistics_ring, iteration, NUM_PROGRAMS, config)
    gate_sums, candidate_sums = tl.split(tl.reshape(sums, (M, 2, 2)))
    mean_grad, mean_product = tl.split(gate_sums / (2 * U))
    n_mean_grad, n_mean_product = tl.split(candidate_sums / U)
    grad_product_r = differentiate_norm(grad_value_r, u_r, mean_grad, mean_product, inverse)
    grad_product_z = differentiate_norm(grad_value_z, u_z, mean_grad, mean_product, inverse)
    grad_product_n = differentiate_norm(grad_value_n, u_n, n_mean_grad, n_mean_product, n_inverse)
    grad_products = grad_product_r, grad_product_z, grad_product_n
    return (grad_r, grad_z, grad_n), (grad_r, grad_z, grad_n * r), grad_products, direct_grad_h


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def layer_norm_gru_backward(
    gates, weight, grad_products, hidden, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
    products, gains, biases, statistics, grad_norms, statistics_ring, NUM_PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the recurrent products (N, D, 3U), of all gains and of the candidate's bias, summed over
    each group of sequences, in grad_norms (D, groups, 4U), and of the initial states (B, D, U).

    products (N, D, 3U): the recurrent products, overwritten by the gradients of the projected inputs.
    """
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    member, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 3 * U * U
    gains += direction * 3 * U
    hidden += direction * U
    gates += direction * 3 * U
    products += direction * 3 * U
    grad_products += direction * 3 * U
    unit_of_row, gate = block * (4 * OWN) + tl.arange(0, 4 * OWN), member % 3
    weight_rows, row_mask = gate * U * U + unit_of_row, (unit_of_row < U) & (member < 3)  # the fourth adds zeros
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, U, config)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = direction * U + sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    own_gains = load_gates(gains + unit, unit_mask, U, 3)
    candidate_bias = load_float(biases + direction * 3 * U + 2 * U + unit, unit_mask)
    grad_h = load_optional_grad(grad_last_h, offsets, mask, config)
    grad_gains, grad_candidate_bias = zero_tiles(grad_h, 3), tl.zeros_like(grad_h)
    direct_grad_h = tl.zeros_like(grad_h)  # the part of grad_h without the matrix
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    later_first_row, later_active = tl.zeros((), tl.int64), sequences.in_batch
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        step_offset = first_row * (3 * stride)
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_rows = locate_previous_states(step, state_row, sequences, config)
        saved_gates = load_gates(gates + step_offset + gate_offsets, step_mask, U, 3)
        u = load_gates(products + step_offset + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        mean, inverse, n_mean, n_inverse = load_statistics(statistics, first_row + sequences.index, active, 4)
        if iteration > 0:
            product = multiply_by_gate(
                chunks, weight, weight_rows, row_mask, grad_products + later_first_row * (3 * stride), gate,
                later_active, sequences, 3 * stride, ring, iteration - 1, config,
            )  # fmt: skip
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_new_h = tl.where(active[None, :], grad_h + grad_output, 0.0)
            values = normalize_gates(u[:2], mean, inverse, 2) + normalize_gates(u[2:], n_mean, n_inverse, 1)
            step_grad_gates, step_grad_norms, step_grad_products, direct_grad_h = differentiate_layer_norm_step(
                grad_new_h, h, saved_gates, values, own_gains, candidate_bias, inverse, n_inverse, statistics_ring,
                iteration, NUM_PROGRAMS, UPDATE_REPLACES, config,
            )  # fmt: skip
            publish_gates(grad_products + step_offset + gate_offsets, step_grad_products, step_mask, U, 3, config)
            store_gates(products + step_offset + gate_offsets, step_grad_gates, step_mask, 3, config)
            grad_gains = add_products(grad_gains, step_grad_norms, values, 3)
            grad_candidate_bias += step_grad_norms[2]
        later_first_row, later_active = first_row, active
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    grad_gains += (grad_candidate_bias,)
    store_norm_grads(grad_norms + unit, grad_gains, unit_mask, batch_size, first_sequence, 4, config)
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)
