"""Triton kernels of the GRU over a whole sequence, in three variants:

    reset after the product     r, z = σ(x_t + W h_{t−1})                n = tanh(x_t + r (W h_{t−1} + b))
    reset before the product    r, z = σ(x_t + W h_{t−1})                n = tanh(x_t + W (r h_{t−1}))
    layer normalisation         r, z = σ(x_t + LayerNorm(W h_{t−1}))     n = tanh(x_t + r LayerNorm(W h_{t−1}))

Then h_t = z h_{t−1} + (1 − z) n. With UPDATE_REPLACES the update gate has the other convention, (1 − z) h_{t−1} + z n.
x_t is the projected input and W the recurrent weight, `weight_hidden` (U in `layers/cells.py`).

A program of the forward pass owns 16 units, so 48 rows of the weight and 16 empty ones. The backward pass of the plain
variants multiplies the gradients of all gates by quarters (`sync.py`). With the reset gate before the product, a step
has two products and two exchanges: of h and r h, or of the gradients of n and r.

With norms, the products of reset and update gate share one norm, and the candidate's product has its own. Both are
known at once, so a forward step has two exchanges: hidden values and statistics (`layer_norm.py`). The input's norms
are already applied to x_t. Backward, 64 units belong to four programs; three multiply the gradients of one gate each.

Shapes: as in `lstm.py`, with weight_hidden (D, 3U, U), gates (N, D, 3U), gains and biases (D, 3U) in the order r, z, n;
statistics (N, D, 4), mean and rstd of the gates, then of the candidate. bias (D, U) is b. reset_hidden (N, D, U) is
where r h_{t−1} is published, with the reset gate before the product.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    compute_two_norm_statistics,
    differentiate_norm,
    load_statistics,
    standardize_tiles,
    store_norm_grads,
    store_statistics,
    sum_over_units,
)
from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    add_products,
    create_zero_tiles,
    load_float,
    load_grad_output,
    load_optional_grad,
    load_tiles,
    locate_grad_outputs,
    locate_previous_states,
    locate_sequences,
    locate_step,
    store_tiles,
)
from seqwise.kernels.recurrence.gpu.sync import (
    load_weight_chunks,
    locate_quarters,
    matmul_published,
    multiply_by_gate,
    multiply_previous_states,
    multiply_quarters,
    publish,
    publish_initial_state,
    publish_tiles,
    sigmoid,
    split_gates,
    sum_quarters,
    tanh,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def gru_forward(
    gates, weight_hidden, initial_h, hidden, final_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse_bits, first_sequence,
    SAVE: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
    bias=None, reset_hidden=None,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Writes all hidden states and final states; with SAVE also statistics, and gates in place of projected inputs."""
    U: tl.constexpr = config.units
    OWN_UNITS: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * 3 * U * U
    gates += direction * 3 * U
    hidden += direction * U
    local_row = tl.arange(0, 4 * OWN_UNITS)  # three rows of the weight for each unit, and an empty one
    unit_of_row, gate = block * OWN_UNITS + local_row // 4, local_row % 4
    rows, row_mask = gate * U + unit_of_row, (unit_of_row < U) & (gate < 3)
    chunks = load_weight_chunks(weight_hidden, rows * U, row_mask, 1, U, config)
    unit = block * OWN_UNITS + tl.arange(0, OWN_UNITS)[:, None]
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
        x_r, x_z, x_n = load_tiles(gate_pointers, step_mask, U, 3)
        product = multiply_previous_states(
            chunks, weight_hidden, rows * U, row_mask, hidden, step, state_row, active, sequences, stride, config
        )
        if gains is not None:
            step_statistics = compute_two_norm_statistics(
                product, is_gate, is_candidate, statistics_ring, step, 2, 1, NUM_PROGRAMS, config
            )
            mean = tl.where(is_candidate, step_statistics[2][None, :], step_statistics[0][None, :])
            rstd = tl.where(is_candidate, step_statistics[3][None, :], step_statistics[1][None, :])
            product = (product - mean) * rstd * gain + norm_bias
        u_r, u_z, u_n, _ = split_gates(product, OWN_UNITS)
        r = sigmoid(x_r + u_r)
        if reset_hidden is not None:
            step_reset_hidden = reset_hidden + direction * U + first_row * stride
            publish(step_reset_hidden + offsets, r * h, step_mask, config)
        z = sigmoid(x_z + u_z)
        if reset_hidden is not None:
            if SAVE:  # here, while the other programs publish
                store_tiles(gate_pointers, (r, z), step_mask, 2, config)
            product = matmul_published(
                chunks, weight_hidden, rows * U, row_mask, step_reset_hidden, sequences.index * stride, active,
                sequences.first * stride, 1, U, OWN_UNITS, config,
            )  # fmt: skip
            _, _, u_n, _ = split_gates(product, OWN_UNITS)
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
                store_tiles(gate_pointers + 2 * U, (n,), step_mask, 1, config)
            else:
                store_tiles(gate_pointers, (r, z, n), step_mask, 3, config)
            if gains is not None:
                store_statistics(statistics, first_row + sequences.index, step_statistics, active, 4)
    store_tiles(final_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit
def differentiate_blend(gates, h, grad_new_h, UPDATE_REPLACES: tl.constexpr):
    """Returns the gradients of the pre-activations of z and n, and the part of grad h_{t−1} that no product adds to."""
    _, z, n = gates
    old_share = 1 - z if UPDATE_REPLACES else z
    grad_z = grad_new_h * (n - h if UPDATE_REPLACES else h - n) * z * (1 - z)
    return grad_z, grad_new_h * (1 - old_share) * (1 - n * n), grad_new_h * old_share


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_backward(
    gates, weight_hidden, hidden, grad_gates, candidate_product, grad_outputs, grad_final_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse_bits, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of W h_{t−1} for r, z and n, (N, D, 3V), and of the initial states (B, D, U).

    V = PADDED_UNITS is U rounded up to a multiple of 32, also in the rows of `weight_hidden`, so that quarters are
    whole; the padding holds zeros. candidate_product (N, D, U): W h_{t−1} + b of n, which r multiplies; overwritten by
    the gradient of n's pre-activation. grad_outputs and grad_final_h: as in `lstm.py`. ring: partial sums (`sync.py`).
    """
    U: tl.constexpr = config.units
    V: tl.constexpr = PADDED_UNITS
    K: tl.constexpr = 3 * V // 4
    direction = tl.program_id(2)
    stride, grad_stride = tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * 3 * V * U
    gates += direction * 3 * U
    grad_gates += direction * 3 * V
    hidden += direction * U
    candidate_product += direction * U
    row_offsets, row_mask, vector_offsets, sequence_lengths = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks = load_weight_chunks(weight_hidden, row_offsets, row_mask, U, K, config)
    probe_offsets = sequences.first * grad_stride + 2 * V  # the values that each program publishes last
    probe_offsets += tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = (tl.program_id(0) * config.own_units + tl.arange(0, config.own_units))[:, None]
    unit_mask = unit < U
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_offsets = sequences.index[None, :] * grad_stride + unit
    mask = unit_mask & sequences.in_batch[None, :]
    grad_h = load_optional_grad(grad_final_h, direction * U + offsets, mask, config)
    direct_grad_h = tl.zeros_like(grad_h)  # the part of grad_h that no product adds to
    grad_outputs += locate_grad_outputs(sequences, sequence_stride, direction_stride) + unit
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    later_time, later_first_row, later_active = sequences.max_length, tl.zeros((), tl.int64), sequences.in_batch
    # `later_…` is the step of the previous iteration, `earlier_…` the step of the next one.
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_rows = locate_previous_states(step, state_row, sequences, config)
        saved_gates = load_tiles(gates + first_row * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit, step_mask)
        u = load_float(candidate_product + first_row * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if iteration > 0:
            partial = multiply_quarters(
                chunks, weight_hidden, row_offsets, row_mask, grad_gates + later_first_row * grad_stride,
                vector_offsets, later_time < sequence_lengths, probe_offsets, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(partial, ring, iteration - 1, SPLIT, config)
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct_grad_h = differentiate_blend(saved_gates, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_n * u * saved_gates[0] * (1 - saved_gates[0]), grad_z, grad_n * saved_gates[0]
            publish_tiles(grad_gates + first_row * grad_stride + grad_offsets, grads, step_mask, V, 3, config)
            tl.store(candidate_product + first_row * stride + offsets, grad_n.to(config.dtype), mask=step_mask)
        later_time, later_first_row, later_active = time, first_row, active
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def gru_reset_before_backward(
    gates, weight_hidden, hidden, grad_gates, grad_outputs, grad_final_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse_bits, first_sequence,
    PADDED_UNITS: tl.constexpr, SPLIT: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of pre-activations (N, D, 3V) and initial states (B, D, U); arguments as `gru_backward`."""
    U: tl.constexpr = config.units
    V: tl.constexpr = PADDED_UNITS
    K: tl.constexpr = V // 4
    direction = tl.program_id(2)
    stride, grad_stride = tl.num_programs(2) * U, tl.num_programs(2) * (3 * V)  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * 3 * V * U
    gates += direction * 3 * U
    grad_gates += direction * 3 * V
    row_offsets, row_mask, vector_offsets, sequence_lengths = locate_quarters(sequences, grad_stride, K, SPLIT, config)
    chunks_r = load_weight_chunks(weight_hidden, row_offsets, row_mask, U, K, config)
    chunks_z = load_weight_chunks(weight_hidden + V * U, row_offsets, row_mask, U, K, config)
    chunks_n = load_weight_chunks(weight_hidden + 2 * V * U, row_offsets, row_mask, U, K, config)
    probe_offsets = sequences.first * grad_stride
    probe_offsets += tl.minimum(tl.arange(0, config.num_probes) * config.own_units, U - 1)
    unit = (tl.program_id(0) * config.own_units + tl.arange(0, config.own_units))[:, None]
    unit_mask = unit < U
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_offsets = sequences.index[None, :] * grad_stride + unit
    offsets = direction * U + sequences.index[None, :] * stride + unit
    mask = unit_mask & sequences.in_batch[None, :]
    grad_h = load_optional_grad(grad_final_h, offsets, mask, config)
    direct_grad_h = tl.zeros_like(grad_h)  # grad_h without the products of r and z
    hidden += direction * U + unit
    grad_outputs += locate_grad_outputs(sequences, sequence_stride, direction_stride) + unit
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        # Computed again, not reused from the previous iteration: the compiler would keep all addresses of its product.
        later_time, later_first_row, later_active = locate_step(step_offsets, step + 1, sequences, config)
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_offsets = locate_previous_states(step, state_row, sequences, config)[None, :] * stride
        saved_gates = load_tiles(gates + first_row * (3 * stride) + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if iteration > 0:
            later_grads = grad_gates + later_first_row * grad_stride  # r's are published last, so z comes first
            partial = multiply_quarters(
                chunks_z, weight_hidden + V * U, row_offsets, row_mask, later_grads + V, vector_offsets,
                later_time < sequence_lengths, probe_offsets, K, SPLIT, config,
            ) + multiply_quarters(
                chunks_r, weight_hidden, row_offsets, row_mask, later_grads, vector_offsets,
                later_time < sequence_lengths, probe_offsets, K, SPLIT, config,
            )  # fmt: skip
            product = sum_quarters(partial, ring, 2 * iteration - 1, SPLIT, config)
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_z, grad_n, direct_grad_h = differentiate_blend(saved_gates, h, grad_h + grad_output, UPDATE_REPLACES)
            grads = grad_gates + first_row * grad_stride + grad_offsets
            publish_tiles(grads + V, (grad_z, grad_n), step_mask, V, 2, config)
            partial = multiply_quarters(
                chunks_n, weight_hidden + 2 * V * U, row_offsets, row_mask,
                grad_gates + first_row * grad_stride + 2 * V, vector_offsets, time < sequence_lengths, probe_offsets,
                K, SPLIT, config,
            )  # fmt: skip
            grad_h_through_reset = sum_quarters(partial, ring, 2 * iteration, SPLIT, config) * saved_gates[0]
            publish(grads, grad_h_through_reset * h * (1 - saved_gates[0]), step_mask, config)
            direct_grad_h += grad_h_through_reset
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)


@triton.jit
def differentiate_layer_norm_step(
    grad_h, h, gates, products, gains, bias, rstd, n_rstd, statistics_ring, iteration,
    NUM_PROGRAMS: tl.constexpr, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns the gradients of the gates' pre-activations, of the norms' results, and of the recurrent products, and
    the part of grad h_{t−1} that no product adds to. products: standardised. bias: of the candidate's norm."""
    U: tl.constexpr = config.units
    r = gates[0]
    u_r, u_z, u_n = products
    gain_r, gain_z, gain_n = gains
    grad_z, grad_n, direct_grad_h = differentiate_blend(gates, h, grad_h, UPDATE_REPLACES)
    grad_r = grad_n * (u_n * gain_n + bias) * r * (1 - r)
    grad_u_r, grad_u_z, grad_u_n = grad_r * gain_r, grad_z * gain_z, grad_n * r * gain_n  # of the standardised products
    gate_terms = tl.join(grad_u_r + grad_u_z, grad_u_r * u_r + grad_u_z * u_z)
    terms = tl.join(gate_terms, tl.join(grad_u_n, grad_u_n * u_n))
    M: tl.constexpr = grad_h.shape[1]
    terms = tl.reshape(terms, (grad_h.shape[0], M, 4))
    sums = sum_over_units(terms, statistics_ring, iteration, NUM_PROGRAMS, config)
    gate_sums, candidate_sums = tl.split(tl.reshape(sums, (M, 2, 2)))
    mean_grad, mean_product = tl.split(gate_sums / (2 * U))
    n_mean_grad, n_mean_product = tl.split(candidate_sums / U)
    grad_product_r = differentiate_norm(grad_u_r, u_r, mean_grad, mean_product, rstd)
    grad_product_z = differentiate_norm(grad_u_z, u_z, mean_grad, mean_product, rstd)
    grad_product_n = differentiate_norm(grad_u_n, u_n, n_mean_grad, n_mean_product, n_rstd)
    grad_products = grad_product_r, grad_product_z, grad_product_n
    return (grad_r, grad_z, grad_n), (grad_r, grad_z, grad_n * r), grad_products, direct_grad_h


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def layer_norm_gru_backward(
    gates, weight_hidden, grad_products, hidden, grad_outputs, grad_final_h, grad_initial_h,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse_bits, first_sequence, UPDATE_REPLACES: tl.constexpr, config: tl.constexpr,
    products, gains, biases, statistics, grad_norms, statistics_ring, NUM_PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Writes the gradients of the recurrent products (N, D, 3U), of all gains and of the candidate's bias, summed over
    each group of sequences, in grad_norms (D, groups, 4U), and of the initial states (B, D, U).

    products (N, D, 3U): the recurrent products, overwritten by the gradients of the projected inputs.
    """
    U: tl.constexpr = config.units
    OWN_UNITS: tl.constexpr = config.own_units
    member, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * 3 * U * U
    gains += direction * 3 * U
    hidden += direction * U
    gates += direction * 3 * U
    products += direction * 3 * U
    grad_products += direction * 3 * U
    unit_of_row, gate = block * (4 * OWN_UNITS) + tl.arange(0, 4 * OWN_UNITS), member % 3
    row_offsets, row_mask = gate * U * U + unit_of_row, (unit_of_row < U) & (member < 3)  # the fourth adds zeros
    chunks = load_weight_chunks(weight_hidden, row_offsets, row_mask, U, U, config)
    unit = tl.program_id(0) * OWN_UNITS + tl.arange(0, OWN_UNITS)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = direction * U + sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (3 * stride) + unit
    grad_outputs += locate_grad_outputs(sequences, sequence_stride, direction_stride) + unit
    own_gains = load_tiles(gains + unit, unit_mask, U, 3)
    candidate_bias = load_float(biases + direction * 3 * U + 2 * U + unit, unit_mask)
    grad_h = load_optional_grad(grad_final_h, offsets, mask, config)
    grad_gains, grad_candidate_bias = create_zero_tiles(grad_h, 3), tl.zeros_like(grad_h)
    direct_grad_h = tl.zeros_like(grad_h)  # the part of grad_h that no product adds to
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    later_first_row, later_active = tl.zeros((), tl.int64), sequences.in_batch
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        step_offset = first_row * (3 * stride)
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_rows = locate_previous_states(step, state_row, sequences, config)
        saved_gates = load_tiles(gates + step_offset + gate_offsets, step_mask, U, 3)
        u = load_tiles(products + step_offset + gate_offsets, step_mask, U, 3)
        h = load_float(hidden + previous_rows[None, :] * stride + unit, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        mean, rstd, n_mean, n_rstd = load_statistics(statistics, first_row + sequences.index, active, 4)
        if iteration > 0:
            product = multiply_by_gate(
                chunks, weight_hidden, row_offsets, row_mask, grad_products + later_first_row * (3 * stride), gate,
                later_active, sequences, 3 * stride, ring, iteration - 1, config,
            )  # fmt: skip
            grad_h = tl.where(later_active[None, :], direct_grad_h + product, grad_h)
        if step >= 0:
            grad_new_h = tl.where(active[None, :], grad_h + grad_output, 0.0)
            standardized = standardize_tiles(u[:2], mean, rstd, 2) + standardize_tiles(u[2:], n_mean, n_rstd, 1)
            step_grad_gates, step_grad_norms, step_grad_products, direct_grad_h = differentiate_layer_norm_step(
                grad_new_h, h, saved_gates, standardized, own_gains, candidate_bias, rstd, n_rstd, statistics_ring,
                iteration, NUM_PROGRAMS, UPDATE_REPLACES, config,
            )  # fmt: skip
            publish_tiles(grad_products + step_offset + gate_offsets, step_grad_products, step_mask, U, 3, config)
            store_tiles(products + step_offset + gate_offsets, step_grad_gates, step_mask, 3, config)
            grad_gains = add_products(grad_gains, step_grad_norms, standardized, 3)
            grad_candidate_bias += step_grad_norms[2]
        later_first_row, later_active = first_row, active
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    grad_gains += (grad_candidate_bias,)
    store_norm_grads(grad_norms + unit, grad_gains, unit_mask, batch_size, first_sequence, 4, config)
    tl.store(grad_initial_h + offsets, grad_h, mask=mask)
