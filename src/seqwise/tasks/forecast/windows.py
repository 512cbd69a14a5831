"""Windows that roll over series: splits by time, scaling learned on the training part, batches of (past, future).

    … past past past past | future future …          one window: the last `past` steps, and the `horizon` to forecast
        past past past past | future future …        the next one, one step later

Nothing is shuffled across a border in time. A window of a later split may look back over its border, but its targets
lie inside. Every series is a row of its own: a model sees one series at a time. It knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from seqwise.data.batch import Batch
from seqwise.data.buckets import BucketLoader
from seqwise.data.splitting import SPLITS
from seqwise.data.tables import parse_columns
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.reader import Series, filled
from seqwise.tasks.forecast.scaling import Measures, calendar_features

SHARES = "0.7,0.1,0.2"  # of the steps, for training, validation and testing


@dataclass(frozen=True)
class SeriesBatch(Batch):
    """Windows of single series, standardised."""

    position_unit = "window"

    past: Tensor  # (B, L) float32
    future: Tensor  # (B, N) float32; zero where the value is missing
    there: Tensor  # (B, N) bool: the values that were observed, and so count
    known: Tensor  # (B, L + N, F) float32: what is known in advance, past and future

    @property
    def length(self) -> int:
        return self.past.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.there.sum())


def borders(series: Series, splits: str) -> dict[str, tuple[int, int]]:
    """Split → its first step and the one after its last. Steps beyond the last split are not used."""
    if series.given is not None:
        ends = list(series.given)
    else:
        ends = _ends(splits, series.end)
    return dict(zip(SPLITS, zip([0, *ends], ends)))


def _ends(splits: str, steps: int) -> list[int]:
    repair = "Give three numbers of steps, 8640,2880,2880, or three shares, 0.7,0.1,0.2."
    try:
        sizes = [float(part) for part in parse_columns(splits) or []]
    except ValueError:
        sizes = []
    if len(sizes) != 3 or min(sizes) <= 0:
        raise UsageError(f"--forecast.splits: expected three numbers above 0, received {splits!r}.", repair=repair)
    if sum(sizes) <= 1 + 1e-9:
        sizes = [size * steps for size in sizes]
    elif any(size != round(size) for size in sizes):
        raise UsageError(f"--forecast.splits: the shares add up to {sum(sizes):g}, more than 1.", repair=repair)
    ends = [round(end) for end in np.cumsum(sizes)]
    if ends[-1] > steps:
        raise UsageError(f"--forecast.splits asks for {ends[-1]:,} steps; the data has {steps:,}.", repair=repair)
    return ends


def rule_of(series: Series, splits: str) -> str:
    """How the data is split, as a sentence."""
    parts = borders(series, splits)
    sizes = ", ".join(f"{split} {stop - start:,}" for split, (start, stop) in parts.items())
    rest = series.end - parts["test"][1]
    how = "as the files are named" if series.given is not None else "by time, in this order"
    unused = f"; the last {rest:,} are not used" if rest else ""
    return f"steps are split {how}: {sizes}{unused}."


class Rolling:
    """All windows of some series. The numbers of a window are (first step to forecast, series)."""

    def __init__(self, series: Series, measures: Measures, past: int, horizon: int, policy: str):
        self.series, self.past, self.horizon = series, past, horizon
        steps = max(len(series.values), series.end + horizon)  # a forecast from the end reaches beyond the table
        values = np.full((steps, len(series.names)), np.nan)
        values[: len(series.values)] = series.values
        self.there = np.asfortranarray(~np.isnan(values))
        self.original = values
        # Each series lies in one piece of memory, so that windows are copied as a whole.
        self.values = np.asfortranarray(measures.scale.apply(filled(values, policy)), dtype=np.float32)
        self.usable = self._usable(policy)
        known = np.zeros((series.known.shape[0], steps, series.known.shape[2]))
        known[:, : len(series.values)] = np.nan_to_num(measures.known.apply(series.known))
        days = calendar_features(series, measures.calendar, steps)
        known = np.concatenate([known, np.broadcast_to(days, (len(known), *days.shape))], axis=2)
        self.known = np.moveaxis(np.ascontiguousarray(np.moveaxis(known, 2, 0), dtype=np.float32), 0, 2)
        self._length = past + horizon
        self.begins = np.where(self.there.any(axis=0), self.there.argmax(axis=0), steps)

    def _usable(self, policy: str) -> np.ndarray:
        """(T, C): may a window's past end here?

        Where gaps are interpolated it must end in an observed value: the fill of a gap at its end would be drawn
        from a value that lies in the future.
        """
        if policy == "interpolate":
            return self.there.copy()
        return np.logical_or.accumulate(self.there, axis=0)

    def windows(self, start: int, stop: int, season: int = 1) -> np.ndarray:
        """(windows, 2): all whose targets lie in start … stop-1, in the order of time; at least one was observed.

        The whole past must lie inside its series, and a season too.
        """
        first = max(start, self.past, season)
        origins = np.arange(first, stop - self.horizon + 1)
        if not len(origins):
            return np.zeros((0, 2), dtype=np.int64)
        enough = origins[:, None] - max(self.past, season) >= self.begins
        counts = np.vstack([np.zeros((1, self.there.shape[1]), dtype=np.int64), self.there.cumsum(axis=0)])
        some = counts[origins + self.horizon] > counts[origins]
        return np.argwhere(self.usable[origins - 1] & enough & some) + np.array([first, 0])

    def batch(self, windows: np.ndarray) -> SeriesBatch:
        """The windows (B, 2) as tensors."""
        begins, which = windows[:, 0] - self.past, windows[:, 1]
        values, there = (
            _rows(self.values.T, which, begins, self._length),
            _rows(self.there.T, which, begins, self._length),
        )
        future, there = values[:, self.past :], there[:, self.past :]
        group = self.series.group[which]
        known = [_rows(self.known[:, :, at], group, begins, self._length) for at in range(self.known.shape[2])]
        shape = (len(windows), self._length, 0)
        return SeriesBatch(
            torch.from_numpy(values[:, : self.past]),
            torch.from_numpy(np.where(there, future, np.float32(0))),
            torch.from_numpy(there),
            torch.from_numpy(np.stack(known, axis=2) if known else np.zeros(shape, dtype=np.float32)),
            positions=torch.from_numpy(windows[:, 0].astype(np.int64)),
        )

    def repeated(self, windows: np.ndarray, season: int) -> np.ndarray:
        """(B, N): the last `season` steps before each window again and again; with 1 the naive forecast."""
        places = windows[:, :1] - season + np.arange(self.horizon) % season
        return self.values[places, windows[:, 1:]]


class WindowBatches:
    """Training batches of windows, which are all of one length: shuffled by (seed, epoch), nothing is padded."""

    def __init__(
        self, rolling: Rolling, windows: np.ndarray, settings: ResolvedSettings, rank: int = 0, world: int = 1
    ):
        lengths = np.full(len(windows), rolling.past)
        rows, tokens = settings.training.batch_size, settings.data.max_tokens
        self._shuffled = BucketLoader(
            lengths, lambda at: rolling.batch(windows[at]), rows, tokens, settings.seed, rank, world
        )

    @property
    def steps(self) -> int:
        return self._shuffled.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[SeriesBatch]:
        return self._shuffled.epoch(number, start)


def _rows(table: np.ndarray, which: np.ndarray, begins: np.ndarray, length: int) -> np.ndarray:
    """(B, length): so many entries of row which[b] of a table (C, T) from begins[b] on."""
    return sliding_window_view(table, length, axis=1)[which, begins]
