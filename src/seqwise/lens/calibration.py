"""Calibration: how often a prediction is right, against the probability that the model gives it.

The expected calibration error (Naeini et al. 2015; Guo et al. 2017) has NUM_BINS bins of equal width:

    ECE = Σ over bins of n_bin / N · |accuracy of the bin − mean probability of the bin|

It is above 0 for a calibrated model too, because the accuracy of few predictions varies. `expected` is the mean ECE
that a calibrated model has with these probabilities, `limit` exceeds 95 % of such values. The module knows nothing of
models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqwise.lens.slices import compute_wilson_interval

NUM_BINS = 10
NUM_DRAWS = 200


@dataclass(frozen=True)
class Calibration:
    """A reliability curve: of each bin the count, mean probability and accuracy (NaN if it is empty)."""

    edges: np.ndarray  # (bins + 1,)
    counts: np.ndarray  # (bins,)
    confidence: np.ndarray  # (bins,)
    accuracy: np.ndarray  # (bins,)
    low: np.ndarray  # (bins,) Wilson's 95 % interval of the accuracy
    high: np.ndarray
    error: float  # expected calibration error
    expected: float  # of a calibrated model
    limit: float
    mean_confidence: float
    mean_accuracy: float


def measure_calibration(probabilities: np.ndarray, is_correct: np.ndarray, num_bins: int = NUM_BINS) -> Calibration:
    """Returns the reliability curve of predictions, and their expected calibration error."""
    edges = np.linspace(0, 1, num_bins + 1)
    bins = np.clip(np.ceil(probabilities * num_bins).astype(np.int64) - 1, 0, num_bins - 1)  # (low, high]
    counts, confidence, accuracy = average_bins(bins, probabilities, is_correct, num_bins)
    low, high = np.array([
        compute_wilson_interval(share * count, int(count)) for share, count in zip(accuracy, counts)
    ]).T  # fmt: skip
    generator = np.random.default_rng(0)
    simulated = [
        compute_error(*average_bins(bins, probabilities, generator.random(len(bins)) < probabilities, num_bins))
        for _ in range(NUM_DRAWS)
    ]
    return Calibration(
        edges,
        counts,
        confidence,
        accuracy,
        low,
        high,
        compute_error(counts, confidence, accuracy),
        float(np.mean(simulated)),
        float(np.quantile(simulated, 0.95)),
        float(probabilities.mean()),
        float(np.mean(is_correct)),
    )


def average_bins(
    bins: np.ndarray, probabilities: np.ndarray, is_correct: np.ndarray, num_bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns count, mean probability and accuracy of each bin."""
    counts = np.bincount(bins, minlength=num_bins)
    with np.errstate(invalid="ignore"):
        means = [np.bincount(bins, values, minlength=num_bins) / counts for values in (probabilities, is_correct)]
    return counts, means[0], means[1]


def compute_error(counts: np.ndarray, confidence: np.ndarray, accuracy: np.ndarray) -> float:
    """Returns the expected calibration error of the bins."""
    return float(np.nansum(counts * np.abs(accuracy - confidence)) / max(1, counts.sum()))
