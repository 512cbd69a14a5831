"""Forecasts from a table that the page shows as text, so that a value can be edited."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seqwise.errors import DataError, SeqwiseError, UsageError
from seqwise.page.figures import LineChart, Reference, Series, Table
from seqwise.page.packing import pack_figure
from seqwise.studio.work.examples import choose_index
from seqwise.studio.work.predictions import load_task
from seqwise.studio.worker import Context
from seqwise.tasks.forecast.evaluation import format_forecasts
from seqwise.tasks.forecast.output import find_last_windows
from seqwise.tasks.forecast.selection import read_windows, select_steps
from seqwise.tasks.forecast.time_columns import split_timestamp
from seqwise.tasks.forecast.windows import RollingWindows
from seqwise.training.api import TrainedModel

HISTORY_FACTOR = 2  # steps that the page gets, in units of those that the model reads


def read_table(context: Context, run: str, upload: str | None = None, number: int = 0) -> dict[str, Any]:
    """Returns the end of a table as CSV: of an upload, or of the data of the run up to a time of the validation split.

    Of the run's own data the true values that follow are returned too.
    """
    trained = load_task(context, run, "forecast")
    if upload is not None:
        rolling = read_windows(trained.bundle, upload)
        text = format_table(rolling, rolling.series.end)
        return {"text": text, "truth": {}, "num_steps": rolling.series.end, "source": "the file"}
    rolling, origin = choose_window(trained, number)
    values = rolling.original[origin : origin + rolling.horizon]
    truth = {name: values[:, index] for index, name in enumerate(rolling.series.names)}
    text = format_table(rolling, origin)
    return {"text": text, "truth": truth, "num_steps": rolling.series.end, "source": rolling.series.source}


def choose_window(trained: TrainedModel, number: int) -> tuple[RollingWindows, int]:
    """Returns the windows of the run's data, and the first step to forecast of one of the validation split."""
    data = trained.run.metadata.data
    try:
        rolling = read_windows(trained.bundle, data)
        start, stop, _ = select_steps(rolling.series, trained.bundle, "valid")
        origins = np.unique(rolling.find_windows(start, stop)[:, 0])
    except SeqwiseError as error:
        problem = f"the data of the run cannot be read. {error.problem}"
        raise DataError(problem, fix="Choose a table of your own.", file=error.file) from None
    if not len(origins):
        raise DataError("no window fits into the validation split.", fix="Choose a table of your own.", file=data)
    return rolling, int(origins[choose_index(len(origins), number)])


def format_table(rolling: RollingWindows, origin: int) -> str:
    """Returns the steps before `origin` as CSV, and of those after it what is known in advance."""
    series, columns = rolling.series, rolling.series.columns
    first = max(0, origin - HISTORY_FACTOR * rolling.lookback)
    num_steps = series.known.shape[1]
    last = min(num_steps, origin + rolling.horizon) if columns.known else origin
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [columns.series] if columns.series else []
    writer.writerow([*columns.time_columns, *names, *columns.targets, *columns.known])
    for group, group_name in enumerate(series.group_names):
        indices = np.flatnonzero(series.group == group)
        for step in range(first, last):
            times = split_timestamp(series.grid.format_timestamp(step), columns.time_columns) if columns.time else []
            targets = rolling.original[step, indices] if step < origin else np.full(len(indices), np.nan)
            numbers = [*targets, *series.known[group, step]]
            group_fields = [group_name] if columns.series else []
            writer.writerow([*times, *group_fields, *("" if np.isnan(value) else f"{value:.8g}" for value in numbers)])
    return text.getvalue()


def forecast(
    context: Context,
    run: str,
    text: str,
    series: str | None = None,
    truth: Sequence[float | None] = (),
    before: Sequence[float | None] = (),
) -> dict[str, Any]:
    """Returns the forecast of a series after the end of a table, as a chart and as a table.

    truth, before: values of the forecast steps that are drawn too: the true ones, and an earlier forecast
    """
    trained = load_task(context, run, "forecast")
    try:
        rolling = read_windows(trained.bundle, f"{text}\n")  # a text without a line break would be a path
    except DataError as error:
        file = "the table" if error.line is not None else None
        raise DataError(error.problem, fix=error.fix, file=file, line=error.line) from None
    names = rolling.series.names
    if series is not None and series not in names:
        raise UsageError(f"the table has no series {series!r}.", fix=f"Choose one of: {', '.join(names[:20])}.")
    name = series or names[-1]
    windows = find_last_windows(rolling)
    chosen = format_forecasts(trained.bundle.model, rolling, windows[[names.index(name)]])[name]
    chart = draw_forecast(name, chosen, rolling.series.grid.step_name, {"true values": truth, "before": before})
    return {
        "names": names,
        "series": name,
        "point": chosen["point"],
        "chart": pack_figure(chart),
        "table": pack_figure(list_forecast(name, chosen, truth, before)),
        "warnings": rolling.series.findings.warning_messages(),
    }


def draw_forecast(
    name: str, forecast: dict[str, Any], step_name: str, others: dict[str, Sequence[float | None]]
) -> LineChart:
    """Returns the history and the forecast; the band lies between the lowest and the highest quantile."""
    past = forecast["history"]["values"]
    names, year = shorten_timestamps([*forecast["history"]["timestamps"], *forecast["timestamps"]])
    start = len(past)
    last = past[-1:] if past and past[-1] is not None else []  # so that the lines meet
    x = np.arange(start - len(last), start + len(forecast["point"]))
    levels = sorted(forecast.get("quantiles", {}), key=float)
    low, high = (
        (to_array([*last, *forecast["quantiles"][level]]) for level in (levels[0], levels[-1]))
        if len(levels) > 1
        else (None, None)
    )
    lines = [
        Series(name="history", x=np.arange(start), y=to_array(past)),
        Series(name="forecast", x=x, y=to_array([*last, *forecast["point"]]), low=low, high=high),
    ]
    lines += [
        Series(name=other, x=np.arange(start, start + len(values)), y=to_array(values))
        for other, values in others.items()
        if any(value is not None for value in values)
    ]
    return LineChart(
        title=name,
        note=f"The band is between the quantiles {levels[0]} and {levels[-1]}." if len(levels) > 1 else "",
        series=lines,
        x_label=f"time{f' in {year}' if year else ''} (step: {step_name})",
        y_label=name,
        x_names=names,
        references=[Reference(axis="x", value=float(start) - 0.5, label="forecast")],
    )


def shorten_timestamps(times: Sequence[str]) -> tuple[list[str], str]:
    """Returns timestamps without the seconds and the year, if all have the same; and the year, "" if it varies."""
    if all(re.search(r":\d\d:00$", time) for time in times):
        times = [time.removesuffix(":00") for time in times]
    years = {time[:5] for time in times}
    if len(years) == 1 and re.fullmatch(r"\d{4}-", year := years.pop()):
        return [time[5:] for time in times], year[:4]
    return list(times), ""


def list_forecast(
    name: str, forecast: dict[str, Any], truth: Sequence[float | None], before: Sequence[float | None]
) -> Table:
    """Returns a row for each step."""
    quantiles: dict[str, Sequence[float]] = forecast.get("quantiles", {})
    levels = sorted(quantiles, key=float)
    optional = {"before": before, "true value": truth}
    shown = {title: values for title, values in optional.items() if len(values) == len(forecast["point"])}

    def build_rows() -> Iterator[list[Any]]:
        for step, timestamp in enumerate(forecast["timestamps"]):
            values = [forecast["point"][step], *(quantiles[level][step] for level in levels)]
            yield [timestamp, *values, *(column[step] for column in shown.values())]

    columns = ["time", "forecast", *(f"quantile {level}" for level in levels), *shown]
    return Table(title=f"Forecast of {name}", columns=columns, rows=list(build_rows()))


def to_array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
