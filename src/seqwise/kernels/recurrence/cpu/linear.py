"""Matrix products with all rows of a batch, by the compiled functions on all threads. It knows nothing of time.

A weight is rearranged once for several parts of a batch, and no result depends on the number of threads, as those of
`torch.addmm` do. With that instead, whole scans (LSTM and GRU, batches of 4–128, 64–512 units, one and two threads)
took 5 % longer at the median, between 4 % less and 29 % more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from seqwise.kernels.recurrence.thread_safe_cache import thread_safe_cache

if TYPE_CHECKING:  # it imports LLVM, which is imported only when needed
    from seqwise.kernels.recurrence.cpu.code import Compiled

PRECISIONS = {torch.float32: "float", torch.float64: "double"}
MIN_THREADED_WORK = 2e6  # multiplications and additions from which on threads share the work
COPY_COST = 8  # copying a number takes as long as this many multiplications


class Tools(NamedTuple):
    """The compiled functions of one precision, the sizes of their tiles, and the function that runs them on threads."""

    product: Compiled
    across: Compiled
    pack: dict[bool, Compiled]  # by rows (transposed) and by columns
    lanes: int
    panel: int  # columns of the widest
    height: int  # rows of the highest tile
    run: Callable[[Compiled, Sequence[Sequence[int]], int], None]


@thread_safe_cache
def tools(dtype: torch.dtype) -> Tools:
    from seqwise.kernels.recurrence.cpu.product import ROWS, packed_size, products, widths
    from seqwise.kernels.recurrence.cpu.team import run

    made, lanes = products(PRECISIONS[dtype]), packed_size(1, 1, dtype.itemsize)
    pack = {True: made["pack_rows_of"], False: made["pack_columns_of"]}
    return Tools(made["product_of"], made["across_of"], pack, lanes, lanes * widths()[0], ROWS[0], run)


class Factor:
    """A weight (K, M), or with `transposed` (M, K), rearranged once for the rows that are multiplied with it."""

    def __init__(self, weight: Tensor, transposed: bool):
        weight = weight.contiguous()
        self.width, self.panels = weight.shape[0 if transposed else 1], packed(weight, transposed)

    def times(self, x: Tensor, start: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """x (N, K) · weight → (N, M), with a start (M) or (N, M) added. `start` and `out` may be the same tensor."""
        (rows, depth), width, size, own = x.shape, self.width, x.element_size(), tools(x.dtype)
        out = x.new_empty(rows, width) if out is None else out
        assert _dense(x, out), "the numbers of a row must be contiguous"
        if not depth:  # a tile takes at least one column
            return out.zero_() if start is None else out.copy_(start)
        begin, step = (0, 0) if start is None else (start.data_ptr(), start.stride(0) if start.dim() == 2 else 0)
        jobs = []
        for first, end in shares(rows, rows * width * depth, own.height):
            left, place = x.data_ptr() + first * x.stride(0) * size, out.data_ptr() + first * out.stride(0) * size
            middle = [self.panels.data_ptr(), place, out.stride(0), end - first, depth, width]
            jobs.append([left, x.stride(0), *middle, begin + first * step * size, step])
        own.run(own.product, jobs, len(jobs))
        return out


def packed(weight: Tensor, transposed: bool) -> Tensor:
    """The panels of a weight (K, N), or with `transposed` (N, K), whose rows may have gaps between them."""
    width, depth = weight.shape if transposed else weight.shape[::-1]
    size, step, own = weight.element_size(), weight.stride(0), tools(weight.dtype)
    panels = weight.new_empty(-(-width // own.lanes) * own.lanes * depth)
    jobs = []
    for first, end in shares(width, width * depth * COPY_COST, own.panel):  # workers begin where a panel does
        place = weight.data_ptr() + first * (step if transposed else 1) * size
        jobs.append([place, step, end - first, depth, panels.data_ptr() + first * depth * size])
    own.run(own.pack[transposed], jobs, len(jobs))
    return panels


def across(left: Tensor, right: Tensor, out: Tensor, more: bool = False) -> None:
    """left (N, M) transposed · right (N, K) → out (M, K); with `more` it is added. Rows may have gaps between them."""
    assert _dense(left, right, out), "the numbers of a row must be contiguous"
    (depth, rows), width, size, own = left.shape, right.shape[1], left.element_size(), tools(left.dtype)
    if not depth and not more:
        out.zero_()
    if not depth:
        return
    jobs = []
    for first, end in shares(rows, rows * width * depth, own.height):
        place = out.data_ptr() + first * out.stride(0) * size
        factors = [left.data_ptr() + first * size, left.stride(0), right.data_ptr(), right.stride(0)]
        jobs.append([*factors, place, out.stride(0), end - first, depth, width, int(more)])
    own.run(own.across, jobs, len(jobs))


def shares(rows: int, work: float, height: int) -> list[tuple[int, int]]:
    """(first, end) for every worker: whole tiles of such a height each, as far as it goes."""
    threads = torch.get_num_threads() if 2 * work >= MIN_THREADED_WORK else 1
    if threads == 1:
        return [(0, rows)] if rows else []
    tiles = -(-rows // height)
    borders = [min(rows, tiles * worker // threads * height) for worker in range(threads + 1)]
    return [(first, end) for first, end in pairwise(borders) if first < end]


def _dense(*tensors: Tensor) -> bool:
    return all(one.stride(1) == 1 or one.shape[1] < 2 for one in tensors)
