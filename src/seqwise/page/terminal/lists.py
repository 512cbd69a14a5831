"""Figures that are lists of texts: bars, tokens, tables and findings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqwise.page.figures import BarChart, Findings, Table, TokenText
from seqwise.page.labels import format_number, measure_cells, shorten, wrap
from seqwise.page.palette import ROLES, choose_bar_styles
from seqwise.page.scales import find_limits, find_strongest, to_fractions
from seqwise.page.terminal.screen import Screen, align, fit_name, fit_names, flow, pad, show_line

EIGHTHS = " ▏▎▍▌▋▊▉"
MAX_BARS, MAX_TABLE_ROWS = 40, 60
MAX_TOKENS, NUM_STRONGEST = 400, 8
NAME_WIDTH = 24
MIN_COLUMN = 6  # of a table that is too wide
Entry = str | float | int | None  # of a table
SEVERITIES = {"problem": "bold red", "warning": "bold yellow", "note": "bold", "good": "bold green"}


def draw_bars(figure: BarChart, screen: Screen) -> list[str]:
    """Returns horizontal bars with their values; negative ones extend to the left of zero."""
    values = np.asarray(figure.values, dtype=float)
    shown = sorted(find_strongest(values, MAX_BARS)) if len(values) > MAX_BARS else list(range(len(values)))
    if not shown:
        return ["(no bars)"]
    names = fit_names([figure.names[index] for index in shown], min(NAME_WIDTH, screen.width // 3))
    numbers = [_format_bar(figure, index) for index in shown]
    room = max(8, screen.width - measure_cells(names[0]) - max(map(len, numbers)) - 3)
    finite = values[np.isfinite(values)]
    low, high = min(0.0, finite.min(initial=0.0)), max(0.0, finite.max(initial=0.0))
    scale = room / ((high - low) or 1.0)
    lines, styles = [], choose_bar_styles(figure.names, figure.roles)
    for name, number, index in zip(names, numbers, shown):
        bar = _draw_bar(np.nan_to_num(values[index]) * scale, round(-low * scale), room)
        lines.append(f"{name} {screen.paint(bar, styles[index].colours[1])} {number}")
    rest = f" ({len(shown)} of {len(values):,}: those furthest from zero)" if len(shown) < len(values) else ""
    return [*lines, f"bars: {show_line(figure.value_label)}{rest}"]


def _format_bar(figure: BarChart, index: int) -> str:
    number = format_number(float(figure.values[index]))
    if figure.low is None or figure.high is None:
        return number
    return f"{number} [{format_number(float(figure.low[index]))}, {format_number(float(figure.high[index]))}]"


def _draw_bar(length: float, zero: int, room: int) -> str:
    """Returns a bar of a length in columns, beside the zero that is `zero` columns from the left."""
    if length < 0:
        return pad(" " * (zero - round(-length)) + "█" * round(-length) + "│", room + 1)
    rest = EIGHTHS[int(length % 1 * 8)].strip()
    return pad(" " * zero + "│" + ("█" * int(length) + rest)[: room - zero], room + 1)


def draw_tokens(figure: TokenText, screen: Screen) -> list[str]:
    """Returns a running text in which the strongest tokens have their values, and these tokens as bars."""
    values = np.asarray(figure.values, dtype=float)
    strongest = find_strongest(values, NUM_STRONGEST)
    limits = find_limits(values, figure.scale)
    texts = []
    for index, token in enumerate(figure.tokens[:MAX_TOKENS]):
        text = fit_name(token, screen.width - 12)
        if index in strongest:
            text = f"[{text} {format_number(values[index])}]"
        texts.append(f"«{text}»" if index in figure.selected else text)
    lines = flow(texts, [_choose_style(value, figure, limits) for value in values], screen)
    if len(figure.tokens) > MAX_TOKENS:
        lines.append(f"({MAX_TOKENS} of {len(figure.tokens):,} tokens)")
    selected = ["«…» selected"] if figure.selected else []
    names = [figure.tokens[index] for index in strongest]
    bars = BarChart(title="", names=names, values=values[strongest], value_label=f"{figure.value_label}, strongest")
    return [*lines, *selected, *(draw_bars(bars, screen) if strongest else ["(no values)"])]


def _choose_style(value: float, figure: TokenText, limits: Sequence[float]) -> str:
    """Returns a style for a token by its value; none for the weaker half."""
    fraction = float(to_fractions(np.asarray(value), limits))
    if figure.scale == "sequential":
        return "bold" if fraction >= 0.5 else ""
    is_strong = abs(2 * fraction - 1) >= 0.5
    return f"bold {ROLES['positive' if fraction > 0.5 else 'negative'][1]}" if is_strong else ""


def draw_table(figure: Table, screen: Screen) -> list[str]:
    """Returns a table; numbers are aligned right, and texts shortened until it fits.

    Columns for which there is no room follow below, after the first column once more.
    """
    shown = [list(row) for row in figure.rows[:MAX_TABLE_ROWS]]
    num_columns = (screen.width + 2) // (MIN_COLUMN + 2)
    lines = _draw_columns(figure.columns[:num_columns], [row[:num_columns] for row in shown], screen)
    for start in range(num_columns, len(figure.columns), num_columns - 1):
        chosen = [0, *range(start, min(start + num_columns - 1, len(figure.columns)))]
        rows = [[row[index] for index in chosen] for row in shown]
        lines += ["", *_draw_columns([figure.columns[index] for index in chosen], rows, screen)]
    rest = [f"({len(shown)} of {len(figure.rows):,} rows)"] if len(shown) < len(figure.rows) else []
    return [*lines, *rest]


def _draw_columns(columns: Sequence[str], rows: Sequence[Sequence[Entry]], screen: Screen) -> list[str]:
    texts = [[_format_entry(entry, screen.width) for entry in row] for row in (columns, *rows)]
    widths = [max(map(measure_cells, column)) for column in zip(*texts)]
    while sum(widths) + 2 * (len(widths) - 1) > screen.width and max(widths) > MIN_COLUMN:
        widths[widths.index(max(widths))] -= 1
    fitted = [[shorten(text, width) for text, width in zip(row, widths)] for row in texts]
    sides = "".join("<" if any(isinstance(entry, str) for entry in column) else ">" for column in zip(*rows))
    lines = align(fitted, sides or "<" * len(widths))
    rule = "  ".join("─" * max(map(measure_cells, column)) for column in zip(*fitted))
    return [*lines[:1], *([rule] if rule else []), *lines[1:]]


def _format_entry(entry: Entry, limit: int) -> str:
    if isinstance(entry, str):
        return fit_name(entry, limit) if entry else ""
    return format_number(entry)


def draw_findings(figure: Findings, screen: Screen) -> list[str]:
    """Returns findings as a list, each with its evidence and a command to try."""
    lines = []
    for finding in figure.findings:
        texts = [show_line(finding.text)]
        texts += [f"evidence: {show_line(finding.evidence)}"] if finding.evidence else []
        wrapped = [line for text in texts for line in wrap(text, screen.width - 10)]
        wrapped += [f"try: {show_line(finding.command)}"] if finding.command else []  # not wrapped: it can be copied
        tag = screen.paint(f"{finding.severity:<8}", SEVERITIES[finding.severity])
        lines += [f"{tag}  {wrapped[0]}", *(f"{'':10}{line}" for line in wrapped[1:])]
    return lines or ["(no findings)"]
