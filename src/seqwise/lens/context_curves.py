"""Loss against the length of the visible context, and the horizon: the context that brings most of the benefit.

    benefit(n) = mean loss(0) − mean loss(n)
    horizon    = the smallest n with benefit(n) ≥ 0.9 · benefit(max)

All lengths are measured on the same targets, so their differences are paired. Lengths are measured where they are
needed: powers of two first, then by bisection around the horizon and the ends of its interval. The module knows nothing
of models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress

SHARE = 0.9  # of the benefit
CONFIDENCE = 0.95
MAX_GAP = 1.05  # to the next shorter measured context, as a ratio: the resolution of a horizon above 20
NUM_SEGMENTS = 100  # runs of neighbouring targets that are resampled together
NUM_DRAWS = 1000
REFINEMENT = 0.1  # expected cost of the bisection, relative to the powers of two; for the progress display

Advance = Callable[[int], None]  # called with the number of steps that were read
ScoreFunction = Callable[[int, Advance], np.ndarray]  # visible steps n → the loss of each target (M,)


@dataclass(frozen=True)
class ContextCurve:
    """Losses of M targets for C lengths of context, the first of which is 0."""

    contexts: np.ndarray  # (C,) ascending
    losses: np.ndarray  # (C, M)
    draws: np.ndarray = field(repr=False)  # (draws, C): mean losses of bootstrap samples of segments

    @property
    def mean(self) -> np.ndarray:
        """The mean loss for each length, (C,)."""
        return self.losses.mean(axis=1)

    @property
    def horizon(self) -> float:
        """The smallest measured length with 90 % of the benefit; NaN if there is no benefit."""
        return float(find_horizon(self.contexts, self.mean))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the horizon; None if the benefit is not clearly above 0."""
        horizons = find_horizon(self.contexts, self.draws)
        if np.isnan(horizons).mean() > (1 - CONFIDENCE) / 2 or np.isnan(self.horizon):
            return None
        low, high = _compute_interval(horizons[~np.isnan(horizons)], method="inverted_cdf")
        return float(low), float(high)

    @property
    def share(self) -> np.ndarray:
        """The share of the benefit for each length, (C,)."""
        return compute_share(self.mean)

    @property
    def share_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the 95 % interval of the share, (C,) each."""
        low, high = _compute_interval(compute_share(self.draws))
        return low, high


def compute_share(means: np.ndarray) -> np.ndarray:
    """Returns benefit(n) / benefit(max) for mean losses (…, C); NaN where the longest context has no benefit."""
    benefit = means[..., :1] - means
    total = benefit[..., -1:]
    return np.divide(benefit, total, out=np.full_like(benefit, np.nan), where=total > 0)


def find_horizon(contexts: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Returns the smallest of the lengths (C,) with 90 % of the benefit, (…), for mean losses (…, C)."""
    share = compute_share(means)
    first = np.argmax(share >= SHARE, axis=-1)
    return np.where(np.isnan(share[..., -1]), np.nan, contexts[first])


def measure_curve(
    baseline: np.ndarray,
    score: ScoreFunction,
    max_context: int,
    num_segments: int = NUM_SEGMENTS,
    progress: ProgressCallback = no_progress,
) -> ContextCurve:
    """Measures the losses of targets; `baseline` (M,) are those without context.

    The targets form `num_segments` runs of neighbours, which are similar and therefore resampled together.
    """
    lengths = list_powers(max_context)
    steps_done, total = 0, int((1 + REFINEMENT) * len(baseline) * sum(lengths))

    def advance(num_steps: int) -> None:
        nonlocal steps_done
        steps_done += num_steps
        progress(min(steps_done, total - 1), total)

    losses = {0: np.asarray(baseline, dtype=np.float64)}
    while lengths:
        losses |= {length: score(length, advance).astype(np.float64) for length in lengths}
        curve = build_curve(losses, num_segments)
        lengths = find_gaps(curve)
    progress(total, total)
    return curve


def list_powers(max_context: int) -> list[int]:
    """Returns 1, 2, 4, … and the longest context."""
    return [2**power for power in range(max_context.bit_length()) if 2**power < max_context] + [max_context]


def build_curve(losses: dict[int, np.ndarray], num_segments: int = NUM_SEGMENTS) -> ContextCurve:
    """Returns the curve of losses (M,) by length of context, with bootstrap samples, the same for all curves."""
    contexts = np.array(sorted(losses))
    table = np.stack([losses[length] for length in contexts])
    num_targets = table.shape[1]
    num_segments = min(num_segments, num_targets)
    starts = np.arange(num_segments) * num_targets // num_segments
    sums, counts = np.add.reduceat(table, starts, axis=1), np.diff([*starts, num_targets])
    generator = np.random.default_rng(0)
    weights = generator.multinomial(num_segments, np.full(num_segments, 1 / num_segments), size=NUM_DRAWS)
    return ContextCurve(contexts, table, (weights @ sums.T) / (weights @ counts)[:, None])


def find_gaps(curve: ContextCurve) -> list[int]:
    """Returns the lengths to measure next: between the horizon, or an end of its interval, and the next shorter one."""
    wanted = {curve.horizon, *(curve.interval or ())} - {0.0}
    lengths = set()
    for end in (int(value) for value in wanted if not np.isnan(value)):
        start = int(curve.contexts[curve.contexts < end][-1])
        if end - start > 1 and end > MAX_GAP * start:
            lengths.add(min(max(round((start * end) ** 0.5), start + 1), end - 1))
    return sorted(lengths)


def _compute_interval(values: np.ndarray, method: str = "linear") -> np.ndarray:
    return np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0, method=method)  # type: ignore[call-overload]
