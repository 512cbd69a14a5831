"""Forecast errors by block of time, the independent examples of a comparison. It knows nothing of files or models.

Neighbouring windows forecast nearly the same steps, so they are no independent examples. A block is as many steps as
the horizon, of all series at once; a remainder at the end belongs to the last block. An error belongs to the block of
the forecast step, whatever window it comes from: a step that is hard to forecast is so for every window that reaches
it, and must not count in two blocks as if it had happened twice.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from seqwise.metrics.example_scores import ExampleScores, ExampleText, ScoreSums
from seqwise.tasks.forecast.statistics import SeriesStatistics
from seqwise.tasks.forecast.windows import RollingWindows, WindowBatch

MAX_SHOWN_VALUES = 12  # of a window, as text


class BlockErrors:
    """Squared errors at the steps start … stop-1, by block."""

    def __init__(self, rolling: RollingWindows, start: int, stop: int):
        self.rolling, self.start, self.length = rolling, start, rolling.horizon
        self.sums = ScoreSums(max(1, (stop - start) // self.length))
        self.first_windows: dict[int, tuple[int, int, np.ndarray]] = {}  # block → (origin, series, point forecast)

    def add(self, windows: np.ndarray, batch: WindowBatch, point: Tensor) -> None:
        """Adds windows (B, 2) in the order of time, with their forecasts (B, N)."""
        mask = batch.mask.numpy()
        blocks = self.find_block(windows[:, :1] + np.arange(self.length))  # (B, N)
        error = np.where(mask, batch.future.numpy() - point.numpy(), 0.0).astype(np.float64)
        self.sums.add(blocks.ravel(), (error**2).ravel(), mask.ravel())
        # A block is illustrated by the first window that begins in it or, where values are missing, that reaches it.
        for window_blocks in (blocks[:, 0], blocks[:, -1]):
            for block, row in zip(*(array.tolist() for array in np.unique(window_blocks, return_index=True))):
                origin, series = windows[row].tolist()
                known = self.first_windows.get(block)
                if known is None or self.find_block(known[0]) < block == self.find_block(origin):
                    self.first_windows[block] = origin, series, point[row].double().numpy()

    def find_block(self, step: np.ndarray | int) -> np.ndarray:
        """Returns the block of a step, or of many."""
        return np.minimum((step - self.start) // self.length, len(self.sums.sums) - 1)

    def to_scores(self, statistics: SeriesStatistics) -> ExampleScores:
        """Returns the blocks with an observed step, each with its first window on the original scale as text."""
        blocks = np.flatnonzero(self.sums.sums[:, 1]).tolist()
        texts = tuple(self._format_window(*self.first_windows[block], statistics) for block in blocks)
        return ExampleScores("mse", f"blocks of {self.length} steps", self.sums.sums[blocks], texts)

    def _format_window(self, origin: int, series: int, point: np.ndarray, statistics: SeriesStatistics) -> ExampleText:
        rolling = self.rolling
        mean, deviation = statistics.scaler.mean[series], statistics.scaler.deviation[series]
        past = rolling.original[max(0, origin - MAX_SHOWN_VALUES) : origin, series]
        truth = rolling.original[origin : origin + rolling.horizon, series]
        name, timestamp = rolling.series.names[series], rolling.series.grid.label(origin)
        history = f"{name} before {timestamp}: … {_format_values(past)}"
        return ExampleText.single_line(history, _format_values(truth), _format_values(point * deviation + mean))


def _format_values(values: np.ndarray) -> str:
    """Returns the first values; a missing one is a dash."""
    texts = ["–" if np.isnan(value) else f"{value:.4g}" for value in values[:MAX_SHOWN_VALUES]]
    return ", ".join([*texts, *(["…"] if len(values) > MAX_SHOWN_VALUES else [])])
