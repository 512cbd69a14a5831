"""The plain recurrent network's scan by its persistent kernels, as a function with a gradient. It imports triton.

It knows no layers and no other cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, Rows, begun, launches, needed, unwritten
from seqwise.kernels.recurrence.gpu.rnn import rnn_backward, rnn_forward
from seqwise.kernels.recurrence.gradients import first_order
from seqwise.kernels.recurrence.layout import exact_copy, in_order

OWN = HELD_ROWS  # one matrix: a unit is one row


def rnn_scan(inputs: Tensor, weight: Tensor, h: Tensor, rows: Rows, activation: str = "tanh") -> tuple[Tensor, Tensor]:
    """S scans at once. Projected inputs (S, T, B, U), recurrent matrices (S, U, U) and states (S, B, U) → outputs
    (S, T, B, U) and the last states.

    `activation`: "tanh", "relu", "sigmoid" or "identity". The projected inputs are only read, and not kept.
    """
    if needed(inputs, weight, h):
        return _RNN.apply(inputs, weight, h, rows, activation)
    hidden, last = _forward(inputs, weight, h, rows, activation)
    return hidden[:, 1:], last


def _forward(inputs: Tensor, weight: Tensor, h: Tensor, rows: Rows, activation: str) -> tuple[Tensor, Tensor]:
    scans, steps, batch, units = inputs.shape
    hidden = begun(h, steps)
    last = torch.empty_like(h)
    for offset, shape, options in launches(inputs, units, OWN):
        rnn_forward[(shape.blocks, shape.groups, scans)](
            inputs, weight, hidden, last, rows.lengths, rows.order, steps, batch, offset,
            ACTIVATION=activation, VARIABLE=rows.lengths is not None, **options,
        )  # fmt: skip
    return hidden.view(inputs.dtype), last


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, h: Tensor, rows: Rows, activation: str
    ) -> tuple[Tensor, Tensor]:
        hidden, last = _forward(inputs, weight, h, rows, activation)
        ctx.save_for_backward(weight, hidden)
        ctx.rows, ctx.activation = rows, activation
        return hidden[:, 1:], last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor, of_h: Tensor) -> tuple[Tensor | None, ...]:
        weight, hidden = ctx.saved_tensors
        rows, (scans, steps, batch, units) = ctx.rows, of_outputs.shape
        slopes = unwritten(of_outputs.shape, hidden.dtype, hidden.device)
        of_outputs, of_h = in_order(of_outputs), exact_copy(of_h)
        for offset, shape, options in launches(of_outputs, units, OWN):
            rnn_backward[(shape.blocks, shape.groups, scans)](
                weight, hidden, slopes, of_outputs, of_h, rows.lengths, rows.order, steps, batch, offset,
                ACTIVATION=ctx.activation, VARIABLE=rows.lengths is not None, **options,
            )  # fmt: skip
        slopes = slopes.view(hidden.dtype)
        of_weight = slopes.flatten(1, 2).mT @ hidden[:, :-1].flatten(1, 2) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, of_h.to(hidden.dtype), None, None
