"""The simple recurrent network with layer normalisation over a whole sequence, forward and backward, in Triton.

    h_t = f(LayerNorm(x_t + W h_{t−1}))

The plain one is in `rnn.py`; how programs compute a mean together is in `layer_norm.py`. A program owns 64 units in
both passes, and a step has two exchanges: values and statistics forward, sums and gradients backward.

Layout: packed rows (`packed_rows.py`), D directions, U units: inputs (N, D, U); hidden (B + N + B, D, U) with the
initial states; last states (B, D, U); gains and biases (D, U); statistics (N, D, 2), mean and 1 / √(variance + ε).
Gradients of weights are computed elsewhere (`scans.py`).
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
    locate_sequences,
    locate_step,
)
from seqwise.kernels.recurrence.gpu.rnn import activate, activation_derivative
from seqwise.kernels.recurrence.gpu.step_matmul import multiply_previous_states
from seqwise.kernels.recurrence.gpu.sync import load_weight_chunks, matmul_published, publish
from seqwise.kernels.recurrence.gpu.tile_io import (
    load_float,
    load_optional_grad,
    publish_initial_state,
    store_gates,
)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def layer_norm_rnn_forward(
    inputs, weight, gains, biases, initial_h, hidden, statistics, last_h,
    lengths, step_offsets, statistics_ring, num_steps, batch_size, num_rows, reverse, first_sequence,
    NUM_PROGRAMS: tl.constexpr, ROUNDS: tl.constexpr, ACTIVATION: tl.constexpr, SAVE: tl.constexpr,
    config: tl.constexpr,
):  # fmt: skip
    """Write all hidden states and the last ones; with SAVE also the statistics, and the pre-activations in place of the
    projected inputs."""
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
    gain = load_float(gains + direction * U + unit, row_mask)[:, None]
    bias = load_float(biases + direction * U + unit, row_mask)[:, None]
    unit_mask = row_mask[:, None]
    mask = unit_mask & sequences.exist[None, :]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    h = publish_initial_state(initial_h + direction * U, hidden, offsets, sequences.initial * stride, mask, config)
    states = sequences.initial
    for step in range(sequences.longest):
        _, begin, active = locate_step(step_offsets, step, sequences, config)
        input_pointers = inputs + begin * stride + offsets
        step_mask = unit_mask & active[None, :]
        x = load_float(input_pointers, step_mask)
        product = multiply_previous_states(
            chunks, weight, weight_rows, row_mask, hidden, step, states, active, sequences, stride, config
        )
        a = x + product
        mean, inverse = norm_statistics(a, unit_mask, statistics_ring, step, 1, NUM_PROGRAMS, ROUNDS, config)
        new = activate((a - mean[None, :]) * inverse[None, :] * gain + bias, ACTIVATION)
        states = batch_size + begin
        publish(hidden + states * stride + offsets, new, step_mask, config)
        h = tl.where(active[None, :], new, h)
        if SAVE:
            store_gates(input_pointers, (a,), step_mask, 1, config)
            store_statistics(statistics, begin + sequences.index, (mean, inverse), active, 2)
    store_gates(last_h + direction * U + offsets, (h,), mask, 1, config)


@triton.jit(do_not_specialize=UNSPECIALIZED_BACKWARD)
def layer_norm_rnn_backward(
    inputs, weight, gains, grad_inputs, hidden, statistics, grad_outputs, grad_last_h, grad_initial_h, grad_norms,
    lengths, step_offsets, statistics_ring, step_stride, sequence_stride, direction_stride, num_steps, batch_size,
    num_rows, reverse, first_sequence,
    NUM_PROGRAMS: tl.constexpr, ROUNDS: tl.constexpr, ACTIVATION: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the pre-activations (N, D, U), which are those of the projected inputs, of gain and bias,
    summed over each group of sequences, in grad_norms (D, groups, 2U), and of the initial states (B, D, U).

    inputs (N, D, U): the pre-activations that the forward pass saved. grad_outputs and grad_last_h: as in `lstm.py`.
    """
    U: tl.constexpr = config.units
    direction = tl.program_id(2)
    stride = tl.num_programs(2) * U  # from one packed row to the next
    sequences = locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config)
    weight += direction * U * U
    inputs += direction * U
    grad_inputs += direction * U
    hidden += direction * U
    unit = tl.program_id(0) * config.own_units + tl.arange(0, config.own_units)
    row_mask = unit < U
    chunks = load_weight_chunks(weight, unit, row_mask, U, U, config)
    gain = load_float(gains + direction * U + unit, row_mask)[:, None]
    unit_mask = row_mask[:, None]
    mask = unit_mask & sequences.exist[None, :]
    offsets = sequences.index[None, :] * stride + unit[:, None]
    grad_h = load_optional_grad(grad_last_h, direction * U + offsets, mask, config)
    grad_gain, grad_bias = tl.zeros_like(grad_h), tl.zeros_like(grad_h)
    grad_outputs += (
        direction * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride + unit[:, None]
    )
    time, begin, active = locate_step(step_offsets, sequences.longest - 1, sequences, config)
    done_begin, done_active = tl.zeros((), tl.int64), sequences.exist
    for turn in range(sequences.longest + 1):  # one more, for the initial state
        step = sequences.longest - 1 - turn
        step_mask = unit_mask & active[None, :]
        next_time, next_begin, next_active = locate_step(step_offsets, step - 1, sequences, config)
        a = load_float(inputs + begin * stride + offsets, step_mask)
        h = load_float(hidden + (batch_size + begin) * stride + offsets, step_mask)
        output_row = begin if config.has_lengths else time.to(tl.int64)
        grad_output = load_float(grad_outputs + output_row * step_stride, step_mask)
        mean, inverse = load_statistics(statistics, begin + sequences.index, active, 2)
        if turn > 0:
            product = matmul_published(
                chunks, weight, unit, row_mask, grad_inputs + done_begin * stride, sequences.index * stride,
                done_active, sequences.first * stride, U, U, config.own_units, config,
            )  # fmt: skip
            grad_h = tl.where(done_active[None, :], product, grad_h)
        if step >= 0:
            value = (a - mean[None, :]) * inverse[None, :]
            grad_norm = (grad_h + grad_output) * activation_derivative(h, ACTIVATION)
            grad_norm = tl.where(active[None, :], grad_norm, 0.0)
            grad_value = grad_norm * gain
            parts = tl.join(grad_value, grad_value * value)
            sums = sum_over_units(parts, statistics_ring, turn, NUM_PROGRAMS, ROUNDS)
            mean_grad, mean_product = tl.split(sums / U)
            grad_a = differentiate_norm(grad_value, value, mean_grad, mean_product, inverse)
            publish(grad_inputs + begin * stride + offsets, grad_a, step_mask, config)
            grad_gain, grad_bias = grad_gain + grad_norm * value, grad_bias + grad_norm
        done_begin, done_active = begin, active
        time, begin, active = next_time, next_begin, next_active
    store_norm_grads(
        grad_norms + unit[:, None], (grad_gain, grad_bias), unit_mask, batch_size, first_sequence, 2, config
    )
    tl.store(grad_initial_h + direction * U + offsets, grad_h, mask=mask)
