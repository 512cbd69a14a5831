"""Matrix products with all rows of a batch, by the compiled functions on all threads. It knows nothing of time.

A weight is rearranged once for several parts of a batch, and no result depends on the number of threads, as those of
`torch.addmm` do. With `torch.addmm`, whole scans (LSTM and GRU, batches of 4–128, 64–512 units, one and two threads)
took 5 % longer at the median, between 4 % less and 29 % more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqwise.kernels.recurrence.decorators import thread_safe_cache

if TYPE_CHECKING:  # it imports LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import CompiledFunction

PRECISIONS = {torch.float32: "float", torch.float64: "double"}
MIN_THREADED_WORK = 2e6  # minimum number of multiplications and additions that several threads share
COPY_COST = 8  # copying a number takes as long as this many multiplications


class MatmulFunctions(NamedTuple):
    """The compiled functions of one precision, the sizes of their tiles, and the function that runs them on threads."""

    product: CompiledFunction
    multiply_transposed: CompiledFunction
    pack: dict[bool, CompiledFunction]  # for transposed weights and for others
    lanes: int
    panel_width: int  # columns of the widest panel
    tile_height: int  # rows of the highest tile
    run: Callable[[CompiledFunction, Sequence[Sequence[int]], int], None]


@thread_safe_cache
def get_matmul_functions(dtype: torch.dtype) -> MatmulFunctions:
    """The functions of one precision, compiled at the first call."""
    from seqwise.kernels.recurrence.cpu.code import run
    from seqwise.kernels.recurrence.cpu.product import TILE_HEIGHTS, compile_products, packed_size, panel_widths

    functions, lanes = compile_products(PRECISIONS[dtype]), packed_size(1, 1, dtype.itemsize)
    pack = {True: functions["pack_rows_from_list"], False: functions["pack_columns_from_list"]}
    products = functions["product_from_list"], functions["multiply_transposed_from_list"], pack
    panel_width, tile_height = lanes * panel_widths()[0], TILE_HEIGHTS[0]
    return MatmulFunctions(*products, lanes=lanes, panel_width=panel_width, tile_height=tile_height, run=run)


class PackedWeight:
    """A weight (K, M), or with `transposed` (M, K), rearranged once for the rows that are multiplied with it."""

    def __init__(self, weight: Tensor, transposed: bool):
        weight = weight.contiguous()
        self.width, self.panels = weight.shape[0 if transposed else 1], pack_weight(weight, transposed)

    def multiply_rows(self, x: Tensor, addend: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """x (N, K) · weight + addend (M) or (N, M) → (N, M). `addend` and `out` may be the same tensor."""
        functions = get_matmul_functions(x.dtype)
        (rows, depth), width, size = x.shape, self.width, x.element_size()
        out = x.new_empty(rows, width) if out is None else out
        assert _has_contiguous_rows(x, out), "the numbers of a row must be contiguous"
        if not depth:  # a tile takes at least one column
            return out.zero_() if addend is None else out.copy_(addend)
        addend_address, addend_stride = (
            (0, 0) if addend is None else (addend.data_ptr(), addend.stride(0) if addend.dim() == 2 else 0)
        )
        argument_lists = []
        for first, end in split_rows(rows, rows * width * depth, functions.tile_height):
            left, address = x.data_ptr() + first * x.stride(0) * size, out.data_ptr() + first * out.stride(0) * size
            middle = [self.panels.data_ptr(), address, out.stride(0), end - first, depth, width]
            addend_words = addend_address + first * addend_stride * size, addend_stride
            argument_lists.append([left, x.stride(0), *middle, *addend_words])
        functions.run(functions.product, argument_lists, len(argument_lists))
        return out


def pack_weight(weight: Tensor, transposed: bool) -> Tensor:
    """The panels of a weight (K, N), or with `transposed` (N, K), whose rows may have gaps between them."""
    width, depth = weight.shape if transposed else weight.shape[::-1]
    size, stride, functions = weight.element_size(), weight.stride(0), get_matmul_functions(weight.dtype)
    panels = weight.new_empty(-(-width // functions.lanes) * functions.lanes * depth)
    argument_lists = []
    # Each worker starts at a panel.
    for first, end in split_rows(width, width * depth * COPY_COST, functions.panel_width):
        address = weight.data_ptr() + first * (stride if transposed else 1) * size
        argument_lists.append([address, stride, end - first, depth, panels.data_ptr() + first * depth * size])
    functions.run(functions.pack[transposed], argument_lists, len(argument_lists))
    return panels


def multiply_transposed(left: Tensor, right: Tensor, out: Tensor, accumulate: bool = False) -> None:
    """left (N, M) transposed · right (N, K) → out (M, K), added to it with `accumulate`.

    Rows may have gaps between them.
    """
    assert _has_contiguous_rows(left, right, out), "the numbers of a row must be contiguous"
    functions = get_matmul_functions(left.dtype)
    (depth, rows), width, size = left.shape, right.shape[1], left.element_size()
    if not depth and not accumulate:
        out.zero_()
    if not depth:
        return
    argument_lists = []
    for first, end in split_rows(rows, rows * width * depth, functions.tile_height):
        address = out.data_ptr() + first * out.stride(0) * size
        factors = [left.data_ptr() + first * size, left.stride(0), right.data_ptr(), right.stride(0)]
        argument_lists.append([*factors, address, out.stride(0), end - first, depth, width, int(accumulate)])
    functions.run(functions.multiply_transposed, argument_lists, len(argument_lists))


def slice_rows(rows: Tensor, first: int, end: int) -> Tensor:
    """The rows from `first` to `end`. All rows need no view, which would take two microseconds."""
    return rows if first == 0 and end == rows.shape[0] else rows[first:end]


def split_rows(rows: int, work: float, height: int) -> list[tuple[int, int]]:
    """The rows (first, end) of each worker. All but the last get whole tiles of `height` rows."""
    threads = torch.get_num_threads() if 2 * work >= MIN_THREADED_WORK else 1
    if threads == 1:
        return [(0, rows)] if rows else []
    tiles = -(-rows // height)
    borders = [min(rows, tiles * worker // threads * height) for worker in range(threads + 1)]
    return [(first, end) for first, end in pairwise(borders) if first < end]


def _has_contiguous_rows(*tensors: Tensor) -> bool:
    return all(tensor.stride(1) == 1 or tensor.shape[1] < 2 for tensor in tensors)
