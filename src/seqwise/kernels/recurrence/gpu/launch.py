"""How a scan is divided among the programs of a GPU, and whether they can all run at once.

Programs that wait for each other must all be resident: more of them than multiprocessors are never launched. This
module knows nothing of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwise.kernels.recurrence.cell_spec import allows_tf32
from seqwise.kernels.recurrence.gpu.layout import PackedLayout

UNITS_PER_PROGRAM = 16  # four programs share 64 in the backward pass
WEIGHT_ROWS = 64  # rows of the recurrent matrix in a program: what one matrix instruction of Hopper takes
MAX_BATCH_TILE = 64  # sequences in a program
MAX_TILE_BYTES = 1 << 13  # of published values that a warp reads at once
MAX_COLUMN_WASTE = 1.25  # columns read, per column that exists
SCRATCH_BYTES = 1 << 10  # of shared memory for everything else, for every two warps
MAX_UNSPLIT_BYTES = 1 << 15  # of published values, up to which a program reads all; beyond, partial sums are exchanged
WARPS = 4  # one warp group, as Hopper's matrix instruction needs; two where it takes all columns at once, or many rows

TRITON_DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
INTEGER_DTYPES = {2: tl.int16, 4: tl.int32}


@dataclass(frozen=True)
class KernelConfig:
    """The sizes and types that every kernel is compiled for, its parameter `config`.

    A program computes `own_units` of `units` hidden units for `batch_tile` sequences. It reads published vectors in
    tiles of `k_tile` columns and keeps `resident_chunks` chunks (64, k_tile) of the matrix on chip. `num_probes`
    programs publish values that it waits for. `bits` is the integer type of the size of `dtype`; ring buffers hold the
    numbers of `rounds` exchanges.
    """

    units: int
    batch_tile: int
    own_units: int
    k_tile: int
    resident_chunks: int
    num_probes: int
    has_lengths: bool
    dtype: tl.dtype
    bits: tl.dtype
    precision: str
    rounds: int = 2


@dataclass(frozen=True)
class Tiling:
    """A launch of unit_blocks × batch_groups programs per direction. Other fields: as in `KernelConfig`."""

    units: int
    unit_blocks: int
    batch_groups: int
    batch_tile: int
    k_tile: int
    resident_chunks: int
    num_probes: int
    warps: int = WARPS

    @property
    def batch_capacity(self) -> int:
        """Sequences that one launch takes."""
        return self.batch_groups * self.batch_tile

    @property
    def is_weight_resident(self) -> bool:
        """Whether a program keeps all of its part of the matrix on chip."""
        return self.resident_chunks * self.k_tile >= self.units


def iterate_launches(
    values: Tensor, layout: PackedLayout, units: int, own_units: int
) -> Iterator[tuple[int, Tiling, dict[str, Any]]]:
    """Yield the launches that take all sequences of values (N, D, …): first sequence, tiling, options."""
    directions = len(layout.reverse)
    tiling = choose_tiling(units, own_units, layout.batch_size, directions, values.dtype.itemsize, values.device)
    if tiling is None:
        raise RuntimeError(f"{directions} × {units} units are more than fit on the GPU at once")
    # How float32 is multiplied; irrelevant for other types.
    precision = "tf32" if values.dtype != torch.float32 or allows_tf32() else "tf32x3"
    options = build_options(tiling, own_units, values.dtype, layout.has_lengths, precision)
    for first in range(0, layout.batch_size, tiling.batch_capacity):
        yield first, tiling, options


@cache
def build_options(
    tiling: Tiling, own_units: int, dtype: torch.dtype, has_lengths: bool, precision: str
) -> dict[str, Any]:
    """The keyword arguments of every launch. A cooperative launch runs all programs at once or fails."""
    sizes = tiling.units, tiling.batch_tile, own_units, tiling.k_tile, tiling.resident_chunks, tiling.num_probes
    config = KernelConfig(*sizes, has_lengths, TRITON_DTYPES[dtype], INTEGER_DTYPES[dtype.itemsize], precision)
    return {"config": config, "num_warps": tiling.warps, "launch_cooperative_grid": True, "enable_fp_fusion": True}


@cache
def build_quarter_options(
    config: KernelConfig, columns: int, matrices: int, itemsize: int, device: torch.device
) -> dict[str, Any]:
    """The options that differ in a kernel that multiplies by quarters (`sync.py`) the `columns` columns of each of its
    matrices: tile, number of chunks, warps, and whether programs split the product."""
    split = columns * config.batch_tile * itemsize > MAX_UNSPLIT_BYTES
    quarter, vectors = columns // 4, config.batch_tile if split else 4 * config.batch_tile
    k_tile, warps = choose_k_tile(quarter, vectors, itemsize)
    memory = (get_device_limits(device)[1] - SCRATCH_BYTES * warps // 2) // itemsize  # numbers that fit

    def fits(k_tile: int) -> bool:
        return (matrices * math.ceil(quarter / k_tile) * WEIGHT_ROWS + vectors) * k_tile <= memory

    if not fits(k_tile) and fits(k_tile // 2):
        k_tile //= 2
    chunks = math.ceil(quarter / k_tile)
    if not fits(k_tile):
        chunk = WEIGHT_ROWS * k_tile
        # There is room for one more: the others come from the cache, one at a time.
        chunks = max(0, (memory - vectors * k_tile - chunk) // (matrices * chunk))
    return {"config": replace(config, k_tile=k_tile, resident_chunks=chunks), "SPLIT": split, "num_warps": warps}


@cache
def choose_tiling(
    units: int, own_units: int, batch_size: int, directions: int, itemsize: int, device: torch.device
) -> Tiling | None:
    """The tiling for numbers of `itemsize` bytes; None where the programs cannot all be resident."""
    multiprocessors, memory = get_device_limits(device)
    per_block = max(1, WEIGHT_ROWS // own_units)
    unit_blocks = math.ceil(units / (own_units * per_block)) * per_block  # whole blocks in the backward pass
    batch_groups = multiprocessors // (unit_blocks * directions)
    if batch_groups == 0:
        return None
    # 8 sequences are multiplied by another, slower instruction.
    min_tile = 8 if units <= 256 or own_units == WEIGHT_ROWS else 16
    batch_tile = max(min_tile, triton.next_power_of_2(math.ceil(batch_size / batch_groups)))
    batch_tile = min(MAX_BATCH_TILE, batch_tile)
    batch_groups = min(batch_groups, math.ceil(batch_size / batch_tile))
    k_tile, warps = choose_k_tile(units, batch_tile, itemsize)
    chunk, tile = WEIGHT_ROWS * k_tile * itemsize, batch_tile * k_tile * itemsize
    chunks = math.ceil(units / k_tile)
    scratch = SCRATCH_BYTES * warps // 2
    if chunks * chunk + tile + scratch > memory:
        # There is room for one more: the others come from the cache, one at a time.
        chunks = max(0, (memory - tile - chunk - scratch) // chunk)
    num_probes = triton.next_power_of_2(math.ceil(units / own_units))
    return Tiling(units, unit_blocks, batch_groups, batch_tile, k_tile, chunks, num_probes, warps)


def choose_k_tile(units: int, vectors: int, itemsize: int) -> tuple[int, int]:
    """Columns of published vectors read at once, and the warps for that. All of them if they fit, even with some waste;
    else wide chunks. On an H200: 650 units, 16 vectors: 1,024 columns 8.2 µs a step, 256 9.6; 768: 8.2 and 8.4."""
    max_columns = MAX_TILE_BYTES * WARPS // (vectors * itemsize)
    all_columns = max(32, triton.next_power_of_2(units))
    if all_columns <= min(max_columns, 1024 if vectors > 8 else 512):
        return all_columns, WARPS
    if vectors == 32 and all_columns <= min(2 * max_columns, 1024):  # 1,024 units: 12.5 µs, with four warps 13.1
        return all_columns, 2 * WARPS
    widths = [width for width in (512, 256, 128) if width <= max_columns and width * vectors >= 2048]
    economical = [width for width in widths if math.ceil(units / width) * width <= MAX_COLUMN_WASTE * units]
    return (economical or widths[-1:])[0], WARPS if vectors < MAX_BATCH_TILE else 2 * WARPS


@cache
def get_device_limits(device: torch.device) -> tuple[int, int]:
    """Multiprocessors, and bytes of shared memory for one program; for Triton's interpreter those of an H200."""
    if device.type != "cuda":
        return 132, 232448
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_block_optin", 0)


def needs_grad(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
