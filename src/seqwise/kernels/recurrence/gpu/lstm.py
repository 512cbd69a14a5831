"""The LSTM over a whole sequence, plain or with layer normalisation, in Triton.

    i, f, o = σ(x_t + W h_{t−1})     g = tanh(x_t + W h_{t−1})     c_t = f c_{t−1} + i g     h_t = o tanh(c_t)

With norms (`gains` is not None) i, f, g and o come from x_t + LayerNorm(W h_{t−1}), and h_t = o tanh(LayerNorm(c_t)).
The recurrent product is normalised over all four gates. So a step forward has three exchanges: hidden values, and twice
the statistics (`layer_norm.py`). The projected input x_t comes with its own norm applied.

A program of the forward pass owns 16 units, so 64 rows of the recurrent matrix. In the backward pass 64 units belong to
four programs, which divide the product by gates (`sync.py`).

Layout: packed rows (`packed_rows.py`), D directions, U units: gates (N, D, 4U) as i, f, g, o; hidden and cell
(B + N + B, D, U) with the initial states; last states (B, D, U); gains and biases (D, 5U), those of the product (4U)
before those of the cell; statistics (N, D, 4), mean and 1 / √(variance + ε) of the product and of the cell. Gradients
of weights are products over all steps, computed elsewhere (`scans.py`). grad_outputs is (T, B, D, U) with any strides
or, with lengths, (N, D, U), where a step is as far as a sequence; gradients of last states (B, D, U) may be None; ring
holds partial sums (`sync.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    differentiate_norm,
    load_statistics,
    norm_statistics,
    normalize_gates,
    store_norm_grads,
    store_statistics,
    sum_over_units,
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
    multiply_by_gate,
    multiply_previous_states,
    publish,
    publish_gates,
    publish_initial_state,
    sigmoid,
    split_gates,
    tanh,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def lstm_forward(
    gates, weight, initial_h, initial_c, hidden, cell, last_h, last_c,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse, first_sequence,
    SAVE: tl.constexpr, config: tl.constexpr,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Write all hidden states and the last states; with SAVE also all cells and statistics, and the gates in place of
    their projected inputs."""
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
    rows, row_mask = (line % 4) * U + unit_of_row, unit_of_row < U
    chunks = load_weight_chunks(weight, rows * U, row_mask, 1, U, config)
    unit = block * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.exist[None, :]
    if gains is not None:
        gains += direction * 5 * U
        biases += direction * 5 * U
        gain, bias = load_float(gains + rows, row_mask)[:, None], load_float(biases + rows, row_mask)[:, None]
        cell_gain = load_float(gains + 4 * U + unit, unit_mask)
        cell_bias = load_float(biases + 4 * U + unit, unit_mask)
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    c = load_float(initial_c + direction * U + offsets, mask)
    states = sequences.initial
    if SAVE:
        store_gates(cell + states * stride + offsets, (c,), mask, 1, config)
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + begin * (4 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_i, x_f, x_g, x_o = load_gates(gate_pointers, step_mask, U, 4)
        product = multiply_previous_states(
            chunks, weight, rows * U, row_mask, hidden, step, states, active, sequences, stride, config
        )
        if gains is not None:
            mean, inverse = norm_statistics(
                product, row_mask[:, None], statistics_ring, 2 * step, 4, NUM_PROGRAMS, config
            )
            product = (product - mean[None, :]) * inverse[None, :] * gain + bias
        u_i, u_f, u_g, u_o = split_gates(product, OWN)
        i, f, g, o = sigmoid(u_i + x_i), sigmoid(u_f + x_f), tanh(u_g + x_g), sigmoid(u_o + x_o)
        c = tl.where(active[None, :], f * c + i * g, c)
        y = c
        if gains is not None:
            c_mean, c_inverse = norm_statistics(c, unit_mask, statistics_ring, 2 * step + 1, 1, NUM_PROGRAMS, config)
            y = (c - c_mean[None, :]) * c_inverse[None, :] * cell_gain + cell_bias
        h = tl.where(active[None, :], o * tanh(y), h)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, h, step_mask, config)
        if SAVE:
            store_gates(gate_pointers, (i, f, g, o), step_mask, 4, config)
            store_gates(cell + states * stride + offsets, (c,), step_mask, 1, config)
            if gains is not None:
                norms = mean, inverse, c_mean, c_inverse
                store_statistics(statistics, begin + sequences.index, norms, active, 4)
    store_gates(last_h + direction * U + offsets, (h,), mask, 1, config)
    store_gates(last_c + direction * U + offsets, (c,), mask, 1, config)


@triton.jit
def differentiate_step(grad_h, grad_c, active, gates, previous_c, tanh_c):
    """Return the gradients of the four pre-activations and of the cell before the step, from those of h and c."""
    i, f, g, o = gates
    through = grad_c + grad_h * o * (1 - tanh_c * tanh_c)
    grad_i, grad_f = through * g * i * (1 - i), through * previous_c * f * (1 - f)
    grad_g, grad_o = through * i * (1 - g * g), grad_h * tanh_c * o * (1 - o)
    return (grad_i, grad_f, grad_g, grad_o), tl.where(active, through * f, grad_c)


@triton.jit
def compute_mean_grads(
    grad_value, c, upper, factor, weighted, grad_o, grad_o_weighted, inverse, statistics_ring, turn,
    NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Return the four means of the backward pass, (M,) each, in one exchange: two for the cell's norm, two for the
    product's.

    grad_value is the gradient of the normalised cell c. The gradient of the cell itself is `upper` less inverse · (mean
    of grad_value + c · mean of grad_value·c). The gradients of a unit's normalised products are linear in that: it
    times `factor`, and weighted by their values it times `weighted`, besides those of the output gate. So the second
    pair of means follows from the first and from sums that need not wait for it.
    """
    U: tl.constexpr = config.units
    M: tl.constexpr = grad_value.shape[1]
    known = tl.join(
        tl.join(grad_value, grad_value * c), tl.join(upper * factor + grad_o, upper * weighted + grad_o_weighted)
    )
    rates = tl.join(tl.join(factor, weighted), tl.join(c * factor, c * weighted))
    parts = tl.reshape(tl.join(known, rates), (grad_value.shape[0], M, 8))
    sums = tl.reshape(sum_over_units(parts, statistics_ring, turn, NUM_PROGRAMS, config), (M, 2, 2, 2))
    known, rates = tl.split(sums)
    cell_sums, product_sums = tl.split(known)
    rate_of_mean, rate_of_value = tl.split(rates)
    cell_mean, cell_product = tl.split(cell_sums / U)
    correction = inverse[:, None] * (rate_of_mean * cell_mean[:, None] + rate_of_value * cell_product[:, None])
    mean, product = tl.split((product_sums - correction) / (4 * U))
    return cell_mean, cell_product, mean, product


@triton.jit
def differentiate_normed_step(
    grad_h, grad_c, active, gates, previous_c, c, products, gains, cell_bias, norms, statistics_ring, turn,
    NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Return the normalised products and cell, and the gradients of the results of the norms (four gates, then the
    cell), of the recurrent products, and of the cell before the step, from those of h and c.

    norms: what `load_statistics` returns. The gradient of a norm's result for a gate is also that of the gate's
    projected input. Sequences without this step (not `active`) add nothing and keep the gradient of their cell.
    """
    d, upper_c = tl.where(active, grad_h, 0.0), tl.where(active, grad_c, 0.0)
    i, f, g, o = gates
    gain_i, gain_f, gain_g, gain_o, cell_gain = gains
    mean, inverse, cell_mean, cell_inverse = norms
    values = normalize_gates(products, mean, inverse, 4) + normalize_gates((c,), cell_mean, cell_inverse, 1)
    u_i, u_f, u_g, u_o, c = values
    tanh_c = tanh(c * cell_gain + cell_bias)
    grad_cell_norm = d * o * (1 - tanh_c * tanh_c)
    grad_value = grad_cell_norm * cell_gain
    # The derivatives of the gates' pre-activations with respect to the cell.
    k_i, k_f, k_g = g * i * (1 - i), previous_c * f * (1 - f), i * (1 - g * g)
    grad_o = d * tanh_c * o * (1 - o)
    grad_o_value = grad_o * gain_o
    factor = k_i * gain_i + k_f * gain_f + k_g * gain_g
    weighted = k_i * gain_i * u_i + k_f * gain_f * u_f + k_g * gain_g * u_g
    upper = upper_c + cell_inverse[None, :] * grad_value
    cell_mean, cell_product, mean, product = compute_mean_grads(
        grad_value, c, upper, factor, weighted, grad_o_value, grad_o_value * u_o, cell_inverse, statistics_ring, turn,
        NUM_PROGRAMS, config,
    )  # fmt: skip
    through = upper_c + differentiate_norm(grad_value, c, cell_mean, cell_product, cell_inverse)
    grad_i, grad_f, grad_g = through * k_i, through * k_f, through * k_g
    product_i = differentiate_norm(grad_i * gain_i, u_i, mean, product, inverse)
    product_f = differentiate_norm(grad_f * gain_f, u_f, mean, product, inverse)
    product_g = differentiate_norm(grad_g * gain_g, u_g, mean, product, inverse)
    product_o = differentiate_norm(grad_o_value, u_o, mean, product, inverse)
    grad_norms = grad_i, grad_f, grad_g, grad_o, grad_cell_norm
    grad_products = product_i, product_f, product_g, product_o
    return values, grad_norms, grad_products, tl.where(active, through * f, grad_c)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def lstm_backward(
    gates, weight, grad_products, cell, grad_outputs, grad_last_h, grad_last_c, grad_initial_h, grad_initial_c,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse, first_sequence, config: tl.constexpr,
    products=None, gains=None, biases=None, statistics=None, grad_norms=None, statistics_ring=None,
    NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Write the gradients of the recurrent products (N, D, 4U) and of the initial states (B, D, U); with norms also of
    all gains and of the cell's bias, summed over each group of sequences, in grad_norms (D, groups, 6U), and of the
    projected inputs, in place of the recurrent products `products` (N, D, 4U)."""
    U: tl.constexpr = config.units
    OWN: tl.constexpr = config.own_units
    gate, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * 4 * U * U
    cell += direction * U
    gates += direction * 4 * U
    grad_products += direction * 4 * U
    unit_of_row = block * (4 * OWN) + tl.arange(0, 4 * OWN)
    weight_rows, row_mask = gate * U * U + unit_of_row, unit_of_row < U
    chunks = load_weight_chunks(weight, weight_rows, row_mask, U, U, config)
    unit = tl.program_id(0) * OWN + tl.arange(0, OWN)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.exist[None, :]
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    grad_c = load_optional_grad(grad_last_c, direction * U + offsets, mask, config)
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit
    if gains is not None:
        products += direction * 4 * U
        own_gains = load_gates(gains + direction * 5 * U + unit, unit_mask, U, 5)
        cell_bias = load_float(biases + direction * 5 * U + 4 * U + unit, unit_mask)
        grad_gains, grad_cell_bias = zero_tiles(grad_h, 5), tl.zeros_like(grad_h)
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    done_begin, done_active = tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        step_offset = begin * (4 * stride)
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        states = tl.where(step > 0, batch_size + next_begin, sequences.initial)
        previous_rows = locate_previous_states(step, states, sequences, config)
        saved_gates = load_gates(gates + step_offset + gate_offsets, step_mask, U, 4)
        previous_c = load_float(cell + previous_rows[None, :] * stride + unit, step_mask)
        c = load_float(cell + (batch_size + begin) * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, begin, step_stride, step_mask, config)
        if gains is None:
            tanh_c = tanh(c)
        else:
            saved_products = load_gates(products + step_offset + gate_offsets, step_mask, U, 4)
            norms = load_statistics(statistics, begin + sequences.index, active, 4)
        if turn > 0:
            product = multiply_by_gate(
                chunks, weight, weight_rows, row_mask, grad_products + done_begin * (4 * stride), gate, done_active,
                sequences, 4 * stride, ring, turn - 1, config,
            )  # fmt: skip
            grad_h = tl.where(done_active[None, :], product, grad_h)
        if step >= 0:
            state = grad_h + grad_output, grad_c, active[None, :], saved_gates, previous_c
            if gains is None:
                grads, grad_c = differentiate_step(*state, tanh_c)
            else:
                values, grad_norm, grads, grad_c = differentiate_normed_step(
                    *state, c, saved_products, own_gains, cell_bias, norms, statistics_ring, turn, NUM_PROGRAMS, config
                )
            publish_gates(grad_products + step_offset + gate_offsets, grads, step_mask, U, 4, config)
            if gains is not None:
                store_gates(products + step_offset + gate_offsets, grad_norm, step_mask, 4, config)
                grad_gains = add_products(grad_gains, grad_norm, values, 5)
                grad_cell_bias += grad_norm[4]
        done_begin, done_active = begin, active
        time, begin, active = next_time, next_begin, next_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
    tl.store(grad_initial_c + direction * U + offsets, grad_c, mask=mask)
    if gains is not None:
        grad_gains += (grad_cell_bias,)
        store_norm_grads(grad_norms + unit, grad_gains, unit_mask, batch_size, first_sequence, 6, config)
