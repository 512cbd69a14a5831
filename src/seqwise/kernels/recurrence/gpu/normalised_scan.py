"""Recurrent scans with layer normalisation by the persistent kernels, as functions with a gradient; imports triton.

S scans (directions) run at once; all tensors begin with S, then time. The projected inputs are consumed. `norms` are
the gains and biases of a cell's norms, (S, …), in the order of the layer. Recurrent products are not kept for the
backward pass but taken once more, for all steps at once. It knows no layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import (
    HELD_ROWS,
    OWN,
    ROUNDS,
    Cut,
    Rows,
    begun,
    launches,
    needed,
    ring,
    unwritten,
)
from seqwise.kernels.recurrence.gpu.normalised_gru import normalised_gru_backward, normalised_gru_forward
from seqwise.kernels.recurrence.gpu.normalised_lstm import normalised_lstm_backward, normalised_lstm_forward
from seqwise.kernels.recurrence.gpu.normalised_rnn import normalised_rnn_backward, normalised_rnn_forward
from seqwise.kernels.recurrence.gradients import first_order
from seqwise.kernels.recurrence.layout import exact_copy, in_order


def normalised_lstm_scan(
    gates: Tensor, weight: Tensor, norms: Sequence[Tensor], h: Tensor, c: Tensor, rows: Rows, keep: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Projected inputs (S, T, B, 4U), recurrent matrices (S, 4U, U), gain and bias of the product (S, 4U) and of the
    cell (S, U), states (S, B, U) → outputs (S, T, B, U), the last states, and the cells (S, T + 1, B, U).

    The memory of the projected inputs takes the gates i, f, g, o. Where nobody needs a gradient, gates and cells are
    written only if they are asked for.
    """
    gains, biases = _joined(norms)
    if needed(gates, weight, gains, biases, h, c):
        return _NormalisedLSTM.apply(gates, weight, gains, biases, h, c, rows)
    hidden, last_h, last_c, cell, _ = _lstm_forward(gates, weight, gains, biases, h, c, rows, keep)
    return hidden[:, 1:], last_h, last_c, cell


def normalised_gru_scan(
    gates: Tensor, weight: Tensor, norms: Sequence[Tensor], h: Tensor, rows: Rows,
    replaces: bool = False, keep: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Projected inputs (S, T, B, 3U), recurrent matrices (S, 3U, U), gain and bias of reset and update (S, 2U) and of
    the candidate (S, U), states (S, B, U) → outputs (S, T, B, U) and the last states.

    The memory of the projected inputs takes the gates r, z, n; where nobody needs a gradient, only if they are asked
    for. z keeps the old state, or replaces it.
    """
    gains, biases = _joined(norms)
    if needed(gates, weight, gains, biases, h):
        return _NormalisedGRU.apply(gates, weight, gains, biases, h, rows, replaces)
    hidden, last, _ = _gru_forward(gates, weight, gains, biases, h, rows, replaces, keep)
    return hidden[:, 1:], last


def normalised_rnn_scan(
    inputs: Tensor, weight: Tensor, norms: Sequence[Tensor], h: Tensor, rows: Rows,
    activation: str = "tanh", keep: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Projected inputs (S, T, B, U), recurrent matrices (S, U, U), gain and bias (S, U), states (S, B, U) → outputs
    (S, T, B, U) and the last states.

    The memory of the projected inputs takes what is normalised; where nobody needs a gradient, only if it is asked for.
    """
    gains, biases = _joined(norms)
    if needed(inputs, weight, gains, biases, h):
        return _NormalisedRNN.apply(inputs, weight, gains, biases, h, rows, activation)
    hidden, last, _ = _rnn_forward(inputs, weight, gains, biases, h, rows, activation, keep)
    return hidden[:, 1:], last


def _lstm_forward(
    gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, c: Tensor, rows: Rows, save: bool
) -> tuple[Tensor, ...]:
    (scans, steps, batch, _), units = gates.shape, weight.shape[2]
    hidden, last_h, last_c = begun(h, gates.shape[1]), torch.empty_like(h), torch.empty_like(c)
    cell = gates.new_empty(scans, steps * save + 1, batch, units)
    cell[:, 0] = c
    statistics = gates.new_empty(scans, steps * save, batch, 4, dtype=torch.float32)
    programs = -(-units // OWN)
    for offset, shape, options in launches(gates, units, OWN):
        normalised_lstm_forward[(programs, shape.groups, scans)](
            gates, weight, gains, biases, hidden, cell, statistics, last_h, last_c, rows.lengths, rows.order,
            _words(shape, programs, scans, 2, gates.device), steps, batch, offset,
            SAVE=save, VARIABLE=rows.lengths is not None, **options, **_ours(programs),
        )  # fmt: skip
    return hidden.view(gates.dtype), last_h, last_c, cell, statistics


class _NormalisedLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, c: Tensor, rows: Rows
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden, last_h, last_c, cell, statistics = _lstm_forward(gates, weight, gains, biases, h, c, rows, True)
        ctx.save_for_backward(gates, weight, gains, biases, hidden, cell, statistics)
        ctx.rows = rows
        ctx.mark_non_differentiable(cell)
        return hidden[:, 1:], last_h, last_c, cell

    @staticmethod
    @first_order
    def backward(
        ctx: Any, of_outputs: Tensor, of_h: Tensor, of_c: Tensor, of_cells: Tensor
    ) -> tuple[Tensor | None, ...]:
        gates, weight, gains, biases, hidden, cell, statistics = ctx.saved_tensors
        (scans, steps, batch, _), units, rows = gates.shape, weight.shape[2], ctx.rows
        before = hidden[:, :-1].flatten(1, 2)
        inputs = (before @ weight.mT).view(gates.shape)
        slopes, of_outputs = unwritten(gates.shape, gates.dtype, gates.device), in_order(of_outputs)
        of_h, of_c = exact_copy(of_h), exact_copy(of_c)
        tally = _tally(gates, units, OWN, 6)
        for offset, shape, options in launches(gates, units, OWN):
            normalised_lstm_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, gains, biases, inputs, slopes, cell, statistics, of_outputs, of_h, of_c, tally,
                rows.lengths, rows.order, ring(shape, scans, gates.device),
                _words(shape, shape.blocks, scans, 8, gates.device), steps, batch, offset,
                VARIABLE=rows.lengths is not None, **options, **_ours(shape.blocks),
            )  # fmt: skip
        of_weight = slopes.view(gates.dtype).flatten(1, 2).mT @ before if ctx.needs_input_grad[1] else None
        of_gains, of_bias = tally.sum(1).split([5 * units, units], dim=-1)
        of_biases = torch.cat([inputs.sum((1, 2), dtype=torch.float32), of_bias], dim=-1)
        return inputs, of_weight, of_gains, of_biases, of_h.to(gates.dtype), of_c.to(gates.dtype), None


def _gru_forward(
    gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, rows: Rows, replaces: bool, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    (scans, steps, batch, _), units = gates.shape, weight.shape[2]
    hidden, last = begun(h, gates.shape[1]), torch.empty_like(h)
    statistics = gates.new_empty(scans, steps * save, batch, 4, dtype=torch.float32)
    programs = -(-units // OWN)
    for offset, shape, options in launches(gates, units, OWN):
        normalised_gru_forward[(programs, shape.groups, scans)](
            gates, weight, gains, biases, hidden, statistics, last, rows.lengths, rows.order,
            _words(shape, programs, scans, 4, gates.device), steps, batch, offset,
            REPLACES=replaces, SAVE=save, VARIABLE=rows.lengths is not None, **options, **_ours(programs),
        )  # fmt: skip
    return hidden.view(gates.dtype), last, statistics


class _NormalisedGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, rows: Rows, replaces: bool
    ) -> tuple[Tensor, Tensor]:
        hidden, last, statistics = _gru_forward(gates, weight, gains, biases, h, rows, replaces, True)
        ctx.save_for_backward(gates, weight, gains, biases, hidden, statistics)
        ctx.rows, ctx.replaces = rows, replaces
        return hidden[:, 1:], last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor, of_h: Tensor) -> tuple[Tensor | None, ...]:
        gates, weight, gains, biases, hidden, statistics = ctx.saved_tensors
        (scans, steps, batch, _), units, rows = gates.shape, weight.shape[2], ctx.rows
        before = hidden[:, :-1].flatten(1, 2)
        inputs = (before @ weight.mT).view(gates.shape)
        slopes, of_outputs = unwritten(gates.shape, gates.dtype, gates.device), in_order(of_outputs)
        of_h, tally = exact_copy(of_h), _tally(gates, units, OWN, 4)
        for offset, shape, options in launches(gates, units, OWN):
            normalised_gru_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, gains, biases, inputs, slopes, hidden, statistics, of_outputs, of_h, tally,
                rows.lengths, rows.order, ring(shape, scans, gates.device),
                _words(shape, shape.blocks, scans, 4, gates.device), steps, batch, offset,
                REPLACES=ctx.replaces, VARIABLE=rows.lengths is not None, **options, **_ours(shape.blocks),
            )  # fmt: skip
        of_weight = slopes.view(gates.dtype).flatten(1, 2).mT @ before if ctx.needs_input_grad[1] else None
        of_gains, of_bias = tally.sum(1).split([3 * units, units], dim=-1)
        of_biases = torch.cat([inputs[..., : 2 * units].sum((1, 2), dtype=torch.float32), of_bias], dim=-1)
        return inputs, of_weight, of_gains, of_biases, of_h.to(gates.dtype), None, None


def _rnn_forward(
    inputs: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, rows: Rows, activation: str, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    scans, steps, batch, units = inputs.shape
    hidden, last = begun(h, inputs.shape[1]), torch.empty_like(h)
    statistics = inputs.new_empty(scans, steps * save, batch, 2, dtype=torch.float32)
    for offset, shape, options in launches(inputs, units, HELD_ROWS):
        normalised_rnn_forward[(shape.blocks, shape.groups, scans)](
            inputs, weight, gains, biases, hidden, statistics, last, rows.lengths, rows.order,
            _words(shape, shape.blocks, scans, 2, inputs.device), steps, batch, offset,
            ACTIVATION=activation, SAVE=save, VARIABLE=rows.lengths is not None, **options, **_ours(shape.blocks),
        )  # fmt: skip
    return hidden.view(inputs.dtype), last, statistics


class _NormalisedRNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, rows: Rows, activation: str
    ) -> tuple[Tensor, Tensor]:
        hidden, last, statistics = _rnn_forward(inputs, weight, gains, biases, h, rows, activation, True)
        ctx.save_for_backward(inputs, weight, gains, hidden, statistics)
        ctx.rows, ctx.activation = rows, activation
        return hidden[:, 1:], last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor, of_h: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, gains, hidden, statistics = ctx.saved_tensors
        rows, (scans, steps, batch, units) = ctx.rows, inputs.shape
        slopes, of_outputs = unwritten(inputs.shape, inputs.dtype, inputs.device), in_order(of_outputs)
        of_h, tally = exact_copy(of_h), _tally(inputs, units, HELD_ROWS, 2)
        for offset, shape, options in launches(inputs, units, HELD_ROWS):
            normalised_rnn_backward[(shape.blocks, shape.groups, scans)](
                inputs, weight, gains, slopes, hidden, statistics, of_outputs, of_h, tally, rows.lengths, rows.order,
                _words(shape, shape.blocks, scans, 2, inputs.device), steps, batch, offset,
                ACTIVATION=ctx.activation, VARIABLE=rows.lengths is not None, **options, **_ours(shape.blocks),
            )  # fmt: skip
        slopes = slopes.view(inputs.dtype)
        of_weight = slopes.flatten(1, 2).mT @ hidden[:, :-1].flatten(1, 2) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, *tally.sum(1).chunk(2, dim=-1), of_h.to(inputs.dtype), None, None


def _joined(norms: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """All gains one after another, and all biases, in float32."""
    return torch.cat([*norms[::2]], dim=-1).float(), torch.cat([*norms[1::2]], dim=-1).float()


def _ours(programs: int) -> dict[str, int]:
    """What the normalised kernels are compiled for beside what all are."""
    return {"P": triton.next_power_of_2(programs), "ROUNDS": ROUNDS}


def _words(shape: Cut, programs: int, scans: int, numbers: int, device: torch.device) -> Tensor:
    """Memory for what the programs of all groups tell each other, with no first round in it yet."""
    size = (ROUNDS, scans * shape.groups, programs, shape.rows, numbers)
    return torch.full(size, -1, dtype=torch.int32, device=device)


def _tally(values: Tensor, units: int, own: int, numbers: int) -> Tensor:
    """Memory for sums over the rows of each group."""
    scans, _, batch, _ = values.shape
    _, shape, _ = next(launches(values, units, own))
    return values.new_empty(scans, -(-batch // shape.rows), numbers * units, dtype=torch.float32)
