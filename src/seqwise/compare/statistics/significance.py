"""Confidence intervals, and paired tests between families.

A result has two sources of noise: another seed would have given another model, and another test split other examples.
A difference between families is significant only if it is larger than both together explain. This module knows
nothing of what a metric means: a `MetricFunction` computes it from sums over examples. It reads no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from seqwise.compare.report.schema import CoveredNoise, Pair
from seqwise.compare.statistics.student_t import mixture_p, mixture_quantile, t_quantile

MetricFunction = Callable[[np.ndarray], np.ndarray]  # sums (..., parts) → metric (...)

CONFIDENCE = 0.95
NUM_DRAWS = 2000  # the standard error of a bootstrapped standard deviation is then 1.6 % of it
_CHUNK_SIZE = 4_000_000  # bootstrap weights in memory at once: 32 MB


@dataclass(frozen=True)
class MeanInterval:
    """A mean and its 95 % interval; no interval for a single value."""

    mean: float
    low: float | None
    high: float | None


def compute_mean_interval(values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> MeanInterval:
    """Returns the mean over seeds and its t-interval, clipped to the bounds of the metric."""
    mean = float(np.mean(values))
    if len(values) < 2 or not math.isfinite(mean):
        return MeanInterval(mean, None, None)
    half_width = t_quantile(CONFIDENCE, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return MeanInterval(mean, max(mean - half_width, bounds[0]), min(mean + half_width, bounds[1]))


def bootstrap_interval(
    metric: MetricFunction, sums_by_seed: Sequence[np.ndarray], draws: int = NUM_DRAWS, seed: int = 0
) -> tuple[float, float] | None:
    """Returns the 95 % interval of the mean over seeds under resampling of the test examples (percentile bootstrap).

    None with fewer than two examples, or where the metric of most draws is undefined.
    """
    means = _bootstrap(metric, sums_by_seed, draws, seed).mean(axis=1)
    means = means[np.isfinite(means)]
    if len(sums_by_seed[0]) < 2 or len(means) < draws / 2:
        return None
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def compare_pairs(
    metric: MetricFunction,
    families: Mapping[str, Sequence[np.ndarray]],
    draws: int = NUM_DRAWS,
    seed: int = 0,
    deterministic: Collection[str] = (),
    step: float = 0.0,
) -> list[Pair]:
    """Tests every pair of families. `families`: name → for each seed the sums (examples, parts) on the test split.

    The variance of a difference of means over seeds has two parts, which are estimated separately and added:

    - of the seeds, on these examples: s²/n of each family (n seeds with the standard deviation s);
    - of the examples: all models are scored on the same bootstrap draws of them. Models of different seeds covary only
      through the examples, so their covariances estimate that part, and nothing is counted twice:
      cov(a, a') + cov(b, b') − 2 cov(a, b), each averaged over different models.

    The difference over its standard error is compared with Student's t, with few degrees of freedom as far as it
    comes from few seeds (`student_t.mixture_p`). Resampling three seeds with replacement instead would estimate a third
    less variance than there is, and find differences where there are none.
    Families named in `deterministic` have one training run because every other would be the same.
    `step` is what one example can change in the metric, where that is a share of correct answers. Three seeds may agree
    by chance, and would then have no noise at all: s² is at least its value where one of them differs by a step.
    A family whose metric is infinite is not tested; the others are.
    """
    tables = [sums for seeds in families.values() for sums in seeds]
    resampled = _bootstrap(metric, tables, draws, seed)
    with np.errstate(all="ignore"):
        scores = np.asarray([float(metric(sums.sum(axis=0))) for sums in tables])
    columns: dict[str, np.ndarray] = {}
    for name, seeds in families.items():
        start = sum(map(len, columns.values()))
        columns[name] = np.arange(start, start + len(seeds))
    trained_once = {name for name, seeds in families.items() if len(seeds) == 1} - set(deterministic)
    pairs = []
    for a, b in combinations(families, 2):
        covers: CoveredNoise = "examples" if {a, b} & trained_once else "seeds and examples"
        models_a, models_b = (_Models(scores[columns[name]], resampled[:, columns[name]], step) for name in (a, b))
        pairs.append(_compare_pair(a, b, models_a, models_b, len(tables[0]), covers))
    return _adjust_pairs(pairs)


@dataclass(frozen=True, eq=False)
class _Models:
    """The trained models of a family: their values (seeds,), and those on every bootstrap draw (draws, seeds)."""

    values: np.ndarray
    resampled: np.ndarray
    step: float

    def seed_variance(self) -> tuple[float, float]:
        """Returns the variance of the mean due to the seeds, and its degrees of freedom; 0 with a single seed."""
        count = len(self.values)
        if count < 2:
            return 0.0, 1.0
        return max(float(np.var(self.values, ddof=1)), self.step**2 / count) / count, count - 1.0


def _compare_pair(
    a: str, b: str, models_a: _Models, models_b: _Models, num_examples: int, covers: CoveredNoise
) -> Pair:
    difference = float(models_a.values.mean() - models_b.values.mean())
    example_variance = _example_variance(models_a.resampled, models_b.resampled, num_examples)
    if example_variance is None or not math.isfinite(difference):
        finite = difference if math.isfinite(difference) else None
        return Pair(a, b, finite, None, None, None, None, False, covers, "examples")
    parts = [(example_variance, num_examples - 1.0), models_a.seed_variance(), models_b.seed_variance()]
    standard_error = math.sqrt(sum(variance for variance, _ in parts))
    half_width = mixture_quantile(CONFIDENCE, parts) * standard_error if standard_error else 0.0
    p = mixture_p(difference / standard_error, parts) if standard_error else float(difference == 0)
    # However little the answers vary, p is at least that of a sign test in which all examples agree.
    p = max(p, 2.0 ** (1 - num_examples))
    # The few degrees of freedom count too: with two seeds the interval is six times as wide as their noise.
    widths = [variance * t_quantile(CONFIDENCE, freedom) ** 2 for variance, freedom in parts]
    seeds_dominate = covers == "examples" or sum(widths[1:]) > widths[0]
    low, high = difference - half_width, difference + half_width
    return Pair(a, b, difference, low, high, p, None, False, covers, "seeds" if seeds_dominate else "examples")


def _example_variance(resampled_a: np.ndarray, resampled_b: np.ndarray, num_examples: int) -> float | None:
    """Returns the variance of the difference due to the examples; None where too few draws have a finite value."""
    resampled = np.concatenate([resampled_a, resampled_b], axis=1)
    finite = resampled[np.isfinite(resampled).all(axis=1)]
    if num_examples < 2 or len(finite) <= len(resampled) / 2:
        return None
    covariance = np.cov(finite, rowvar=False) * num_examples / (num_examples - 1)
    columns_a = np.arange(resampled_a.shape[1])
    columns_b = np.arange(resampled_a.shape[1], resampled.shape[1])
    between = covariance[np.ix_(columns_a, columns_b)].mean()
    shared = _mean_covariance(covariance, columns_a) + _mean_covariance(covariance, columns_b)
    return max(0.0, float(shared - 2 * between))


def _mean_covariance(covariance: np.ndarray, models: np.ndarray) -> float:
    """Returns the mean covariance of different models of a family; of a single model, its variance."""
    block = covariance[np.ix_(models, models)]
    count = len(models)
    return float(block.sum() if count == 1 else (block.sum() - np.trace(block)) / (count * (count - 1)))


def _adjust_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Adds adjusted p-values; with 95 % confidence all differences that it marks as significant are real."""
    adjusted = adjust_holm([pair.p for pair in pairs])
    return [
        replace(pair, adjusted_p=p, significant=p is not None and p < 1 - CONFIDENCE and pair.covers != "examples")
        for pair, p in zip(pairs, adjusted)
    ]


def adjust_holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Returns the p-values adjusted for multiple testing (Holm 1979); None stays None and is not counted."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    result: list[float | None] = [None] * len(p_values)
    adjusted = 0.0
    for rank, (p, index) in enumerate(order):
        adjusted = max(adjusted, min(1.0, p * (len(order) - rank)))
        result[index] = adjusted
    return result


def _bootstrap(metric: MetricFunction, tables: Sequence[np.ndarray], draws: int, seed: int) -> np.ndarray:
    """Returns the metric of each table (examples, parts) on the same draws of examples: (draws, tables)."""
    if not tables:
        return np.empty((draws, 0))
    shapes = {table.shape for table in tables}
    if len(shapes) > 1:
        raise ValueError(f"the families were not tested on the same examples: their sums have the shapes {shapes}.")
    num_examples, parts = tables[0].shape
    stacked = np.concatenate(tables, axis=1)
    generator = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_SIZE // max(1, num_examples))
    results = []
    for start in range(0, draws, chunk):
        count = min(chunk, draws - start)
        indices = (
            generator.integers(num_examples, size=(count, num_examples)) + num_examples * np.arange(count)[:, None]
        )
        weights = np.bincount(indices.ravel(), minlength=count * num_examples).reshape(count, num_examples)
        with np.errstate(all="ignore"):  # draws where the metric is undefined are left out by the caller
            results.append(metric((weights.astype(np.float64) @ stacked).reshape(count, len(tables), parts)))
    return np.concatenate(results)
