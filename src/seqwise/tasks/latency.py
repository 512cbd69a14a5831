"""How long one answer takes, asked for one at a time. It knows nothing of any task or model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch

WARM_UP = 2  # answers that are not measured: memory is taken and kernels are chosen in them


def median_seconds(
    inputs: Sequence[Any], answer: Callable[[Any], object], answers: int, device: torch.device | None = None
) -> float:
    """Median over so many of the inputs, at even distances; where there are fewer they come again."""
    count = max(1, answers)
    chosen = [inputs[number * max(len(inputs), count) // count % len(inputs)] for number in range(count)]
    for given in (chosen * WARM_UP)[:WARM_UP]:
        answer(given)
    return median(_seconds(answer, given, device) for given in chosen)


def _seconds(answer: Callable[[Any], object], given: Any, device: torch.device | None) -> float:
    _finish(device)
    began = perf_counter()
    answer(given)
    _finish(device)
    return perf_counter() - began


def _finish(device: torch.device | None) -> None:
    """A GPU works on while the program goes ahead; the clock must wait for it."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
