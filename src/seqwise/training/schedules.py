"""Learning rate over the budget: each schedule turns progress (0 to 1) into a factor of the peak rate.

Only `Plateau` has a memory; the others are pure functions, so a resumed run sees the same rates.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

FLOOR = 0.05  # cosine ends at a twentieth of the peak: the last steps still move, but settle


class Schedule(Protocol):
    def factor(self, progress: float) -> float: ...
    def validated(self, loss: float) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


class Constant:
    """The peak rate after the warm-up."""

    def __init__(self, warmup: float):
        self.warmup = warmup

    def factor(self, progress: float) -> float:
        return min(1.0, (progress + 1e-3) / self.warmup) if self.warmup else 1.0

    def validated(self, loss: float) -> None:
        """Only `Plateau` listens."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing is remembered."""


class Cosine(Constant):
    """Warm-up, then half a cosine down to `FLOOR` (Loshchilov & Hutter 2017)."""

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return super().factor(progress)
        along = (progress - self.warmup) / (1 - self.warmup)
        return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * along))


class OneCycle(Constant):
    """Up for 30 % of the budget from a 25th of the peak, then down to nothing (Smith & Topin 2018)."""

    rise, start, end = 0.3, 1 / 25, 1e-4

    def factor(self, progress: float) -> float:
        if progress < self.rise:
            return self._between(self.start, 1.0, progress / self.rise)
        return self._between(1.0, self.end, (progress - self.rise) / (1 - self.rise))

    @staticmethod
    def _between(a: float, b: float, along: float) -> float:
        return b + (a - b) * 0.5 * (1 + math.cos(math.pi * along))


class Plateau(Constant):
    """A quarter of the rate each time the validation loss has not improved (Zaremba et al. 2014 cut it likewise)."""

    def __init__(self, warmup: float):
        super().__init__(warmup)
        self.best, self.cuts = math.inf, 0

    def factor(self, progress: float) -> float:
        return super().factor(progress) * 0.25**self.cuts

    def validated(self, loss: float) -> None:
        if loss < self.best:
            self.best = loss
        else:
            self.cuts += 1

    def state(self) -> dict[str, Any]:
        return {"best": None if math.isinf(self.best) else self.best, "cuts": self.cuts}

    def restore(self, state: dict[str, Any]) -> None:
        self.best = math.inf if state["best"] is None else state["best"]
        self.cuts = state["cuts"]


def make_schedule(name: str, warmup: float) -> Schedule:
    kinds = {"constant": Constant, "cosine": Cosine, "one-cycle": OneCycle, "plateau": Plateau}
    return kinds[name](warmup)
