"""The LSTM's scan by its persistent kernels, as a function with a gradient. Importing this imports triton.

It knows no layers and no other cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import OWN, ROUNDS, launches, needed, ring
from seqwise.kernels.recurrence.gpu.layout import RowLayout, products, unwritten, whole
from seqwise.kernels.recurrence.gpu.lstm import lstm_backward, lstm_forward
from seqwise.kernels.recurrence.gradients import first_order


def lstm_scan(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: RowLayout, keep: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """S scans at once. Projected inputs (N, S, 4U), recurrent matrices (S, 4U, U) and states (B, S, U) → outputs, the
    last states, and the cells. Outputs and cells are (T, B, S, U), or (N, S, U) where rows differ in length.

    The projected inputs are consumed: their memory takes the gates i, f, g, o. Where nobody needs a gradient, gates and
    cells are written only if they are asked for.
    """
    if needed(gates, weight, h, c):
        return _LSTM.apply(gates, weight, h, c, rows)
    hidden, cell, last_h, last_c = _forward(gates, weight, h, c, rows, keep)
    return rows.after(hidden), last_h, last_c, rows.after(cell) if keep else cell


def _forward(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: RowLayout, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    units, scans = weight.shape[2], len(weight)
    hidden = unwritten(rows.room(units), gates.dtype, gates.device)
    cell = gates.new_empty(rows.room(units)) if save else c
    last_h, last_c = torch.empty_like(h), torch.empty_like(c)
    for offset, shape, options in launches(gates, rows, units, OWN):
        lstm_forward[(-(-units // OWN), shape.groups, scans)](
            gates, weight, h, c, hidden, cell, last_h, last_c, *rows.sizes, *rows.numbers, offset, SAVE=save, **options
        )
    return hidden.view(gates.dtype), cell, last_h, last_c


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, rows: RowLayout
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden, cell, last_h, last_c = _forward(gates, weight, h, c, rows, True)
        ctx.save_for_backward(gates, weight, hidden, cell)
        ctx.rows, cells = rows, rows.after(cell)
        ctx.mark_non_differentiable(cells)
        ctx.set_materialize_grads(False)
        return rows.after(hidden), last_h, last_c, cells

    @staticmethod
    @first_order
    def backward(
        ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None, of_c: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        gates, weight, hidden, cell = ctx.saved_tensors
        units, scans, rows = weight.shape[2], len(weight), ctx.rows
        slopes = unwritten(gates.shape, gates.dtype, gates.device)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        of_start_h, of_start_c = (gates.new_empty(rows.batch, scans, units) for _ in range(2))
        for offset, shape, options in launches(gates, rows, units, OWN):
            lstm_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, slopes, cell, of_outputs, whole(of_h), whole(of_c), of_start_h, of_start_c, *rows.sizes,
                ring(shape, scans, gates.device), *apart, *rows.numbers, offset, ROUNDS=ROUNDS, **options,
            )  # fmt: skip
        slopes = slopes.view(gates.dtype)
        of_weight = products(slopes, rows.before(hidden)) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, of_start_h, of_start_c, None
