"""Matrix products with all rows of a batch, by the compiled functions on all threads. It knows nothing of time.

A weight is rearranged once for several windows, and no result depends on the number of threads, as the results of
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
    """The compiled functions of one precision (`product.py`), and the sizes of their tiles."""

    product: CompiledFunction
    multiply_transposed: CompiledFunction
    pack: dict[bool, CompiledFunction]  # whether the weight is transposed → function
    lanes: int  # numbers in a vector register
    panel_width: int  # columns of the widest panel
    tile_height: int  # rows of the highest tile
    run_on_threads: Callable[[CompiledFunction, Sequence[Sequence[int]], int], None]


@thread_safe_cache
def get_matmul_functions(dtype: torch.dtype) -> MatmulFunctions:
    """Returns the functions of one precision, compiled at the first call."""
    from seqwise.kernels.recurrence.cpu.product import (
        TILE_HEIGHTS,
        compile_products,
        compute_packed_size,
        get_panel_widths,
    )
    from seqwise.kernels.recurrence.cpu.threads import run_on_threads

    functions, lanes = compile_products(PRECISIONS[dtype]), compute_packed_size(1, 1, dtype.itemsize)
    return MatmulFunctions(
        product=functions["product_from_list"],
        multiply_transposed=functions["multiply_transposed_from_list"],
        pack={True: functions["pack_rows_from_list"], False: functions["pack_columns_from_list"]},
        lanes=lanes,
        panel_width=lanes * get_panel_widths()[0],
        tile_height=TILE_HEIGHTS[0],
        run_on_threads=run_on_threads,
    )


class PackedWeight:
    """A weight (K, M), or with `transposed` (M, K), rearranged once for the rows that are multiplied with it."""

    def __init__(self, weight: Tensor, transposed: bool):
        weight = weight.contiguous()
        self.width, self.panels = weight.shape[0 if transposed else 1], pack_weight(weight, transposed)

    def multiply_rows(self, x: Tensor, addend: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Returns x (N, K) · weight + addend (M) or (N, M), in `out` (N, M), which may be the addend itself."""
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
            x_address, out_address = (tensor.data_ptr() + first * tensor.stride(0) * size for tensor in (x, out))
            argument_lists.append([
                *(x_address, x.stride(0), self.panels.data_ptr(), out_address, out.stride(0)),
                *(end - first, depth, width, addend_address + first * addend_stride * size, addend_stride),
            ])  # fmt: skip
        functions.run_on_threads(functions.product, argument_lists, len(argument_lists))
        return out


def pack_weight(weight: Tensor, transposed: bool) -> Tensor:
    """Returns the panels of a weight (K, M), or with `transposed` (M, K), whose rows may have gaps between them."""
    width, depth = weight.shape if transposed else weight.shape[::-1]
    size, stride, functions = weight.element_size(), weight.stride(0), get_matmul_functions(weight.dtype)
    panels = weight.new_empty(-(-width // functions.lanes) * functions.lanes * depth)
    argument_lists = []
    # Each worker begins with a whole panel.
    for first, end in split_rows(width, width * depth * COPY_COST, functions.panel_width):
        address = weight.data_ptr() + first * (stride if transposed else 1) * size
        argument_lists.append([address, stride, end - first, depth, panels.data_ptr() + first * depth * size])
    functions.run_on_threads(functions.pack[transposed], argument_lists, len(argument_lists))
    return panels


def multiply_transposed(left: Tensor, right: Tensor, out: Tensor, accumulate: bool = False) -> None:
    """Writes left (N, M)ᵀ · right (N, K) to `out` (M, K), or with `accumulate` adds it.

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
        out_address = out.data_ptr() + first * out.stride(0) * size
        factors = [left.data_ptr() + first * size, left.stride(0), right.data_ptr(), right.stride(0)]
        argument_lists.append([*factors, out_address, out.stride(0), end - first, depth, width, int(accumulate)])
    functions.run_on_threads(functions.multiply_transposed, argument_lists, len(argument_lists))


def slice_rows(rows: Tensor, first: int, end: int) -> Tensor:
    """Returns rows[first:end]; without a view, which takes two microseconds, if these are all rows."""
    return rows if first == 0 and end == rows.shape[0] else rows[first:end]


def split_rows(rows: int, work: float, height: int) -> list[tuple[int, int]]:
    """Returns the rows (first, end) of each worker; all but the last get whole tiles of `height` rows.

    `work` is the number of multiplications, which decides whether several threads share them.
    """
    threads = torch.get_num_threads() if 2 * work >= MIN_THREADED_WORK else 1
    if threads == 1:
        return [(0, rows)] if rows else []
    tiles = -(-rows // height)
    borders = [min(rows, tiles * worker // threads * height) for worker in range(threads + 1)]
    return [(first, end) for first, end in pairwise(borders) if first < end]


def _has_contiguous_rows(*tensors: Tensor) -> bool:
    return all(tensor.stride(1) == 1 or tensor.shape[1] < 2 for tensor in tensors)
