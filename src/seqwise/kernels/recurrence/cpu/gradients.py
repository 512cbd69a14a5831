"""The gradients of input and weights of a compiled scan, summed window by window.

Those of the gates, which `scan` computes, are still in the cache then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.cpu.linear import PackedWeight, multiply_transposed, slice_rows
from seqwise.kernels.recurrence.packing import Window

if TYPE_CHECKING:
    from seqwise.kernels.recurrence.cpu.scan import DirectionScan, Plan

STATE_GRADIENTS = ("grad_h", "grad_c")


class WeightGradients:
    """The gradients of input and weights, summed window by window."""

    def __init__(
        self, ctx: Any, plan: Plan, x: Tensor | None, weights: Sequence[Tensor], scans: Sequence[DirectionScan]
    ):
        self.plan, self.x, self.scans = plan, x, scans
        size = 3 + plan.cell.num_vectors + plan.cell.num_states
        # Which gradients are needed, in the order of `DirectionTensors`.
        self.needs_grad = [ctx.needs_input_grad[3 + index * size :][:size] for index in range(len(scans))]
        self.packed_weights = (
            [PackedWeight(weight, transposed=False) for weight in weights] if ctx.needs_input_grad[2] else []
        )
        # Gradients that are not needed stay None.
        contiguous = torch.contiguous_format  # also where a weight is not contiguous
        self.grad_weights = [
            torch.empty_like(weight, memory_format=contiguous) if needs_grad[0] else None
            for weight, needs_grad in zip(weights, self.needs_grad)
        ]
        self.grad_biases: list[Tensor | None] = [None for _ in scans]
        self.grad_vectors: list[dict[int, Tensor | None]] = [
            dict.fromkeys(plan.equation.summed_gradients) for _ in scans
        ]
        self.grad_matrices = [
            torch.empty_like(scan.matrix) if needs_grad[2] else None for scan, needs_grad in zip(scans, self.needs_grad)
        ]
        self.grad_x = None if x is None or not ctx.needs_input_grad[2] else torch.empty_like(x)
        self.windows_with_grad_x: set[int] = set()  # their first rows: a second direction is added to the first
        self.has_sums = [False for _ in scans]

    def add(self, index: int, window: Window) -> None:
        """Add the gradients of one window of a direction."""
        plan, scan, accumulate = self.plan, self.scans[index], self.has_sums[index]
        units, grad_gates, grad_matrix = plan.units, scan.part("grad_gates", window), self.grad_matrices[index]
        if grad_matrix is not None:
            for (first, end), (source, block, factor) in zip(
                plan.equation.weight_blocks, plan.equation.weight_gradients, strict=True
            ):
                gradient = scan.part(source, window)[:, block * units : (block + end - first) * units]
                multiply_transposed(
                    gradient, scan.part(factor, window), slice_rows(grad_matrix, first * units, end * units), accumulate
                )
        if self.x is not None and (grad_weight := self.grad_weights[index]) is not None:
            x = slice_rows(self.x, window.first_row, window.end_row)
            multiply_transposed(grad_gates, x, grad_weight, accumulate)
        if self.needs_grad[index][1]:
            self.grad_biases[index] = _add_row_sum(self.grad_biases[index], grad_gates)
        for number, (source, first, end) in plan.equation.summed_gradients.items():
            if self.needs_grad[index][3 + number]:
                rows = scan.part(source, window)[:, first * units : end * units]
                self.grad_vectors[index][number] = _add_row_sum(self.grad_vectors[index][number], rows)
        if self.grad_x is not None:
            part = slice_rows(self.grad_x, window.first_row, window.end_row)
            self.packed_weights[index].multiply_rows(
                grad_gates, part if window.first_row in self.windows_with_grad_x else None, part
            )
            self.windows_with_grad_x.add(window.first_row)
        self.has_sums[index] = True

    def collect(self, index: int) -> list[Tensor | None]:
        """The gradients of one direction, in the order of `DirectionTensors`."""
        plan, buffers, grad_vectors = self.plan, self.scans[index].buffers, self.grad_vectors[index]
        source = buffers["grad_gates"].memory if plan.is_projected else self.grad_weights[index]
        vectors = [
            grad_vectors[number] if number in grad_vectors else buffers[f"vector {number}"].memory.sum(0)
            for number in range(plan.cell.num_vectors)
        ]
        states = [plan.packing.unsort(buffers[name].memory) for name in STATE_GRADIENTS[: plan.cell.num_states]]
        return [source, self.grad_biases[index], self.grad_matrices[index], *vectors, *states]


def _add_row_sum(total: Tensor | None, rows: Tensor) -> Tensor:
    row_sum = rows.sum(0)
    return row_sum if total is None else total.add_(row_sum)
