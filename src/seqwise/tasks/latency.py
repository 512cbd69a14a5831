"""Timing: how long a block of code takes, and how long one prediction takes. The module knows no task or model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Self

import torch

WARM_UP = 2  # first predictions, not measured: memory is allocated and kernels are chosen in them


class Stopwatch:
    """Measures the seconds that a `with` block takes."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = perf_counter() - self._start


def median_seconds(
    inputs: Sequence[Any], answer: Callable[[Any], object], answers: int, device: torch.device | None = None
) -> float:
    """Returns the median time of `answers` calls on evenly spaced inputs; inputs repeat where there are fewer."""
    count, seconds = max(1, answers), []
    sample = [inputs[number * max(len(inputs), count) // count % len(inputs)] for number in range(count)]
    is_cuda = device is not None and device.type == "cuda"  # which computes asynchronously
    for each in (sample * WARM_UP)[:WARM_UP]:
        answer(each)
    for each in sample:
        if is_cuda:
            torch.cuda.synchronize(device)
        with Stopwatch() as watch:
            answer(each)
            if is_cuda:
                torch.cuda.synchronize(device)
        seconds.append(watch.seconds)
    return median(seconds)
