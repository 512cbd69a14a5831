"""Forecast errors: squared, absolute, scaled, and of quantiles, as sums that can be added over batches.

It knows nothing of models or windows; forecasts and true values come as arrays with one row per window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MODEL, NAIVE, SEASONAL_NAIVE = "model", "naive", "seasonal_naive"


def get_definitions(season: int, quantiles: Sequence[float]) -> dict[str, str]:
    """Returns what each metric means."""
    scope = "over all windows, steps and series, on standardised values"
    definitions = {
        "mse": f"mean squared error {scope}",
        "mae": f"mean absolute error {scope}",
        "mase": f"mean over series of MAE / mean |y(t) - y(t-{season})| in the training part; any scale",
    }
    for name, forecast in ((NAIVE, "the last value again"), (SEASONAL_NAIVE, f"the last {season} values again")):
        definitions |= {f"{name}_{metric}": f"the same of: {forecast}" for metric in ("mse", "mae", "mase")}
    if quantiles:
        definitions["quantile_loss"] = f"mean of max(q e, (q-1) e), e = truth - forecast of quantile q, {scope}"
    if len(quantiles) > 1:
        low, high = min(quantiles), max(quantiles)
        between = f"between the quantiles {low:g} and {high:g}"
        definitions["coverage"] = f"share of true values {between}; ideal {high - low:g}"
    return definitions | {"windows": "forecasts made, one per step and series (rolling, stride 1)"}


def pinball_loss(truth: np.ndarray, forecast: np.ndarray, quantile: float) -> np.ndarray:
    """max(q e, (q − 1) e) with e = truth − forecast (Koenker & Bassett 1978)."""
    error = truth - forecast
    return np.maximum(quantile * error, (quantile - 1) * error)


class ErrorSums:
    """Errors of the model and both naive forecasts on standardised values, summed over the windows of C series."""

    def __init__(self, num_series: int, quantiles: Sequence[float] = ()):
        self.quantiles = tuple(quantiles)
        self.count = np.zeros(num_series)
        self.windows = 0
        self.squared = {name: np.zeros(num_series) for name in (MODEL, NAIVE, SEASONAL_NAIVE)}
        self.absolute = {name: np.zeros(num_series) for name in (MODEL, NAIVE, SEASONAL_NAIVE)}
        self.pinball = self.covered = 0.0

    def add(self, series: np.ndarray, truth: np.ndarray, mask: np.ndarray, forecasts: dict[str, np.ndarray]) -> None:
        """Adds windows of the series (B,); truth, mask and each forecast are (B, N)."""
        np.add.at(self.count, series, mask.sum(axis=1))
        self.windows += len(series)
        for name, forecast in forecasts.items():
            error = np.where(mask, truth - forecast, 0.0).astype(np.float64)
            np.add.at(self.squared[name], series, (error**2).sum(axis=1))
            np.add.at(self.absolute[name], series, np.abs(error).sum(axis=1))

    def add_quantiles(self, truth: np.ndarray, mask: np.ndarray, forecasts: np.ndarray) -> None:
        """Adds forecasts of the quantiles (B, N, Q)."""
        for index, quantile in enumerate(self.quantiles):
            self.pinball += float(np.where(mask, pinball_loss(truth, forecasts[..., index], quantile), 0.0).sum())
        low, high = int(np.argmin(self.quantiles)), int(np.argmax(self.quantiles))
        self.covered += float(((truth >= forecasts[..., low]) & (truth <= forecasts[..., high]) & mask).sum())

    def metrics(self, deviation: np.ndarray, in_sample_error: np.ndarray) -> dict[str, float]:
        """Returns all metrics by name. `deviation` brings a series back to its original scale, for MASE."""
        count = max(1.0, float(self.count.sum()))
        metrics: dict[str, float] = {}
        for name in (MODEL, NAIVE, SEASONAL_NAIVE):
            prefix = "" if name == MODEL else f"{name}_"
            metrics[f"{prefix}mse"] = float(self.squared[name].sum()) / count
            metrics[f"{prefix}mae"] = float(self.absolute[name].sum()) / count
            mase = self.mase_per_series(name, deviation, in_sample_error)
            metrics[f"{prefix}mase"] = float(np.nanmean(mase)) if not np.isnan(mase).all() else float("nan")
        if self.quantiles:
            metrics["quantile_loss"] = self.pinball / count / len(self.quantiles)
        if len(self.quantiles) > 1:
            metrics["coverage"] = self.covered / count
        return metrics | {"windows": self.windows}

    def mase_per_series(self, name: str, deviation: np.ndarray, in_sample_error: np.ndarray) -> np.ndarray:
        """MASE of each series (Hyndman & Koehler 2006); NaN if it never changes in training, or is not part of it."""
        mae = self.mean_per_series(self.absolute[name]) * deviation
        return np.divide(mae, in_sample_error, out=np.full_like(mae, np.nan), where=in_sample_error > 0)

    def mean_per_series(self, sums: np.ndarray) -> np.ndarray:
        """Returns sums divided by the number of targets of each series; NaN where it has none."""
        return np.divide(sums, self.count, out=np.full_like(sums, np.nan), where=self.count > 0)
