"""Generates matrix products that each thread calls for its own rows. It knows nothing of time or of cells.

A BLAS library rearranges both factors at every call, and starts and joins its threads. Here a weight is rearranged once
for all steps (`pack_rows`, `pack_columns`). Measured against MKL on one core (Zen 4), with a weight of 2048 × 512:
4 rows 112 instead of 39 GFLOP/s, 32 rows 110 instead of 75, 2048 rows 107 instead of 93 (decision 0015 has the script).

The result is computed in tiles that stay in registers. A packed weight consists of panels as wide as a tile: for every
column of the weight, the tile's entries side by side. Where the width ends, narrower panels follow, the last of them
with masked lanes. Every entry is one sum, in the order of the columns, whatever
the rows beside it and the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import NUMBER, WORD, Code, Compiled, Int, Vec, machine
from seqwise.kernels.recurrence.thread_safe_cache import thread_safe_cache

ROWS = (6, 4, 2, 1)  # heights of tiles, the best first
DEPTH = 512  # columns of a panel at a time: what of it is used again stays in the second cache
SHALLOW = 128  # the same where neither factor is packed and rows are far apart in memory
PART = 0  # the width of a tile that has only some lanes of one vector


@thread_safe_cache
def products(kind: str) -> dict[str, Compiled]:
    """The functions for "float" or "double". Steps lead from one row to the next, in reals.

    pack_rows(weight, its step, N, K, panels)
                                          weight (N, K), for rows · weightᵀ
    pack_columns(weight, its step, N, K, panels)
                                          weight (K, N), for rows · weight
    product(rows, step, panels, result, step, how many rows, K, N, start, its step)
                                          result (·, N) = start (·, N) + rows (·, K) · weight; no start is zero
    across(left, step, right, step, result, step, how many columns of left, K, N, more)
                                          result (·, N) = left (K, ·) transposed · right (K, N); with `more` it is added
    Each exists also as `…_of(words)`, with a list of its arguments.
    """
    code = Code(kind)
    _pack_rows(code)
    _pack_columns(code)
    tiles = {(rows, width): _tile(code, rows, width) for width in (*widths(), PART) for rows in ROWS}
    _product(code, tiles)
    _across(code, tiles)
    return code.build()


def packed_size(width: int, depth: int, size: int) -> int:
    """How many reals of so many bytes the panels of a weight take."""
    lanes = machine()[0] // size
    return (width + lanes - 1) // lanes * lanes * depth


def widths() -> tuple[int, ...]:
    """Widths of panels, in vectors."""
    return tuple(width for width in (4, 2, 1) if width <= machine()[1])


def _panels(code: Code, columns: Int) -> Iterator[tuple[int, Int, Int]]:
    """Loops over the panels of a result of so many columns. → (width in vectors, first column, columns from there on)

    At most one panel of each narrower width follows the wide ones, at last a `PART` of a vector.
    """
    start = code.whole(0)
    for width in widths():
        span = width * code.lanes
        stop = start + (columns - start) // span * span
        with code.loop(start, stop, span) as j:
            yield width, j, columns - j
        start = stop
    with code.when(start < columns):
        yield PART, start, columns - start


def _heights(code: Code, rows: Int) -> Iterator[tuple[Int, int]]:
    """Tiles that cover the rows: as many as fit of the highest, then at most a few lower ones. → (first row, height)"""
    start = code.whole(0)
    for height in ROWS:
        stop = start + (rows - start) // height * height
        with code.loop(start, stop, height) as r:
            yield r, height
        start = stop


def _span(code: Code, width: int) -> int:
    """The reals from one column of a weight to the next in a panel."""
    return max(width, 1) * code.lanes


def _pack_columns(code: Code) -> None:
    with code.function("pack_columns", 5) as (weight, step, columns, depth, panels):
        for width, j, left in _panels(code, columns):
            span = _span(code, width)
            with code.loop(0, depth) as k, code.below(left if width == PART else None):
                for v in range(0, span, code.lanes):
                    code.store(code.load(weight, k * step + j + v), panels, j * depth + k * span + v)
    code.from_words("pack_columns_of", "pack_columns", 5)


def _pack_rows(code: Code) -> None:
    strip = _strip(code)
    with code.function("pack_rows", 5) as (weight, step, columns, depth, panels):
        for width, j, left in _panels(code, columns):
            span = _span(code, width)
            with code.loop(0, span, code.lanes) as v:
                rows, place = weight + (j + v) * step * code.size, panels + (j * depth + v) * code.size
                code.inside(strip, rows, step, left.minimum(code.lanes), depth, place, span)
    code.from_words("pack_rows_of", "pack_rows", 5)


def _strip(code: Code) -> Any:
    """A function: as many rows of a weight as a vector has lanes become columns. Squares are transposed in registers.

    Where there are fewer rows, the last one stands for those that are missing.
    """
    lanes = code.lanes
    with code.function("strip", 6) as (weight, weight_step, count, depth, panel, step):
        places = [weight_step * (count - 1).minimum(i) for i in range(lanes)]
        full = depth // lanes * lanes
        with code.loop(0, full, lanes) as k:
            for i, row in enumerate(_transpose(code, [code.load(weight, place + k) for place in places])):
                code.store(row, panel, (k + i) * step)
        with code.when(full < depth):
            with code.below(depth - full):
                rows = [code.load(weight, place + full) for place in places]
            for i, row in enumerate(_transpose(code, rows)):
                with code.when(full + i < depth):
                    code.store(row, panel, (full + i) * step)
    return code.hide("strip")


def _transpose(code: Code, rows: list[Vec]) -> list[Vec]:
    """The columns of a square. In each round, pairs of rows swap halves of blocks; the blocks halve every time."""
    values, width = [row.value for row in rows], code.lanes
    block = width // 2
    while block:
        for i in (i for i in range(width) if not i & block):
            low, high = values[i], values[i + block]
            first = [c - block + width if c & block else c for c in range(width)]
            second = [c + width if c & block else c + block for c in range(width)]
            for place, order in ((i, first), (i + block, second)):
                mask = ir.Constant(ir.VectorType(NUMBER, width), order)
                values[place] = code.builder.shuffle_vector(low, high, mask)
        block //= 2
    return [Vec(code, value) for value in values]


def _tile(code: Code, rows: int, width: int) -> Any:
    """A function: result (rows, width vectors) = start + left · right. If there is no start (address 0), it is zero.

    left[r, k] lies at r · row step + k · column step, right[k] at k · step. Beyond the last column nothing is touched.
    """
    lanes, name, part, width = code.lanes, f"tile_{rows}_{width}", width == PART, max(width, 1)
    places = [(r, v * lanes) for r in range(rows) for v in range(width)]
    with (
        code.function(name, 11) as (left, left_row, left_column, right, right_step, start, start_step, *rest),
        code.below(rest[3] if part else None),
    ):
        result, step, depth, _ = rest
        builder, before = code.builder, code.builder.block
        reads, body, after = (builder.append_basic_block() for _ in range(3))
        lefts = [left + left_row * (r * code.size) for r in range(rows)]
        builder.cbranch(start < 1, body, reads)
        builder.position_at_end(reads)
        old = [code.load(start, start_step * r + v).value for r, v in places]
        builder.branch(body)
        builder.position_at_end(body)
        k, sums = builder.phi(WORD), [builder.phi(code.vector) for _ in places]
        for block, values in ((before, [code.real(0.0).value] * len(places)), (reads, old)):
            k.add_incoming(WORD(0), block)
            for one, value in zip(sums, values, strict=True):
                one.add_incoming(value, block)
        column = Int(code, k)
        entries = [code.load(right, column * right_step + v * lanes) for v in range(width)]
        new = []
        for r in range(rows):
            one = code.spread(builder.load(code.at(lefts[r], column * left_column)))
            new += [code.fma(one, entries[v], Vec(code, sums[r * width + v])) for v in range(width)]
        k.add_incoming((column + 1).value, body)
        for total, value in zip(sums, new, strict=True):
            total.add_incoming(value.value, body)
        builder.cbranch(column + 1 < depth, body, after)
        builder.position_at_end(after)
        for (r, v), value in zip(places, new, strict=True):
            code.store(value, result, step * r + v)
    return code.hide(name)


def _product(code: Code, tiles: dict[tuple[int, int], Any]) -> None:
    size = code.size
    with code.function("product", 10) as (left, left_step, panels, result, step, rows, depth, columns, start, its_step):
        for width, j, there in _panels(code, columns):
            wide = _span(code, width)
            with code.loop(0, depth, DEPTH) as k:
                panel, span = panels + (j * depth + k * wide) * size, (depth - k).minimum(DEPTH)
                for r, height in _heights(code, rows):
                    place = result + (r * step + j) * size
                    from_start = code.choose(start < 1, start, start + (r * its_step + j) * size)
                    begin = code.choose(k < 1, from_start, place), code.choose(k < 1, its_step, step)
                    rest = (panel, wide, *begin, place, step, span, there)
                    code.inside(tiles[height, width], left + (r * left_step + k) * size, left_step, 1, *rest)
    code.from_words("product_of", "product", 10)


def _across(code: Code, tiles: dict[tuple[int, int], Any]) -> None:
    """Neither factor is packed; the sum runs over their rows."""
    size = code.size
    with code.function("across", 10) as (left, left_step, right, right_step, result, step, rows, depth, columns, more):
        with code.loop(0, depth, SHALLOW) as k:
            span = (depth - k).minimum(SHALLOW)
            for width, j, there in _panels(code, columns):
                for r, height in _heights(code, rows):
                    place = result + (r * step + j) * size
                    begin = code.choose(k + more < 1, code.whole(0), place)
                    rest = (right + (k * right_step + j) * size, right_step, begin, step, place, step, span, there)
                    code.inside(tiles[height, width], left + (k * left_step + r) * size, 1, left_step, *rest)
    code.from_words("across_of", "across", 10)
