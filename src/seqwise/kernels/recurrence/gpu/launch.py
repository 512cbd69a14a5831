"""Divides a scan among the programs of a GPU, so that all of them can run at the same time.

Programs that wait for each other must all be resident: no more programs are launched than there are multiprocessors.
This module knows nothing of cells.
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

UNITS_PER_PROGRAM = 16  # units that a program owns; in the backward pass four programs share 64
WEIGHT_ROWS = 64  # rows of the recurrent weight in a program: what one matrix instruction of Hopper takes
MAX_BATCH_TILE = 64  # sequences of a program
MIN_K_TILE = 32  # columns of published vectors that are read at once
MAX_TILE_BYTES = 1 << 13  # published values that a warp reads at once
MAX_COLUMN_WASTE = 1.25  # columns read, divided by the columns that exist
SCRATCH_BYTES = 1 << 10  # shared memory for everything but weight and vectors, for every two warps
MAX_UNSPLIT_BYTES = 1 << 15  # published values up to which a program reads all; beyond, partial sums are exchanged
WARPS = 4  # one warp group, as Hopper's matrix instruction needs; for some shapes two (`choose_k_tile`)

# Copies of each number in shared memory: tf32x3 splits a float32 into two TF32 numbers, which keep its precision.
COPIES = {"tf32": 1, "tf32x3": 2}
TRITON_DTYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
INTEGER_DTYPES = {2: tl.int16, 4: tl.int32}


@dataclass(frozen=True)
class KernelConfig:
    """The sizes and types that every kernel is compiled for: its parameter `config`."""

    units: int  # hidden units of the layer
    batch_tile: int  # sequences of a program
    own_units: int  # units that a program computes
    k_tile: int  # columns of published vectors that are read at once
    resident_chunks: int  # chunks (64, k_tile) of the recurrent weight that a program keeps on chip
    num_probes: int  # programs whose values a program waits for, rounded up to a power of two
    has_lengths: bool  # whether sequences differ in length
    dtype: tl.dtype
    bits: tl.dtype  # the integer type of the size of `dtype`
    precision: str  # of products of float32: "tf32" or "tf32x3"
    rounds: int = 2  # exchanges whose numbers a ring buffer has room for


@dataclass(frozen=True)
class Tiling:
    """How a scan is divided; the other sizes are those of `KernelConfig`.

    A backward launch has unit_blocks × batch_groups programs per direction, a forward launch as many or up to three
    fewer along the units.
    """

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
        """The number of sequences that one launch takes."""
        return self.batch_groups * self.batch_tile

    @property
    def is_weight_resident(self) -> bool:
        """Whether a program keeps its whole part of the recurrent weight on chip."""
        return self.resident_chunks * self.k_tile >= self.units


def iterate_launches(
    values: Tensor, layout: PackedLayout, units: int, own_units: int
) -> Iterator[tuple[int, Tiling, dict[str, Any]]]:
    """Yields (first sequence, tiling, options) of each launch; together they take all sequences of values (N, D, …)."""
    directions, precision = len(layout.reverse), choose_precision(values.dtype)
    sizes = units, own_units, layout.batch_size, directions, values.dtype.itemsize
    tiling = choose_tiling(*sizes, values.device, precision)
    if tiling is None:
        raise RuntimeError(f"{directions} × {units} units are more than fit on the GPU at once")
    options = build_options(tiling, own_units, values.dtype, layout.has_lengths, precision)
    for first_sequence in range(0, layout.batch_size, tiling.batch_capacity):
        yield first_sequence, tiling, options


def choose_precision(dtype: torch.dtype) -> str:
    """Returns how float32 is multiplied, "tf32" or "tf32x3"; other types ignore it."""
    return "tf32" if dtype != torch.float32 or allows_tf32() else "tf32x3"


@cache
def build_options(
    tiling: Tiling, own_units: int, dtype: torch.dtype, has_lengths: bool, precision: str
) -> dict[str, Any]:
    """Returns the keyword arguments of every launch. A cooperative launch runs all programs at once or fails."""
    sizes = tiling.units, tiling.batch_tile, own_units, tiling.k_tile, tiling.resident_chunks, tiling.num_probes
    config = KernelConfig(*sizes, has_lengths, TRITON_DTYPES[dtype], INTEGER_DTYPES[dtype.itemsize], precision)
    return {"config": config, "num_warps": tiling.warps, "launch_cooperative_grid": True, "enable_fp_fusion": True}


@cache
def build_quarter_options(
    config: KernelConfig, columns: int, num_matrices: int, itemsize: int, device: torch.device
) -> dict[str, Any]:
    """Returns the options that differ in a kernel that multiplies by quarters (`sync.py`): tile, chunks, warps, and
    whether programs split the product. It multiplies `num_matrices` matrices of `columns` columns."""
    split = columns * config.batch_tile * itemsize > MAX_UNSPLIT_BYTES
    quarter, num_vectors = columns // 4, config.batch_tile if split else 4 * config.batch_tile
    k_tile, warps = choose_k_tile(quarter, num_vectors, itemsize)
    shared_memory = get_device_limits(device)[1] - SCRATCH_BYTES * warps // 2
    capacity = shared_memory // (itemsize * COPIES[config.precision])  # numbers that fit

    def fits(k_tile: int) -> bool:
        return (num_matrices * math.ceil(quarter / k_tile) * WEIGHT_ROWS + num_vectors) * k_tile <= capacity

    if not fits(k_tile) and fits(k_tile // 2):
        k_tile //= 2
    while k_tile > MIN_K_TILE and (WEIGHT_ROWS + num_vectors) * k_tile > capacity:  # one chunk must fit
        k_tile //= 2
    chunks = math.ceil(quarter / k_tile)
    if not fits(k_tile):
        chunk_size = WEIGHT_ROWS * k_tile
        # One chunk more must fit: the chunks that are not resident come from the cache, one at a time.
        chunks = max(0, (capacity - num_vectors * k_tile - chunk_size) // (num_matrices * chunk_size))
    return {"config": replace(config, k_tile=k_tile, resident_chunks=chunks), "SPLIT": split, "num_warps": warps}


@cache
def choose_tiling(
    units: int,
    own_units: int,
    batch_size: int,
    directions: int,
    itemsize: int,
    device: torch.device,
    precision: str = "tf32",
) -> Tiling | None:
    """Returns the tiling for numbers of `itemsize` bytes, or None if the programs cannot all be resident."""
    multiprocessors, shared_memory = get_device_limits(device)
    programs_per_block = max(1, WEIGHT_ROWS // own_units)  # that share 64 units in the backward pass
    unit_blocks = math.ceil(units / (own_units * programs_per_block)) * programs_per_block
    batch_groups = multiprocessors // (unit_blocks * directions)
    if batch_groups == 0:
        return None
    # Fewer than 16 sequences are multiplied by another, slower instruction.
    min_tile = 8 if units <= 256 or own_units == WEIGHT_ROWS else 16
    batch_tile = max(min_tile, triton.next_power_of_2(math.ceil(batch_size / batch_groups)))
    batch_tile = min(MAX_BATCH_TILE, batch_tile)
    batch_groups = min(batch_groups, math.ceil(batch_size / batch_tile))
    k_tile, warps = choose_k_tile(units, batch_tile, itemsize)
    scratch_bytes = SCRATCH_BYTES * warps // 2
    capacity = (shared_memory - scratch_bytes) // (itemsize * COPIES[precision])  # numbers that fit
    while k_tile > MIN_K_TILE and (WEIGHT_ROWS + batch_tile) * k_tile > capacity:  # one chunk must fit
        k_tile //= 2
    chunk_size, tile_size = WEIGHT_ROWS * k_tile, batch_tile * k_tile
    chunks = math.ceil(units / k_tile)
    if chunks * chunk_size + tile_size > capacity:
        # One chunk more must fit: the chunks that are not resident come from the cache, one at a time.
        chunks = max(0, (capacity - tile_size - chunk_size) // chunk_size)
    num_probes = triton.next_power_of_2(math.ceil(units / own_units))
    return Tiling(units, unit_blocks, batch_groups, batch_tile, k_tile, chunks, num_probes, warps)


def choose_k_tile(columns: int, num_vectors: int, itemsize: int) -> tuple[int, int]:
    """Returns how many columns of the published vectors are read at once, and the number of warps.

    All columns if they fit, even with some waste; otherwise wide chunks. Measured on an H200 with 16 vectors: for 650
    columns a step takes 8.2 µs in tiles of 1,024 and 9.6 in tiles of 256; for 768 columns 8.2 and 8.4.
    """
    max_columns = MAX_TILE_BYTES * WARPS // (num_vectors * itemsize)
    all_columns = max(MIN_K_TILE, triton.next_power_of_2(columns))
    if all_columns <= min(max_columns, 1024 if num_vectors > 8 else 512):
        return all_columns, WARPS
    if num_vectors == 32 and all_columns <= min(2 * max_columns, 1024):  # 1,024 columns: 12.5 µs, with four warps 13.1
        return all_columns, 2 * WARPS
    widths = [width for width in (512, 256, 128) if width <= max_columns and width * num_vectors >= 2048]
    economical = [width for width in widths if math.ceil(columns / width) * width <= MAX_COLUMN_WASTE * columns]
    return (economical or widths[-1:])[0], WARPS if num_vectors < MAX_BATCH_TILE else 2 * WARPS


@cache
def get_device_limits(device: torch.device) -> tuple[int, int]:
    """Returns the number of multiprocessors and the bytes of shared memory for one program; on a CPU, where Triton's
    interpreter runs, the values of an H200."""
    if device.type != "cuda":
        return 132, 232448
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, getattr(properties, "shared_memory_per_block_optin", 0)


def needs_grad(*tensors: Tensor) -> bool:
    """Returns whether autograd records an operation on these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
