"""Rolling windows over series: splits by time, standardised values, batches of (past, future).

    … past past past past | future future …         one window: the last `lookback` steps, and the `horizon` to forecast
        past past past past | future future …       the next one, one step later

Splits are consecutive in time. A window of a later split may look back into the split before, but its targets are
inside its own. Every series is a row of its own: a model sees one series at a time. It knows nothing of models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from seqwise.data.batch import Batch
from seqwise.data.splitting import SPLITS
from seqwise.data.tables import parse_columns
from seqwise.errors import UsageError
from seqwise.tasks.forecast.reader import SeriesData, fill_missing
from seqwise.tasks.forecast.statistics import SeriesStatistics, compute_calendar_features

DEFAULT_SPLITS = "0.7,0.1,0.2"  # of the steps, for training, validation and testing


@dataclass(frozen=True)
class WindowBatch(Batch):
    """Windows of single series, standardised."""

    position_unit = "window"

    past: Tensor  # (B, L) float32
    future: Tensor  # (B, N) float32; zero where the value is missing
    mask: Tensor  # (B, N) bool: the future values that were observed, and so count
    known: Tensor  # (B, L + N, F) float32: values known in advance, past and future

    @property
    def length(self) -> int:
        return self.past.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


def compute_borders(series: SeriesData, splits: str) -> dict[str, tuple[int, int]]:
    """Returns for each split its first step and the one after its last. Steps after the last split are not used."""
    ends = _parse_splits(splits, series.end) if series.split_ends is None else list(series.split_ends)
    return dict(zip(SPLITS, zip([0, *ends], ends)))


def _parse_splits(splits: str, num_steps: int) -> list[int]:
    """Returns the ends of three splits given as numbers of steps or as fractions."""
    repair = "Give three numbers of steps, 8640,2880,2880, or three shares, 0.7,0.1,0.2."
    try:
        sizes = [float(part) for part in parse_columns(splits) or []]
    except ValueError:
        sizes = []
    if len(sizes) != 3 or min(sizes) <= 0:
        raise UsageError(f"--forecast.splits: expected three numbers above 0, received {splits!r}.", repair=repair)
    if sum(sizes) <= 1 + 1e-9:
        sizes = [size * num_steps for size in sizes]
    elif any(size != round(size) for size in sizes):
        raise UsageError(f"--forecast.splits: the shares add up to {sum(sizes):g}, more than 1.", repair=repair)
    ends = [round(end) for end in np.cumsum(sizes)]
    if ends[-1] > num_steps:
        raise UsageError(f"--forecast.splits asks for {ends[-1]:,} steps; the data has {num_steps:,}.", repair=repair)
    return ends


def describe_splits(series: SeriesData, splits: str) -> str:
    """Returns how the data is split, as a sentence. It is part of the fingerprint of the data."""
    borders = compute_borders(series, splits)
    sizes = ", ".join(f"{split} {stop - start:,}" for split, (start, stop) in borders.items())
    num_unused = series.end - borders["test"][1]
    rule = "as the files are named" if series.split_ends is not None else "by time, in this order"
    unused = f"; the last {num_unused:,} are not used" if num_unused else ""
    return f"steps are split {rule}: {sizes}{unused}."


class RollingWindows:
    """All windows of some series. A window is identified by (first step to forecast, series)."""

    def __init__(self, series: SeriesData, statistics: SeriesStatistics, lookback: int, horizon: int, missing: str):
        self.series, self.lookback, self.horizon = series, lookback, horizon
        num_table_steps = len(series.values)
        num_steps = max(num_table_steps, series.end + horizon)  # a forecast from the end reaches beyond the table
        self.original = np.full((num_steps, len(series.names)), np.nan)
        self.original[:num_table_steps] = series.values
        self.observed = np.asfortranarray(~np.isnan(self.original))
        # Each series is contiguous in memory, so that a window is copied as a whole.
        filled = statistics.scaler.transform(fill_missing(self.original, missing))
        self.values = np.asfortranarray(filled, dtype=np.float32)
        # Where gaps are interpolated, the past of a window must end in an observed value: a fill at its end would
        # depend on a value of the future.
        self.may_end = self.observed if missing == "interpolate" else np.logical_or.accumulate(self.observed, axis=0)
        known = np.zeros((series.known.shape[0], num_steps, series.known.shape[2]))
        known[:, :num_table_steps] = np.nan_to_num(statistics.known_scaler.transform(series.known))
        calendar = compute_calendar_features(series, statistics.calendar, num_steps)
        known = np.concatenate([known, np.broadcast_to(calendar, (len(known), *calendar.shape))], axis=2)
        self.known = np.moveaxis(np.ascontiguousarray(np.moveaxis(known, 2, 0), dtype=np.float32), 0, 2)
        self.first_steps = np.where(self.observed.any(axis=0), self.observed.argmax(axis=0), num_steps)

    def find(self, start: int, stop: int, season: int = 1) -> np.ndarray:
        """Returns (windows, 2): all whose targets are in start … stop-1, in the order of time.

        At least one target is observed, and the whole past and one season before the window are inside the series.
        """
        min_history = max(self.lookback, season)
        first = max(start, min_history)
        origins = np.arange(first, stop - self.horizon + 1)
        if not len(origins):
            return np.zeros((0, 2), dtype=np.int64)
        has_history = origins[:, None] - min_history >= self.first_steps
        counts = np.vstack([np.zeros((1, self.observed.shape[1]), dtype=np.int64), self.observed.cumsum(axis=0)])
        has_target = counts[origins + self.horizon] > counts[origins]
        return np.argwhere(self.may_end[origins - 1] & has_history & has_target) + np.array([first, 0])

    def collate(self, windows: np.ndarray) -> WindowBatch:
        """Returns the windows (B, 2) as a batch."""
        starts, series = windows[:, 0] - self.lookback, windows[:, 1]
        length = self.lookback + self.horizon
        values = _gather(self.values.T, series, starts, length)
        mask = _gather(self.observed.T, series, starts, length)[:, self.lookback :]
        future = np.where(mask, values[:, self.lookback :], np.float32(0))
        group = self.series.group[series]
        features = [_gather(self.known[:, :, i], group, starts, length) for i in range(self.known.shape[2])]
        known = np.stack(features, axis=2) if features else np.zeros((len(windows), length, 0), dtype=np.float32)
        return WindowBatch(
            torch.from_numpy(values[:, : self.lookback]),
            torch.from_numpy(future),
            torch.from_numpy(mask),
            torch.from_numpy(known),
            positions=torch.from_numpy(windows[:, 0].astype(np.int64)),
        )

    def forecast_naively(self, windows: np.ndarray, season: int) -> np.ndarray:
        """Returns (B, N): the last `season` steps before each window, repeated."""
        steps = windows[:, :1] - season + np.arange(self.horizon) % season
        return self.values[steps, windows[:, 1:]]


def _gather(table: np.ndarray, rows: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Returns (B, length): `length` entries of row rows[b] of a table (C, T) from starts[b] on."""
    return sliding_window_view(table, length, axis=1)[rows, starts]
