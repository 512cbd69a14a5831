"""The overfitting check: did the validation of a family get worse after its best point, by more than its noise?

It reads learning curves, and decides nothing about the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.compare.report.schema import Curve, CurvePoint

MIN_VALIDATIONS = 6  # fewer show no noise that a fall could be compared with
MIN_AFTER_BEST = 3  # validations after the best one: a fall of the last one or two is an accident
# In units of the noise. Of 2,000 flat curves of 20 validations with white noise 4 % fell by more after the best point.
MIN_FALL = 4.0
# From the median absolute second difference to the standard deviation of normal noise.
NOISE_FACTOR = 1.4826 / math.sqrt(6)


@dataclass(frozen=True)
class Overfitting:
    """How the mean validation curve of a family fell after its best point."""

    best_share: float  # of the training, at the best point
    fall: float  # from there to the end, on the scale of the metric, above 0
    training_improved: bool | None  # the training loss still fell after the best point; None: not recorded


def find_overfitting(
    curves: Sequence[Curve], lower_is_better: bool, scale: Callable[[float], float] = float
) -> Overfitting | None:
    """Returns the fall of the mean curve over the seeds; None if it is within the noise, or with too few validations.

    Seeds are aligned by the share of their training. The noise is estimated from second differences, which a steady
    rise or fall does not change, after the steep beginning. The end is the mean of the last three validations.
    """
    lines = _lines(curves, lambda point: point.value)
    count = min((len(line) for line in lines), default=0)
    if count < MIN_VALIDATIONS:
        return None
    shares = np.linspace(max(line[0, 0] for line in lines), 1.0, count)
    values = _mean_line(lines, shares, scale) * (-1 if lower_is_better else 1)
    best = int(values.argmax())
    noise = float(np.median(np.abs(np.diff(values[count // 3 :], 2)))) * NOISE_FACTOR
    fall = float(values[best] - values[-MIN_AFTER_BEST:].mean())
    if count - 1 - best < MIN_AFTER_BEST or fall <= MIN_FALL * noise:
        return None
    best_share = float(shares[best])
    return Overfitting(best_share, fall, _training_improved_after(curves, best_share))


def _lines(curves: Sequence[Curve], value: Callable[[CurvePoint], float | None]) -> list[np.ndarray]:
    """Returns for each curve with known values an array (validations, 2): share of the training, and value."""
    lines = []
    for curve in curves:
        values = [(point.tokens, value(point)) for point in curve.points if point.tokens]
        known = [(tokens, y) for tokens, y in values if y is not None and math.isfinite(y)]
        if known:
            line = np.array(sorted(known), dtype=np.float64)
            line[:, 0] /= line[-1, 0]
            lines.append(line)
    return lines


def _mean_line(lines: Sequence[np.ndarray], shares: np.ndarray, scale: Callable[[float], float] = float) -> np.ndarray:
    return np.mean([np.interp(shares, line[:, 0], [scale(value) for value in line[:, 1]]) for line in lines], axis=0)


def _training_improved_after(curves: Sequence[Curve], share: float) -> bool | None:
    """Returns whether the training loss was lower at the end than at that share of the training."""
    lines = _lines(curves, lambda point: point.training_loss)
    if not lines:
        return None
    before, end = _mean_line(lines, np.array([share, 1.0]))
    return bool(end < before)
