"""The simple recurrent network over a whole sequence, plain or with layer normalisation, in Triton.

    h_t = f(x_t + W h_{t−1})        h_t = f(LayerNorm(x_t + W h_{t−1}))        x_t: the projected input, with the bias

With one matrix, a program owns 64 units in both passes, so a step has one exchange, and with a norm (`gains` is not
None) another one for its statistics (`layer_norm.py`). The derivative of every activation f follows from its value: the
outputs are all that the plain backward pass needs.

Layout: packed rows (`packed_rows.py`), D directions, U units: inputs (N, D, U); hidden (B + N + B, D, U) with the
initial states; last states (B, D, U); gains and biases (D, U); statistics (N, D, 2), mean and 1 / √(variance + ε).
Gradients of weights are products over all steps, computed elsewhere (`scans.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.layer_norm import (
    differentiate_norm,
    load_statistics,
    norm_statistics,
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
    locate_outputs,
    locate_sequences,
    locate_step,
    store_gates,
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
    SAVE: tl.constexpr, ACTIVATION: tl.constexpr, config: tl.constexpr,
    gains=None, biases=None, statistics=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE, which only a norm needs, also the statistics, and the
    pre-activations in place of the projected inputs."""
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * U * U
    inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    weight_rows, row_mask = unit * U, unit < U
    chunks = load_weight_chunks(weight, weight_rows, row_mask, 1, U, config)
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
            chunks, weight, weight_rows, row_mask, hidden, step, state_row, active, sequences, stride, config
        )
        a = x + product
        y = a
        if gains is not None:
            mean, inverse = norm_statistics(a, unit_mask, statistics_ring, step, 1, NUM_PROGRAMS, config)
            y = (a - mean[None, :]) * inverse[None, :] * gain + bias
        new_h = activate(y, ACTIVATION)
        state_row = batch_size + first_row
        publish(hidden + state_row * stride + offsets, new_h, step_mask, config)
        h = tl.where(active[None, :], new_h, h)
        if SAVE:
            store_gates(input_pointers, (a,), step_mask, 1, config)
            store_statistics(statistics, first_row + sequences.index, (mean, inverse), active, 2)
    store_gates(last_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def rnn_backward(
    weight, hidden, grad_inputs, grad_outputs, grad_last_h, grad_initial_h,
    lengths, step_offsets, step_stride, sequence_stride, direction_stride, num_steps, batch_size, num_rows, reverse,
    first_sequence,
    ACTIVATION: tl.constexpr, config: tl.constexpr,
    inputs=None, gains=None, statistics=None, grad_norms=None, statistics_ring=None, NUM_PROGRAMS: tl.constexpr = 1,
):  # fmt: skip
    """Write the gradients of the pre-activations (N, D, U), which are those of the projected inputs, and of the initial
    states (B, D, U); with a norm those of gain and bias, summed over each group of sequences, (D, groups, 2U).

    inputs (N, D, U): the pre-activations that the forward pass of a norm saved. grad_outputs: (T, B, D, U) with any
    strides or, with lengths, (N, D, U), where step and sequence have the same stride. grad_last_h (B, D, U): may be
    None.
    """
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * U * U
    grad_inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    row_mask = unit < U
    chunks = load_weight_chunks(weight, unit, row_mask, U, U, config)
    unit_mask = row_mask[:, None]
    mask = unit_mask & sequences.in_batch[None, :]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    if gains is not None:
        inputs += direction * U
        gain = load_float(gains + direction * U + unit, row_mask)[:, None]
        grad_gain, grad_bias = tl.zeros_like(grad_h), tl.zeros_like(grad_h)
    grad_outputs += locate_outputs(sequences, sequence_stride, direction_stride) + unit[:, None]
    later_first_row, later_active = tl.zeros((), tl.int64), sequences.in_batch
    # `later_…` is the step of the iteration before.
    for iteration in range(sequences.max_length + 1):  # one more, for the initial state
        step = sequences.max_length - 1 - iteration
        time, first_row, active = locate_step(step_offsets, step, sequences, config)
        step_mask = unit_mask & active[None, :]
        h = load_float(hidden + (batch_size + first_row) * stride + offsets, step_mask)
        grad_output = load_grad_output(grad_outputs, time, first_row, step_stride, step_mask, config)
        if gains is not None:
            a = load_float(inputs + first_row * stride + offsets, step_mask)
            mean, inverse = load_statistics(statistics, first_row + sequences.index, active, 2)
        if iteration > 0:
            product = matmul_published(
                chunks, weight, unit, row_mask, grad_inputs + later_first_row * stride, sequences.index * stride,
                later_active, sequences.first * stride, U, U, config.own_units, config,
            )  # fmt: skip
            grad_h = tl.where(later_active[None, :], product, grad_h)
        if step >= 0:
            grad_a = (grad_h + grad_output) * activation_derivative(h, ACTIVATION)
            if gains is not None:
                value = (a - mean[None, :]) * inverse[None, :]
                grad_norm = tl.where(active[None, :], grad_a, 0.0)
                grad_value = grad_norm * gain
                parts = tl.join(grad_value, grad_value * value)
                sums = sum_over_units(parts, statistics_ring, iteration, NUM_PROGRAMS, config)
                mean_grad, mean_product = tl.split(sums / U)
                grad_a = differentiate_norm(grad_value, value, mean_grad, mean_product, inverse)
                grad_gain, grad_bias = grad_gain + grad_norm * value, grad_bias + grad_norm
            publish(grad_inputs + first_row * stride + offsets, grad_a, step_mask, config)
        later_first_row, later_active = first_row, active
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
    if gains is not None:
        grads = grad_gain, grad_bias
        store_norm_grads(grad_norms + unit[:, None], grads, unit_mask, batch_size, first_sequence, 2, config)
