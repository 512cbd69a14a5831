"""`GradientSums`: the gradients of a compiled scan's input and parameters, accumulated window by window.

The gradients of a window's gates, from which they are computed, are still in the cache then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from seqwise.kernels.recurrence.cpu.linear import PackedWeight, multiply_transposed, slice_rows
from seqwise.kernels.recurrence.packing import Window

if TYPE_CHECKING:
    from seqwise.kernels.recurrence.cpu.scan import DirectionScan, DirectionTensors, ScanPlan

STATE_GRADIENT_NAMES = ("grad_h", "grad_c")


class GradientSums:
    """The gradients of the input and of each direction's tensors; a gradient that is not needed stays None.

    `weights` are the input weights, none if the input is projected already. `needs_grad` says for each direction which
    of its tensors need a gradient.
    """

    def __init__(
        self,
        plan: ScanPlan,
        x: Tensor | None,
        weights: Sequence[Tensor],
        scans: Sequence[DirectionScan],
        needs_grad_x: bool,
        needs_grad: Sequence[DirectionTensors],
    ):
        self.plan, self.x, self.scans, self.needs_grad = plan, x, scans, needs_grad
        self.packed_weights = [PackedWeight(weight, transposed=False) for weight in weights] if needs_grad_x else []
        contiguous = torch.contiguous_format  # `empty_like` would keep the strides of a non-contiguous weight
        self.grad_weights = [
            torch.empty_like(weight, memory_format=contiguous) if needs.weight_input else None
            for weight, needs in zip(weights, needs_grad)
        ]
        self.grad_biases: list[Tensor | None] = [None for _ in scans]
        self.grad_parameters: list[dict[int, Tensor | None]] = [
            dict.fromkeys(plan.equation.summed_gradients) for _ in scans
        ]
        self.grad_weights_hidden = [
            torch.empty_like(scan.weight_hidden) if needs.weight_hidden else None
            for scan, needs in zip(scans, needs_grad)
        ]
        self.grad_x = torch.empty_like(x) if x is not None and needs_grad_x else None
        self.written_rows: set[int] = set()  # first rows of the windows whose grad_x was written by another direction
        self.is_started = [False for _ in scans]

    def add_window(self, index: int, window: Window) -> None:
        """Adds the gradients of one window of a direction."""
        plan, scan, needs, accumulate = self.plan, self.scans[index], self.needs_grad[index], self.is_started[index]
        units, grad_gates = plan.units, scan.get_window_rows("grad_gates", window)
        if (grad_weight_hidden := self.grad_weights_hidden[index]) is not None:
            for (first, end), (buffer, block, factor) in zip(
                plan.equation.weight_blocks, plan.equation.weight_gradients, strict=True
            ):
                grad_product = scan.get_window_rows(buffer, window)[:, block * units : (block + end - first) * units]
                grad_block = slice_rows(grad_weight_hidden, first * units, end * units)
                multiply_transposed(grad_product, scan.get_window_rows(factor, window), grad_block, accumulate)
        if self.x is not None and (grad_weight := self.grad_weights[index]) is not None:
            x = slice_rows(self.x, window.first_row, window.end_row)
            multiply_transposed(grad_gates, x, grad_weight, accumulate)
        if needs.bias:
            self.grad_biases[index] = _add_row_sum(self.grad_biases[index], grad_gates)
        for number, (buffer, first, end) in plan.equation.summed_gradients.items():
            if needs.vector_parameters[number]:
                rows = scan.get_window_rows(buffer, window)[:, first * units : end * units]
                self.grad_parameters[index][number] = _add_row_sum(self.grad_parameters[index][number], rows)
        if self.grad_x is not None:
            grad_x = slice_rows(self.grad_x, window.first_row, window.end_row)
            addend = grad_x if window.first_row in self.written_rows else None
            self.packed_weights[index].multiply_rows(grad_gates, addend, grad_x)
            self.written_rows.add(window.first_row)
        self.is_started[index] = True

    def get_gradients(self, index: int) -> list[Tensor | None]:
        """Returns the gradients of one direction, in the order of `DirectionTensors`."""
        plan, buffers, grad_parameters = self.plan, self.scans[index].buffers, self.grad_parameters[index]
        grad_projected_input = buffers["grad_gates"].memory if plan.is_projected else None
        grad_weight = None if plan.is_projected else self.grad_weights[index]
        all_grad_parameters = [
            grad_parameters[number] if number in grad_parameters else buffers[f"parameter {number}"].memory.sum(0)
            for number in range(plan.cell.num_parameters)
        ]
        grad_states = [
            plan.packing.unsort(buffers[name].memory) for name in STATE_GRADIENT_NAMES[: plan.cell.num_states]
        ]
        return [
            *(grad_weight, self.grad_biases[index], grad_projected_input, self.grad_weights_hidden[index]),
            *all_grad_parameters,
            *grad_states,
        ]


def _add_row_sum(total: Tensor | None, rows: Tensor) -> Tensor:
    row_sum = rows.sum(0)
    return row_sum if total is None else total.add_(row_sum)
