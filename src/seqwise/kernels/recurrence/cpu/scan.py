"""The scan as an autograd function.

It works window by window (a window is some consecutive steps): forward, the input of the window is projected and its
steps are run; backward, the gradients of the gates are summed into those of the weights while they are still in the
cache. The backward pass changes no saved tensor, so it can run twice (`retain_graph`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.cpu.linear import PackedWeight, multiply_transposed
from seqwise.kernels.recurrence.cpu.memory import Job, Plan, slice_rows
from seqwise.kernels.recurrence.decorators import first_order
from seqwise.kernels.recurrence.packing import Window

STATES, STATE_GRADIENTS = ("h", "c"), ("grad_h", "grad_c")


class DirectionTensors:
    """The tensors of one direction.

    `source` is the input weight (blocks · U, D) and `bias` its bias or None; or the projected input, and None.
    """

    def __init__(self, plan: Plan, tensors: Sequence[Any], index: int):
        after = 3 + plan.cell.vectors
        start = index * (after + plan.cell.states)
        self.source, self.bias, self.matrix = tensors[start : start + 3]
        self.vectors, self.state = tensors[start + 3 : start + after], tensors[start + after :][: plan.cell.states]


def run_forward(plan: Plan, x: Tensor | None, tensors: Sequence[Any]) -> tuple[list[Tensor], list[Job]]:
    """Outputs (B, T, directions · U) and the last states; and the buffers.

    x is (B, T, D), or packed (N, D) where it is saved for the gradient; None if the input is projected already.
    """
    packing, width = plan.packing, plan.units * len(plan.reverse)
    directions = [DirectionTensors(plan, tensors, index) for index in range(len(plan.reverse))]
    # Time first in memory, but no view, so that the caller may change the outputs in place.
    outputs = tensors[2].new_empty_strided(
        (packing.batch_size, packing.max_steps, width), (width, packing.batch_size * width, 1)
    )
    outputs = outputs.zero_() if packing.is_padded else outputs
    read_rows = packing.window_reader(x) if x is not None and x.dim() == 3 else None
    jobs = []
    input_weights = [
        None if plan.is_projected else PackedWeight(direction.source, transposed=True) for direction in directions
    ]
    for direction in directions:
        buffers = {f"vector {number}": vector.contiguous() for number, vector in enumerate(direction.vectors)}
        buffers |= {name: packing.sort(part) for name, part in zip(STATES, direction.state)}
        if plan.is_projected:
            buffers["gates"] = direction.source.contiguous()
        jobs.append(Job(plan, direction.matrix.contiguous(), False, buffers))
    for count in range(len(plan.windows)):
        arguments = []
        for index, (job, input_weight, direction) in enumerate(zip(jobs, input_weights, directions, strict=True)):
            window = plan.window(count, index, backward=False)
            if input_weight is not None and x is not None:
                rows = read_rows(window) if read_rows is not None else slice_rows(x, window.first_row, window.end_row)
                bias = None if direction.bias is None else direction.bias.contiguous()
                input_weight.multiply_rows(rows, bias, job.part("gates", window))
            arguments += job.arguments(window, outputs, index, packing.batch_size * width, width)
        _run_loops(plan, arguments, backward=False)
    after = [packing.unsort(job.buffers[name].memory) for job in jobs for name in STATES[: plan.cell.states]]
    return [outputs, *after], jobs


def collect_gates(plan: Plan, job: Job, outputs: Tensor, index: int) -> dict[str, Tensor]:
    """Gates by name, (B, T, …) each, zero in the padding."""
    gates, units = {}, plan.units
    for name, buffer, first, end in plan.equation.recorded:
        if buffer == "outputs":
            gates[name] = outputs[..., index * units : (index + 1) * units].detach().clone()
        else:
            gates[name] = plan.packing.unpack(job.buffers[buffer].memory[:, first * units : end * units].clone())
    return gates


def _run_loops(plan: Plan, arguments: list[list[int]], backward: bool) -> None:
    if plan.packing.num_rows:
        plan.cell.matmul.run(plan.cell.loop(backward), arguments, plan.threads)


class Scan(torch.autograd.Function):
    """`run_forward` and its gradient. `jobs` is a list that receives the buffers."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, jobs: list[Job], x: Tensor | None, *tensors: Any) -> tuple[Tensor, ...]:
        results, new_jobs = run_forward(plan, x, tensors)
        jobs += new_jobs
        ctx.plan = plan
        count = 0 if plan.is_projected else len(new_jobs)
        weights = [DirectionTensors(plan, tensors, index).source for index in range(count)]
        saved = [
            one
            for job in new_jobs
            for one in (job.matrix, *(job.buffers[name].memory for name in plan.cell.saved_names))
        ]
        ctx.save_for_backward(x, *weights, *saved)
        return tuple(results)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        x, *saved = ctx.saved_tensors
        weights = [] if plan.is_projected else saved[: len(plan.reverse)]
        grad_outputs = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        jobs = _build_backward_jobs(plan, saved[len(weights) :], gradients[1:])
        sums = WeightGradients(ctx, plan, x, weights, jobs)
        for count in range(len(plan.windows)):
            arguments = []
            for index, job in enumerate(jobs):
                window = plan.window(count, index, backward=True)
                arguments += job.arguments(window, grad_outputs, index, grad_outputs.stride(1), grad_outputs.stride(0))
            _run_loops(plan, arguments, backward=True)
            for index in range(len(jobs)):
                sums.add(index, plan.window(count, index, backward=True))
        return None, None, sums.grad_x, *(one for index in range(len(jobs)) for one in sums.collect(index))


def _build_backward_jobs(plan: Plan, saved: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Job]:
    """The buffers of the backward pass, with the saved tensors."""
    names, states, jobs = ("matrix", *plan.cell.saved_names), plan.cell.states, []
    for index in range(len(plan.reverse)):
        forward_tensors = dict(zip(names, saved[index * len(names) :], strict=False))
        buffers = {name: one for name, one in forward_tensors.items() if not name.startswith("vector")}
        buffers |= {
            f"forward vector {number}": forward_tensors[f"vector {number}"] for number in range(plan.cell.vectors)
        }
        for name, gradient in zip(STATE_GRADIENTS, gradients[index * states : (index + 1) * states]):
            buffers[name] = plan.packing.sort(gradient)
        jobs.append(Job(plan, forward_tensors["matrix"], True, buffers))
    return jobs


class WeightGradients:
    """The gradients of input and weights, summed window by window."""

    def __init__(self, ctx: Any, plan: Plan, x: Tensor | None, weights: Sequence[Tensor], jobs: Sequence[Job]):
        self.plan, self.x, self.jobs = plan, x, jobs
        size = 3 + plan.cell.vectors + plan.cell.states
        # Which gradients are needed, in the order of `DirectionTensors`.
        self.needed = [ctx.needs_input_grad[3 + index * size :][:size] for index in range(len(jobs))]
        self.packed_weights = (
            [PackedWeight(weight, transposed=False) for weight in weights] if ctx.needs_input_grad[2] else []
        )
        # Gradients that are not needed stay None.
        contiguous = torch.contiguous_format  # also where a weight is not contiguous
        self.weights = [
            torch.empty_like(weight, memory_format=contiguous) if needed[0] else None
            for weight, needed in zip(weights, self.needed)
        ]
        self.biases: list[Tensor | None] = [None for _ in jobs]
        self.vectors: list[dict[int, Tensor | None]] = [dict.fromkeys(plan.equation.summed_gradients) for _ in jobs]
        self.matrices = [torch.empty_like(job.matrix) if needed[2] else None for job, needed in zip(jobs, self.needed)]
        self.grad_x = None if x is None or not ctx.needs_input_grad[2] else torch.empty_like(x)
        self.started: set[int] = set()  # first rows of windows to whose input gradient a direction was added
        self.has_sums = [False for _ in jobs]

    def add(self, index: int, window: Window) -> None:
        """Add the gradients of one window of a direction."""
        plan, job, accumulate = self.plan, self.jobs[index], self.has_sums[index]
        units, gates, matrix = plan.units, job.part("grad_gates", window), self.matrices[index]
        if matrix is not None:
            for (first, end), (source, block, factor) in zip(
                plan.equation.weight_blocks, plan.equation.weight_gradients, strict=True
            ):
                gradient = job.part(source, window)[:, block * units : (block + end - first) * units]
                multiply_transposed(
                    gradient, job.part(factor, window), slice_rows(matrix, first * units, end * units), accumulate
                )
        if self.x is not None and (weight := self.weights[index]) is not None:
            multiply_transposed(gates, slice_rows(self.x, window.first_row, window.end_row), weight, accumulate)
        if self.needed[index][1]:
            self.biases[index] = _add_row_sum(self.biases[index], gates)
        for number, (source, first, end) in plan.equation.summed_gradients.items():
            if self.needed[index][3 + number]:
                rows = job.part(source, window)[:, first * units : end * units]
                self.vectors[index][number] = _add_row_sum(self.vectors[index][number], rows)
        if self.grad_x is not None:
            part = slice_rows(self.grad_x, window.first_row, window.end_row)
            self.packed_weights[index].multiply_rows(gates, part if window.first_row in self.started else None, part)
            self.started.add(window.first_row)
        self.has_sums[index] = True

    def collect(self, index: int) -> list[Tensor | None]:
        """The gradients of one direction, in the order of `DirectionTensors`."""
        plan, buffers, summed = self.plan, self.jobs[index].buffers, self.vectors[index]
        source = buffers["grad_gates"].memory if plan.is_projected else self.weights[index]
        vectors = [
            summed[number] if number in summed else buffers[f"vector {number}"].memory.sum(0)
            for number in range(plan.cell.vectors)
        ]
        states = [plan.packing.unsort(buffers[name].memory) for name in STATE_GRADIENTS[: plan.cell.states]]
        return [source, self.biases[index], self.matrices[index], *vectors, *states]


def _add_row_sum(total: Tensor | None, rows: Tensor) -> Tensor:
    row_sum = rows.sum(0)
    return row_sum if total is None else total.add_(row_sum)
