"""Figures and sentences of the view `errors`, from an `ErrorReport` and the statistics computed from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seqwise.lens.calibration import NUM_BINS, Calibration
from seqwise.lens.slices import SliceScore
from seqwise.page.figures import BarChart, Figure, Heatmap, LineChart, Reference, Series, Table
from seqwise.tasks.error_report import Confidences, CountMatrix, Coverage, Curves, ErrorReport, Listing, SliceGroup

MAX_TEXT = 160  # characters of a text in a table
MAX_COLUMNS = 10  # of a table of counts


def draw_report(
    report: ErrorReport,
    total: SliceScore,
    scores: Sequence[SliceScore],
    calibrations: Sequence[tuple[Confidences, Calibration]],
    coverage: np.ndarray | None,
) -> list[Figure]:
    """Returns all figures of a report."""
    figures: list[Figure] = [figure for matrix in report.confusions for figure in draw_matrix(matrix)]
    figures += [draw_listing(listing) for listing in report.listings]
    figures += [draw_curves(curves) for curves in report.curves]
    for confidences, calibration in calibrations:
        figures += draw_calibration(confidences, calibration)
    if report.coverage is not None and coverage is not None:
        figures.append(draw_coverage(report.coverage, coverage))
    for group in report.groups:
        own = [score for score in scores if score.group == group.name]
        if len(own) > 1:
            figures.append(draw_group(report, group, own, total))
    figures.append(draw_slices(report, scores))
    return figures


def draw_matrix(matrix: CountMatrix) -> list[Figure]:
    """Returns counts as shares of each row, and as a table if they are few."""
    is_square = list(matrix.rows) == list(matrix.columns)
    figures: list[Figure] = [draw_shares(matrix)] if is_square else []
    if len(matrix.columns) <= MAX_COLUMNS:
        title = f"{matrix.title}, counts" if is_square else matrix.title
        rows = [[name, *counts] for name, counts in zip(matrix.rows, matrix.counts.tolist())]
        columns = (f"{matrix.row_label} ↓ {matrix.column_label} →", *matrix.columns)
        figures.append(Table(title=title, note="" if is_square else matrix.note, columns=columns, rows=rows))
    return figures


def draw_shares(matrix: CountMatrix) -> Heatmap:
    """Returns counts as shares of each row; the names of the rows have their totals."""
    totals = matrix.counts.sum(axis=1)
    shares = np.where(totals[:, None] > 0, matrix.counts / np.maximum(1, totals)[:, None], np.nan)
    return Heatmap(
        title=matrix.title,
        note=" ".join(filter(None, ["Each row adds up to 1; its total is in brackets.", matrix.note])),
        values=shares,
        rows=[f"{name} ({total:,})" for name, total in zip(matrix.rows, totals)],
        columns=list(matrix.columns),
        row_label=matrix.row_label,
        column_label=matrix.column_label,
        value_label="share of the row",
        low=0.0,
        high=1.0,
    )


def draw_listing(listing: Listing) -> Table:
    """Returns rows as a table; long texts are shortened."""
    rows = [[shorten(cell) if isinstance(cell, str) else cell for cell in row] for row in listing.rows]
    note = listing.note if rows else "There are none."
    return Table(title=listing.title, note=note, columns=listing.columns, rows=rows)


def shorten(text: str) -> str:
    """Returns a text of one line; line breaks are shown as ⏎."""
    text = " ".join(text.replace("\n", " ⏎ ").split()) if text.strip() else text.replace("\n", "⏎").replace(" ", "␣")
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def draw_curves(curves: Curves) -> LineChart:
    """Returns lines over steps."""
    steps = np.asarray(curves.steps, dtype=np.float64)
    series = []
    for name, values in curves.lines.items():
        low, high = curves.band if curves.band is not None and name == "forecast" else (None, None)
        series.append(Series(name=name, x=steps, y=values, low=low, high=high))
    note = "" if curves.band is None else "The band is between the lowest and the highest quantile."
    return LineChart(title=curves.title, note=note, series=series, x_label=curves.axis, y_label=curves.label)


def draw_calibration(confidences: Confidences, calibration: Calibration) -> list[Figure]:
    """Returns the reliability curve, and a table of its bins."""
    used = calibration.counts > 0
    ends = np.array([0.0, 1.0])
    curve = Series(
        name="model",
        x=calibration.confidence[used],
        y=calibration.accuracy[used],
        low=calibration.low[used],
        high=calibration.high[used],
    )
    rows = [
        (f"{low:.1f} to {high:.1f}", int(count), mean, share)
        for low, high, count, mean, share in zip(
            calibration.edges, calibration.edges[1:], calibration.counts, calibration.confidence, calibration.accuracy
        )
        if count
    ]
    title = f"Calibration: {confidences.name}"
    return [
        LineChart(
            title=title,
            note=f"Below the diagonal the model is overconfident. ECE {calibration.error:.3f} with {NUM_BINS} bins of "
            "equal width; intervals of 95 % (Wilson).",
            series=[curve, Series(name="perfectly calibrated", x=ends, y=ends, role="state")],
            x_label="mean probability of the prediction",
            y_label="share that is right",
        ),
        Table(
            title=f"Bins, {confidences.name}",
            columns=("probability", "predictions", "mean probability", "share right"),
            rows=rows,
        ),
    ]


def draw_coverage(coverage: Coverage, shares: np.ndarray) -> LineChart:
    """Returns the share of true values below each quantile: `shares` has rows of value, low and high."""
    levels, ends = np.array(coverage.levels), np.array([0.0, 1.0])
    note = "On the diagonal the quantiles are calibrated. Intervals of 95 % (bootstrap over blocks of time)."
    return LineChart(
        title="Calibration of the quantiles",
        note=" ".join(filter(None, [note, coverage.note])),
        series=[
            Series(name="model", x=levels, y=shares[:, 0], low=shares[:, 1], high=shares[:, 2]),
            Series(name="perfectly calibrated", x=ends, y=ends, role="state"),
        ],
        x_label="quantile level",
        y_label="share of true values below the forecast quantile",
    )


def draw_group(report: ErrorReport, group: SliceGroup, scores: Sequence[SliceScore], total: SliceScore) -> Figure:
    """Returns the slices of a group with their intervals: as a line if they are points on an axis, else as bars."""
    metric = report.items.metric
    values, low, high = (np.array([getattr(score, name) for score in scores]) for name in ("value", "low", "high"))
    title = f"{capitalize(metric.name)} by {group.name}"
    note = f"All {report.items.name}: {total.value:.3g}. Intervals of 95 %."
    if group.positions is not None:
        return LineChart(
            title=title,
            note=note,
            series=[Series(name=metric.name, x=group.positions, y=values, low=low, high=high)],
            x_label=group.axis,
            y_label=metric.name,
            references=[Reference(axis="y", value=float(f"{total.value:.3g}"), label="all")],
        )
    labels = shorten_names([score.name for score in scores])
    names = [f"{label} ({score.count:,})" for label, score in zip(labels, scores)]
    roles = ["negative" if score.is_worse else "positive" for score in scores]
    if any(score.is_worse for score in scores):
        note += " Orange bars are significantly worse than the rest."
    return BarChart(
        title=title, note=note, names=names, values=values, value_label=metric.name, low=low, high=high, roles=roles
    )


def draw_slices(report: ErrorReport, scores: Sequence[SliceScore]) -> Table:
    """Returns the table of all slices that are tested; curves have figures of their own."""
    rows: list[tuple[str | float | None, ...]] = []
    for group in (group for group in report.groups if group.is_tested):
        own = [score for score in scores if score.group == group.name]
        for label, score in zip(shorten_names([score.name for score in own]), own):
            numbers = (score.value, score.low, score.high, score.rest, score.adjusted_p)
            mark = "worse" if score.is_worse else ""
            rows.append((group.name, label, score.count, *map(_or_none, numbers), mark))
    metric = report.items.metric
    columns = ("by", "slice", report.items.name, metric.name, "low", "high", "the rest", "adjusted p", "")
    return Table(title="All slices", note=f"{metric.name}: {metric.definition}.", columns=columns, rows=rows)


def shorten_names(names: Sequence[str]) -> list[str]:
    """Returns names without the words with which all begin or end: "texts of 1 to 8 tokens" → "1 to 8".

    Singular and plural count as the same word. Two names, "with …" and "without …", keep their ends.
    """
    words = [name.split(" ") for name in names]
    if len(names) < 2:
        return list(names)
    for end in ("first", "last"):
        while (len(names) > 2 or end == "first") and all(
            len(each) > 1 and each[0].rstrip("s") == words[0][0].rstrip("s") for each in words
        ):
            words = [each[1:] for each in words]
        words = [each[::-1] for each in words]
    return [" ".join(each) for each in words]


def capitalize(text: str) -> str:
    """Returns a text that begins with a capital letter, unless its first word has capitals already, as chrF."""
    return text if text.partition(" ")[0] != text.partition(" ")[0].lower() else f"{text[:1].upper()}{text[1:]}"


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
