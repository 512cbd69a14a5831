"""Confidence intervals, and paired tests between families.

A result has two sources of noise: another seed would have given another model, and another test split other examples.
A difference between families is significant only if it is larger than both together explain. This module knows
nothing of what a metric means: a `MetricFunction` computes it from sums over examples, a `Scale` says on which scale
families have similar spreads. It reads no files. `benchmarks/false_alarms.py` compares this test with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from seqwise.compare.report.schema import IncludedNoise, NoiseSource, Pair
from seqwise.compare.statistics.scales import LINEAR, Scale
from seqwise.compare.statistics.student_t import (
    VarianceComponents,
    compute_t_quantile,
    compute_weighted_p,
    compute_weighted_quantile,
)

# Sums over examples (..., parts) → metric (...). The parts are the columns of `ExampleScores.sums`, such as the number
# of correct answers and of all answers.
MetricFunction = Callable[[np.ndarray], np.ndarray]

CONFIDENCE = 0.95
NUM_DRAWS = 2000  # the standard error of a bootstrapped standard deviation is then 1.6 % of it
PRIOR_DEGREES_OF_FREEDOM = 2.0  # the median variance of all families counts as much as three seeds of a family
# In the degrees of freedom of a pair, the variance of any other family counts as at most this many times the median.
MAX_VARIANCE_RATIO = 3.0
# Of p: because the degrees of freedom are estimated, there would be up to 1.4 times the nominal rate of false alarms,
# with two seeds up to 2.6 times (docs/decisions/0020).
P_VALUE_FACTOR, P_VALUE_FACTOR_OF_TWO_SEEDS = 1.5, 2.8
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
    standard_error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half_width = compute_t_quantile(CONFIDENCE, len(values) - 1) * standard_error
    return MeanInterval(mean, max(mean - half_width, bounds[0]), min(mean + half_width, bounds[1]))


def compute_bootstrap_interval(
    metric: MetricFunction, sums_by_seed: Sequence[np.ndarray], draws: int = NUM_DRAWS, seed: int = 0
) -> tuple[float, float] | None:
    """Returns the 95 % interval of the mean over seeds under resampling of the test examples (percentile bootstrap).

    None with fewer than two examples, or where the metric of most draws is undefined.
    """
    means = bootstrap_metric(metric, sums_by_seed, draws, seed).mean(axis=1)
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
    metric_step: float = 0.0,
    scale: Scale = LINEAR,
) -> list[Pair]:
    """Tests every pair of families. `families`: name → for each seed the sums (examples, parts) on the test split.

    Values are compared on `scale`. The variance of a difference of means over seeds has two components, which are
    estimated separately and added:

    - of the seeds, on these examples (`SeedNoise`);
    - of the examples: all models are scored on the same bootstrap draws of them. Models of different seeds covary only
      through the examples, so their covariances estimate that component, and nothing is counted twice:
      cov(a, a') + cov(b, b') − 2 cov(a, b), each averaged over different models.

    The difference over its standard error is compared with Student's t; the part of the variance that comes from few
    seeds has few degrees of freedom (`student_t.compute_weighted_p`). Resampling three seeds with replacement instead
    would estimate a third less variance than there is, and find differences where there are none.
    Families named in `deterministic` have one training run because every other would be the same.
    `metric_step` is what one example can change in the metric, where that is a share of correct answers. Three seeds
    may agree by chance, and would then have no noise at all: their variance is at least its value where one differs by
    a step.
    A family whose metric is infinite is not tested; the others are.
    """
    tables = [sums for seeds in families.values() for sums in seeds]
    with np.errstate(all="ignore"):
        bootstrap_values = scale(bootstrap_metric(metric, tables, draws, seed))
        values = np.asarray([float(metric(sums.sum(axis=0))) for sums in tables])
    models: dict[str, _FamilyModels] = {}
    for name, seeds in families.items():
        start = sum(len(each.values) for each in models.values())
        columns = slice(start, start + len(seeds))
        models[name] = _FamilyModels.create(values[columns], bootstrap_values[:, columns], metric_step, scale)
    noise = SeedNoise({name: (each.seed_variance, len(each.values)) for name, each in models.items()})
    trained_once = {name for name, seeds in families.items() if len(seeds) == 1} - set(deterministic)
    pairs = []
    for a, b in combinations(families, 2):
        included_noise: IncludedNoise = "examples" if {a, b} & trained_once else "seeds and examples"
        pairs.append(_compare_pair(a, b, models, noise, len(tables[0]), included_noise, scale))
    return adjust_pairs(pairs)


@dataclass(frozen=True, eq=False)
class _FamilyModels:
    """The trained models of a family: their metric (seeds,), and the following on the scale of the test."""

    values: np.ndarray
    scaled_values: np.ndarray
    bootstrap_values: np.ndarray  # (draws, seeds): of each bootstrap draw of the examples
    seed_variance: float  # over the seeds; 0 with a single one

    @classmethod
    def create(
        cls, values: np.ndarray, bootstrap_values: np.ndarray, metric_step: float, scale: Scale
    ) -> _FamilyModels:
        with np.errstate(all="ignore"):
            scaled_values = scale(values)
            variance = float(np.var(scaled_values, ddof=1)) if len(values) > 1 else 0.0
        if len(values) < 2:
            return cls(values, scaled_values, bootstrap_values, 0.0)
        start = min(float(values.mean()), 1 - metric_step) if metric_step else 0.0
        scaled_step = float(np.diff(scale(np.array([start, start + metric_step])))[0]) if metric_step else 0.0
        return cls(values, scaled_values, bootstrap_values, max(variance, scaled_step**2 / len(values)))


class SeedNoise:
    """The variance between seeds, in which every family informs about the others.

    Two or three seeds often agree by chance. So the variance of a family is raised towards the median variance of all
    families, which counts as `PRIOR_DEGREES_OF_FREEDOM` (as in limma, Smyth 2004). It is never lowered: a family that
    scatters more than others may do so by its nature. The median, unlike the mean, does not let such a family hide the
    differences of the others.
    The degrees of freedom of a difference are those of Satterthwaite (1946) for the weighted sum of all variances:
    many where all families scatter alike, those of one of the two where it scatters most.
    """

    def __init__(self, families: Mapping[str, tuple[float, int]]):
        """`families`: name → variance between seeds and number of seeds; a single seed says nothing."""
        self.families = {name: each for name, each in families.items() if each[1] > 1 and math.isfinite(each[0])}
        self.degrees_of_freedom = sum(count - 1 for _, count in self.families.values())
        variances = [variance for variance, _ in self.families.values()]
        self.median_variance = float(np.median(variances)) if variances else 0.0

    def estimate_variance(self, a: str, b: str) -> tuple[float, float]:
        """Returns the variance of the difference of the means of two families, and its degrees of freedom."""
        difference_variance = 0.0
        median_weight = 0.0  # of the median variance in that of the difference
        own_weights = {}  # of the variances of the two families in it
        for name in {a, b} & self.families.keys():
            variance, count = self.families[name]
            weight = (count - 1) / (PRIOR_DEGREES_OF_FREEDOM + count - 1)
            own_weights[name] = weight / count
            median_weight += (1 - weight) / count
            difference_variance += max(variance, (1 - weight) * self.median_variance + weight * variance) / count
        components = []
        for name, (variance, count) in self.families.items():
            is_own = name in own_weights
            limited = variance if is_own else min(variance, MAX_VARIANCE_RATIO * self.median_variance)
            weight = own_weights.get(name, 0.0) + median_weight * (count - 1) / self.degrees_of_freedom
            components.append((weight * limited, count - 1))
        squares = sum(component**2 / degrees for component, degrees in components)
        total = sum(component for component, _ in components)
        return difference_variance, total**2 / squares if squares else 1.0

    def get_p_value_factor(self, a: str, b: str) -> float:
        """Returns the factor of p with which p < 0.05 has at most 5 % false alarms, by the family with fewer seeds."""
        counts = [self.families[name][1] for name in {a, b} & self.families.keys()]
        return P_VALUE_FACTOR_OF_TWO_SEEDS if min(counts, default=3) == 2 else P_VALUE_FACTOR


def _compare_pair(
    a: str,
    b: str,
    models: Mapping[str, _FamilyModels],
    noise: SeedNoise,
    num_examples: int,
    included_noise: IncludedNoise,
    scale: Scale,
) -> Pair:
    difference = float(models[a].values.mean() - models[b].values.mean())
    scaled_difference = float(models[a].scaled_values.mean() - models[b].scaled_values.mean())
    example_variance = _estimate_example_variance(models[a].bootstrap_values, models[b].bootstrap_values, num_examples)
    if example_variance is None or not math.isfinite(scaled_difference):
        finite = difference if math.isfinite(difference) else None
        return Pair(a, b, finite, None, None, None, None, False, included_noise, "examples")
    components = [(example_variance, num_examples - 1.0), noise.estimate_variance(a, b)]
    p, half_width = compute_p_value(scaled_difference, components, noise.get_p_value_factor(a, b))
    # However little the answers vary, p is at least that of a sign test in which all examples agree.
    p = max(p, 2.0 ** (1 - num_examples)) if scaled_difference * difference > 0 else 1.0
    # The few degrees of freedom count too: with a single one the interval is six times as wide as with many.
    examples, seeds = (variance * compute_t_quantile(CONFIDENCE, degrees) ** 2 for variance, degrees in components)
    larger_noise: NoiseSource = "seeds" if included_noise == "examples" or seeds > examples else "examples"
    half_width *= _compute_metric_per_unit(models[a].values, models[b].values, difference, scaled_difference, scale)
    low, high = difference - half_width, difference + half_width
    return Pair(a, b, difference, low, high, p, None, False, included_noise, larger_noise)


def _compute_metric_per_unit(
    values_a: np.ndarray, values_b: np.ndarray, difference: float, scaled_difference: float, scale: Scale
) -> float:
    """Returns by how much the metric changes per unit of the scale between two families."""
    if difference * scaled_difference > 0:
        return difference / scaled_difference
    middle = float(values_a.mean() + values_b.mean()) / 2
    rise = float(np.diff(scale(np.array([0.999 * middle, middle])))[0])
    return 0.001 * middle / rise if rise else 0.0


def compute_p_value(
    difference: float, components: VarianceComponents, p_value_factor: float = P_VALUE_FACTOR
) -> tuple[float, float]:
    """Returns the p of a difference, and half of its 95 % interval."""
    standard_error = math.sqrt(sum(variance for variance, _ in components))
    if not standard_error:
        return float(difference == 0), 0.0
    p = min(1.0, p_value_factor * compute_weighted_p(difference / standard_error, components))
    return p, compute_weighted_quantile(1 - (1 - CONFIDENCE) / p_value_factor, components) * standard_error


def _estimate_example_variance(resampled_a: np.ndarray, resampled_b: np.ndarray, num_examples: int) -> float | None:
    """Returns the variance of the difference due to the examples; None where too few draws have a finite value."""
    resampled = np.concatenate([resampled_a, resampled_b], axis=1)
    finite = resampled[np.isfinite(resampled).all(axis=1)]
    if num_examples < 2 or len(finite) <= len(resampled) / 2:
        return None
    covariance = np.cov(finite, rowvar=False) * num_examples / (num_examples - 1)
    columns_a = np.arange(resampled_a.shape[1])
    columns_b = np.arange(resampled_a.shape[1], resampled.shape[1])
    between = covariance[np.ix_(columns_a, columns_b)].mean()
    shared = _average_covariance(covariance, columns_a) + _average_covariance(covariance, columns_b)
    return max(0.0, float(shared - 2 * between))


def _average_covariance(covariance: np.ndarray, models: np.ndarray) -> float:
    """Returns the mean covariance of different models of a family; of a single model, its variance."""
    block = covariance[np.ix_(models, models)]
    count = len(models)
    return float(block.sum() if count == 1 else (block.sum() - np.trace(block)) / (count * (count - 1)))


def adjust_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Adds p-values adjusted for multiple testing; with 95 % confidence all differences marked significant are real.

    As Holm (1979) does, the smallest p is multiplied by the number of pairs and the following ones by that of the
    pairs that may still be equal. Where some differ, that number is limited (Shaffer 1986): if two of five families
    differ, at most six of the other nine pairs can be equal.
    """
    tested = sorted((pair.p, index) for index, pair in enumerate(pairs) if pair.p is not None)
    num_families = len({name for _, index in tested for name in (pairs[index].a, pairs[index].b)})
    num_pairs = num_families * (num_families - 1) // 2
    result = list(pairs)
    adjusted = 0.0
    for rank, (p, index) in enumerate(tested):
        num_equal = max(count for count in list_equal_pair_counts(num_families) if count <= num_pairs - rank)
        adjusted = max(adjusted, min(1.0, p * min(num_equal, len(tested) - rank)))
        significant = adjusted < 1 - CONFIDENCE and pairs[index].covers != "examples"
        result[index] = replace(pairs[index], adjusted_p=adjusted, significant=significant)
    return result


@cache
def list_equal_pair_counts(num_families: int) -> frozenset[int]:
    """Returns how many pairs of families can be equal: 0, 1 or 3 of the pairs of three families, but never 2."""
    if num_families < 2:
        return frozenset({0})
    groups = range(1, num_families + 1)  # sizes of a group of equal families; the others are divided likewise
    return frozenset(
        size * (size - 1) // 2 + rest for size in groups for rest in list_equal_pair_counts(num_families - size)
    )


def bootstrap_metric(metric: MetricFunction, tables: Sequence[np.ndarray], draws: int, seed: int) -> np.ndarray:
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
