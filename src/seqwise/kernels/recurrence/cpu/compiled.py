"""Recurrence on the CPU: every cell over time, there and back, each as one compiled loop. It knows nothing of modules.

    project = Projection(weight_input, bias)
    outputs, after, _ = scan(Kind("lstm"), x, [Direction(project, weight_hidden, (), (h, c))], Steps(B, T, lengths))

Compared with a loop over a cell's equation there is no graph of the steps, no padding, and no product that begins anew.
Workers share the rows and wait for nobody; several directions run at once. float32 and float64, on CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels.recurrence.cpu.choice import fits, obstacle, pays
from seqwise.kernels.recurrence.cpu.memory import Job, Plan
from seqwise.kernels.recurrence.cpu.scan import Scan, seen, there
from seqwise.kernels.recurrence.cpu.steps import Steps
from seqwise.kernels.recurrence.kinds import Direction, Kind

__all__ = ["Direction", "Kind", "Projection", "Steps", "fits", "obstacle", "pays", "scan"]


class Projection(NamedTuple):
    """W x + b, as a `Direction` may project its input. The scan then multiplies with W itself, which is faster."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def scan(
    kind: Kind, x: Tensor, directions: Sequence[Direction], steps: Steps, look: bool = False
) -> tuple[Tensor, list[tuple[Tensor, ...]], list[dict[str, Tensor]]]:
    """x (B, T, D) → outputs (B, T, U), directions side by side, zero in the padding.

    Then, per direction, the state after each row's last step, and if `look` is set every gate by its name, (B, T, …).
    """
    whole = not all(isinstance(one.project, Projection) for one in directions)
    grad = torch.is_grad_enabled()
    rows = steps.pack(x) if whole or grad else x
    tensors: list[Any] = []
    for one in directions:
        first: Any = (one.project(rows), None) if whole else one.project
        tensors += [*first, one.weight_hidden, *one.vectors, *one.state]
    given = None if whole else rows
    back = grad and any(one is not None and one.requires_grad for one in (given, *tensors))
    plan = Plan(kind, steps, tuple(one.turned for one in directions), directions[0].weight_hidden, whole, back)
    plan.look = look
    jobs: list[Job] = []
    if back:
        outputs, *after = Scan.apply(plan, jobs, given, *tensors)
    else:
        (outputs, *after), jobs = there(plan, given, tensors)
    count = plan.form.states
    states = [tuple(after[place : place + count]) for place in range(0, len(after), count)]
    return outputs, states, [seen(plan, job, outputs, place) for place, job in enumerate(jobs)] if look else []
