"""Rolling evaluation: every window of a split is forecast and compared, beside the naive forecasts on the same windows.

It knows nothing of files; the model only as something with `forecast(batch)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwise.metrics.evaluation import Evaluation, Table
from seqwise.tasks.forecast.metrics import NAIVE, OURS, SEASONAL, Errors, definitions
from seqwise.tasks.forecast.model import ForecastModel, Forecasts
from seqwise.tasks.forecast.scaling import Measures
from seqwise.tasks.forecast.stretches import Stretches
from seqwise.tasks.forecast.windows import Rolling, SeriesBatch
from seqwise.tasks.task import ProgressCallback

ROWS = 1024  # windows at a time
DRAWN = 4  # series in the picture of an evaluation


@torch.no_grad()
def forecasts_of(model: ForecastModel, batch: SeriesBatch) -> Forecasts:
    """Standardised forecasts of some windows, on the CPU."""
    device = next(model.parameters()).device
    model.eval()
    made = model.forecast(batch.to(device))
    return Forecasts(made.point.cpu(), None if made.quantiles is None else made.quantiles.cpu())


@torch.no_grad()
def validation_sums(model: ForecastModel, rolling: Rolling, windows: np.ndarray) -> list[float]:
    """Loss, squared errors, absolute errors and number of targets, summed."""
    device = next(model.parameters()).device
    model.eval()
    sums = np.zeros(4)
    for start in range(0, len(windows), ROWS):
        batch = rolling.batch(windows[start : start + ROWS]).to(device)
        made = model.forecast(batch)
        error, loss = (made.point - batch.future).masked_fill(~batch.there, 0.0), model.loss(made, batch)
        sums += [float(loss.total), float(error.square().sum()), float(error.abs().sum()), loss.count]
    return sums.tolist()


def score(
    model: ForecastModel,
    rolling: Rolling,
    windows: np.ndarray,
    season: int,
    progress: ProgressCallback | None = None,
    stretches: Stretches | None = None,
) -> Errors:
    """Errors of the model and of both naive forecasts on all windows; the last batch is as good as any."""
    errors = Errors(len(rolling.series.names), model.quantiles)
    for start in range(0, len(windows), ROWS):
        some = windows[start : start + ROWS]
        batch = rolling.batch(some)
        made = forecasts_of(model, batch)
        truth, there = batch.future.numpy(), batch.there.numpy()
        simple = {NAIVE: rolling.repeated(some, 1), SEASONAL: rolling.repeated(some, season)}
        errors.add(some[:, 1], truth, there, {OURS: made.point.numpy(), **simple})
        if made.quantiles is not None:
            errors.add_quantiles(truth, there, made.quantiles.numpy())
        if stretches is not None:
            stretches.add(some, batch, made.point)
        if progress is not None:
            progress(start + len(some), len(windows))
    return errors


def evaluation(errors: Errors, measures: Measures, on: str, rolling: Rolling, remarks: list[str]) -> Evaluation:
    """The numbers with their definitions, and a table with a row per series on its own scale."""
    deviation, in_sample = measures.scale.deviation, measures.in_sample
    metrics = errors.metrics(deviation, in_sample)
    columns: list[np.ndarray] = []
    names: list[str] = []
    for who, sums in errors.sums.items():
        prefix = "" if who == OURS else f"{who.replace('_', ' ')} "
        names += [f"{prefix}mae", f"{prefix}mase"]
        columns += [errors.per_series(sums.absolute) * deviation, errors.scaled(who, deviation, in_sample)]
        if who == OURS:
            names.insert(0, "mse")
            columns.insert(0, errors.per_series(sums.squared) * deviation**2)
    rows = {
        name: tuple(float(column[at]) for column in columns)
        for at, name in enumerate(measures.names)
        if errors.count[at]
    }
    how = (
        f"rolling, stride 1: {rolling.horizon} steps from the last {rolling.past}; "
        f"seasonal naive: season of {measures.season} steps"
    )
    table = Table("per series, on its original scale", tuple(names), rows)
    return Evaluation(metrics, definitions(measures.season, errors.quantiles), on, how, (table,), tuple(remarks))


def drawn_windows(model: ForecastModel, rolling: Rolling, windows: np.ndarray, measures: Measures) -> dict[str, Any]:
    """The first window of some series, with what came true, as a picture wants it."""
    _, firsts = np.unique(windows[:, 1], return_index=True)
    chosen = windows[np.sort(firsts)[:DRAWN]]
    panels = panels_of(forecasts_of(model, rolling.batch(chosen)), rolling, chosen, measures, model.quantiles)
    for (origin, at), panel in zip(chosen, panels.values()):
        truth = rolling.original[origin : origin + rolling.horizon, at]
        panel["truth"] = [None if np.isnan(value) else float(value) for value in truth]
    return panels


def panels_of(
    made: Forecasts, rolling: Rolling, windows: np.ndarray, measures: Measures, quantiles: tuple[float, ...]
) -> dict[str, Any]:
    """Forecasts of windows on the original scale, by series: stamps, point, quantiles and the end of the history."""
    clock, panels = rolling.series.clock, {}
    for row, (origin, at) in enumerate(windows):
        mean, deviation = measures.scale.mean[at], measures.scale.deviation[at]
        begin = max(origin - rolling.past, origin - 3 * rolling.horizon)
        history = rolling.original[begin:origin, at]
        panel: dict[str, Any] = {
            "stamps": [clock.label(step) for step in range(origin, origin + rolling.horizon)],
            "point": (made.point[row].double().numpy() * deviation + mean).tolist(),
        }
        if made.quantiles is not None:
            levels = made.quantiles[row].double().numpy() * deviation + mean
            panel["quantiles"] = {f"{q:g}": levels[:, k].tolist() for k, q in enumerate(quantiles)}
        panel["history"] = {
            "stamps": [clock.label(step) for step in range(begin, origin)],
            "values": [None if np.isnan(value) else float(value) for value in history],
        }
        panels[rolling.series.names[at]] = panel
    return panels
