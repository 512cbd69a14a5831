"""Bars, tokens, tables and findings as SVG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqwise.page.drawing.canvas import (
    INK,
    LINE_HEIGHT,
    MARGIN,
    MUTED,
    RULE,
    WIDTH,
    Canvas,
    format_limit,
    replace_minus,
)
from seqwise.page.drawing.colours import choose_ink, format_colour, lighten, make_ramp
from seqwise.page.figures import BarChart, Findings, Table, TokenText
from seqwise.page.labels import format_number, measure_pixels, shorten, shorten_all, show_text, wrap
from seqwise.page.palette import ROLES, choose_bar_styles
from seqwise.page.scales import Axis, find_limits, find_strongest, make_axis, to_fractions

MAX_BARS, MAX_TOKENS, MAX_TABLE_ROWS = 60, 2000, 100
BAR_STEP, BAR_HEIGHT = 21, 14
NAME_WIDTH, VALUE_WIDTH = 180, 64  # on the left of the bars; at their ends
TOKEN_HEIGHT = 20
MIN_COLUMN = 40  # pixels of a table that is too wide
SEVERITIES = {"problem": "#b3261e", "warning": "#8a6400", "note": "#4a453f", "good": "#00795c"}


def draw_bars(figure: BarChart) -> Canvas:
    """Returns horizontal bars from zero, with their values and intervals."""
    canvas = Canvas()
    values = np.asarray(figure.values, dtype=float)
    shown = sorted(find_strongest(values, MAX_BARS)) if len(values) > MAX_BARS else list(range(len(values)))
    if not shown:
        canvas.add_paragraph("no bars", colour=MUTED)
        return canvas
    names = shorten_all([figure.names[index] for index in shown], NAME_WIDTH, measure_pixels)
    bounds = [np.asarray(each, dtype=float)[shown] for each in (figure.low, figure.high) if each is not None]
    axis = make_axis([np.zeros(1), values[shown], *bounds], num_ticks=8)
    has_negative = bool((values[shown] < 0).any())
    left = MARGIN + max(map(measure_pixels, names)) + 8 + (VALUE_WIDTH if has_negative else 0)
    width, bottom = WIDTH - MARGIN - VALUE_WIDTH - left, len(shown) * BAR_STEP + 6.0
    _add_value_axis(canvas, axis, left, width, bottom, figure.value_label)
    styles = choose_bar_styles(figure.names, figure.roles)
    for row, (name, index) in enumerate(zip(names, shown)):
        y = 6 + row * BAR_STEP
        canvas.add_text(left - 8 - (VALUE_WIDTH if has_negative else 0), y + 11, name, anchor="end")
        _add_bar(canvas, figure, index, styles[index].colours[0], axis, left, width, y)
    zero = left + width * float(axis.locate(0.0))
    canvas.add_line([(zero, 0), (zero, bottom)], MUTED)
    if len(shown) < len(values):
        canvas.height += 4
        canvas.add_paragraph(f"{len(shown)} of {len(values):,} bars: those furthest from zero.", colour=MUTED)
    return canvas


def _add_value_axis(canvas: Canvas, axis: Axis, left: float, width: float, bottom: float, label: str) -> None:
    for tick in axis.ticks:
        x = left + width * float(axis.locate(tick))
        canvas.add_line([(x, 0), (x, bottom)], RULE, 0.7)
        canvas.add_text(x, bottom + 15, format_limit(tick), anchor="middle")
    canvas.add_text(left + width / 2, bottom + 15 + LINE_HEIGHT, label, anchor="middle")


def _add_bar(
    canvas: Canvas, figure: BarChart, index: int, colour: str, axis: Axis, left: float, width: float, y: float
) -> None:
    """Adds a bar, the line of its interval and its value beside them."""
    value = float(figure.values[index])
    if not np.isfinite(value):
        canvas.add_text(left + width * float(axis.locate(0.0)) + 6, y + 11, "no value", colour=MUTED)
        return
    start, end = sorted(left + width * float(axis.locate(each)) for each in (0.0, value))
    has_interval = figure.low is not None and figure.high is not None
    canvas.add_rectangle(start, y, max(end - start, 0.5), BAR_HEIGHT, fill=lighten(colour) if has_interval else colour)
    if figure.low is not None and figure.high is not None:
        low, high = (left + width * float(axis.locate(float(each[index]))) for each in (figure.low, figure.high))
        if np.isfinite([low, high]).all():
            middle = y + BAR_HEIGHT / 2
            canvas.add_line([(low, middle), (high, middle)], INK, 1.2)
            for x in (low, high):
                canvas.add_line([(x, middle - 4), (x, middle + 4)], INK, 1.2)
            start, end = min(start, low), max(end, high)
    text = replace_minus(format_number(value))
    length = measure_pixels(text)
    x = start - 5 - length if value < 0 else end + 5
    canvas.add_rectangle(x - 1, y, length + 2, BAR_HEIGHT, fill="#ffffff")  # over the grid lines
    canvas.add_text(x + length if value < 0 else x, y + 11, text, anchor="end" if value < 0 else "start", colour=MUTED)


def draw_tokens(figure: TokenText) -> Canvas:
    """Returns tokens one after the other on the colour of their value; negative ones are underlined."""
    canvas = Canvas()
    values = np.asarray(figure.values, dtype=float)
    limits, ramp = find_limits(values, figure.scale), make_ramp(figure.scale)
    x, has_values = float(MARGIN), bool(np.isfinite(values).any())
    if has_values:
        x = canvas.add_colour_scale(x, 4, figure.value_label, limits, ramp) + 18
    if figure.scale == "diverging" and (values < 0).any():
        canvas.add_line([(x, 16), (x + 16, 16)], ROLES["negative"][0], 2)
        x += 22 + canvas.add_text(x + 22, 14, "negative") + 18
    if not np.isfinite(values).all():
        canvas.add_swatch(x, 4, "no value")
    colours = ramp.sample(to_fractions(values, limits))
    names = shorten_all(figure.tokens[:MAX_TOKENS], WIDTH - 2 * MARGIN - 8, measure_pixels)
    x, y = float(MARGIN), canvas.height + 12
    for index, name in enumerate(names):
        width = measure_pixels(name) + 6
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + TOKEN_HEIGHT + 6
        stroke, line = (INK, 1.6) if index in figure.selected else ("none", 1.0)
        canvas.add_rectangle(x, y, width, TOKEN_HEIGHT, format_colour(colours[index]), stroke, line)
        ink = choose_ink(colours[index])
        canvas.add_text(x + width / 2, y + 14, name, anchor="middle", colour=ink)
        if figure.scale == "diverging" and values[index] < limits[0] / 10:
            canvas.add_line([(x, y + TOKEN_HEIGHT + 1), (x + width, y + TOKEN_HEIGHT + 1)], ROLES["negative"][0], 2)
        x += width + 3
        if figure.tokens[index].strip(" ").startswith("\n"):
            x, y = float(MARGIN), y + TOKEN_HEIGHT + 6
    if len(figure.tokens) > MAX_TOKENS:
        canvas.height += 6
        canvas.add_paragraph(f"The first {MAX_TOKENS:,} of {len(figure.tokens):,} tokens.", colour=MUTED)
    return canvas


def draw_table(figure: Table) -> Canvas:
    """Returns a table; numbers are aligned right, and texts shortened until it fits."""
    canvas = Canvas()
    shown = [list(row) for row in figure.rows[:MAX_TABLE_ROWS]]
    texts = [list(map(show_text, figure.columns)), *([_format_entry(entry) for entry in row] for row in shown)]
    widths = [max(map(measure_pixels, column)) for column in zip(*texts)]
    while sum(widths) + 22 * (len(widths) - 1) > WIDTH - 2 * MARGIN and max(widths) > MIN_COLUMN:
        widths[widths.index(max(widths))] -= 4
    are_texts = [any(isinstance(entry, str) for entry in column) for column in zip(*shown)] or [True] * len(widths)
    total = sum(widths) + 22 * (len(widths) - 1)
    for number, row in enumerate(texts):
        _add_table_row(canvas, row, widths, are_texts, number * LINE_HEIGHT * 1.15 + 14, MUTED if number == 0 else INK)
        if number in (0, len(texts) - 1):
            y = number * LINE_HEIGHT * 1.15 + 19
            canvas.add_line([(MARGIN, y), (MARGIN + total, y)], MUTED if number == 0 else RULE)
    if len(shown) < len(figure.rows):
        canvas.height += 4
        canvas.add_paragraph(f"The first {len(shown)} of {len(figure.rows):,} rows.", colour=MUTED)
    return canvas


def _add_table_row(
    canvas: Canvas, row: Sequence[str], widths: Sequence[float], are_texts: Sequence[bool], y: float, colour: str
) -> None:
    x = float(MARGIN)
    for text, width, is_text in zip(row, widths, are_texts):
        fitted = shorten(text, width, measure_pixels)
        if fitted:
            canvas.add_text(x if is_text else x + width, y, fitted, anchor="start" if is_text else "end", colour=colour)
        x += width + 22


def _format_entry(entry: str | float | int | None) -> str:
    return show_text(entry) if isinstance(entry, str) else replace_minus(format_number(entry))


def draw_findings(figure: Findings) -> Canvas:
    """Returns findings as a list, each with its evidence and a command to try."""
    canvas = Canvas()
    if not figure.findings:
        canvas.add_paragraph("no findings", colour=MUTED)
    for finding in figure.findings:
        top, colour = canvas.height, SEVERITIES[finding.severity]
        _add_finding_line(canvas, finding.text, INK)
        canvas.add_circle(MARGIN + 5, top + 9, 4.5, colour)
        canvas.add_text(MARGIN + 16, top + LINE_HEIGHT - 4, finding.severity, colour=colour)
        if finding.evidence:
            _add_finding_line(canvas, finding.evidence, MUTED)
        if finding.command:
            _add_finding_line(canvas, finding.command, INK, ' font-family="monospace"')
        canvas.height += 8
    return canvas


def _add_finding_line(canvas: Canvas, text: str, colour: str, attributes: str = "") -> None:
    """Adds a text below everything else, beside the column of severities."""
    left = MARGIN + 76
    size = 1.25 if attributes else 1.0  # characters of a fixed width are wider
    for line in wrap(show_text(text), (WIDTH - MARGIN - left) / size, measure_pixels):
        canvas.height += LINE_HEIGHT
        canvas.add_text(left, canvas.height - 4, line, colour=colour, attributes=attributes)
