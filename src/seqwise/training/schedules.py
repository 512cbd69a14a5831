"""Learning-rate schedules: each maps progress, the fraction of the budget from 0 to 1, to a factor of the peak rate.

Only `Plateau` has a state; the others are pure functions, so a resumed run has the same rates.
"""

from __future__ import annotations

import math
from typing import Any

FLOOR = 0.05  # cosine ends at a twentieth of the peak, so that the last steps still change the weights


class Constant:
    """The peak rate after a linear warm-up. It is the base class of the other schedules."""

    def __init__(self, warmup: float):
        self.warmup = warmup

    def factor(self, progress: float) -> float:
        """Return the learning rate as a fraction of the peak."""
        return min(1.0, (progress + 1e-3) / self.warmup) if self.warmup else 1.0

    def record_validation(self, loss: float) -> None:
        """Adapt to a validation loss."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


class Cosine(Constant):
    """Warm-up, then half a cosine down to `FLOOR` (Loshchilov & Hutter 2017)."""

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return super().factor(progress)
        return interpolate_cosine(1.0, FLOOR, (progress - self.warmup) / (1 - self.warmup))


class OneCycle(Constant):
    """Up for 30 % of the budget from a 25th of the peak, then down to almost zero (Smith & Topin 2018)."""

    rise, start, end = 0.3, 1 / 25, 1e-4

    def factor(self, progress: float) -> float:
        if progress < self.rise:
            return interpolate_cosine(self.start, 1.0, progress / self.rise)
        return interpolate_cosine(1.0, self.end, (progress - self.rise) / (1 - self.rise))


class Plateau(Constant):
    """A quarter of the rate after each validation without improvement (as in Zaremba et al. 2014)."""

    def __init__(self, warmup: float):
        super().__init__(warmup)
        self.best, self.cuts = math.inf, 0

    def factor(self, progress: float) -> float:
        return super().factor(progress) * 0.25**self.cuts

    def record_validation(self, loss: float) -> None:
        if loss < self.best:
            self.best = loss
        else:
            self.cuts += 1

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if math.isinf(self.best) else self.best, "cuts": self.cuts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = math.inf if state["best"] is None else state["best"]
        self.cuts = state["cuts"]


SCHEDULES = {"constant": Constant, "cosine": Cosine, "one-cycle": OneCycle, "plateau": Plateau}


def interpolate_cosine(start: float, end: float, fraction: float) -> float:
    """Go from `start` to `end` along half a cosine."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * fraction))
