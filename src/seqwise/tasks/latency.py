"""Measures the time of a block of code, and of one prediction. The module knows no task or model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, Self

import torch

NUM_WARMUP_CALLS = 2  # first predictions, which are not measured: they allocate memory and choose kernels


class Stopwatch:
    """Measures the seconds that a `with` block takes."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._start = perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = perf_counter() - self._start


def measure_median_seconds(
    inputs: Sequence[Any], predict: Callable[[Any], object], num_predictions: int, device: torch.device | None = None
) -> float:
    """Returns the median time of `num_predictions` calls on evenly spaced inputs, which repeat if there are fewer."""
    count, seconds = max(1, num_predictions), []
    sample = [inputs[index * max(len(inputs), count) // count % len(inputs)] for index in range(count)]
    is_cuda = device is not None and device.type == "cuda"  # which computes asynchronously
    for item in (sample * NUM_WARMUP_CALLS)[:NUM_WARMUP_CALLS]:
        predict(item)
    for item in sample:
        if is_cuda:
            torch.cuda.synchronize(device)
        with Stopwatch() as watch:
            predict(item)
            if is_cuda:
                torch.cuda.synchronize(device)
        seconds.append(watch.seconds)
    return median(seconds)
