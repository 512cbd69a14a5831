"""Forecasts compared stretch by stretch of time. It knows nothing of files or of models.

Neighbouring windows forecast nearly the same steps, so they are no independent examples. A stretch is as many steps as
a window forecasts, of all series at once; what is left at the end belongs to the last one. An error belongs to the
stretch of the step that was forecast, whatever window it comes from: a step that is hard to foretell is so for every
window that reaches it, and must not count in two places as if it had happened twice.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from seqwise.metrics.example_scores import ExampleScores, ExampleText, ScoreSums
from seqwise.tasks.forecast.scaling import Measures
from seqwise.tasks.forecast.windows import Rolling, SeriesBatch

LISTED = 12  # values of a window that are shown


class Stretches:
    """Squared errors at the steps start … stop-1, by stretch."""

    def __init__(self, rolling: Rolling, start: int, stop: int):
        self.rolling, self.start, self.length = rolling, start, rolling.horizon
        self.tally = ScoreSums(max(1, (stop - start) // self.length))
        self.first: dict[int, tuple[int, int, np.ndarray]] = {}  # stretch → its first window, and the forecast of that

    def add(self, windows: np.ndarray, batch: SeriesBatch, point: Tensor) -> None:
        """Windows (B, 2) in the order of time, with their forecasts (B, N)."""
        there, rows = batch.there.numpy(), self.rows(windows)
        error = np.where(there, batch.future.numpy() - point.numpy(), 0.0).astype(np.float64)
        self.tally.add(rows.ravel(), (error**2).ravel(), there.ravel())
        # Where no window begins in a stretch, because values are missing, the first that reaches it is shown.
        for each in (rows[:, 0], rows[:, -1]):
            for row, at in zip(*(found.tolist() for found in np.unique(each, return_index=True))):
                origin, series = windows[at].tolist()
                known = self.first.get(row)
                if known is None or self.stretch(known[0]) < row == self.stretch(origin):
                    self.first[row] = origin, series, point[at].double().numpy()

    def rows(self, windows: np.ndarray) -> np.ndarray:
        """The stretch of each step of each window, (B, N)."""
        return self.stretch(windows[:, :1] + np.arange(self.length))

    def stretch(self, step: np.ndarray | int) -> np.ndarray:
        """The stretch of a step, or of many."""
        return np.minimum((step - self.start) // self.length, len(self.tally.sums) - 1)

    def examples(self, measures: Measures) -> ExampleScores:
        """The stretches with an observed step; the first window of each is shown, on its original scale."""
        rows = np.flatnonzero(self.tally.sums[:, 1]).tolist()
        shown = tuple(self._shown(*self.first[row], measures) for row in rows)
        return ExampleScores("mse", f"stretches of {self.length} steps", self.tally.sums[rows], shown)

    def _shown(self, origin: int, series: int, point: np.ndarray, measures: Measures) -> ExampleText:
        rolling = self.rolling
        mean, deviation = measures.scale.mean[series], measures.scale.deviation[series]
        before = rolling.original[max(0, origin - LISTED) : origin, series]
        truth = rolling.original[origin : origin + rolling.horizon, series]
        name, stamp = rolling.series.names[series], rolling.series.clock.label(origin)
        given = f"{name} before {stamp}: … {_listed(before)}"
        return ExampleText.single_line(given, _listed(truth), _listed(point * deviation + mean))


def _listed(values: np.ndarray) -> str:
    """The first values; a missing one is a dash."""
    shown = ["–" if np.isnan(value) else f"{value:.4g}" for value in values[:LISTED]]
    return ", ".join([*shown, *(["…"] if len(values) > LISTED else [])])
