"""The plain recurrent network's scan by its persistent kernels, as a function with a gradient. It imports triton.

It knows no layers and no other cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, launches, needed
from seqwise.kernels.recurrence.gpu.layout import RowLayout, products, unwritten, whole
from seqwise.kernels.recurrence.gpu.rnn import rnn_backward, rnn_forward
from seqwise.kernels.recurrence.gradients import first_order

OWN = HELD_ROWS  # one matrix: a unit is one row


def rnn_scan(
    inputs: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, activation: str = "tanh"
) -> tuple[Tensor, Tensor]:
    """S scans at once. Projected inputs (N, S, U), recurrent matrices (S, U, U) and states (B, S, U) → outputs
    (T, B, S, U), or (N, S, U) where rows differ in length, and the last states.

    `activation`: "tanh", "relu", "sigmoid" or "identity". The projected inputs are only read, and not kept.
    """
    if needed(inputs, weight, h):
        return _RNN.apply(inputs, weight, h, rows, activation)
    hidden, last = _forward(inputs, weight, h, rows, activation)
    return rows.after(hidden), last


def _forward(inputs: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, activation: str) -> tuple[Tensor, Tensor]:
    hidden = unwritten(rows.room(weight.shape[2]), inputs.dtype, inputs.device)
    last = torch.empty_like(h)
    for offset, shape, options in launches(inputs, rows, weight.shape[2], OWN):
        rnn_forward[(shape.blocks, shape.groups, len(weight))](
            inputs, weight, h, hidden, last, *rows.sizes, *rows.numbers, offset, ACTIVATION=activation, **options
        )
    return hidden.view(inputs.dtype), last


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, h: Tensor, rows: RowLayout, activation: str
    ) -> tuple[Tensor, Tensor]:
        hidden, last = _forward(inputs, weight, h, rows, activation)
        ctx.save_for_backward(weight, hidden)
        ctx.rows, ctx.activation = rows, activation
        ctx.set_materialize_grads(False)
        return rows.after(hidden), last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, hidden = ctx.saved_tensors
        rows, units, scans = ctx.rows, weight.shape[2], len(weight)
        slopes = unwritten((rows.slots, scans, units), hidden.dtype, hidden.device)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        of_start = hidden.new_empty(rows.batch, scans, units)
        for offset, shape, options in launches(hidden, rows, units, OWN):
            rnn_backward[(shape.blocks, shape.groups, scans)](
                weight, hidden, slopes, of_outputs, whole(of_h), of_start, *rows.sizes, *apart, *rows.numbers, offset,
                ACTIVATION=ctx.activation, **options,
            )  # fmt: skip
        slopes = slopes.view(hidden.dtype)
        of_weight = products(slopes, rows.before(hidden)) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, of_start, None, None
