"""Triton kernels of the LSTM over a whole sequence, plain or with layer normalisation.

    i, f, o = σ(x_t + W h_{t−1})     g = tanh(x_t + W h_{t−1})     c_t = f c_{t−1} + i g     h_t = o tanh(c_t)

x_t is the projected input and W the recurrent weight, `weight_hidden` (U in `layers/cells.py`). With norms (`gains` is
not None) i, f, g and o come from x_t + LayerNorm(W h_{t−1}), and h_t = o tanh(LayerNorm(c_t)). The recurrent product
W h_{t−1} is normalised over all four gates. So a forward step has three exchanges between programs: hidden values, and
twice the statistics (`layer_norm.py`). The norm of the input is already applied to x_t.

With CAPPED the cell is c_t = f c_{t−1} + min(i, 1 − f) g; the saved i is that before the limit, and negative if it is
above the limit: a comparison of rounded numbers would be wrong for some. With `state_mask` (B, D, U) the recurrent
product is that of h_{t−1} · mask: the state buffer has the masked values, `outputs` (N, D, U) the others.

A program of the forward pass owns 16 units, so 64 rows of the recurrent weight. In the backward pass 64 units belong to
four programs, which divide the product by gates (`sync.py`).

Shapes: N packed rows (`packed_rows.py`), B sequences, D directions, U units. weight_hidden (D, 4U, U); gates (N, D, 4U)
as i, f, g, o; hidden and cell (B + N + B, D, U), state buffers with the initial states; final states (B, D, U); gains
and biases (D, 5U), of the product (4U), then of the cell; statistics (N, D, 4), mean and rstd of the product, then of
the cell. Gradients of weights are products over all steps, computed in `scans.py`. grad_outputs is (T, B, D, U) with
any strides or, with lengths, (N, D, U), where step and sequence have the same stride; gradients of final states
(B, D, U) may be None; ring holds partial sums (`sync.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    compute_norm_statistics,
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
    multiply_by_gate,
    multiply_previous_states,
    publish,
    publish_tiles,
    sigmoid,
    split_gates,
    tanh,
)


@triton.jit
def load_state_mask(state_mask, offsets, mask):
    """Returns the factors of the hidden state in the recurrent product, or 1."""
    h_mask = 1.0
    if state_mask is not None:
        h_mask = load_float(state_mask + offsets, mask)
    return h_mask


@triton.jit(do_not_specialize=UNSPECIALIZED)
def lstm_forward(
    gates, weight_hidden, initial_h, initial_c, hidden, cell, final_h, final_c,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse_bits, first_sequence,
    SAVE: tl.constexpr, config: tl.constexpr,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
    state_mask=None, outputs=None, CAPPED: tl.constexpr = False,
):  # fmt: skip
    """Writes all hidden states and the final states; with SAVE also all cells and statistics, and the gates in place of
    their projected inputs."""
    U: tl.constexpr = config.units
    OWN_UNITS: tl.constexpr = config.own_units
    block, direction = tl.program_id(0), tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * 4 * U * U
    gates += direction * 4 * U
    hidden += direction * U
    cell += direction * U
    local_row = tl.arange(0, 4 * OWN_UNITS)  # four rows of the weight for each unit
    unit_of_row = block * OWN_UNITS + local_row // 4
    rows, row_mask = (local_row % 4) * U + unit_of_row, unit_of_row < U
    chunks = load_weight_chunks(weight_hidden, rows * U, row_mask, 1, U, config)
    unit = block * OWN_UNITS + tl.arange(0, OWN_UNITS)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.in_batch[None, :]
    if gains is not None:
        gains += direction * 5 * U
        biases += direction * 5 * U
        gain, bias = load_float(gains + rows, row_mask)[:, None], load_float(biases + rows, row_mask)[:, None]
        cell_gain = load_float(gains + 4 * U + unit, unit_mask)
        cell_bias = load_float(biases + 4 * U + unit, unit_mask)
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit
    h = load_float(initial_h + direction * U + offsets, mask)
    h_mask = load_state_mask(state_mask, direction * U + offsets, mask)
    publish(hidden + sequences.initial_row * stride + offsets, h * h_mask, mask, config)
    c = load_float(initial_c + direction * U + offsets, mask)
    state_row = sequences.initial_row
    if SAVE:
        store_tiles(cell + state_row * stride + offsets, (c,), mask, 1, config)
    for step in range(sequences.max_length):
        _, first_row, active = locate_step(step_offsets, step, sequences, config)
        gate_pointers = gates + first_row * (4 * stride) + gate_offsets
        step_mask = unit_mask & active[None, :]
        x_i, x_f, x_g, x_o = load_tiles(gate_pointers, step_mask, U, 4)
        product = multiply_previous_states(
            chunks, weight_hidden, rows * U, row_mask, hidden, step, state_row, active, sequences, stride, config
        )
        if gains is not None:
            mean, rstd = compute_norm_statistics(
                product, row_mask[:, None], statistics_ring, 2 * step, 4, NUM_PROGRAMS, config
            )
            product = (product - mean[None, :]) * rstd[None, :] * gain + bias
        u_i, u_f, u_g, u_o = split_gates(product, OWN_UNITS)
        i, f, g, o = sigmoid(u_i + x_i), sigmoid(u_f + x_f), tanh(u_g + x_g), sigmoid(u_o + x_o)
        input_share = tl.minimum(i, 1 - f) if CAPPED else i
        c = tl.where(active[None, :], f * c + input_share * g, c)
        y = c
        if gains is not None:
            c_mean, c_rstd = compute_norm_statistics(
                c, unit_mask, statistics_ring, 2 * step + 1, 1, NUM_PROGRAMS, config
            )
            y = (c - c_mean[None, :]) * c_rstd[None, :] * cell_gain + cell_bias
        h = tl.where(active[None, :], o * tanh(y), h)
        state_row = batch_size + first_row
        publish(hidden + state_row * stride + offsets, h * h_mask, step_mask, config)
        if state_mask is not None:
            store_tiles(outputs + direction * U + first_row * stride + offsets, (h,), step_mask, 1, config)
        if SAVE:
            i = tl.where(i > 1 - f, -i, i) if CAPPED else i
            store_tiles(gate_pointers, (i, f, g, o), step_mask, 4, config)
            store_tiles(cell + state_row * stride + offsets, (c,), step_mask, 1, config)
            if gains is not None:
                step_statistics = mean, rstd, c_mean, c_rstd
                store_statistics(statistics, first_row + sequences.index, step_statistics, active, 4)
    store_tiles(final_h + direction * U + offsets, (h,), mask, 1, config)
    store_tiles(final_c + direction * U + offsets, (c,), mask, 1, config)


@triton.jit
def differentiate_step(grad_h, grad_c, active, gates, previous_c, tanh_c, CAPPED: tl.constexpr):
    """Returns the gradients of the four pre-activations and of the previous cell, given the gradients of h and c."""
    i, f, g, o = gates
    total_grad_c = grad_c + grad_h * o * (1 - tanh_c * tanh_c)
    grad_i_value, grad_f_value = total_grad_c * g, total_grad_c * previous_c
    input_share = i
    if CAPPED:
        is_limited = i < 0
        i = tl.abs(i)
        input_share = tl.where(is_limited, 1 - f, i)
        grad_f_value = tl.where(is_limited, grad_f_value - grad_i_value, grad_f_value)
        grad_i_value = tl.where(is_limited, 0.0, grad_i_value)
    grad_i, grad_f = grad_i_value * i * (1 - i), grad_f_value * f * (1 - f)
    grad_g = total_grad_c * input_share * (1 - g * g)
    grad_o = grad_h * tanh_c * o * (1 - o)
    return (grad_i, grad_f, grad_g, grad_o), tl.where(active, total_grad_c * f, grad_c)


@triton.jit
def compute_mean_grads(
    grad_cell, c, partial_grad_c, factor, product_factor, grad_o, grad_o_product, rstd, statistics_ring, iteration,
    NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns the four means of the backward pass, (M,) each, in one exchange: two for the cell's norm, then two for
    the product's.

    c: the standardised cell. grad_cell: its gradient. partial_grad_c: the gradient of the cell before the norm without
    the norm's means; with them it is grad_c = partial_grad_c − rstd · (mean(grad_cell) + c · mean(grad_cell · c)). The
    gradients of a unit's standardised products are linear in grad_c: their sum is grad_c · factor + grad_o, and the sum
    of gradients times products is grad_c · product_factor + grad_o_product. So the second pair of means follows from
    the first pair and from sums that need not wait for it.
    """
    U: tl.constexpr = config.units
    M: tl.constexpr = grad_cell.shape[1]
    constant_terms = tl.join(
        tl.join(grad_cell, grad_cell * c),
        tl.join(partial_grad_c * factor + grad_o, partial_grad_c * product_factor + grad_o_product),
    )
    linear_terms = tl.join(tl.join(factor, product_factor), tl.join(c * factor, c * product_factor))
    terms = tl.reshape(tl.join(constant_terms, linear_terms), (grad_cell.shape[0], M, 8))
    sums = tl.reshape(sum_over_units(terms, statistics_ring, iteration, NUM_PROGRAMS, config), (M, 2, 2, 2))
    constant_sums, linear_sums = tl.split(sums)
    cell_sums, product_sums = tl.split(constant_sums)
    factor_sums, c_factor_sums = tl.split(linear_sums)
    cell_mean_grad, cell_mean_product = tl.split(cell_sums / U)
    correction = rstd[:, None] * (factor_sums * cell_mean_grad[:, None] + c_factor_sums * cell_mean_product[:, None])
    mean_grad, mean_product = tl.split((product_sums - correction) / (4 * U))
    return cell_mean_grad, cell_mean_product, mean_grad, mean_product


@triton.jit
def differentiate_layer_norm_step(
    grad_h, grad_c, active, gates, previous_c, c, products, gains, cell_bias, statistics, statistics_ring, iteration,
    NUM_PROGRAMS: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Returns the standardised products and cell, and the gradients of the results of the norms (four gates, then the
    cell), of the recurrent products, and of the cell before the step, given the gradients of h and c.

    statistics: what `load_statistics` returns. The gradient of a norm's result for a gate is also the gradient of the
    gate's projected input. Sequences without this step (not `active`) add nothing and keep the gradient of their cell.
    """
    incoming_grad_h, incoming_grad_c = tl.where(active, grad_h, 0.0), tl.where(active, grad_c, 0.0)
    i, f, g, o = gates
    gain_i, gain_f, gain_g, gain_o, cell_gain = gains
    mean, rstd, cell_mean, cell_rstd = statistics
    standardized = standardize_tiles(products, mean, rstd, 4) + standardize_tiles((c,), cell_mean, cell_rstd, 1)
    u_i, u_f, u_g, u_o, c = standardized
    tanh_c = tanh(c * cell_gain + cell_bias)
    grad_cell_norm = incoming_grad_h * o * (1 - tanh_c * tanh_c)
    grad_cell = grad_cell_norm * cell_gain
    # The derivatives of the cell with respect to the pre-activations of the gates.
    k_i, k_f, k_g = g * i * (1 - i), previous_c * f * (1 - f), i * (1 - g * g)
    grad_o = incoming_grad_h * tanh_c * o * (1 - o)
    grad_u_o = grad_o * gain_o
    factor = k_i * gain_i + k_f * gain_f + k_g * gain_g
    product_factor = k_i * gain_i * u_i + k_f * gain_f * u_f + k_g * gain_g * u_g
    partial_grad_c = incoming_grad_c + cell_rstd[None, :] * grad_cell
    cell_mean_grad, cell_mean_product, mean_grad, mean_product = compute_mean_grads(
        grad_cell, c, partial_grad_c, factor, product_factor, grad_u_o, grad_u_o * u_o, cell_rstd,
        statistics_ring, iteration, NUM_PROGRAMS, config,
    )  # fmt: skip
    total_grad_c = incoming_grad_c + differentiate_norm(grad_cell, c, cell_mean_grad, cell_mean_product, cell_rstd)
    grad_i, grad_f, grad_g = total_grad_c * k_i, total_grad_c * k_f, total_grad_c * k_g
    grad_product_i = differentiate_norm(grad_i * gain_i, u_i, mean_grad, mean_product, rstd)
    grad_product_f = differentiate_norm(grad_f * gain_f, u_f, mean_grad, mean_product, rstd)
    grad_product_g = differentiate_norm(grad_g * gain_g, u_g, mean_grad, mean_product, rstd)
    grad_product_o = differentiate_norm(grad_u_o, u_o, mean_grad, mean_product, rstd)
    grad_norms = grad_i, grad_f, grad_g, grad_o, grad_cell_norm
    grad_products = grad_product_i, grad_product_f, grad_product_g, grad_product_o
    return standardized, grad_norms, grad_products, tl.where(active, total_grad_c * f, grad_c)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def lstm_backward(
    gates, weight_hidden, grad_products, cell, grad_outputs, grad_final_h, grad_final_c, grad_initial_h, grad_initial_c,
    lengths, step_offsets, ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse_bits, first_sequence, config: tl.constexpr,
    products=None, gains=None, biases=None, statistics=None, grad_norms=None, statistics_ring=None,
    NUM_PROGRAMS: tl.constexpr = 1, state_mask=None, CAPPED: tl.constexpr = False,
):  # fmt: skip
    """Writes the gradients of the recurrent products (N, D, 4U) and of the initial states (B, D, U); with norms also of
    gains and the cell's bias, (D, groups, 6U) in grad_norms, and of the projected inputs in place of `products`."""
    U: tl.constexpr = config.units
    OWN_UNITS: tl.constexpr = config.own_units
    gate, block, direction = tl.program_id(0) % 4, tl.program_id(0) // 4, tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden, cell = weight_hidden + direction * 4 * U * U, cell + direction * U
    gates += direction * 4 * U
    grad_products += direction * 4 * U
    unit_of_row = block * (4 * OWN_UNITS) + tl.arange(0, 4 * OWN_UNITS)
    row_offsets, row_mask = gate * U * U + unit_of_row, unit_of_row < U
    chunks = load_weight_chunks(weight_hidden, row_offsets, row_mask, U, U, config)
    unit = tl.program_id(0) * OWN_UNITS + tl.arange(0, OWN_UNITS)[:, None]
    unit_mask = unit < U
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = sequences.index[None, :] * stride + unit
    gate_offsets = sequences.index[None, :] * (4 * stride) + unit
    grad_h = load_optional_grad(grad_final_h, direction * U + offsets, mask, config)
    grad_c = load_optional_grad(grad_final_c, direction * U + offsets, mask, config)
    h_mask = load_state_mask(state_mask, direction * U + offsets, mask)
    grad_outputs += locate_grad_outputs(sequences, sequence_stride, direction_stride) + unit
    if gains is not None:
        products += direction * 4 * U
        own_gains = load_tiles(gains + direction * 5 * U + unit, unit_mask, U, 5)
        cell_bias = load_float(biases + direction * 5 * U + 4 * U + unit, unit_mask)
        grad_gains, grad_cell_bias = create_zero_tiles(grad_h, 5), tl.zeros_like(grad_h)
    time, first_row, active = locate_step(step_offsets, sequences.max_length - 1, sequences, config)
    later_first_row, later_active = tl.zeros((), tl.int64), sequences.in_batch
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        step_mask = unit_mask & active[None, :]
        step_offset = first_row * (4 * stride)
        earlier_time, earlier_first_row, earlier_active = locate_step(step_offsets, step - 1, sequences, config)
        state_row = tl.where(step > 0, batch_size + earlier_first_row, sequences.initial_row)
        previous_rows = locate_previous_states(step, state_row, sequences, config)
        saved_gates = load_tiles(gates + step_offset + gate_offsets, step_mask, U, 4)
        previous_c = load_float(cell + previous_rows[None, :] * stride + unit, step_mask)
        c = load_float(cell + (batch_size + first_row) * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if gains is None:
            tanh_c = tanh(c)
        else:
            saved_products = load_tiles(products + step_offset + gate_offsets, step_mask, U, 4)
            step_statistics = load_statistics(statistics, first_row + sequences.index, active, 4)
        if iteration > 0:
            product = multiply_by_gate(
                chunks, weight_hidden, row_offsets, row_mask, grad_products + later_first_row * (4 * stride), gate,
                later_active, sequences, 4 * stride, ring, iteration - 1, config,
            )  # fmt: skip
            grad_h = tl.where(later_active[None, :], product * h_mask, grad_h)
        if step >= 0:
            step_arguments = grad_h + grad_output, grad_c, active[None, :], saved_gates, previous_c
            if gains is None:
                grads, grad_c = differentiate_step(*step_arguments, tanh_c, CAPPED)
            else:
                standardized, grad_norm, grads, grad_c = differentiate_layer_norm_step(
                    *step_arguments, c, saved_products, own_gains, cell_bias, step_statistics, statistics_ring,
                    iteration, NUM_PROGRAMS, config,
                )  # fmt: skip
            publish_tiles(grad_products + step_offset + gate_offsets, grads, step_mask, U, 4, config)
            if gains is not None:
                store_tiles(products + step_offset + gate_offsets, grad_norm, step_mask, 4, config)
                grad_gains = add_products(grad_gains, grad_norm, standardized, 5)
                grad_cell_bias += grad_norm[4]
        later_first_row, later_active = first_row, active
        time, first_row, active = earlier_time, earlier_first_row, earlier_active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
    tl.store(grad_initial_c + direction * U + offsets, grad_c, mask=mask)
    if gains is not None:
        grad_gains += (grad_cell_bias,)
        store_norm_grads(grad_norms + unit, grad_gains, unit_mask, batch_size, first_sequence, 6, config)
