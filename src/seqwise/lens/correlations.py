"""Correlations between units and features over many texts, without keeping the activations of all of them.

The best of thousands of units correlates with any feature by chance. So a unit is chosen on one half of the texts, and
its correlation is measured on the other half, with an interval from resampling whole texts: tokens of one text are not
independent. The module knows nothing of models or figures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NUM_RESAMPLES = 1000
INTERVAL = 2.5, 97.5  # percentiles


class CorrelationSums:
    """Sums over tokens from which the Pearson correlations of features (F) and units (U) are computed."""

    def __init__(self, num_features: int, num_units: int):
        self.count = 0
        self.features, self.feature_squares = np.zeros(num_features), np.zeros(num_features)
        self.units, self.unit_squares = np.zeros(num_units), np.zeros(num_units)
        self.products = np.zeros((num_features, num_units))

    def add(self, features: np.ndarray, units: np.ndarray) -> None:
        """Adds the tokens of a text: features (T, F) and activations (T, U)."""
        units = units.astype(np.float64)
        self.count += len(units)
        self.features += features.sum(0)
        self.feature_squares += np.square(features).sum(0)
        self.units += units.sum(0)
        self.unit_squares += np.square(units).sum(0)
        self.products += features.T @ units

    def __add__(self, other: CorrelationSums) -> CorrelationSums:
        total = CorrelationSums(len(self.features), len(self.units))
        for name, value in vars(self).items():
            setattr(total, name, value + getattr(other, name))
        return total

    def correlate(self) -> np.ndarray:
        """Returns the correlations (F, U); 0 where a feature or a unit is constant."""
        squares = self.feature_squares[:, None], self.unit_squares
        return correlate_sums(self.count, self.features[:, None], self.units, *squares, self.products)


def correlate_sums(
    count: np.ndarray | int, x: np.ndarray, y: np.ndarray, xx: np.ndarray, yy: np.ndarray, xy: np.ndarray
) -> np.ndarray:
    """Returns the Pearson correlations of the sums Σx, Σy, Σx², Σy² and Σxy over `count` tokens."""
    covariance = xy / count - (x / count) * (y / count)
    scale = np.sqrt(_compute_variance(count, x, xx) * _compute_variance(count, y, yy))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0).clip(-1, 1)


def _compute_variance(count: np.ndarray | int, total: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Returns the variance; 0 where it is no larger than the rounding errors of the sums."""
    variance = squares / count - np.square(total / count)
    return np.where(variance > 1e-12 * squares / count, variance, 0.0)


def measure_correlation(
    features: Sequence[np.ndarray], units: Sequence[np.ndarray], seed: int = 0
) -> tuple[float, float, float]:
    """Returns the correlation of a feature with a unit, each (T,) per text, and its 95 % interval.

    The interval is a percentile bootstrap that resamples texts.
    """
    sums = np.array([
        (len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y)
        for x, y in ((f.astype(np.float64), u.astype(np.float64)) for f, u in zip(features, units, strict=True))
    ])  # fmt: skip
    shares = np.full(len(sums), 1 / len(sums))
    counts = np.random.default_rng(seed).multinomial(len(sums), shares, size=NUM_RESAMPLES)
    low, high = np.percentile(correlate_sums(*(counts @ sums).T), INTERVAL)
    return float(correlate_sums(*sums.sum(0))), float(low), float(high)
