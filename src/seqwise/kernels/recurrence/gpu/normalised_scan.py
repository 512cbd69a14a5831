"""Recurrent scans with layer normalisation by the persistent kernels, as functions with a gradient; imports triton.

S scans (directions) run at once, over N slots (`rows.py`). The projected inputs are consumed. `norms` are the gains and
biases of a cell's norms, (S, …), in the order of the layer. Outputs are (T, B, S, U), or (N, S, U) where rows differ in
length; `hidden` is all states with the starts, (B + N + B, S, U). Recurrent products are not kept for the backward pass
but taken once more, for all steps at once. It knows no layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import HELD_ROWS, OWN, ROUNDS, Cut, launches, needed, ring
from seqwise.kernels.recurrence.gpu.layout import RowLayout, products, unwritten, whole
from seqwise.kernels.recurrence.gpu.normalised_gru import normalised_gru_backward, normalised_gru_forward
from seqwise.kernels.recurrence.gpu.normalised_lstm import normalised_lstm_backward, normalised_lstm_forward
from seqwise.kernels.recurrence.gpu.normalised_rnn import normalised_rnn_backward, normalised_rnn_forward
from seqwise.kernels.recurrence.gradients import first_order


def normalised_lstm_scan(
    gates: Tensor, weight: Tensor, norms: Sequence[Tensor], h: Tensor, c: Tensor, rows: RowLayout, keep: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Projected inputs (N, S, 4U), recurrent matrices (S, 4U, U), gain and bias of the product (S, 4U) and of the cell
    (S, U), states (B, S, U) → outputs, the last states, the cells in the shape of the outputs, and `hidden`.

    The memory of the projected inputs takes the gates i, f, g, o. Where nobody needs a gradient, gates and cells are
    written only if they are asked for.
    """
    gains, biases = _joined(norms)
    if needed(gates, weight, gains, biases, h, c):
        return _NormalisedLSTM.apply(gates, weight, gains, biases, h, c, rows)
    hidden, last_h, last_c, cell, _ = _lstm_forward(gates, weight, gains, biases, h, c, rows, keep)
    return rows.after(hidden), last_h, last_c, rows.after(cell) if keep else cell, hidden


def normalised_gru_scan(
    gates: Tensor,
    weight: Tensor,
    norms: Sequence[Tensor],
    h: Tensor,
    rows: RowLayout,
    replaces: bool = False,
    keep: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Projected inputs (N, S, 3U), recurrent matrices (S, 3U, U), gain and bias of reset and update (S, 2U) and of the
    candidate (S, U), states (B, S, U) → outputs, the last states, and `hidden`.

    The memory of the projected inputs takes the gates r, z, n; where nobody needs a gradient, only if they are asked
    for. z keeps the old state, or replaces it.
    """
    gains, biases = _joined(norms)
    if needed(gates, weight, gains, biases, h):
        return _NormalisedGRU.apply(gates, weight, gains, biases, h, rows, replaces)
    hidden, last, _ = _gru_forward(gates, weight, gains, biases, h, rows, replaces, keep)
    return rows.after(hidden), last, hidden


def normalised_rnn_scan(
    inputs: Tensor,
    weight: Tensor,
    norms: Sequence[Tensor],
    h: Tensor,
    rows: RowLayout,
    activation: str = "tanh",
    keep: bool = False,
) -> tuple[Tensor, Tensor]:
    """Projected inputs (N, S, U), recurrent matrices (S, U, U), gain and bias (S, U), states (B, S, U) → outputs and
    the last states.

    The memory of the projected inputs takes what is normalised; where nobody needs a gradient, only if it is asked for.
    """
    gains, biases = _joined(norms)
    if needed(inputs, weight, gains, biases, h):
        return _NormalisedRNN.apply(inputs, weight, gains, biases, h, rows, activation)
    hidden, last, _ = _rnn_forward(inputs, weight, gains, biases, h, rows, activation, keep)
    return rows.after(hidden), last


@torch.no_grad()
def recurrent_products(weight: Tensor, before: Sequence[Tensor]) -> Tensor:
    """What matrices (S, A, U) make of the states before each step, (N, U) for each scan: (N, S, A)."""
    made = weight.new_empty(len(before[0]), *weight.shape[:2])
    for scan, states in enumerate(before):
        torch.mm(states, weight[scan].mT, out=made[:, scan])
    return made


def _lstm_forward(
    gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, c: Tensor, rows: RowLayout, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    scans, _, units = weight.shape
    hidden = unwritten(rows.room(units), gates.dtype, gates.device)
    cell = gates.new_empty(rows.room(units)) if save else c
    last_h, last_c = torch.empty_like(h), torch.empty_like(c)
    statistics = gates.new_empty(rows.slots * save, scans, 4, dtype=torch.float32)
    programs = -(-units // OWN)
    for offset, shape, options in launches(gates, rows, units, OWN):
        normalised_lstm_forward[(programs, shape.groups, scans)](
            gates, weight, gains, biases, h, c, hidden, cell, statistics, last_h, last_c, *rows.sizes,
            _words(shape, programs, scans, 2, gates.device), *rows.numbers, offset,
            SAVE=save, **options, **_ours(programs),
        )  # fmt: skip
    return hidden.view(gates.dtype), last_h, last_c, cell, statistics


class _NormalisedLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, c: Tensor, rows: RowLayout
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        hidden, last_h, last_c, cell, statistics = _lstm_forward(gates, weight, gains, biases, h, c, rows, True)
        ctx.save_for_backward(gates, weight, gains, biases, hidden, cell, statistics)
        ctx.rows, cells = rows, rows.after(cell)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(cells, hidden)
        return rows.after(hidden), last_h, last_c, cells, hidden

    @staticmethod
    @first_order
    def backward(
        ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None, of_c: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        gates, weight, gains, biases, hidden, cell, statistics = ctx.saved_tensors
        (scans, _, units), rows = weight.shape, ctx.rows
        before = rows.before(hidden)
        inputs, slopes = recurrent_products(weight, before), unwritten(gates.shape, gates.dtype, gates.device)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        of_start_h, of_start_c = (gates.new_empty(rows.batch, scans, units) for _ in range(2))
        tally = _tally(gates, rows, units, OWN, 6)
        for offset, shape, options in launches(gates, rows, units, OWN):
            normalised_lstm_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, gains, biases, inputs, slopes, cell, statistics, of_outputs, whole(of_h), whole(of_c),
                of_start_h, of_start_c, tally, *rows.sizes, ring(shape, scans, gates.device),
                _words(shape, shape.blocks, scans, 8, gates.device), *apart, *rows.numbers, offset,
                **options, **_ours(shape.blocks),
            )  # fmt: skip
        of_weight = products(slopes.view(gates.dtype), before) if ctx.needs_input_grad[1] else None
        of_gains, of_bias = tally.sum(1).split([5 * units, units], dim=-1)
        of_biases = torch.cat([inputs.sum(0, dtype=torch.float32), of_bias], dim=-1)
        return inputs, of_weight, of_gains, of_biases, of_start_h, of_start_c, None


def _gru_forward(
    gates: Tensor, weight: Tensor, gains: Tensor, biases: Tensor, h: Tensor, rows: RowLayout, replaces: bool, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    scans, _, units = weight.shape
    hidden, last = unwritten(rows.room(units), gates.dtype, gates.device), torch.empty_like(h)
    statistics = gates.new_empty(rows.slots * save, scans, 4, dtype=torch.float32)
    programs = -(-units // OWN)
    for offset, shape, options in launches(gates, rows, units, OWN):
        normalised_gru_forward[(programs, shape.groups, scans)](
            gates, weight, gains, biases, h, hidden, statistics, last, *rows.sizes,
            _words(shape, programs, scans, 4, gates.device), *rows.numbers, offset,
            REPLACES=replaces, SAVE=save, **options, **_ours(programs),
        )  # fmt: skip
    return hidden.view(gates.dtype), last, statistics


class _NormalisedGRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        weight: Tensor,
        gains: Tensor,
        biases: Tensor,
        h: Tensor,
        rows: RowLayout,
        replaces: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden, last, statistics = _gru_forward(gates, weight, gains, biases, h, rows, replaces, True)
        ctx.save_for_backward(gates, weight, gains, biases, hidden, statistics)
        ctx.rows, ctx.replaces = rows, replaces
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(hidden)
        return rows.after(hidden), last, hidden

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        gates, weight, gains, biases, hidden, statistics = ctx.saved_tensors
        (scans, _, units), rows = weight.shape, ctx.rows
        before = rows.before(hidden)
        inputs, slopes = recurrent_products(weight, before), unwritten(gates.shape, gates.dtype, gates.device)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        of_start, tally = gates.new_empty(rows.batch, scans, units), _tally(gates, rows, units, OWN, 4)
        for offset, shape, options in launches(gates, rows, units, OWN):
            normalised_gru_backward[(shape.blocks, shape.groups, scans)](
                gates, weight, gains, biases, inputs, slopes, hidden, statistics, of_outputs, whole(of_h), of_start,
                tally, *rows.sizes, ring(shape, scans, gates.device),
                _words(shape, shape.blocks, scans, 4, gates.device), *apart, *rows.numbers, offset,
                REPLACES=ctx.replaces, **options, **_ours(shape.blocks),
            )  # fmt: skip
        of_weight = products(slopes.view(gates.dtype), before) if ctx.needs_input_grad[1] else None
        of_gains, of_bias = tally.sum(1).split([3 * units, units], dim=-1)
        of_biases = torch.cat([inputs[..., : 2 * units].sum(0, dtype=torch.float32), of_bias], dim=-1)
        return inputs, of_weight, of_gains, of_biases, of_start, None, None


def _rnn_forward(
    inputs: Tensor,
    weight: Tensor,
    gains: Tensor,
    biases: Tensor,
    h: Tensor,
    rows: RowLayout,
    activation: str,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    scans, _, units = weight.shape
    hidden, last = unwritten(rows.room(units), inputs.dtype, inputs.device), torch.empty_like(h)
    statistics = inputs.new_empty(rows.slots * save, scans, 2, dtype=torch.float32)
    for offset, shape, options in launches(inputs, rows, units, HELD_ROWS):
        normalised_rnn_forward[(shape.blocks, shape.groups, scans)](
            inputs, weight, gains, biases, h, hidden, statistics, last, *rows.sizes,
            _words(shape, shape.blocks, scans, 2, inputs.device), *rows.numbers, offset,
            ACTIVATION=activation, SAVE=save, **options, **_ours(shape.blocks),
        )  # fmt: skip
    return hidden.view(inputs.dtype), last, statistics


class _NormalisedRNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        gains: Tensor,
        biases: Tensor,
        h: Tensor,
        rows: RowLayout,
        activation: str,
    ) -> tuple[Tensor, Tensor]:
        hidden, last, statistics = _rnn_forward(inputs, weight, gains, biases, h, rows, activation, True)
        ctx.save_for_backward(inputs, weight, gains, hidden, statistics)
        ctx.rows, ctx.activation = rows, activation
        ctx.set_materialize_grads(False)
        return rows.after(hidden), last

    @staticmethod
    @first_order
    def backward(ctx: Any, of_outputs: Tensor | None, of_h: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs, weight, gains, hidden, statistics = ctx.saved_tensors
        (scans, _, units), rows = weight.shape, ctx.rows
        slopes = unwritten(inputs.shape, inputs.dtype, inputs.device)
        of_outputs, apart = rows.apart(of_outputs, hidden)
        of_start, tally = inputs.new_empty(rows.batch, scans, units), _tally(inputs, rows, units, HELD_ROWS, 2)
        for offset, shape, options in launches(inputs, rows, units, HELD_ROWS):
            normalised_rnn_backward[(shape.blocks, shape.groups, scans)](
                inputs, weight, gains, slopes, hidden, statistics, of_outputs, whole(of_h), of_start, tally,
                *rows.sizes, _words(shape, shape.blocks, scans, 2, inputs.device), *apart, *rows.numbers, offset,
                ACTIVATION=ctx.activation, **options, **_ours(shape.blocks),
            )  # fmt: skip
        slopes = slopes.view(inputs.dtype)
        of_weight = products(slopes, rows.before(hidden)) if ctx.needs_input_grad[1] else None
        return slopes, of_weight, *tally.sum(1).chunk(2, dim=-1), of_start, None, None


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


def _tally(values: Tensor, rows: RowLayout, units: int, own: int, numbers: int) -> Tensor:
    """Memory for sums over the rows of each group."""
    _, shape, _ = next(launches(values, rows, units, own))
    return values.new_empty(len(rows.reverse), -(-rows.batch // shape.rows), numbers * units, dtype=torch.float32)
