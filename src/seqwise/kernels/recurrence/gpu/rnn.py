"""Triton kernels of the simple recurrent network over a whole sequence, plain or with layer normalisation.

    h_t = f(x_t + W h_{t−1})        h_t = f(LayerNorm(x_t + W h_{t−1}))        x_t: the projected input, with the bias

W is the recurrent weight, `weight_hidden` (U in `layers/cells.py`). It has one row per unit, so a program owns 64 units
in both passes. A step has one exchange between programs, and with a norm (`gains` is not None) another one for its
statistics (`layer_norm.py`). The derivative of every activation f follows from its value: the plain backward pass needs
only the outputs.

Shapes: N packed rows (`packed_rows.py`), B sequences, D directions, U units. weight_hidden (D, U, U); inputs (N, D, U);
hidden (B + N + B, D, U), the state buffer with the initial states; final states (B, D, U); gains and biases (D, U);
statistics (N, D, 2), mean and rstd. Gradients of weights are products over all steps, computed in `scans.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    compute_norm_statistics,
    differentiate_norm,
    load_statistics,
    store_norm_grads,
    store_statistics,
    sum_over_units,
)
from seqwise.kernels.recurrence.gpu.packed_rows import (
    UNSPECIALIZED,
    UNSPECIALIZED_BACKWARD,
    load_float,
    load_grad_output,
    load_optional_grad,
    locate_grad_outputs,
    locate_sequences,
    locate_step,
    store_tiles,
)
from seqwise.kernels.recurrence.gpu.sync import (
    load_weight_chunks,
    matmul_published,
    multiply_previous_states,
    publish,
    publish_initial_state,
    sigmoid,
    tanh,
)


@triton.jit
def activate(a, ACTIVATION: tl.constexpr):
    """Returns f(a)."""
    if ACTIVATION == "tanh":
        a = tanh(a)
    elif ACTIVATION == "relu":
        a = tl.where(a < 0, 0.0, a)  # a NaN stays one
    elif ACTIVATION == "sigmoid":
        a = sigmoid(a)
    return a


@triton.jit
def differentiate_activation(h, ACTIVATION: tl.constexpr):
    """Returns the derivative of the activation at the point where its value is h."""
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
    inputs, weight_hidden, initial_h, hidden, final_h,
    lengths, step_offsets, num_steps, batch_size, num_rows, reverse_bits, first_sequence,
    SAVE: tl.constexpr, ACTIVATION: tl.constexpr, config: tl.constexpr,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Writes all hidden states and the final ones; with SAVE, which only a norm needs, also the statistics, and the
    pre-activations in place of the projected inputs."""
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * U * U
    inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    row_offsets, row_mask = unit * U, unit < U
    chunks = load_weight_chunks(weight_hidden, row_offsets, row_mask, 1, U, config)
    if gains is not None:
        gain = load_float(gains + direction * U + unit, row_mask)[:, None]
        bias = load_float(biases + direction * U + unit, row_mask)[:, None]
    unit_mask = row_mask[:, None]
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial_row * stride, mask, config)
    state_row = sequences.initial_row
    for step in range(sequences.max_length):
        _, first_row, active = locate_step(step_offsets, step, sequences, config)
        input_pointers = inputs + first_row * stride + offsets
        step_mask = unit_mask & active[None, :]
        x = load_float(input_pointers, step_mask)
        product = multiply_previous_states(
            chunks, weight_hidden, row_offsets, row_mask, hidden, step, state_row, active, sequences, stride, config
        )
        a = x + product
        y = a
        if gains is not None:
            mean, rstd = compute_norm_statistics(a, unit_mask, statistics_ring, step, 1, NUM_PROGRAMS, config)
            y = (a - mean[None, :]) * rstd[None, :] * gain + bias
        new_h = activate(y, ACTIVATION)
        state_row = batch_size + first_row
        publish(hidden + state_row * stride + offsets, new_h, step_mask, config)
        h = tl.where(active[None, :], new_h, h)
        if SAVE:
            store_tiles(input_pointers, (a,), step_mask, 1, config)
            store_statistics(statistics, first_row + sequences.index, (mean, rstd), active, 2)
    store_tiles(final_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def rnn_backward(
    weight_hidden, hidden, grad_inputs, grad_outputs, grad_final_h, grad_initial_h,
    lengths, step_offsets, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows,
    reverse_bits, first_sequence,
    ACTIVATION: tl.constexpr, config: tl.constexpr,
    inputs=None, gains=None, statistics=None, grad_norms=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Writes the gradients of the pre-activations (N, D, U), which are also the gradients of the projected inputs, and
    of the initial states (B, D, U); with a norm also of gain and bias, summed over each group of sequences,
    (D, groups, 2U).

    inputs (N, D, U): the pre-activations that the forward pass of a norm saved. grad_outputs: (T, B, D, U) with any
    strides or, with lengths, (N, D, U), where step and sequence have the same stride. grad_final_h (B, D, U): may be
    None.
    """
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config)
    weight_hidden += direction * U * U
    grad_inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    row_mask = unit < U
    chunks = load_weight_chunks(weight_hidden, unit, row_mask, U, U, config)
    unit_mask = row_mask[:, None]
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    grad_h = load_optional_grad(grad_final_h, direction * U + offsets, mask, config)
    if gains is not None:
        inputs += direction * U
        gain = load_float(gains + direction * U + unit, row_mask)[:, None]
        grad_gain, grad_bias = tl.zeros_like(grad_h), tl.zeros_like(grad_h)
    grad_outputs += locate_grad_outputs(sequences, sequence_stride, direction_stride) + unit[:, None]
    later_first_row, later_active = tl.zeros((), tl.int64), sequences.in_batch
    # `later_…` is the step of the previous iteration: later in the order in which the direction reads.
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        time, first_row, active = locate_step(step_offsets, step, sequences, config)
        step_mask = unit_mask & active[None, :]
        h = load_float(hidden + (batch_size + first_row) * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if gains is not None:
            a = load_float(inputs + first_row * stride + offsets, step_mask)
            mean, rstd = load_statistics(statistics, first_row + sequences.index, active, 2)
        if iteration > 0:
            product = matmul_published(
                chunks, weight_hidden, unit, row_mask, grad_inputs + later_first_row * stride, sequences.index * stride,
                later_active, sequences.first * stride, U, U, config.own_units, config,
            )  # fmt: skip
            grad_h = tl.where(later_active[None, :], product, grad_h)
        if step >= 0:
            grad_a = (grad_h + grad_output) * differentiate_activation(h, ACTIVATION)
            if gains is not None:
                standardized = (a - mean[None, :]) * rstd[None, :]
                grad_norm = tl.where(active[None, :], grad_a, 0.0)
                grad_standardized = grad_norm * gain
                terms = tl.join(grad_standardized, grad_standardized * standardized)
                sums = sum_over_units(terms, statistics_ring, iteration, NUM_PROGRAMS, config)
                mean_grad, mean_product = tl.split(sums / U)
                grad_a = differentiate_norm(grad_standardized, standardized, mean_grad, mean_product, rstd)
                grad_gain, grad_bias = grad_gain + grad_norm * standardized, grad_bias + grad_norm
            publish(grad_inputs + first_row * stride + offsets, grad_a, step_mask, config)
        later_first_row, later_active = first_row, active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
    if gains is not None:
        grads = grad_gain, grad_bias
        store_norm_grads(grad_norms + unit[:, None], grads, unit_mask, batch_size, first_sequence, 2, config)
