"""Values of one or several gates at once, for the recurrent kernels, in Triton: read, kept, published, added up.

They are a tuple of tiles (units, rows); in memory each gate is U after the one before. It knows no cell.
"""

from __future__ import annotations

import triton
import triton.language as tl

from seqwise.kernels.recurrence.gpu.exchange import publish


@triton.jit
def one(places, mask):
    """What lies there, in float32."""
    return tl.load(places, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def read(places, mask, U: tl.constexpr, GATES: tl.constexpr):
    """What the gates hold, in float32."""
    values = ()
    for gate in tl.static_range(GATES):
        values += (one(places + gate * U, mask),)  # type: ignore[assignment]
    return values


@triton.jit
def keep(places, values, mask, U: tl.constexpr, GATES: tl.constexpr, DTYPE: tl.constexpr):
    """Write what nobody waits for."""
    for gate in tl.static_range(GATES):
        tl.store(places + gate * U, values[gate].to(DTYPE), mask=mask)


@triton.jit
def publish_all(places, values, mask, U: tl.constexpr, GATES: tl.constexpr, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """Write what the others wait for."""
    for gate in tl.static_range(GATES):
        publish(places + gate * U, values[gate], mask, DTYPE, BITS)


@triton.jit
def begun(start, states, at, first, wide, mask, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """The program's part of the state before all steps, published for the others, which wait for it as for any step."""
    h = one(start + at, mask)
    publish(states + first * wide + at, h, mask, DTYPE, BITS)
    return h


@triton.jit
def given(slopes, at, mask, OWN: tl.constexpr, M: tl.constexpr):
    """The gradient of a last state, (OWN, M); zeros where there is none."""
    found = tl.zeros((OWN, M), tl.float32)
    if slopes is not None:
        found = one(slopes + at, mask)
    return found


@triton.jit
def zeros(like, GATES: tl.constexpr):
    values = ()
    for _gate in tl.static_range(GATES):
        values += (tl.zeros_like(like),)  # type: ignore[assignment]
    return values


@triton.jit
def with_products(totals, first, second, GATES: tl.constexpr):
    """totals + first · second, gate by gate."""
    values = ()
    for gate in tl.static_range(GATES):
        values += (totals[gate] + first[gate] * second[gate],)  # type: ignore[assignment]
    return values


@triton.jit
def keep_tally(places, totals, mask, batch, offset, M: tl.constexpr, U: tl.constexpr, SUMS: tl.constexpr):
    """The sums of totals (OWN, M) over a group's rows, in (scans, groups, SUMS, U)."""
    groups, group = (batch + M - 1) // M, offset // M + tl.program_id(1)
    there = mask & (group < groups)
    for n in tl.static_range(SUMS):
        place = places + ((tl.program_id(2) * groups + group) * SUMS + n) * U
        tl.store(place, tl.sum(totals[n], axis=1)[:, None], mask=there)


@triton.jit
def note(statistics, slot, values, mask, NUMBERS: tl.constexpr):
    """Write a step's statistics (M,) for the backward pass, in (slots, scans, NUMBERS); one program of a group does."""
    writes = mask & (tl.program_id(0) == 0)
    places = statistics + (slot * tl.num_programs(2) + tl.program_id(2)) * NUMBERS
    for n in tl.static_range(NUMBERS):
        tl.store(places + n, values[n], mask=writes)


@triton.jit
def noted(statistics, slot, mask, NUMBERS: tl.constexpr):
    """The same, read again."""
    return read(statistics + (slot * tl.num_programs(2) + tl.program_id(2)) * NUMBERS, mask, 1, NUMBERS)


@triton.jit
def normalise(values, mean, inverse, GATES: tl.constexpr):
    """(values − mean) · inverse, gate by gate; gain and bias are not applied."""
    normal = ()
    for gate in tl.static_range(GATES):
        normal += ((values[gate] - mean[None, :]) * inverse[None, :],)  # type: ignore[assignment]
    return normal
