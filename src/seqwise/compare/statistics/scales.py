"""The scale on which families are compared: the logarithm of a perplexity or an error, the log-odds of a rate.

Seeds of a family with twice the error scatter twice as much: on these scales good and bad families have similar
spreads, which the test in `significance.py` needs to learn from all of them. `classify_gap` calls a difference close or
far on the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from seqwise.compare.report.formatting import convert_to_progress_scale, get_bounds, is_noticeable
from seqwise.metrics.evaluation import LOWER_IS_BETTER

GapSize = Literal["close", "moderate", "far"]
ScaleKind = Literal["log", "log-odds", "linear"]

# Ratio of perplexities, of errors or of odds: below the first the families are close, from the second on one is far
# behind. A family with 20 % more perplexity is far behind; so is one with 85 % correct answers behind one with 90 %.
GAP_LIMITS: dict[ScaleKind, tuple[float, float]] = {"log": (1.03, 1.2), "log-odds": (1.1, 1.5)}
MAX_RATE = 0.999  # above it odds say more about single examples than about families


Scale = Callable[[np.ndarray], np.ndarray]  # an increasing function of a metric
LINEAR: Scale = np.asarray


def get_scale_kind(metric: str) -> ScaleKind:
    """Returns which kind of scale a metric has.

    BLEU has log-odds as well: far below 100 these are its logarithm, in which it is a mean of log precisions, and close
    to 100 they are the logarithm of what is missing.
    """
    if math.isfinite(get_bounds(metric)[1]):
        return "log-odds"
    return "log" if metric in LOWER_IS_BETTER else "linear"


def get_scale(metric: str, num_examples: int) -> Scale:
    """Returns the scale of a metric on a test split.

    Log-odds are infinite at 0 and 1. Half an example is added to the right and to the wrong answers (Haldane 1956), so
    that a family without a mistake is one example ahead of one with a single mistake, and not infinitely far.
    """
    kind = get_scale_kind(metric)
    if kind == "linear":
        return LINEAR
    if kind == "log":
        return np.log
    half, maximum = 0.5 / max(1, num_examples), get_bounds(metric)[1]
    return lambda value: np.log((value / maximum + half) / (1 - value / maximum + half))


def get_optimum(metric: str) -> float:
    """Returns the best possible value of a metric: 1 for an accuracy, 0 for an error, 1 for a perplexity."""
    return get_bounds(metric)[0 if metric in LOWER_IS_BETTER else 1]


def is_optimal(metric: str, value: float | None) -> bool:
    """Returns whether a value is the best possible one, apart from rounding."""
    return value is not None and math.isclose(value, get_optimum(metric), rel_tol=1e-9, abs_tol=1e-12)


def classify_gap(metric: str, value: float, best: float) -> GapSize:
    """Returns whether a family with this value is close to the best, behind it, or far behind it."""
    gap = abs(convert_to_progress_scale(metric, value) - convert_to_progress_scale(metric, best))
    kind = get_scale_kind(metric)
    if not is_noticeable(metric, gap, best):
        return "close"
    if kind == "linear":
        return "moderate"
    if kind == "log-odds":
        maximum = get_bounds(metric)[1]
        shares = [min(max(each / maximum, 1 - MAX_RATE), MAX_RATE) for each in (value, best)]
        ratio = math.exp(abs(math.log(shares[0] / (1 - shares[0])) - math.log(shares[1] / (1 - shares[1]))))
    else:
        ratio = max(value, best) / max(min(value, best), 1e-300)
    close, far = GAP_LIMITS[kind]
    return "close" if ratio < close else "far" if ratio >= far else "moderate"
