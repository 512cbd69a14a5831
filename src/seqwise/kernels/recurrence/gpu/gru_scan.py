"""The GRU's scans by their persistent kernels, as functions with a gradient. Importing this imports triton.

The reset gate acts after the product (`gru_scan`) or before it (`early_gru_scan`). It knows no layers, no other cell.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwise.kernels.recurrence.gpu.early_gru import early_gru_backward, early_gru_forward
from seqwise.kernels.recurrence.gpu.gru import gru_backward, gru_forward
from seqwise.kernels.recurrence.gpu.launch import (
    HELD_ROWS,
    OWN,
    ROUNDS,
    SCRATCH,
    Cut,
    columns_of,
    launches,
    needed,
    resources,
    ring,
)
from seqwise.kernels.recurrence.gpu.layout import RowLayout, products, unwritten, whole
from seqwise.kernels.recurrence.gradients import first_order

LITTLE = 1 << 15  # bytes of published values that a program reads rather than exchange a partial sum
WHOLE = 32  # gradients are padded to a multiple of it, so that quarters are whole and begin at eight 16-bit numbers


def gru_scan(
    gates: Tensor, weight: Tensor, bias: Tensor, h: Tensor, rows: RowLayout, replaces: bool = False, keep: bool = False
) -> tuple[Tensor, Tensor]:
    """S scans at once. Projected inputs (N, S, 3U), recurrent matrices (S, 3U, U), the bias (S, U) that r multiplies
    and states (B, S, U) → outputs and the last states. Outputs are (T, B, S, U), or (N, S, U) where rows differ in
    length.

    The projected inputs are consumed: their memory takes the gates r, z, n. Where nobody needs a gradient, they are
    written only if they are asked for (`keep`). z keeps the old state, or replaces it.
    """
    if needed(gates, weight, bias, h):
        return _GRU.apply(gates, weight, bias, h, rows, replaces)
    hidden, last = _forward(gates, weight, bias, h, rows, replaces, keep)
    return rows.after(hidden), last


def early_gru_scan(
    gates: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, replaces: bool = False, keep: bool = False
) -> tuple[Tensor, Tensor]:
    """The same with the reset gate before the product, which knows no bias of its own."""
    if needed(gates, weight, h):
        return _EarlyGRU.apply(gates, weight, h, rows, replaces)
    hidden, last = _early_forward(gates, weight, h, rows, replaces, keep)
    return rows.after(hidden), last


def _forward(
    gates: Tensor, weight: Tensor, bias: Tensor, h: Tensor, rows: RowLayout, replaces: bool, save: bool
) -> tuple[Tensor, Tensor]:
    units, scans = weight.shape[2], len(weight)
    hidden, last = unwritten(rows.room(units), gates.dtype, gates.device), torch.empty_like(h)
    for offset, shape, options in launches(gates, rows, units, OWN):
        gru_forward[(-(-units // OWN), shape.groups, scans)](
            gates, weight, bias, h, hidden, last, *rows.sizes, *rows.numbers, offset,
            SAVE=save, REPLACES=replaces, **options,
        )  # fmt: skip
    return hidden.view(gates.dtype), last


def _early_forward(
    gates: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, replaces: bool, save: bool
) -> tuple[Tensor, Tensor]:
    units, scans = weight.shape[2], len(weight)
    hidden, last = unwritten(rows.room(units), gates.dtype, gates.device), torch.empty_like(h)
    shown = unwritten((rows.slots, scans, units), gates.dtype, gates.device)
    for offset, shape, options in launches(gates, rows, units, OWN):
        early_gru_forward[(-(-units // OWN), shape.groups, scans)](
            gates, weight, h, hidden, shown, last, *rows.sizes, *rows.numbers, offset,
            SAVE=save, REPLACES=replaces, **options,
        )  # fmt: skip
    return hidden.view(gates.dtype), last


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, bias: Tensor, h: Tensor, rows: RowLayout, replaces: bool
    ) -> tuple[Tensor, Tensor]:
        hidden, last = _forward(gates, weight, bias, h, rows, replaces, True)
        ctx.save_for_backward(gates, weight, bias, hidden)
        ctx.rows, ctx.replaces = rows, replaces
        ctx.set_materialize_grads(False)
        return rows.after(hidden), last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, weight, bias, hidden = ctx.saved_tensors
        units, scans, rows = weight.shape[2], len(weight), ctx.rows
        slopes, of_start, before = _slopes(gates, units), gates.new_empty(rows.batch, scans, units), rows.before(hidden)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        # What r multiplied is cheaper to compute once more, for all steps at once, than to keep.
        candidate = gates.new_empty(rows.slots, scans, units)
        for scan, states in enumerate(before):
            torch.addmm(bias[scan].to(gates.dtype), states, weight[scan, 2 * units :].mT, out=candidate[:, scan])
        matrix = _padded(weight)
        for offset, shape, options in launches(gates, rows, units, OWN):
            gru_backward[(shape.blocks, shape.groups, scans)](
                gates, matrix, hidden, candidate, slopes, of_outputs, whole(of_h), of_start, *rows.sizes,
                ring(shape, scans, gates.device), *apart, *rows.numbers, offset, V=slopes.shape[-1],
                REPLACES=ctx.replaces,
                **{**options, **quarters(shape, 3 * slopes.shape[-1], 1, gates.dtype.itemsize, gates.device)},
            )  # fmt: skip
        slopes = _real(slopes, gates)
        of_weight = products(slopes, before) if ctx.needs_input_grad[1] else None
        of_bias = slopes[..., 2 * units :].sum(0).to(bias.dtype) if ctx.needs_input_grad[2] else None
        slopes[..., 2 * units :] = candidate  # its input is not gated by r
        return slopes, of_weight, of_bias, of_start, None, None


class _EarlyGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, replaces: bool
    ) -> tuple[Tensor, Tensor]:
        hidden, last = _early_forward(gates, weight, h, rows, replaces, True)
        ctx.save_for_backward(gates, weight, hidden)
        ctx.rows, ctx.replaces = rows, replaces
        ctx.set_materialize_grads(False)
        return rows.after(hidden), last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None) -> tuple[Tensor | None, ...]:
        gates, weight, hidden = ctx.saved_tensors
        units, scans, rows = weight.shape[2], len(weight), ctx.rows
        slopes, of_start, matrix = _slopes(gates, units), gates.new_empty(rows.batch, scans, units), _padded(weight)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        for offset, shape, options in launches(gates, rows, units, OWN):
            early_gru_backward[(shape.blocks, shape.groups, scans)](
                gates, matrix, hidden, slopes, of_outputs, whole(of_h), of_start, *rows.sizes,
                ring(shape, scans, gates.device), *apart, *rows.numbers, offset,
                V=slopes.shape[-1], REPLACES=ctx.replaces,
                **{**options, **quarters(shape, slopes.shape[-1], 3, gates.dtype.itemsize, gates.device)},
            )  # fmt: skip
        slopes, of_weight = _real(slopes, gates), None
        if ctx.needs_input_grad[1]:
            before = rows.before(hidden)
            shown = [gates[:, scan, :units] * states for scan, states in enumerate(before)]
            sides = products(slopes[..., : 2 * units], before), products(slopes[..., 2 * units :], shown)
            of_weight = torch.cat(sides, dim=1)
        return slopes, of_weight, of_start, None, None


def quarters(shape: Cut, columns: int, matrices: int, size: int, device: torch.device) -> dict[str, Any]:
    """How a backward kernel is compiled that multiplies by quarters the `columns` columns of each of its matrices."""
    split = columns * shape.rows * size > LITTLE
    quarter, rows = columns // 4, shape.rows if split else 4 * shape.rows
    width, warps = columns_of(quarter, rows, size)
    memory = (resources(device)[1] - SCRATCH * warps // 2) // size  # numbers that fit

    def fits(width: int) -> bool:
        return (matrices * math.ceil(quarter / width) * HELD_ROWS + rows) * width <= memory

    if not fits(width) and fits(width // 2):
        width //= 2
    held = math.ceil(quarter / width)
    if not fits(width):
        chunk = HELD_ROWS * width
        held = max(0, (memory - rows * width - chunk) // (matrices * chunk))  # and one at a time from the cache
    return {"KC": width, "HELD": held, "SPLIT": split, "ROUNDS": ROUNDS, "num_warps": warps}


def _slopes(gates: Tensor, units: int) -> Tensor:
    """Memory of the gates' gradients (N, S, 3, V), with zeros from U to V."""
    slopes = unwritten((*gates.shape[:2], 3, -(-units // WHOLE) * WHOLE), gates.dtype, gates.device)
    slopes[..., units:] = 0
    return slopes


def _real(slopes: Tensor, gates: Tensor) -> Tensor:
    return slopes.view(gates.dtype)[..., : gates.shape[-1] // 3].reshape(gates.shape)


def _padded(weight: Tensor) -> Tensor:
    """(S, 3U, U) → (S, 3V, U) with rows of zeros; the same tensor where U is V."""
    units = weight.shape[2]
    return F.pad(weight.unflatten(1, (3, units)), (0, 0, 0, -units % WHOLE)).flatten(1, 2) if units % WHOLE else weight
