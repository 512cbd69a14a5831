"""Scans of the persistent kernels on tensors (D, T, B, …), and the same by the reference implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import Scan, ScanInputs
from seqwise.kernels.recurrence.packing import SequencePacking
from seqwise.layers.cells import Cell
from seqwise.layers.scan import scan_reference


def run_packed(
    scan: Scan, inputs: Tensor, weight: Tensor, vectors: Sequence[Tensor], states: Sequence[Tensor],
    lengths: Sequence[int] | None = None, reverse: Sequence[bool] | None = None, record: bool = False,
    state_mask: Tensor | None = None,
) -> tuple[list[Tensor], dict[str, Tensor]]:  # fmt: skip
    """Runs the scan on inputs (D, T, B, …) and states (D, B, U): outputs (D, T, B, U) and last states (D, B, U), and
    the recorded activations in packed order. The inputs are not overwritten. `state_mask` is (D, B, U)."""
    directions, time, batch, _ = inputs.shape
    packing = SequencePacking(batch, time, None if lengths is None else torch.tensor(lengths))
    layout = PackedLayout.from_packing(packing, tuple(reverse or (False,) * directions))
    sorted_states = [packing.sort(state.transpose(0, 1)).contiguous() for state in states]
    gates = pack(inputs, packing).clone(memory_format=torch.contiguous_format)
    mask = None if state_mask is None else packing.sort(state_mask.transpose(0, 1)).contiguous()
    scan_inputs = ScanInputs(gates, weight, vectors, sorted_states, layout, state_mask=mask)
    outputs, last, activations = scan.run(scan_inputs, record)
    return [unpack(outputs, packing), *(packing.unsort(part).transpose(0, 1) for part in last)], activations


def run_reference(
    cell: Cell, inputs: Tensor, weight: Tensor, states: Sequence[Tensor], lengths: Sequence[int] | None = None,
    reverse: Sequence[bool] | None = None, parameters: dict[str, Tensor] | None = None,
    state_mask: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    """Computes the same with the loop over the cell's equation, one direction after another. `parameters` (D, …)
    replace those of the cell."""
    directions, steps, batch, _ = inputs.shape
    valid = None if lengths is None else torch.arange(steps) < torch.tensor(lengths)[:, None]
    results = []
    for n, is_reversed in enumerate(reverse or (False,) * directions):
        projected = reverse_steps(inputs[n], lengths) if is_reversed else inputs[n]
        cell.project = lambda x, projected=projected: projected.transpose(0, 1)  # type: ignore[method-assign]
        for name, values in (parameters or {}).items():
            delattr(cell, name)
            setattr(cell, name, values[n])
        initial = tuple(state[n] for state in states)
        mask = None if state_mask is None else state_mask[n]
        outputs, last = scan_reference(cell, inputs.new_empty(batch, steps, 1), initial, weight[n], valid, mask)
        outputs = outputs.transpose(0, 1)
        results.append((reverse_steps(outputs, lengths) if is_reversed else outputs, *last))
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


def pack(values: Tensor, packing: SequencePacking) -> Tensor:
    """Packs (D, T, B, n) → (N, D, n)."""
    rows = values.permute(1, 2, 0, 3)
    return rows[packing.row_steps, packing.row_sequences] if packing.is_padded else rows.flatten(0, 1)


def unpack(values: Tensor, packing: SequencePacking) -> Tensor:
    """Unpacks (N, D, n) or (T, B, D, n) → (D, T, B, n), with zeros in the padding."""
    if not packing.is_padded:
        return values.permute(2, 0, 1, 3)
    full = values.new_zeros(packing.max_steps, packing.batch_size, *values.shape[1:])
    full[packing.row_steps, packing.row_sequences] = values
    return full.permute(2, 0, 1, 3)


def reverse_steps(values: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """Returns (T, B, …) with each sequence's valid steps in reverse order."""
    if lengths is None:
        return values.flip(0)
    rows = [torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(values.unbind(1), lengths, strict=True)]
    return torch.stack(rows, dim=1)


def mark_slow(shapes: dict[str, Any], *fast: str) -> list[Any]:
    """Returns the names as test parameters; all but the `fast` are slow: an interpreted kernel takes seconds."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in shapes]
