"""Loads and stores of one or several gates at once, for the recurrent kernels, in Triton.

The values of several gates are a tuple of tiles (units, sequences); in memory each gate is `STRIDE` after the one
before. This module knows nothing of cells.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.sync import publish


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
def publish_gates(pointers, values, mask, STRIDE: tl.constexpr, GATES: tl.constexpr, config: tl.constexpr):
    """Store tiles that the other programs wait for."""
    for gate in tl.static_range(GATES):
        publish(pointers + gate * STRIDE, values[gate], mask, config)


@triton.jit
def publish_initial_state(initial_state, states, offsets, initial_offset, mask, config: tl.constexpr):
    """Load the program's part of the initial state and publish it: the others wait for it as for that of any step."""
    h = load_float(initial_state + offsets, mask)
    publish(states + initial_offset + offsets, h, mask, config)
    return h


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
