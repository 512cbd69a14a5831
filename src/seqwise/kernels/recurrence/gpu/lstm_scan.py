"""The LSTM's scan by its persistent kernels, as a function with a gradient. Importing this imports triton.

It knows no layers and no other cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import OWN, ROUNDS, Rows, begun, launches, needed, ring, unwritten
from seqwise.kernels.recurrence.gpu.lstm import lstm_backward, lstm_forward
from seqwise.kernels.recurrence.gradients import first_order
from seqwise.kernels.recurrence.layout import exact_copy, in_order


def lstm_scan(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: Rows, keep: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """S scans at once. Projected inputs (S, T, B, 4U), recurrent matrices (S, 4U, U) and states (S, B, U) → outputs
    (S, T, B, U), the last states, and the cells (S, T + 1, B, U).

    The projected inputs are consumed: their memory takes the gates i, f, g, o. Where nobody needs a gradient, gates and
    cells are written only if they are asked for.
    """
    if needed(gates, weight, h, c):
        return _LSTM.apply(gates, weight, h, c, rows)
    hidden, last_h, last_c, cell = _forward(gates, weight, h, c, rows, keep)
    return hidden[:, 1:], last_h, last_c, cell


def _forward(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: Rows, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scans, steps, batch, width = gates.shape
    units = width // 4
    hidden = begun(h, steps)
    cell = gates.new_empty(scans, steps * save + 1, batch, units)
    cell[:, 0] = c
    last_h, last_c = torch.empty_like(h), torch.empty_like(c)
    for offset, shape, options in launches(gates, units, OWN):
        lstm_forward[(-(-units // OWN), shape.groups, scans)](
            gates, weight, hidden, cell, last_h, last_c, rows.lengths, rows.order, steps, batch, offset,
            SAVE=save, VARIABLE=rows.lengths is not None, **options,
        )  # fmt: skip
    return hidden.view(gates.dtype), last_h, last_c, cell


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden, last_h, last_c, cell = _forward(gates, weight, h, c, rows, True)
        ctx.save_for_backward(gates, weight, hidden, cell)
        ctx.rows = rows
        ctx.mark_non_differentiable(cell)
        return hidden[:, 1:], last_h, last_c, cell

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor, of_h: Tensor, of_c: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates, weight, hidden, cell = ctx.saved_tensors
        scans, steps, batch, width = gates.shape
        units, rows = width // 4, ctx.rows
        slopes = unwritten(gates.shape, gates.dtype, gates.device)
        if of_outputs.stride(-1) != 1:
            of_outputs = in_order(of_outputs)
        of_h, of_c = exact_copy(of_h), exact_copy(of_c)
        for offset, shape, options in launches(gates, units, OWN):
            lstm_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, slopes, cell, of_outputs, of_h, of_c, rows.lengths, rows.order,
                ring(shape, scans, gates.device), *of_outputs.stride()[:3], steps, batch, offset,
                ROUNDS=ROUNDS, VARIABLE=rows.lengths is not None, **options,
            )  # fmt: skip
        slopes = slopes.view(gates.dtype)
        of_weight = slopes.flatten(1, 2).mT @ hidden[:, :-1].flatten(1, 2) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, of_h.to(gates.dtype), of_c.to(gates.dtype), None
