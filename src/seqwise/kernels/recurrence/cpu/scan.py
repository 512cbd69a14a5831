"""The scan as one function with its own way back.

A window of steps at a time: the input is multiplied, the steps are taken; on the way back the gradients of the gates
are summed into those of the weights while they are still in the cache. What is kept for the way back is not changed by
it: it may be gone twice.
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

STATES, STATE_GRADIENTS = ("h", "c"), ("dh", "dc")


class Share:
    """One direction's part of the tensors.

    `source` is the weight of the input (blocks · U, D), beside its bias or None; or the projected input, beside None.
    """

    def __init__(self, plan: Plan, tensors: Sequence[Any], place: int):
        after = 3 + plan.form.vectors
        start = place * (after + plan.form.states)
        self.source, self.bias, self.matrix = tensors[start : start + 3]
        self.vectors, self.state = tensors[start + 3 : start + after], tensors[start + after :][: plan.form.states]


def forwards(plan: Plan, x: Tensor | None, tensors: Sequence[Any]) -> tuple[list[Tensor], list[Job]]:
    """Outputs (B, T, directions · U) and the states after; and the buffers.

    x (B, T, D), or packed (N, D) where it must be kept; None if the projected input comes whole.
    """
    packing, width = plan.packing, plan.units * len(plan.reverse)
    shares = [Share(plan, tensors, place) for place in range(len(plan.reverse))]
    # Time first in memory, but no view: whoever gets the outputs may write over them.
    outputs = tensors[2].new_empty_strided(
        (packing.batch_size, packing.max_steps, width), (width, packing.batch_size * width, 1)
    )
    outputs = outputs.zero_() if packing.is_padded else outputs
    rows_of = packing.window_reader(x) if x is not None and x.dim() == 3 else None
    jobs, factors = [], [None if plan.whole else Factor(share.source, transposed=True) for share in shares]
    for share in shares:
        given = {f"extra {number}": vector.contiguous() for number, vector in enumerate(share.vectors)}
        given |= {name: packing.sort(part) for name, part in zip(STATES, share.state)}
        if plan.whole:
            given["gates"] = share.source.contiguous()
        jobs.append(Job(plan, share.matrix.contiguous(), False, given))
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
    after = [packing.unsort(job.held[name].memory) for job in jobs for name in STATES[: plan.form.states]]
    return [outputs, *after], jobs


def seen(plan: Plan, job: Job, outputs: Tensor, place: int) -> dict[str, Tensor]:
    """Gates by name, (B, T, …) each, zero in the padding."""
    found, units = {}, plan.units
    for name, buffer, first, end in plan.equation.seen:
        if buffer == "outputs":
            found[name] = outputs[..., place * units : (place + 1) * units].detach().clone()
        else:
            found[name] = plan.packing.unpack(job.held[buffer].memory[:, first * units : end * units].clone())
    return found


def _run(plan: Plan, arguments: list[list[int]], back: bool) -> None:
    if plan.packing.num_rows:
        plan.form.tools.run(plan.form.loop(back), arguments, plan.threads)


class Scan(torch.autograd.Function):
    """`forwards`, and the way back. `jobs` is a list to put the buffers in."""

    @staticmethod
    def forward(ctx: Any, plan: Plan, jobs: list[Job], x: Tensor | None, *tensors: Any) -> tuple[Tensor, ...]:
        results, made = forwards(plan, x, tensors)
        jobs += made
        ctx.plan = plan
        weights = [] if plan.whole else [Share(plan, tensors, place).source for place in range(len(made))]
        kept = [one for job in made for one in (job.matrix, *(job.held[name].memory for name in plan.form.kept))]
        ctx.save_for_backward(x, *weights, *kept)
        return tuple(results)

    @staticmethod
    @first_order
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        plan: Plan = ctx.plan
        x, *saved = ctx.saved_tensors
        weights = [] if plan.whole else saved[: len(plan.reverse)]
        outside = gradients[0] if gradients[0].stride(2) == 1 else gradients[0].contiguous()
        jobs = _jobs(plan, saved[len(weights) :], gradients[1:])
        sums = Sums(ctx, plan, x, weights, jobs)
        for count in range(len(plan.windows)):
            arguments = []
            for place, job in enumerate(jobs):
                window = plan.window(count, place, back=True)
                arguments += job.arguments(window, outside, place, outside.stride(1), outside.stride(0))
            _run(plan, arguments, back=True)
            for place in range(len(jobs)):
                sums.add(place, plan.window(count, place, back=True))
        return None, None, sums.dx, *(one for place in range(len(jobs)) for one in sums.of(place))


def _jobs(plan: Plan, saved: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Job]:
    """The buffers of the way back, with what was kept."""
    names, states, jobs = ("matrix", *plan.form.kept), plan.form.states, []
    for place in range(len(plan.reverse)):
        kept = dict(zip(names, saved[place * len(names) :], strict=False))
        given = {name: one for name, one in kept.items() if not name.startswith("extra")}
        given |= {f"given {number}": kept[f"extra {number}"] for number in range(plan.form.vectors)}
        for name, gradient in zip(STATE_GRADIENTS, gradients[place * states : (place + 1) * states]):
            given[name] = plan.packing.sort(gradient)
        jobs.append(Job(plan, kept["matrix"], True, given))
    return jobs


class Sums:
    """The gradients of input and weights, window by window."""

    def __init__(self, ctx: Any, plan: Plan, x: Tensor | None, weights: Sequence[Tensor], jobs: Sequence[Job]):
        self.plan, self.x, self.jobs = plan, x, jobs
        size = 3 + plan.form.vectors + plan.form.states
        # Of each direction's tensors, as `Share` has them: is the gradient wanted?
        self.wanted = [ctx.needs_input_grad[3 + place * size :][:size] for place in range(len(jobs))]
        self.factors = [Factor(weight, transposed=False) for weight in weights] if ctx.needs_input_grad[2] else []
        # Sums that nobody wants stay None.
        plain = torch.contiguous_format  # also where a weight lies in another order
        self.weights = [
            torch.empty_like(one, memory_format=plain) if some[0] else None for one, some in zip(weights, self.wanted)
        ]
        self.biases: list[Tensor | None] = [None for _ in jobs]
        self.vectors: list[dict[int, Tensor | None]] = [dict.fromkeys(plan.equation.summed) for _ in jobs]
        self.matrices = [torch.empty_like(job.matrix) if some[2] else None for job, some in zip(jobs, self.wanted)]
        self.dx = None if x is None or not ctx.needs_input_grad[2] else torch.empty_like(x)
        self.done: set[int] = set()  # first rows of windows whose input has a gradient from one direction
        self.begun = [False for _ in jobs]

    def add(self, place: int, window: Window) -> None:
        """A direction has gone through a window."""
        plan, job, more = self.plan, self.jobs[place], self.begun[place]
        units, gates, matrix = plan.units, job.part("d_gates", window), self.matrices[place]
        if matrix is not None:
            for (first, end), (source, block, factor) in zip(plan.equation.packs, plan.equation.weighted, strict=True):
                change = job.part(source, window)[:, block * units : (block + end - first) * units]
                across(change, job.part(factor, window), piece(matrix, first * units, end * units), more)
        if self.x is not None and (weight := self.weights[place]) is not None:
            across(gates, piece(self.x, window.first_row, window.end_row), weight, more)
        if self.wanted[place][1]:
            self.biases[place] = _added(self.biases[place], gates)
        for number, (source, first, end) in plan.equation.summed.items():
            if self.wanted[place][3 + number]:
                rows = job.part(source, window)[:, first * units : end * units]
                self.vectors[place][number] = _added(self.vectors[place][number], rows)
        if self.dx is not None:
            part = piece(self.dx, window.first_row, window.end_row)
            self.factors[place].times(gates, part if window.first_row in self.done else None, part)
            self.done.add(window.first_row)
        self.begun[place] = True

    def of(self, place: int) -> list[Tensor | None]:
        """In the order of a direction's tensors."""
        plan, held, summed = self.plan, self.jobs[place].held, self.vectors[place]
        source = held["d_gates"].memory if plan.whole else self.weights[place]
        vectors = [
            summed[number] if number in summed else held[f"extra {number}"].memory.sum(0)
            for number in range(plan.form.vectors)
        ]
        states = [plan.packing.unsort(held[name].memory) for name in STATE_GRADIENTS[: plan.form.states]]
        return [source, self.biases[place], self.matrices[place], *vectors, *states]


def _added(before: Tensor | None, rows: Tensor) -> Tensor:
    here = rows.sum(0)
    return here if before is None else before.add_(here)
