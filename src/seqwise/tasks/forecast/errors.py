"""The errors of forecasts: by lead time, calendar and series; coverage of the quantiles; the worst windows.

Items are single forecast values. Units, within which errors are dependent, are blocks of time as long as the horizon,
as in comparisons: what is hard to forecast at one step is so for all windows and often for all series. Intervals and
tests are computed from the sums of the units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seqwise.errors import DataError
from seqwise.tasks.error_report import (
    MAX_NAMES,
    NUM_WORST,
    Coverage,
    Curves,
    ErrorReport,
    ErrorRequest,
    Listing,
    Metric,
    ScoredItems,
    SliceGroup,
)
from seqwise.tasks.forecast.evaluation import BATCH_SIZE, forecast_windows, iterate_forecasts
from seqwise.tasks.forecast.selection import read_windows, select_steps
from seqwise.tasks.forecast.task import Forecast
from seqwise.tasks.forecast.timestamps import TimeGrid
from seqwise.tasks.forecast.windows import RollingWindows
from seqwise.tasks.task import ModelBundle

MAX_WINDOWS = 20_000  # forecast unless set
MAX_TESTED_LEADS = 12  # up to this horizon each lead time is tested for significance; beyond it, bands of them
MAE = Metric(
    "MAE", lower_is_better=True, definition="mean absolute error in standard deviations of each series in training"
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


@dataclass(frozen=True)
class WindowErrors:
    """Standardised errors of W windows, N steps each; NaN where the true value is missing."""

    windows: np.ndarray  # (W, 2): first step, series
    errors: np.ndarray  # (W, N) truth − forecast
    is_below: np.ndarray | None  # (W, N, Q) bool: the truth is at most the forecast of the quantile


def collect_errors(task: type[Forecast], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Forecasts windows and returns what went wrong."""
    rolling = read_windows(bundle, data)
    start, stop, part = request.open(lambda split: select_steps(rolling.series, bundle, split))
    windows = rolling.find_windows(start, stop)
    if not len(windows):
        needed = rolling.min_history + rolling.horizon
        problem = f"no window of {needed:,} steps fits into {part} ({stop - start:,} steps)."
        raise DataError(problem, fix="Give a longer table.", file=rolling.series.source)
    chosen = choose_windows(windows, MAX_WINDOWS if request.max_examples is None else request.max_examples)
    errors = forecast_all(bundle, rolling, chosen, request)
    items, steps, leads, series = build_items(rolling, errors, start)
    observed = ~np.isnan(errors.errors)
    values = errors.errors[observed]
    return ErrorReport(
        f"{rolling.series.source}, {part}",
        items,
        build_groups(items, rolling, steps, leads, series),
        len(chosen),
        len(windows),
        "windows",
        coverage=measure_coverage(items, bundle.model.quantiles, errors, observed, part),
        listings=[list_worst(rolling, errors)],
        curves=draw_worst(bundle, rolling, errors),
        metrics={"mse": float((values**2).mean()), "mae": float(np.abs(values).mean()), "bias": float(values.mean())},
    )


def choose_windows(windows: np.ndarray, limit: int) -> np.ndarray:
    """Returns all windows, or about `limit` of them: all series at origins that are spread over time.

    In each of equal parts of time the origin is random, but always the same: at equal distances, all might be at the
    same hour of the day.
    """
    if len(windows) <= limit:
        return windows
    origins, first, counts = np.unique(windows[:, 0], return_index=True, return_counts=True)
    num_chosen = max(1, round(limit / counts.mean()))
    edges = np.arange(num_chosen + 1) * len(origins) // num_chosen
    chosen = np.random.default_rng(0).integers(edges[:-1], edges[1:])
    return np.concatenate([windows[first[index] : first[index] + counts[index]] for index in chosen])


def forecast_all(
    bundle: ModelBundle, rolling: RollingWindows, windows: np.ndarray, request: ErrorRequest
) -> WindowErrors:
    """Returns the errors of the point forecasts, and whether the truth is below each quantile."""
    errors, below = [], []
    for first in range(0, len(windows), BATCH_SIZE):
        batch = rolling.collate(windows[first : first + BATCH_SIZE])
        forecasts = forecast_windows(bundle.model, batch)
        truth, mask = batch.future.numpy().astype(np.float64), batch.mask.numpy()
        errors.append(np.where(mask, truth - forecasts.point.numpy(), np.nan))
        if forecasts.quantiles is not None:
            below.append(truth[..., None] <= forecasts.quantiles.numpy())
        request.progress(first + len(batch.mask), len(windows))
    return WindowErrors(windows, np.concatenate(errors), np.concatenate(below) if below else None)


def build_items(
    rolling: RollingWindows, errors: WindowErrors, start: int
) -> tuple[ScoredItems, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the observed values with their absolute errors; also the step, lead time from 0 and series of each."""
    rows, leads = np.nonzero(~np.isnan(errors.errors))
    steps, series = errors.windows[rows, 0] + leads, errors.windows[rows, 1]
    blocks, units = np.unique((steps - start) // rolling.horizon, return_inverse=True)
    absolute = np.abs(errors.errors[rows, leads])
    sums = np.stack([absolute, np.ones(len(absolute))], axis=1)
    unit_name = f"blocks of {rolling.horizon} steps"
    return ScoredItems(MAE, "values", sums, units, len(blocks), unit_name), steps, leads, series


def build_groups(
    items: ScoredItems, rolling: RollingWindows, steps: np.ndarray, leads: np.ndarray, series: np.ndarray
) -> list[SliceGroup]:
    """Returns slices by lead time, by calendar and by series."""
    step_name = rolling.series.grid.step_name
    names = [f"lead time {lead + 1}" for lead in range(rolling.horizon)]
    curve = items.group("lead time", names, leads, axis=f"lead time in steps (step: {step_name})")
    groups = [curve]
    if rolling.horizon > MAX_TESTED_LEADS:
        bands = items.group_bands("band of lead times", "lead times {}", leads + 1)
        groups = [replace(curve, is_tested=False), bands]
    groups += [
        items.group(name, names, values) for name, names, values in find_calendar_fields(rolling.series.grid, steps)
    ]
    if len(rolling.series.names) > 1:
        chosen = np.arange(len(rolling.series.names))
        if len(chosen) > MAX_NAMES:
            means = np.bincount(series, items.sums[:, 0], len(chosen)) / np.maximum(
                1, np.bincount(series, minlength=len(chosen))
            )
            chosen = np.argsort(-means, kind="stable")[:MAX_NAMES]
        position = np.full(len(rolling.series.names), -1)
        position[chosen] = np.arange(len(chosen))
        series_names = [f"series {rolling.series.names[index]}" for index in chosen]
        groups.append(items.group("series", series_names, position[series]))
    return groups


def find_calendar_fields(grid: TimeGrid, steps: np.ndarray) -> list[tuple[str, list[str], np.ndarray]]:
    """Returns (name, names of its values, value of each step) of the calendar fields that differ between steps."""
    phases = grid.compute_calendar_phases(steps[:1])
    if not phases:
        return []
    unique, inverse = np.unique(steps, return_inverse=True)
    moments = grid.get_datetimes(unique)
    days = moments.astype("datetime64[D]")
    fields = []
    if "time of day" in phases:
        hours = (moments - days).astype("timedelta64[h]").astype(np.int64)
        fields.append(("hour of the day", [f"hour {hour:02}" for hour in range(24)], hours[inverse]))
    if "day of week" in phases:
        weekdays = (days.astype(np.int64) + 3) % 7  # 1970 began on a Thursday
        fields.append(("day of the week", list(WEEKDAYS), weekdays[inverse]))
    if "time of day" not in phases and "time of year" in phases:
        months = moments.astype("datetime64[M]").astype(np.int64) % 12
        fields.append(("month", list(MONTHS), months[inverse]))
    return fields


def measure_coverage(
    items: ScoredItems, levels: tuple[float, ...], errors: WindowErrors, observed: np.ndarray, part: str
) -> Coverage | None:
    """Returns how often the truth is below the forecast of each quantile."""
    if errors.is_below is None:
        return None
    is_below = errors.is_below[observed]  # (values, Q)
    counts = np.bincount(items.units, minlength=items.num_units)
    sums = [np.stack([np.bincount(items.units, column, items.num_units), counts], axis=1) for column in is_below.T]
    note = "The quantiles were calibrated on the validation split." if part == "the valid split" else ""
    return Coverage(levels, np.stack(sums), note)


def find_worst(errors: WindowErrors, horizon: int, limit: int = NUM_WORST) -> list[int]:
    """Returns the windows with the largest mean absolute errors; of overlapping ones of a series only the worst."""
    means = np.nanmean(np.abs(errors.errors), axis=1)
    chosen: list[int] = []
    for index in np.argsort(-means, kind="stable"):
        origin, series = errors.windows[index]
        if all(
            errors.windows[each, 1] != series or abs(errors.windows[each, 0] - origin) >= horizon for each in chosen
        ):
            chosen.append(int(index))
        if len(chosen) == limit:
            break
    return chosen


def list_worst(rolling: RollingWindows, errors: WindowErrors) -> Listing:
    """Returns the windows with the largest errors."""
    grid, rows = rolling.series.grid, []
    for index in find_worst(errors, rolling.horizon):
        origin, series = errors.windows[index].tolist()
        error = errors.errors[index] * rolling.statistics.scaler.deviation[series]
        rows.append((
            float(np.nanmean(np.abs(errors.errors[index]))), rolling.series.names[series],
            grid.format_timestamp(origin), grid.format_timestamp(origin + rolling.horizon - 1),
            float(np.nanmean(np.abs(error))), float(np.nanmean(error)),
        ))  # fmt: skip
    columns = ("MAE (standardised)", "series", "first step", "last step", "MAE", "mean of truth − forecast")
    note = "Of overlapping windows of a series only the worst is listed. The last two columns have the original scale."
    return Listing("Worst windows", columns, rows, note)


def draw_worst(bundle: ModelBundle, rolling: RollingWindows, errors: WindowErrors) -> list[Curves]:
    """Returns the worst window as curves: the truth, before and during it, and the forecast with its quantiles."""
    (worst,) = find_worst(errors, rolling.horizon, 1)
    origin, series = errors.windows[worst].tolist()
    forecast = next(iterate_forecasts(bundle.model, rolling, errors.windows[worst : worst + 1]))
    first = max(0, origin - rolling.horizon)
    stop = origin + rolling.horizon
    truth = rolling.original[first:stop, series]

    def pad(values: list[float]) -> np.ndarray:
        return np.concatenate([np.full(origin - first, np.nan), values])

    quantiles = list(forecast.get("quantiles", {}).values())
    return [
        Curves(
            f"The worst window: {rolling.series.names[series]} from {rolling.series.grid.format_timestamp(origin)}",
            [step - origin + 1 for step in range(first, stop)],
            f"lead time in steps (step: {rolling.series.grid.step_name})",
            {"truth": truth, "forecast": pad(forecast["point"])},
            rolling.series.names[series],
            (pad(quantiles[0]), pad(quantiles[-1])) if len(quantiles) > 1 else None,
        )
    ]
