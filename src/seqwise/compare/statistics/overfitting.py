"""Whether a training went on too long: its validation got worse after its best point, by more than its noise.

It reads curves as the report has them, and decides nothing about who is best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FEWEST = 6  # validations: fewer show no noise that a fall could be measured by
AFTER = 3  # validations behind the best one: a fall of the last one or two is an accident
# Times the noise. Of 2,000 flat curves of 20 validations with white noise 4 % fell by more after their best point.
CERTAIN = 4.0
SIGMA = 1.4826 / math.sqrt(6)  # from the median size of second differences to the deviation of normal noise


@dataclass(frozen=True)
class Decline:
    """What went wrong after the best point of a family's mean curve."""

    share: float  # of the training, at the best point
    fall: float  # from there to the end, on the scale of the metric, above 0
    overfits: bool | None  # the training loss went on falling meanwhile; None where nobody wrote it down


def decline(
    curves: Sequence[Mapping[str, Any]], lower_is_better: bool, scale: Callable[[float], float] = float
) -> Decline | None:
    """The fall of the mean over the seeds; None if it is within the noise, or if too few validations tell.

    Seeds are put side by side by the share of their training. The noise is told by second differences, which a steady
    rise or fall does not touch, behind the steep beginning. The end is the mean of the last three validations.
    """
    lines = [line for line in (_line(curve, "value") for curve in curves) if line is not None]
    count = min((len(line) for line in lines), default=0)
    if count < FEWEST:
        return None
    shares = np.linspace(max(line[0, 0] for line in lines), 1.0, count)
    values = _mean(lines, shares, scale) * (-1 if lower_is_better else 1)
    best = int(values.argmax())
    noise = float(np.median(np.abs(np.diff(values[count // 3 :], 2)))) * SIGMA
    fall = float(values[best] - values[-AFTER:].mean())
    if count - 1 - best < AFTER or fall <= CERTAIN * noise:
        return None
    return Decline(float(shares[best]), fall, _overfits(curves, float(shares[best])))


def _line(curve: Mapping[str, Any], key: str) -> np.ndarray | None:
    """(validations, 2): share of the training and value; None where nothing is known."""
    known = [(each["tokens"], each[key]) for each in curve["points"] if each["tokens"] and _finite(each.get(key))]
    if not known:
        return None
    line = np.array(sorted(known), dtype=np.float64)
    line[:, 0] /= line[-1, 0]
    return line


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _mean(lines: Sequence[np.ndarray], shares: np.ndarray, scale: Callable[[float], float] = float) -> np.ndarray:
    return np.mean([np.interp(shares, line[:, 0], [scale(value) for value in line[:, 1]]) for line in lines], axis=0)


def _overfits(curves: Sequence[Mapping[str, Any]], share: float) -> bool | None:
    """Whether the training loss was lower at the end than at that share of the training."""
    lines = [line for line in (_line(curve, "trained") for curve in curves) if line is not None]
    if not lines:
        return None
    before, end = _mean(lines, np.array([share, 1.0]))
    return bool(end < before)
