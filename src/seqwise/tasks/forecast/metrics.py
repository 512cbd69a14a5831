"""Errors of forecasts: squared, absolute, scaled, and of quantiles, summed so that batches and processes add up.

It knows nothing of models or windows; what is compared comes as arrays with one row per window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

OURS, NAIVE, SEASONAL = "model", "naive", "seasonal_naive"


def definitions(season: int, quantiles: Sequence[float]) -> dict[str, str]:
    """What each number means."""
    whole = "over all windows, steps and series, on standardised values"
    found = {
        "mse": f"mean squared error {whole}",
        "mae": f"mean absolute error {whole}",
        "mase": f"mean over series of MAE / mean |y(t) - y(t-{season})| in the training part; any scale",
    }
    for name, says in ((NAIVE, "the last value again"), (SEASONAL, f"the last {season} values again")):
        found |= {f"{name}_{metric}": f"the same of: {says}" for metric in ("mse", "mae", "mase")}
    if quantiles:
        found["quantile_loss"] = f"mean of max(q e, (q-1) e), e = truth - forecast of quantile q, {whole}"
    if len(quantiles) > 1:
        low, high = min(quantiles), max(quantiles)
        found["coverage"] = f"share of true values between the quantiles {low:g} and {high:g}; ideal {high - low:g}"
    return found | {"windows": "forecasts made, one per step and series (rolling, stride 1)"}


def pinball(truth: np.ndarray, forecast: np.ndarray, quantile: float) -> np.ndarray:
    """max(q e, (q − 1) e) with e = truth − forecast (Koenker & Bassett 1978)."""
    error = truth - forecast
    return np.maximum(quantile * error, (quantile - 1) * error)


@dataclass
class Sums:
    """Squared and absolute errors of one forecaster, summed per series on standardised values."""

    squared: np.ndarray  # (C,)
    absolute: np.ndarray  # (C,)


class Errors:
    """Sums over windows of C series for ours and the two simple forecasts."""

    def __init__(self, series: int, quantiles: Sequence[float] = ()):
        self.quantiles = tuple(quantiles)
        self.count = np.zeros(series)
        self.windows = 0
        self.sums = {name: Sums(np.zeros(series), np.zeros(series)) for name in (OURS, NAIVE, SEASONAL)}
        self.pinball = self.inside = 0.0

    def add(self, which: np.ndarray, truth: np.ndarray, there: np.ndarray, forecasts: dict[str, np.ndarray]) -> None:
        """Windows of the series `which` (B,); truth, there and each forecast are (B, N)."""
        np.add.at(self.count, which, there.sum(axis=1))
        self.windows += len(which)
        for name, forecast in forecasts.items():
            error = np.where(there, truth - forecast, 0.0).astype(np.float64)
            np.add.at(self.sums[name].squared, which, (error**2).sum(axis=1))
            np.add.at(self.sums[name].absolute, which, np.abs(error).sum(axis=1))

    def add_quantiles(self, truth: np.ndarray, there: np.ndarray, forecasts: np.ndarray) -> None:
        """Forecasts of the quantiles (B, N, Q)."""
        for at, quantile in enumerate(self.quantiles):
            self.pinball += float(np.where(there, pinball(truth, forecasts[..., at], quantile), 0.0).sum())
        low, high = int(np.argmin(self.quantiles)), int(np.argmax(self.quantiles))
        self.inside += float(((truth >= forecasts[..., low]) & (truth <= forecasts[..., high]) & there).sum())

    def metrics(self, deviation: np.ndarray, in_sample: np.ndarray) -> dict[str, float]:
        """All numbers under plain names. `deviation` brings a series back to its scale, for MASE."""
        total = max(1.0, float(self.count.sum()))
        found: dict[str, float] = {}
        for name, sums in self.sums.items():
            prefix = "" if name == OURS else f"{name}_"
            found[f"{prefix}mse"] = float(sums.squared.sum()) / total
            found[f"{prefix}mae"] = float(sums.absolute.sum()) / total
            scaled = self.scaled(name, deviation, in_sample)
            found[f"{prefix}mase"] = float(np.nanmean(scaled)) if not np.isnan(scaled).all() else float("nan")
        if self.quantiles:
            found["quantile_loss"] = self.pinball / total / len(self.quantiles)
        if len(self.quantiles) > 1:
            found["coverage"] = self.inside / total
        return found | {"windows": self.windows}

    def scaled(self, name: str, deviation: np.ndarray, in_sample: np.ndarray) -> np.ndarray:
        """MASE of each series (Hyndman & Koehler 2006); NaN where the training part never changes, or was not seen."""
        mean = self.per_series(self.sums[name].absolute) * deviation
        return np.divide(mean, in_sample, out=np.full_like(mean, np.nan), where=in_sample > 0)

    def per_series(self, sums: np.ndarray) -> np.ndarray:
        """Sums as means of the targets of each series; NaN where it has none."""
        return np.divide(sums, self.count, out=np.full_like(sums, np.nan), where=self.count > 0)
