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

from seqwise.kernels.recurrence.cpu.linear import Factor, across
from seqwise.kernels.recurrence.cpu.memory import Job, Plan, piece
from seqwise.kernels.recurrence.first_order import first_order
from seqwise.kernels.recurrence.packing import Window

STATES, STATE_GRADIENTS = ("h", "c"), ("grad_h", "grad_c")


class DirectionTensors:
    """The tensors of one direction.

    `source` is the input weight (blocks · U, D) and `bias` its bias or None; or the projected input, and None.
    """

    def __init__(self, plan: Plan, tensors: Sequence[Any], place: int):
        after = 3 + plan.form.vectors
        start = place * (after + plan.form.states)
        self.source, self.bias, self.matrix = tensors[start : start + 3]
        self.vectors, self.state = tensors[start + 3 : start + after], tensors[start + after :][: plan.form.states]


def run_forward(plan: Plan, x: Tensor | None, tensors: Sequence[Any]) -> tuple[list[Tensor], list[Job]]:
    """Outputs (B, T, directions · U) and the last states; and the buffers.

    x is (B, T, D), or packed (N, D) where it is saved for the gradient; None if the projected input is given.
    """
    packing, width = plan.packing, plan.units * len(plan.reverse)
    shares = [DirectionTensors(plan, tensors, place) for place in range(len(plan.reverse))]
    # Time first in memory, but no view, so that the caller may change the outputs in place.
    outputs = tensors[2].new_empty_strided(
        (packing.batch_size, packing.max_steps, width), (width, packing.batch_size * width, 1)
    )
    outputs = outputs.zero_() if packing.is_padded else outputs
    rows_of = packing.window_reader(x) if x is not None and x.dim() == 3 else None
    jobs, factors = [], [None if plan.whole else Factor(share.source, transposed=True) for share in shares]
    for share in shares:
        buffers = {f"vector {number}": vector.contiguous() for number, vector in enumerate(share.vectors)}
        buffers |= {name: packing.sort(part) for name, part in zip(STATES, share.state)}
        if plan.whole:
            buffers["gates"] = share.source.contiguous()
        jobs.append(Job(plan, share.matrix.contiguous(), False, buffers))
    for count in range(len(plan.windows)):
        arguments = []
        for place, (job, factor, share) in enumerate(zip(jobs, factors, shares, strict=True)):
            window = plan.window(count, place, back=False)
            if factor is not None and x is not None:
                rows = rows_of(window) if rows_of is not None else piece(x, window.first_row, window.end_row)
                bias = None if share.bias is None else share.bias.contiguous()
                factor.times(rows, bias, job.part("gates", window))
            arguments += job.arguments(window, outputs, place, packing.batch_size * width, width)
        _run(plan, arguments, back=False)
    after = [packing.unsort(job.buffers[name].memory) for job in jobs for name in STATES[: plan.form.states]]
    return [outputs, *after], jobs


def collect_gates(plan: Plan, job: Job, outputs: Tensor, place: int) -> dict[str, Tensor]:
    """Gates by name, (B, T, …) each, zero in the padding."""
    gates, units = {}, plan.units
    for name, buffer, first, end in plan.equation.recorded:
        if buffer == "outputs":
            gates[name] = outputs[..., place * units : (place + 1) * units].detach().clone()
        else:
            gates[name] = plan.packing.unpack(job.buffers[buffer].memory[:, first * units : end * units].clone())
    return gates


def _run(plan: Plan, arguments: list[list[int]], back: bool) -> None:
    if plan.packing.num_rows:
        plan.form.tools.run(plan.form.loop(back), arguments, plan.threads)


class Scan(torch.autograd.Function):
    """`run_forward` and its gradient. `jobs` is a list that receives the buffers."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, jobs: list[Job], x: Tensor | None, *tensors: Any) -> tuple[Tensor, ...]:
        results, made = run_forward(plan, x, tensors)
        jobs += made
        ctx.plan = plan
        weights = [] if plan.whole else [DirectionTensors(plan, tensors, place).source for place in range(len(made))]
        saved = [
            one for job in made for one in (job.matrix, *(job.buffers[name].memory for name in plan.form.saved_names))
        ]
        ctx.save_for_backward(x, *weights, *saved)
        return tuple(results)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        x, *saved = ctx.saved_tensors
        weights = [] if plan.whole else saved[: len(plan.reverse)]
        grad_outputs = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        jobs = _jobs(plan, saved[len(weights) :], gradients[1:])
        sums = WeightGradients(ctx, plan, x, weights, jobs)
        for count in range(len(plan.windows)):
            arguments = []
            for place, job in enumerate(jobs):
                window = plan.window(count, place, back=True)
                arguments += job.arguments(window, grad_outputs, place, grad_outputs.stride(1), grad_outputs.stride(0))
            _run(plan, arguments, back=True)
            for place in range(len(jobs)):
                sums.add(place, plan.window(count, place, back=True))
        return None, None, sums.grad_x, *(one for place in range(len(jobs)) for one in sums.collect(place))


def _jobs(plan: Plan, saved: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Job]:
    """The buffers of the backward pass, with the saved tensors."""
    names, states, jobs = ("matrix", *plan.form.saved_names), plan.form.states, []
    for place in range(len(plan.reverse)):
        forward_tensors = dict(zip(names, saved[place * len(names) :], strict=False))
        buffers = {name: one for name, one in forward_tensors.items() if not name.startswith("vector")}
        buffers |= {
            f"forward vector {number}": forward_tensors[f"vector {number}"] for number in range(plan.form.vectors)
        }
        for name, gradient in zip(STATE_GRADIENTS, gradients[place * states : (place + 1) * states]):
            buffers[name] = plan.packing.sort(gradient)
        jobs.append(Job(plan, forward_tensors["matrix"], True, buffers))
    return jobs


class WeightGradients:
    """The gradients of input and weights, summed window by window."""

    def __init__(self, ctx: Any, plan: Plan, x: Tensor | None, weights: Sequence[Tensor], jobs: Sequence[Job]):
        self.plan, self.x, self.jobs = plan, x, jobs
        size = 3 + plan.form.vectors + plan.form.states
        # Which gradients are needed, in the order of `DirectionTensors`.
        self.needed = [ctx.needs_input_grad[3 + place * size :][:size] for place in range(len(jobs))]
        self.factors = [Factor(weight, transposed=False) for weight in weights] if ctx.needs_input_grad[2] else []
        # Gradients that are not needed stay None.
        plain = torch.contiguous_format  # also where a weight is not contiguous
        self.weights = [
            torch.empty_like(one, memory_format=plain) if some[0] else None for one, some in zip(weights, self.needed)
        ]
        self.biases: list[Tensor | None] = [None for _ in jobs]
        self.vectors: list[dict[int, Tensor | None]] = [dict.fromkeys(plan.equation.summed) for _ in jobs]
        self.matrices = [torch.empty_like(job.matrix) if some[2] else None for job, some in zip(jobs, self.needed)]
        self.grad_x = None if x is None or not ctx.needs_input_grad[2] else torch.empty_like(x)
        self.done: set[int] = set()  # first rows of windows whose input gradient has one direction already
        self.has_sums = [False for _ in jobs]

    def add(self, place: int, window: Window) -> None:
        """Add the gradients of one window of a direction."""
        plan, job, more = self.plan, self.jobs[place], self.has_sums[place]
        units, gates, matrix = plan.units, job.part("grad_gates", window), self.matrices[place]
        if matrix is not None:
            for (first, end), (source, block, factor) in zip(plan.equation.packs, plan.equation.weighted, strict=True):
                gradient = job.part(source, window)[:, block * units : (block + end - first) * units]
                across(gradient, job.part(factor, window), piece(matrix, first * units, end * units), more)
        if self.x is not None and (weight := self.weights[place]) is not None:
            across(gates, piece(self.x, window.first_row, window.end_row), weight, more)
        if self.needed[place][1]:
            self.biases[place] = _add(self.biases[place], gates)
        for number, (source, first, end) in plan.equation.summed.items():
            if self.needed[place][3 + number]:
                rows = job.part(source, window)[:, first * units : end * units]
                self.vectors[place][number] = _add(self.vectors[place][number], rows)
        if self.grad_x is not None:
            part = piece(self.grad_x, window.first_row, window.end_row)
            self.factors[place].times(gates, part if window.first_row in self.done else None, part)
            self.done.add(window.first_row)
        self.has_sums[place] = True

    def collect(self, place: int) -> list[Tensor | None]:
        """The gradients of one direction, in the order of `DirectionTensors`."""
        plan, held, summed = self.plan, self.jobs[place].buffers, self.vectors[place]
        source = held["grad_gates"].memory if plan.whole else self.weights[place]
        vectors = [
            summed[number] if number in summed else held[f"vector {number}"].memory.sum(0)
            for number in range(plan.form.vectors)
        ]
        states = [plan.packing.unsort(held[name].memory) for name in STATE_GRADIENTS[: plan.form.states]]
        return [source, self.biases[place], self.matrices[place], *vectors, *states]


def _add(before: Tensor | None, rows: Tensor) -> Tensor:
    here = rows.sum(0)
    return here if before is None else before.add_(here)
