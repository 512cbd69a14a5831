"""Which sequences and steps a program of a recurrent kernel computes, and where they are in packed memory, in Triton.

Sequences are sorted by length, the longest first. Packed memory has one row per valid step of a sequence: the first
steps of all sequences, then the second steps of those that have one, and so on, as in PyTorch's `PackedSequence`. A
direction reads its sequences from the first step to the last or, reversed, from the last to the first. Memory of states
has `batch_size` more rows at the beginning for the initial states, and as many at the end for those of a reversed
direction.

It also has loads and stores of tiles (units, sequences). The values of several gates are a tuple of tiles; in memory
each gate is `STRIDE` after the one before. This module knows nothing of cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

# Arguments that change from batch to batch: Triton must not compile a kernel for each of their values.
UNSPECIALIZED = ("num_steps", "batch_size", "num_rows", "reverse", "first_sequence")
UNSPECIALIZED_BACKWARD = (*UNSPECIALIZED, "step_stride", "sequence_stride", "direction_stride")


class Sequences(NamedTuple):
    """The M sequences of a program.

    first: the first of them; index (M,): all; in_batch (M,): which are part of the batch; length (M,); max_length: the
    largest length; is_reversed: 0 or 1; initial_row: that of the first initial state in memory of states; batch_size.
    """

    first: Any
    index: Any
    in_batch: Any
    length: Any
    max_length: Any
    is_reversed: Any
    initial_row: Any
    batch_size: Any


@triton.jit
def locate_sequences(lengths, num_steps, batch_size, num_rows, reverse, first_sequence, config: tl.constexpr):
    """Return the `Sequences` of this program. A group beyond the end of the batch has no steps and waits for nothing.

    `reverse` has one bit per direction.
    """
    M: tl.constexpr = config.batch_tile
    first = first_sequence + tl.program_id(1) * M
    index = first + tl.arange(0, M)
    in_batch = index < batch_size
    length, max_length = tl.full((M,), num_steps, tl.int32), num_steps * (first < batch_size)
    if config.has_lengths:
        length = tl.load(lengths + index, mask=in_batch, other=0)
        max_length = tl.max(length)
    is_reversed = (reverse >> tl.program_id(2)) & 1
    initial_row = (batch_size + num_rows).to(tl.int64) * is_reversed
    return Sequences(first, index, in_batch, length, max_length, is_reversed, initial_row, batch_size)


@triton.jit
def locate_step(step_offsets, step, sequences, config: tl.constexpr):
    """Return, for the step of that number in the direction's order: its time, the packed row at which it begins, and
    which sequences (M,) have it. Step −1, before the first, belongs to no sequence."""
    time = tl.where(sequences.is_reversed != 0, sequences.max_length - 1 - step, step)
    active = sequences.in_batch & (step >= 0)
    if config.has_lengths:
        first_row = tl.load(step_offsets + tl.minimum(tl.maximum(time, 0), sequences.max_length)).to(tl.int64)
        active = active & (time < sequences.length)
    else:
        first_row = time.to(tl.int64) * sequences.batch_size
    return time, first_row, active


@triton.jit
def locate_previous_states(step, first_row, sequences, config: tl.constexpr):
    """Return the rows (M,), in memory of states, of the states before a step; those of the step before start at
    `first_row`.

    In a reversed direction a shorter sequence starts later than others, from its initial state.
    """
    rows = first_row + sequences.index
    if config.has_lengths:
        starts_here = (sequences.is_reversed != 0) & (sequences.max_length - step == sequences.length)
        rows = tl.where(starts_here, sequences.initial_row + sequences.index, rows)
    return rows


@triton.jit
def locate_outputs(sequences, sequence_stride, direction_stride):
    """Return the offsets (1, M) of the program's direction and sequences in the gradients of the outputs."""
    return tl.program_id(2) * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride


@triton.jit
def load_float(pointers, mask):
    """Load as float32, zero where the mask is False."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_gates(pointers, mask, STRIDE: tl.constexpr, GATES: tl.constexpr):
    """Load the tiles of all gates as float32."""
    values = ()
    for gate in tl.static_range(GATES):
        values += (load_float(pointers + gate * STRIDE, mask),)  # type: ignore[assignment]
    return values


@triton.jit
def store_gates(pointers, values, mask, GATES: tl.constexpr, config: tl.constexpr):
    """Store tiles that no other program waits for."""
    for gate in tl.static_range(GATES):
        tl.store(pointers + gate * config.units, values[gate].to(config.dtype), mask=mask)


@triton.jit
def load_optional_grad(gradient, offsets, mask, config: tl.constexpr):
    """Load the gradient of a last state, (own_units, M); zeros where it is None."""
    # Triton 3.6 takes only constants in a shape, not fields of `config`.
    OWN: tl.constexpr = config.own_units
    M: tl.constexpr = config.batch_tile
    values = tl.zeros((OWN, M), tl.float32)
    if gradient is not None:
        values = load_float(gradient + offsets, mask)
    return values


@triton.jit
def zero_tiles(like, COUNT: tl.constexpr):
    values = ()
    for _ in tl.static_range(COUNT):
        values += (tl.zeros_like(like),)  # type: ignore[assignment]
    return values


@triton.jit
def add_products(totals, first, second, COUNT: tl.constexpr):
    """totals + first · second, tile by tile."""
    values = ()
    for n in tl.static_range(COUNT):
        values += (totals[n] + first[n] * second[n],)  # type: ignore[assignment]
    return values


@triton.jit
def load_grad_output(grad_outputs, time, first_row, step_stride, mask, config: tl.constexpr):
    """Load the gradients of a step's outputs: of its packed rows where there are lengths, else of its time."""
    row = first_row if config.has_lengths else time.to(tl.int64)
    return load_float(grad_outputs + row * step_stride, mask)
