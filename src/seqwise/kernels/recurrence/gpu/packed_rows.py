"""Triton functions that map a program to its sequences and steps, and these to the rows of packed memory.

Sequences are sorted by length, the longest first. Packed memory has one row per valid step of a sequence: the first
steps of all sequences, then the second steps of the sequences that have one, and so on, as in PyTorch's
`PackedSequence`. A direction reads its sequences from the first step to the last or, reversed, from the last to the
first. The state buffer has `batch_size` more rows at the beginning for the initial states of a forward direction, and
as many at the end for the initial states of a reversed direction.

The module also loads and stores tiles (units, sequences). Several tiles, such as one per gate, are a tuple; in memory
each begins a fixed stride after the one before. M is the number of sequences of a program, `config.batch_tile`;
`config` is a `KernelConfig`. This module knows nothing of cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

# Arguments that change from batch to batch: Triton must not compile a kernel for each of their values.
UNSPECIALIZED = ("num_steps", "batch_size", "num_rows", "reverse_bits", "first_sequence")
UNSPECIALIZED_BACKWARD = (*UNSPECIALIZED, "step_stride", "sequence_stride", "direction_stride")


class Sequences(NamedTuple):
    """The M sequences of a program, in one direction."""

    first: Any  # index of the first sequence
    index: Any  # (M,) indices of all of them
    in_batch: Any  # (M,) whether the index is within the batch
    length: Any  # (M,) number of steps
    max_length: Any  # the largest length
    is_reversed: Any  # 1 if the direction is reversed, else 0
    initial_row: Any  # row of the state buffer at which the initial states of the batch begin
    batch_size: Any


@triton.jit
def locate_sequences(lengths, num_steps, batch_size, num_rows, reverse_bits, first_sequence, config: tl.constexpr):
    """Returns the `Sequences` of this program. If all of them are beyond the end of the batch, it has no steps.

    `reverse_bits` has one bit per direction, set if the direction is reversed.
    """
    M: tl.constexpr = config.batch_tile
    first = first_sequence + tl.program_id(1) * M
    index = first + tl.arange(0, M)
    in_batch = index < batch_size
    length, max_length = tl.full((M,), num_steps, tl.int32), num_steps * (first < batch_size)
    if config.has_lengths:
        length = tl.load(lengths + index, mask=in_batch, other=0)
        max_length = tl.max(length)
    is_reversed = (reverse_bits >> tl.program_id(2)) & 1
    initial_row = (batch_size + num_rows).to(tl.int64) * is_reversed
    return Sequences(first, index, in_batch, length, max_length, is_reversed, initial_row, batch_size)


@triton.jit
def locate_step(step_offsets, step, sequences, config: tl.constexpr):
    """Returns the time of a step, the packed row at which it begins, and which sequences (M,) have it.

    `step` counts in the order in which the direction reads, the time in the order of the sequence. Step −1, before the
    first, belongs to no sequence.
    """
    time = tl.where(sequences.is_reversed != 0, sequences.max_length - 1 - step, step)
    active = sequences.in_batch & (step >= 0)
    if config.has_lengths:
        first_row = tl.load(step_offsets + tl.minimum(tl.maximum(time, 0), sequences.max_length)).to(tl.int64)
        active = active & (time < sequences.length)
    else:
        first_row = time.to(tl.int64) * sequences.batch_size
    return time, first_row, active


@triton.jit
def locate_previous_states(step, state_row, sequences, config: tl.constexpr):
    """Returns the rows (M,) of the state buffer with the states before a step.

    The states of the previous step begin at `state_row`. In a reversed direction a shorter sequence starts later than
    others, from its initial state.
    """
    rows = state_row + sequences.index
    if config.has_lengths:
        starts_here = (sequences.is_reversed != 0) & (sequences.max_length - step == sequences.length)
        rows = tl.where(starts_here, sequences.initial_row + sequences.index, rows)
    return rows


@triton.jit
def locate_grad_outputs(sequences, sequence_stride, direction_stride):
    """Returns the offsets (1, M) of the program's sequences, in its direction, in the gradients of the outputs."""
    return tl.program_id(2) * direction_stride + sequences.index.to(tl.int64)[None, :] * sequence_stride


@triton.jit
def load_float(pointers, mask):
    """Loads as float32, zero where the mask is False."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_tiles(pointers, mask, STRIDE: tl.constexpr, NUM_TILES: tl.constexpr):
    """Loads tiles as float32; each begins `STRIDE` numbers after the one before."""
    tiles = ()
    for n in tl.static_range(NUM_TILES):
        tiles += (load_float(pointers + n * STRIDE, mask),)  # type: ignore[assignment]
    return tiles


@triton.jit
def store_tiles(pointers, tiles, mask, NUM_TILES: tl.constexpr, config: tl.constexpr):
    """Stores tiles, each `config.units` numbers after the one before.

    Values that other programs wait for are stored by `sync.publish_tiles` instead.
    """
    for n in tl.static_range(NUM_TILES):
        tl.store(pointers + n * config.units, tiles[n].to(config.dtype), mask=mask)


@triton.jit
def load_optional_grad(gradient, offsets, mask, config: tl.constexpr):
    """Loads the gradient of a final state, (own_units, M); zeros if it is None."""
    # Triton 3.6 takes only constants in a shape, not fields of `config`.
    OWN_UNITS: tl.constexpr = config.own_units
    M: tl.constexpr = config.batch_tile
    values = tl.zeros((OWN_UNITS, M), tl.float32)
    if gradient is not None:
        values = load_float(gradient + offsets, mask)
    return values


@triton.jit
def create_zero_tiles(like, NUM_TILES: tl.constexpr):
    """Returns tiles of zeros with the shape and type of `like`."""
    tiles = ()
    for _ in tl.static_range(NUM_TILES):
        tiles += (tl.zeros_like(like),)  # type: ignore[assignment]
    return tiles


@triton.jit
def add_products(totals, left, right, NUM_TILES: tl.constexpr):
    """Returns totals + left * right for each tile, elementwise."""
    tiles = ()
    for n in tl.static_range(NUM_TILES):
        tiles += (totals[n] + left[n] * right[n],)  # type: ignore[assignment]
    return tiles


@triton.jit
def load_grad_output(grad_outputs, time, first_row, step_stride, mask, config: tl.constexpr):
    """Loads the gradients of a step's outputs, indexed by packed row if sequences differ in length, else by time."""
    row = first_row if config.has_lengths else time.to(tl.int64)
    return load_float(grad_outputs + row * step_stride, mask)
