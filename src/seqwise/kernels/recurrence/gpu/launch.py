"""How a scan is cut among the programs of a GPU, and whether they can all run at once.

Programs that wait for each other must all be resident: more of them than multiprocessors are never launched. It knows
sizes, no cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.kinds import allows_tf32

OWN = 16  # units of a program; four programs share 64 in the backward pass
HELD_ROWS = 64  # rows of the recurrent matrix in a program: what one matrix instruction of Hopper takes
MOST = 64  # rows of the batch in a program
TILE = 1 << 13  # bytes of published values that a warp reads at once, at most
WASTE = 1.25  # columns read, per column there is
SCRATCH = 1 << 10  # bytes of shared memory for the rest, for every two warps
WARPS = 4  # one group for Hopper's matrix instruction; two where it takes all columns at once, or many rows
ROUNDS = 2  # of partial sums in a ring

NAMES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
BITS = {2: tl.int16, 4: tl.int32}


@dataclass(frozen=True)
class Cut:
    """blocks × groups programs for each scan in one launch, with M rows each; the matrix in chunks of KC columns."""

    units: int
    blocks: int
    groups: int
    rows: int
    columns: int
    held: int
    signs: int
    warps: int = WARPS

    @property
    def taken(self) -> int:
        """Rows of the batch that one launch takes."""
        return self.groups * self.rows

    @property
    def whole(self) -> bool:
        """Does a program keep all of its part of the matrix on chip?"""
        return self.held * self.columns >= self.units

    def constants(self, units: int, dtype: torch.dtype) -> dict[str, Any]:
        """What every kernel is compiled for."""
        return {
            "U": units,
            "M": self.rows,
            "KC": self.columns,
            "HELD": self.held,
            "SIGNS": self.signs,
            "DTYPE": NAMES[dtype],
            "BITS": BITS[dtype.itemsize],
            "PRECISION": precision(dtype),
        }

    def options(self, own: int, dtype: torch.dtype) -> dict[str, Any]:
        """The constants, and how kernels are launched: all programs at once or not at all."""
        how = {"num_warps": self.warps, "launch_cooperative_grid": True, "enable_fp_fusion": True}
        return {**self.constants(self.units, dtype), "OWN": own, **how}


def launches(values: Tensor, rows: RowLayout, units: int, own: int) -> Iterator[tuple[int, Cut, dict[str, Any]]]:
    """The launches that take all rows of values (N, S, …): first row, cut, options."""
    scans = len(rows.reverse)
    shape = cut(units, own, rows.batch, scans, values.dtype.itemsize, values.device)
    if shape is None:
        raise RuntimeError(f"{scans} × {units} units are more than fit on the GPU at once")
    for first in range(0, rows.batch, shape.taken):
        yield first, shape, {**shape.options(own, values.dtype), "VARIABLE": rows.variable}


@cache
def cut(units: int, own: int, batch: int, scans: int, size: int, device: torch.device) -> Cut | None:
    """The cut for numbers of `size` bytes, `own` units to a program; None where the programs cannot all be resident."""
    multiprocessors, memory = resources(device)
    per_block = max(1, HELD_ROWS // own)
    blocks = math.ceil(units / (own * per_block)) * per_block  # whole ones in the backward pass
    groups = multiprocessors // (blocks * scans)
    if groups == 0:
        return None
    fewest = 8 if units <= 256 or own == HELD_ROWS else 16  # 8 are multiplied by another, slower instruction
    rows = min(MOST, max(fewest, triton.next_power_of_2(math.ceil(batch / groups))))
    groups = min(groups, math.ceil(batch / rows))
    columns, warps = columns_of(units, rows, size)
    chunk, tile = HELD_ROWS * columns * size, rows * columns * size
    held = math.ceil(units / columns)
    rest = SCRATCH * warps // 2
    if held * chunk + tile + rest > memory:
        held = max(0, (memory - tile - chunk - rest) // chunk)  # and one at a time from the cache
    return Cut(units, blocks, groups, rows, columns, held, triton.next_power_of_2(math.ceil(units / own)), warps)


def columns_of(units: int, rows: int, size: int) -> tuple[int, int]:
    """Columns read at once, and the warps for that. All of them if they fit, even with some waste; else in wide
    chunks. On an H200: 650 units, 16 rows: 1,024 columns 8.2 µs a step, 256 9.6; 768: 8.2 and 8.4."""
    most = TILE * WARPS // (rows * size)
    every = max(32, triton.next_power_of_2(units))
    if every <= min(most, 1024 if rows > 8 else 512):
        return every, WARPS
    if rows == 32 and every <= min(2 * most, 1024):  # 1,024 units: 12.5 µs with eight warps, 13.1 with four
        return every, 2 * WARPS
    widths = [width for width in (512, 256, 128) if width <= most and width * rows >= 2048]
    thrifty = [width for width in widths if math.ceil(units / width) * width <= WASTE * units]
    return (thrifty or widths[-1:])[0], WARPS if rows < MOST else 2 * WARPS


@cache
def resources(device: torch.device) -> tuple[int, int]:
    """Multiprocessors, and bytes of shared memory that one program can have. Interpreted, those of an H200."""
    if device.type != "cuda":
        return 132, 232448
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_block_optin", 0)


def precision(dtype: torch.dtype) -> str:
    """How float32 is multiplied; of no importance for other types."""
    return "tf32" if dtype != torch.float32 or allows_tf32() else "tf32x3"


def ring(shape: Cut, scans: int, device: torch.device) -> Tensor:
    """Memory for the partial sums of all programs, with no first round in it yet."""
    size = ROUNDS * scans * shape.groups * shape.blocks * HELD_ROWS * shape.rows
    return torch.full((size,), -1, dtype=torch.int32, device=device)


def needed(*tensors: Tensor) -> bool:
    """Will somebody ask for a gradient?"""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
