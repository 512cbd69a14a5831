"""What the learning curves of a family show: how much it still gained, and whether it overfits.

It decides nothing about the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.compare.report.schema import Curve, CurvePoint

MIN_VALIDATIONS = 6  # with fewer, the noise cannot be estimated
MIN_AFTER_BEST = 3  # validations after the best one: one or two worse ones at the end may be chance
# In units of the noise. Of 2,000 flat curves of 20 validations with white noise 4 % got worse by more after the best.
MIN_DEGRADATION = 4.0
# From the median absolute second difference to the standard deviation of normal noise.
NOISE_FACTOR = 1.4826 / math.sqrt(6)

# Converts a metric to a scale on which equal differences are equal progress, such as the logarithm of a perplexity.
ProgressScale = Callable[[float], float]


def compute_last_doubling_gain(
    curves: Sequence[Curve], lower_is_better: bool, scale: ProgressScale = float
) -> float | None:
    """Returns how much the validation metric gained over the second half of training, mean over seeds.

    The second half is the last doubling of the training. The gain is measured on `scale`: a perplexity that falls from
    800 to 400 and then to 300 has not gained 100 but a quarter, and will not gain 100 again. The best value so far
    counts, since those weights are kept; between two validations it is interpolated over the logarithm of the tokens.
    Positive is better. The last few validations alone would show nothing: the learning rate has decayed to almost zero,
    so every curve ends flat. Over the second half the gain of that decay is mixed with the gain of training longer, so
    this is a rough estimate of the gain of one more doubling.
    Curves with fewer than three validations are left out, and those without one in the first half or without one in the
    second half before the last.
    """
    gains = []
    for tokens, values in _read_curves(curves, lambda point: point.value, scale):
        half_tokens = tokens[-1] / 2
        if len(tokens) >= 3 and tokens[0] <= half_tokens <= tokens[-2]:
            best_so_far = np.maximum.accumulate(-values if lower_is_better else values)
            gains.append(best_so_far[-1] - np.interp(math.log2(half_tokens), np.log2(tokens), best_so_far))
    return float(np.mean(gains)) if gains else None


@dataclass(frozen=True)
class Overfitting:
    """How much worse the mean validation curve of a family got after its best point."""

    best_share: float  # fraction of the training at the best point
    degradation: float  # from there to the end, on the progress scale; above 0, whether or not lower is better
    training_improved: bool | None  # the training loss still decreased after the best point; None: not recorded


def find_overfitting(
    curves: Sequence[Curve], lower_is_better: bool, scale: ProgressScale = float
) -> Overfitting | None:
    """Returns how the mean curve over the seeds got worse; None within the noise, or with too few validations.

    Seeds are aligned by the share of their training. The noise is estimated from second differences, which a linear
    trend does not change, after the steep beginning. The end is the mean of the last three validations.
    """
    seeds = _read_curves(curves, lambda point: point.value, scale)
    num_validations = min((len(tokens) for tokens, _ in seeds), default=0)
    if num_validations < MIN_VALIDATIONS:
        return None
    shares = np.linspace(max(tokens[0] / tokens[-1] for tokens, _ in seeds), 1.0, num_validations)
    values = _average_curves(seeds, shares) * (-1 if lower_is_better else 1)
    best = int(values.argmax())
    noise = float(np.median(np.abs(np.diff(values[num_validations // 3 :], 2)))) * NOISE_FACTOR
    degradation = float(values[best] - values[-MIN_AFTER_BEST:].mean())
    if num_validations - 1 - best < MIN_AFTER_BEST or degradation <= MIN_DEGRADATION * noise:
        return None
    best_share = float(shares[best])
    training_improved = None
    if losses := _read_curves(curves, lambda point: point.training_loss):
        loss_at_best, final_loss = _average_curves(losses, np.array([best_share, 1.0]))
        training_improved = bool(final_loss < loss_at_best)
    return Overfitting(best_share, degradation, training_improved)


def _read_curves(
    curves: Sequence[Curve], get_value: Callable[[CurvePoint], float | None], scale: ProgressScale = float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns tokens and scaled values (validations,) of each curve with finite values, in the order of the tokens."""
    arrays = []
    for curve in curves:
        points = [(point.tokens, get_value(point)) for point in curve.points if point.tokens]
        finite = sorted((tokens, value) for tokens, value in points if value is not None and math.isfinite(value))
        if finite:
            values = [scale(value) for _, value in finite]
            arrays.append((np.array([tokens for tokens, _ in finite], dtype=np.float64), np.array(values)))
    return arrays


def _average_curves(curves: Sequence[tuple[np.ndarray, np.ndarray]], shares: np.ndarray) -> np.ndarray:
    """Returns the mean over the curves at these shares of their training."""
    return np.mean([np.interp(shares, tokens / tokens[-1], values) for tokens, values in curves], axis=0)
