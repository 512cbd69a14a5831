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

from seqwise.compare.student import mixed, mixed_quantile, quantile

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
    `covers` says what the interval includes: where a family was trained only once, chance in training is missing.
    `larger` is the larger of the two sources of noise: more of these would tell the families apart best.
    """

    a: str
    b: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted: float | None
    significant: bool
    covers: Literal["seeds and examples", "examples"]
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
    """
    tables = [sums for seeds in families.values() for sums in seeds]
    drawn = _bootstrap(value, tables, draws, seed)
    drawn = drawn[np.isfinite(drawn).all(axis=1)]
    examples = len(tables[0]) if tables else 0
    scores = np.asarray([float(value(sums.sum(axis=0))) for sums in tables])
    enough = examples > 1 and len(drawn) > draws / 2
    unbiased = examples / (examples - 1) if examples > 1 else math.nan
    covariance = np.atleast_2d(np.cov(drawn, rowvar=False)) * unbiased if enough else None
    places: dict[str, np.ndarray] = {}
    for name, seeds in families.items():
        start = sum(map(len, places.values()))
        places[name] = np.arange(start, start + len(seeds))
    once = {name for name, seeds in families.items() if len(seeds) == 1} - set(deterministic)
    pairs = [
        _test(a, b, places[a], places[b], scores, covariance, examples, once) for a, b in combinations(families, 2)
    ]
    return _holm(pairs)


def _test(
    a: str,
    b: str,
    of_a: np.ndarray,
    of_b: np.ndarray,
    scores: np.ndarray,
    covariance: np.ndarray | None,
    examples: int,
    once: Collection[str],
) -> Pair:
    difference = float(scores[of_a].mean() - scores[of_b].mean())
    covers: Literal["seeds and examples", "examples"] = "examples" if {a, b} & set(once) else "seeds and examples"
    if covariance is None or not math.isfinite(difference):
        known = difference if math.isfinite(difference) else None
        return Pair(a, b, known, None, None, None, None, False, covers, "examples")
    between = covariance[np.ix_(of_a, of_b)].mean()
    of_examples = max(0.0, float(_shared(covariance, of_a) + _shared(covariance, of_b) - 2 * between))
    parts = [(of_examples, examples - 1.0), *_of_seeds(scores, of_a, of_b)]
    error = math.sqrt(sum(variance for variance, _ in parts))
    reach = mixed_quantile(CONFIDENCE, parts) * error if error else 0.0
    p = mixed(difference / error, parts) if error else float(difference == 0)
    # However equal the answers are to each other, E examples cannot say more than E tosses of a coin.
    p = max(p, 2.0 ** (1 - examples))
    # What few seeds leave open counts too: with two of them the interval is six times as wide as their noise.
    widths = [variance * quantile(CONFIDENCE, freedom) ** 2 for variance, freedom in parts]
    larger: Literal["seeds", "examples"] = "seeds" if sum(widths[1:]) > widths[0] else "examples"
    return Pair(a, b, difference, difference - reach, difference + reach, p, None, False, covers, larger)


def _shared(covariance: np.ndarray, models: np.ndarray) -> float:
    """The variance that the examples give to all models of a family alike; of a single model, all there is."""
    block = covariance[np.ix_(models, models)]
    count = len(models)
    return float(block.sum() if count == 1 else (block.sum() - np.trace(block)) / (count * (count - 1)))


def _of_seeds(scores: np.ndarray, *families: np.ndarray) -> list[tuple[float, float]]:
    """The variance that the seeds of the families give together, with Welch's degrees of freedom; nothing if none."""
    parts = [(float(np.var(scores[of], ddof=1)) / len(of), len(of) - 1) for of in families if len(of) > 1]
    total = sum(variance for variance, _ in parts)
    return [(total, total**2 / sum(variance**2 / freedom for variance, freedom in parts))] if total else []


def _holm(pairs: Sequence[Pair]) -> list[Pair]:
    """Adjusted so that all differences called significant are real with 95 % confidence (Holm 1979)."""
    order = sorted((pair.p, place) for place, pair in enumerate(pairs) if pair.p is not None)
    found, adjusted = list(pairs), 0.0
    for rank, (p, place) in enumerate(order):
        adjusted = max(adjusted, min(1.0, p * (len(order) - rank)))
        found[place] = replace(pairs[place], adjusted=adjusted, significant=adjusted < 1 - CONFIDENCE)
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


def still_improving(curves: Sequence[Mapping[str, Any]], lower_is_better: bool) -> float | None:
    """How much the validation metric gained over the second half of training: over its last doubling. Mean over seeds.

    The best value so far counts, since those weights are kept; between two validations it is interpolated over the
    logarithm of the tokens. Positive is better, whichever way the metric goes; None where no curve has a point in
    both halves. The last few validations alone would tell nothing: the learning rate has gone to almost zero, so
    every curve ends flat. Over half a budget that gain is mixed with what training longer gives, and the sum is a
    fair guess at one more doubling: for a GRU and a Transformer on builtin:docs, 50k to 800k tokens, twice the
    budget really gave between 0.6 and 2.2 times as much.
    """
    gains = [gain for curve in curves if (gain := _last_doubling(curve["points"], lower_is_better)) is not None]
    return float(np.mean(gains)) if gains else None


def _last_doubling(points: Sequence[Mapping[str, Any]], lower_is_better: bool) -> float | None:
    known = sorted(
        (point["tokens"], point["value"])
        for point in points
        if point["tokens"] and point["value"] is not None and math.isfinite(point["value"])
    )
    if not known or known[0][0] > known[-1][0] / 2:
        return None
    tokens, values = np.asarray(known, dtype=np.float64).T
    best = np.maximum.accumulate(-values if lower_is_better else values)
    return float(best[-1] - np.interp(math.log2(tokens[-1] / 2), np.log2(tokens), best))
