"""What the numbers of a comparison can bear: intervals, tests between families, and whether the curves have flattened.

Two kinds of chance are at work. Another seed would have given another model, and another test split other examples.
A difference between families counts only if it is larger than both together explain. This module knows nothing of
what a metric means: `value` turns sums over examples into it. It knows nothing of files, and writes no sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from seqwise.compare.statistics.student_t import mixed, mixed_quantile, quantile

Covers = Literal["seeds and examples", "examples"]
Value = Callable[[np.ndarray], np.ndarray]  # sums (..., parts) → metric (...)

CONFIDENCE = 0.95
DRAWS = 2000  # the standard error of a bootstrapped spread is then 1.6 % of it
_CHUNK = 4_000_000  # weights held at once: 32 MB


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; no interval where the values cannot tell."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Pair:
    """How two families differ: value(a) − value(b), its 95 % interval, and how easily chance does the same.

    `p` is of this pair alone; `adjusted` (Holm) minds that among many pairs some look different by chance.
    `covers` says what the interval includes: where a family was trained only once, chance in training is missing, and
    such a difference is never called significant.
    `larger` is the larger of the two sources of noise, or the one that is missing: more of these would tell the
    families apart best.
    """

    a: str
    b: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted: float | None
    significant: bool
    covers: Covers
    larger: Literal["seeds", "examples"]


def interval(values: Sequence[float], within: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """The mean over seeds and its t-interval, cut to what the metric can be."""
    mean = float(np.mean(values))
    if len(values) < 2 or not math.isfinite(mean):
        return Interval(mean, None, None)
    reach = quantile(CONFIDENCE, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, max(mean - reach, within[0]), min(mean + reach, within[1]))


def sampling_interval(
    value: Value, sums_of_seeds: Sequence[np.ndarray], draws: int = DRAWS, seed: int = 0
) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds, were other test examples drawn from where these come from.

    The middle 95 % of bootstrap draws. None with fewer than two examples, or where the metric is mostly undefined.
    """
    drawn = _bootstrap(value, sums_of_seeds, draws, seed).mean(axis=1)
    drawn = drawn[np.isfinite(drawn)]
    if len(sums_of_seeds[0]) < 2 or len(drawn) < draws / 2:
        return None
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def paired(
    value: Value,
    families: Mapping[str, Sequence[np.ndarray]],
    draws: int = DRAWS,
    seed: int = 0,
    deterministic: Collection[str] = (),
    step: float = 0.0,
) -> list[Pair]:
    """Every pair of families, tested. `families`: name → for each seed the sums (examples, parts) on the test split.

    The variance of a difference of means over seeds has two parts, which are estimated apart and added:

    - of the seeds, on these examples: s²/n of each family (n seeds with the standard deviation s);
    - of the examples: all models are scored on the same bootstrap draws of them. Models of different seeds vary
      together only through what the examples do to all, so their covariances tell that part, and nothing is
      counted twice: cov(a, a') + cov(b, b') − 2 cov(a, b), each averaged over different models.

    The difference over its standard error is compared with Student's t, with few degrees of freedom as far as it
    comes from few seeds (`student.mixed`). Drawing three seeds with replacement instead would find a third less
    variance than there is, and differences where none are.
    Families named in `deterministic` have one training because every other would be the same.
    `step` is what one example can change in the metric, where that is a share of right answers. Three seeds may agree
    by chance, and would then have no noise at all: s² is at least what it is where one of them differs by a step.
    A family whose metric is infinite is not tested; the others are.
    """
    tables = [sums for seeds in families.values() for sums in seeds]
    drawn = _bootstrap(value, tables, draws, seed)
    with np.errstate(all="ignore"):
        scores = np.asarray([float(value(sums.sum(axis=0))) for sums in tables])
    places: dict[str, np.ndarray] = {}
    for name, seeds in families.items():
        start = sum(map(len, places.values()))
        places[name] = np.arange(start, start + len(seeds))
    once = {name for name, seeds in families.items() if len(seeds) == 1} - set(deterministic)
    pairs = []
    for a, b in combinations(families, 2):
        covers: Covers = "examples" if {a, b} & once else "seeds and examples"
        of_a, of_b = (_Models(scores[places[name]], drawn[:, places[name]], step) for name in (a, b))
        pairs.append(_test(a, b, of_a, of_b, len(tables[0]), covers))
    return _holm(pairs)


@dataclass(frozen=True, eq=False)
class _Models:
    """The trainings of a family: their values (seeds,), and those on every draw of examples (draws, seeds)."""

    values: np.ndarray
    drawn: np.ndarray
    step: float

    def of_seeds(self) -> tuple[float, float]:
        """The variance that the seeds give to the mean, and its degrees of freedom; none with a single seed."""
        count = len(self.values)
        if count < 2:
            return 0.0, 1.0
        return max(float(np.var(self.values, ddof=1)), self.step**2 / count) / count, count - 1.0


def _test(a: str, b: str, of_a: _Models, of_b: _Models, examples: int, covers: Covers) -> Pair:
    difference = float(of_a.values.mean() - of_b.values.mean())
    of_examples = _of_examples(of_a.drawn, of_b.drawn, examples)
    if of_examples is None or not math.isfinite(difference):
        known = difference if math.isfinite(difference) else None
        return Pair(a, b, known, None, None, None, None, False, covers, "examples")
    parts = [(of_examples, examples - 1.0), of_a.of_seeds(), of_b.of_seeds()]
    error = math.sqrt(sum(variance for variance, _ in parts))
    reach = mixed_quantile(CONFIDENCE, parts) * error if error else 0.0
    p = mixed(difference / error, parts) if error else float(difference == 0)
    # However equal the answers are to each other, E examples cannot say more than E tosses of a coin.
    p = max(p, 2.0 ** (1 - examples))
    # What few seeds leave open counts too: with two of them the interval is six times as wide as their noise.
    widths = [variance * quantile(CONFIDENCE, freedom) ** 2 for variance, freedom in parts]
    seeds = covers == "examples" or sum(widths[1:]) > widths[0]
    low, high = difference - reach, difference + reach
    return Pair(a, b, difference, low, high, p, None, False, covers, "seeds" if seeds else "examples")


def _of_examples(of_a: np.ndarray, of_b: np.ndarray, examples: int) -> float | None:
    """The variance that the examples give to the difference; None where too few draws have a value."""
    drawn = np.concatenate([of_a, of_b], axis=1)
    finite = drawn[np.isfinite(drawn).all(axis=1)]
    if examples < 2 or len(finite) <= len(drawn) / 2:
        return None
    covariance = np.cov(finite, rowvar=False) * examples / (examples - 1)
    first, second = np.arange(of_a.shape[1]), np.arange(of_a.shape[1], drawn.shape[1])
    between = covariance[np.ix_(first, second)].mean()
    return max(0.0, float(_shared(covariance, first) + _shared(covariance, second) - 2 * between))


def _shared(covariance: np.ndarray, models: np.ndarray) -> float:
    """The variance that the examples give to all models of a family alike; of a single model, all there is."""
    block = covariance[np.ix_(models, models)]
    count = len(models)
    return float(block.sum() if count == 1 else (block.sum() - np.trace(block)) / (count * (count - 1)))


def _holm(pairs: Sequence[Pair]) -> list[Pair]:
    """Adjusted so that all differences called significant are real with 95 % confidence (Holm 1979)."""
    adjusted = holm([pair.p for pair in pairs])
    return [
        replace(pair, adjusted=p, significant=p is not None and p < 1 - CONFIDENCE and pair.covers != "examples")
        for pair, p in zip(pairs, adjusted)
    ]


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """Each p adjusted for how many there are, from the smallest upwards; those that do not exist do not count."""
    order = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    found: list[float | None] = [None] * len(chances)
    adjusted = 0.0
    for rank, (p, place) in enumerate(order):
        adjusted = max(adjusted, min(1.0, p * (len(order) - rank)))
        found[place] = adjusted
    return found


def _bootstrap(value: Value, tables: Sequence[np.ndarray], draws: int, seed: int) -> np.ndarray:
    """The metric of each table (examples, parts) on each draw of examples, the same for all: (draws, tables)."""
    if not tables:
        return np.empty((draws, 0))
    shapes = {table.shape for table in tables}
    if len(shapes) > 1:
        raise ValueError(f"the families were not tested on the same examples: their sums have the shapes {shapes}.")
    examples, parts = tables[0].shape
    joined = np.concatenate(tables, axis=1)
    generator = np.random.default_rng(seed)
    rows = max(1, _CHUNK // max(1, examples))
    found = []
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        chosen = generator.integers(examples, size=(count, examples)) + examples * np.arange(count)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=count * examples).reshape(count, examples)
        with np.errstate(all="ignore"):  # draws where the metric is undefined are left out by the caller
            found.append(value((weights.astype(np.float64) @ joined).reshape(count, len(tables), parts)))
    return np.concatenate(found)


def still_improving(
    curves: Sequence[Mapping[str, Any]], lower_is_better: bool, scale: Callable[[float], float] = float
) -> float | None:
    """How much the validation metric gained over the second half of training: over its last doubling. Mean over seeds.

    It is measured on `scale`, which is to make equal steps of equal progress: a perplexity that falls from 800 to 400
    and then to 300 has not gained 100 but a quarter, and will not gain 100 again.
    The best value so far counts, since those weights are kept; between two validations it is interpolated over the
    logarithm of the tokens. Positive is better, whichever way the metric goes. The last few validations alone would
    tell nothing: the learning rate has gone to almost zero, so every curve ends flat. Over half a budget that gain is
    mixed with what training longer gives; as a guess at one more doubling it is rough.
    A curve tells nothing with fewer than three validations, without one in the first half, and without one in the
    second half before the last.
    """
    found = (_last_doubling(curve["points"], lower_is_better, scale) for curve in curves)
    gains = [gain for gain in found if gain is not None]
    return float(np.mean(gains)) if gains else None


def _last_doubling(
    points: Sequence[Mapping[str, Any]], lower_is_better: bool, scale: Callable[[float], float]
) -> float | None:
    known = sorted(
        (point["tokens"], scale(point["value"]))
        for point in points
        if point["tokens"] and point["value"] is not None and math.isfinite(point["value"])
    )
    half = known[-1][0] / 2 if known else 0
    if len(known) < 3 or known[0][0] > half or known[-2][0] < half:
        return None
    tokens, values = np.asarray(known, dtype=np.float64).T
    best = np.maximum.accumulate(-values if lower_is_better else values)
    return float(best[-1] - np.interp(math.log2(half), np.log2(tokens), best))
