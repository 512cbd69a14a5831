"""Generates matrix products that each thread calls for its own rows. It knows nothing of time or of cells.

A BLAS library rearranges both factors at every call, and starts and joins its threads. Here a weight is rearranged once
for all steps (`pack_rows`, `pack_columns`). Measured against MKL on one core (Zen 4), with a weight of 2048 × 512:
4 rows 112 instead of 39 GFLOP/s, 32 rows 110 instead of 75, 2048 rows 107 instead of 93 (decision 0015 has the script).

The result is computed in tiles that stay in registers. A packed weight consists of panels as wide as a tile: for every
k, the entries that a tile needs side by side. At the end of the width narrower panels follow, the last of them with
masked lanes. Every entry of the result is one sum over k in ascending order, whatever the other rows and the number of
threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Code, CompiledFunction, Int, Vec, get_vector_sizes
from seqwise.kernels.recurrence.decorators import thread_safe_cache

TILE_HEIGHTS = (6, 4, 2, 1)  # rows of a tile, the fastest first
PANEL_DEPTH = 512  # values of k at a time, so that their part of a panel stays in the L2 cache while it is reused
UNPACKED_DEPTH = 128  # the same if neither factor is packed and rows are far apart in memory
PARTIAL = 0  # the width of a tile that has only some lanes of a vector


@thread_safe_cache
def compile_products(precision: str) -> dict[str, CompiledFunction]:
    """Compiles the functions for "float" or "double"; returns them by name. Strides are from row to row, in numbers.

    pack_rows(weight, stride, N, K, panels)
                                          weight (N, K), for left · weightᵀ
    pack_columns(weight, stride, N, K, panels)
                                          weight (K, N), for left · weight
    product(left, stride, panels, result, stride, M, K, N, addend, stride)
                                          result (M, N) = addend (M, N) + left (M, K) · weight; address 0: no addend
    multiply_transposed(left, stride, right, stride, result, stride, M, K, N, accumulate)
                                          result (M, N) = left (K, M)ᵀ · right (K, N), added with `accumulate`
    Each also exists as `…_from_list(address)`, which takes the address of a list of the arguments.
    """
    code = Code(precision)
    _add_pack_rows(code)
    _add_pack_columns(code)
    widths = (*get_panel_widths(), PARTIAL)
    tiles = {(height, width): _add_tile(code, height, width) for width in widths for height in TILE_HEIGHTS}
    _add_product(code, tiles)
    _add_multiply_transposed(code, tiles)
    return code.build()


def compute_packed_size(width: int, depth: int, itemsize: int) -> int:
    """Returns the number of entries in the panels of a weight (depth, width); an entry has `itemsize` bytes."""
    lanes = get_vector_sizes()[0] // itemsize
    return (width + lanes - 1) // lanes * lanes * depth


def get_panel_widths() -> tuple[int, ...]:
    """Returns the widths of panels, in vectors."""
    return tuple(width for width in (4, 2, 1) if width <= get_vector_sizes()[1])


def _loop_over_panels(code: Code, columns: Int) -> Iterator[tuple[int, Int, Int]]:
    """Generates a loop over the panels of a result; yields (width in vectors, first column, columns from there on).

    At most one panel of each narrower width follows the wide ones, then a `PARTIAL` vector.
    """
    start = code.as_int(0)
    for width in get_panel_widths():
        span = width * code.lanes
        stop = start + (columns - start) // span * span
        with code.loop(start, stop, span) as j:
            yield width, j, columns - j
        start = stop
    with code.builder.if_then(start < columns):
        yield PARTIAL, start, columns - start


def _loop_over_tiles(code: Code, rows: Int) -> Iterator[tuple[Int, int]]:
    """Generates a loop over tiles that cover the rows, the highest first; yields (first row, height)."""
    start = code.as_int(0)
    for height in TILE_HEIGHTS:
        stop = start + (rows - start) // height * height
        with code.loop(start, stop, height) as r:
            yield r, height
        start = stop


def _get_panel_stride(code: Code, width: int) -> int:
    """Returns the distance from k to k + 1 in a panel, in numbers."""
    return max(width, 1) * code.lanes


def _add_pack_columns(code: Code) -> None:
    with code.function("pack_columns", 5) as (weight, stride, columns, depth, panels):
        for width, j, columns_left in _loop_over_panels(code, columns):
            span = _get_panel_stride(code, width)
            with code.loop(0, depth) as k, code.mask_lanes(columns_left if width == PARTIAL else None):
                for v in range(0, span, code.lanes):
                    code.store(code.load(weight, k * stride + j + v), panels, j * depth + k * span + v)
    code.add_list_version("pack_columns_from_list", "pack_columns", 5)


def _add_pack_rows(code: Code) -> None:
    strip = _add_pack_strip(code)
    with code.function("pack_rows", 5) as (weight, stride, columns, depth, panels):
        for width, j, columns_left in _loop_over_panels(code, columns):
            span = _get_panel_stride(code, width)
            with code.loop(0, span, code.lanes) as v:
                rows = weight + (j + v) * stride * code.size
                panel = panels + (j * depth + v) * code.size
                code.call_local(strip, rows, stride, columns_left.minimum(code.lanes), depth, panel, span)
    code.add_list_version("pack_rows_from_list", "pack_rows", 5)


def _add_pack_strip(code: Code) -> Any:
    """Adds a function that packs as many rows of a weight as a vector has lanes. Squares are transposed in registers.

    Where there are fewer rows, the last one is repeated.
    """
    lanes = code.lanes
    with code.function("strip", 6) as (weight, weight_stride, count, depth, panel, stride):
        row_offsets = [weight_stride * (count - 1).minimum(i) for i in range(lanes)]
        full = depth // lanes * lanes
        with code.loop(0, full, lanes) as k:
            rows = [code.load(weight, offset + k) for offset in row_offsets]
            for i, row in enumerate(_transpose_square(code, rows)):
                code.store(row, panel, (k + i) * stride)
        with code.builder.if_then(full < depth):
            with code.mask_lanes(depth - full):
                rows = [code.load(weight, offset + full) for offset in row_offsets]
            for i, row in enumerate(_transpose_square(code, rows)):
                with code.builder.if_then(full + i < depth):
                    code.store(row, panel, (full + i) * stride)
    return code.make_internal("strip")


def _transpose_square(code: Code, rows: list[Vec]) -> list[Vec]:
    """Returns the columns of a square matrix.

    In each round, pairs of rows swap halves of blocks; the blocks halve every time.
    """
    values, width = [row.value for row in rows], code.lanes
    block = width // 2
    while block:
        for i in (i for i in range(width) if not i & block):
            low, high = values[i], values[i + block]
            low_order = [c - block + width if c & block else c for c in range(width)]
            high_order = [c + width if c & block else c + block for c in range(width)]
            for index, order in ((i, low_order), (i + block, high_order)):
                mask = ir.Constant(ir.VectorType(INT32, width), order)
                values[index] = code.builder.shuffle_vector(low, high, mask)
        block //= 2
    return [Vec(code, value) for value in values]


def _add_tile(code: Code, rows: int, width: int) -> Any:
    """Adds a function that computes result (rows, width vectors) = addend + left · right; address 0: no addend.

    left[r, k] is at r · row stride + k · column stride, right[k] at k · stride. A `PARTIAL` tile reads no column after
    the last.
    """
    lanes, name, is_partial, width = code.lanes, f"tile_{rows}_{width}", width == PARTIAL, max(width, 1)
    positions = [(r, v * lanes) for r in range(rows) for v in range(width)]
    with (
        code.function(name, 11) as (left, left_row_stride, left_column_stride, right, right_stride, *rest),
        code.mask_lanes(rest[-1] if is_partial else None),
    ):
        addend, addend_stride, result, stride, depth, _ = rest
        builder, before = code.builder, code.builder.block
        load_addend, body, after = (builder.append_basic_block() for _ in range(3))
        left_rows = [left + left_row_stride * (r * code.size) for r in range(rows)]
        builder.cbranch(addend < 1, body, load_addend)
        builder.position_at_end(load_addend)
        addend_values = [code.load(addend, addend_stride * r + v).value for r, v in positions]
        builder.branch(body)
        builder.position_at_end(body)
        k, sums = builder.phi(INT64), [builder.phi(code.vector) for _ in positions]
        for block, values in ((before, [code.as_vec(0.0).value] * len(positions)), (load_addend, addend_values)):
            k.add_incoming(INT64(0), block)
            for total, value in zip(sums, values, strict=True):
                total.add_incoming(value, block)
        column = Int(code, k)
        entries = [code.load(right, column * right_stride + v * lanes) for v in range(width)]
        new_sums = []
        for r in range(rows):
            factor = code.broadcast(builder.load(code.compute_pointer(left_rows[r], column * left_column_stride)))
            new_sums += [code.fma(factor, entries[v], Vec(code, sums[r * width + v])) for v in range(width)]
        k.add_incoming((column + 1).value, body)
        for total, value in zip(sums, new_sums, strict=True):
            total.add_incoming(value.value, body)
        builder.cbranch(column + 1 < depth, body, after)
        builder.position_at_end(after)
        for (r, v), value in zip(positions, new_sums, strict=True):
            code.store(value, result, stride * r + v)
    return code.make_internal(name)


def _add_product(code: Code, tiles: dict[tuple[int, int], Any]) -> None:
    size = code.size
    with code.function("product", 10) as (left, left_stride, panels, result, stride, *rest):
        rows, depth, columns, addend, addend_stride = rest
        for width, j, columns_left in _loop_over_panels(code, columns):
            panel_stride = _get_panel_stride(code, width)
            with code.loop(0, depth, PANEL_DEPTH) as k:
                panel, block_depth = panels + (j * depth + k * panel_stride) * size, (depth - k).minimum(PANEL_DEPTH)
                for r, height in _loop_over_tiles(code, rows):
                    address = result + (r * stride + j) * size
                    initial_addend = code.select(addend < 1, addend, addend + (r * addend_stride + j) * size)
                    # After the first block of k, the result so far is the addend.
                    tile_addend = code.select(k < 1, initial_addend, address), code.select(k < 1, addend_stride, stride)
                    arguments = panel, panel_stride, *tile_addend, address, stride, block_depth, columns_left
                    left_block = left + (r * left_stride + k) * size
                    code.call_local(tiles[height, width], left_block, left_stride, 1, *arguments)
    code.add_list_version("product_from_list", "product", 10)


def _add_multiply_transposed(code: Code, tiles: dict[tuple[int, int], Any]) -> None:
    """Adds `multiply_transposed`: neither factor is packed, and the sum runs over their rows."""
    size = code.size
    with code.function("multiply_transposed", 10) as (left, left_stride, right, right_stride, result, stride, *rest):
        rows, depth, columns, accumulate = rest
        with code.loop(0, depth, UNPACKED_DEPTH) as k:
            block_depth = (depth - k).minimum(UNPACKED_DEPTH)
            for width, j, columns_left in _loop_over_panels(code, columns):
                for r, height in _loop_over_tiles(code, rows):
                    address = result + (r * stride + j) * size
                    block_addend = code.select(k + accumulate < 1, code.as_int(0), address)
                    right_block = right + (k * right_stride + j) * size
                    factors = left + (k * left_stride + r) * size, 1, left_stride, right_block, right_stride
                    arguments = *factors, block_addend, stride, address, stride, block_depth, columns_left
                    code.call_local(tiles[height, width], *arguments)
    code.add_list_version("multiply_transposed_from_list", "multiply_transposed", 10)
