"""Tensors of tests in the layout of the persistent kernels, and back: (S, T, B, …) there, slots first here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.steps import Steps
from seqwise.layers.cells import Cell
from seqwise.layers.scan import scan as open_scan


def scanned(
    scan: Callable[..., Any], inputs: Tensor, weight: Tensor, beside: Sequence[Any], states: Sequence[Tensor],
    lengths: Sequence[int] | None = None, reverse: Sequence[bool] | None = None, **options: Any,
) -> list[Tensor]:  # fmt: skip
    """What the scan makes of inputs (S, T, B, …) and states (S, B, U): outputs (S, T, B, U), last states (S, B, U), and
    whatever else comes, as it is. The inputs are not consumed."""
    scans, time, batch, _ = inputs.shape
    steps = Steps(batch, time, None if lengths is None else torch.tensor(lengths))
    rows = RowLayout.of(steps, tuple(reverse or (False,) * scans))
    sorted_states = [steps.sort(state.transpose(0, 1)).contiguous() for state in states]
    given = in_slots(inputs, steps).clone(memory_format=torch.contiguous_format)
    found = scan(given, weight, *beside, *sorted_states, rows, **options)
    outputs, last, others = found[0], found[1 : 1 + len(states)], found[1 + len(states) :]
    return [out_of_slots(outputs, steps), *(steps.unsort(part).transpose(0, 1) for part in last), *others]


def expected(
    cell: Cell, inputs: Tensor, weight: Tensor, states: Sequence[Tensor], lengths: Sequence[int] | None = None,
    reverse: Sequence[bool] | None = None,
) -> list[Tensor]:  # fmt: skip
    """The same by the open scan of the cell's own equation, one direction after another."""
    scans, steps, batch, _ = inputs.shape
    real = None if lengths is None else torch.arange(steps) < torch.tensor(lengths)[:, None]
    results = []
    for s, back in enumerate(reverse or (False,) * scans):
        given = turn(inputs[s], lengths) if back else inputs[s]
        cell.project = lambda x, given=given: given.transpose(0, 1)  # type: ignore[method-assign]
        start = tuple(state[s] for state in states)
        outputs, last = open_scan(cell, inputs.new_empty(batch, steps, 1), start, weight[s], real)
        outputs = outputs.transpose(0, 1)
        results.append((turn(outputs, lengths) if back else outputs, *last))
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


def in_slots(values: Tensor, steps: Steps) -> Tensor:
    """(S, T, B, n) → (N, S, n)"""
    rows = values.permute(1, 2, 0, 3)
    return rows[steps.times, steps.rows] if steps.padded else rows.flatten(0, 1)


def out_of_slots(values: Tensor, steps: Steps) -> Tensor:
    """(N, S, n) or (T, B, S, n) → (S, T, B, n), zero in the padding"""
    if not steps.padded:
        return values.permute(2, 0, 1, 3)
    full = values.new_zeros(steps.time, steps.batch, *values.shape[1:])
    full[steps.times, steps.rows] = values
    return full.permute(2, 0, 1, 3)


def turn(values: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """(T, B, …) with each row's real steps in reverse order."""
    if lengths is None:
        return values.flip(0)
    rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(values.unbind(1), lengths, strict=True)]
    return torch.stack(rows, dim=1)
