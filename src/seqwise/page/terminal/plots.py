"""Line charts in braille dots, and scatter plots as a coarse grid of letters."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from seqwise.page.figures import LineChart, ScatterPlot, Series
from seqwise.page.labels import format_number, format_tick, measure_cells
from seqwise.page.palette import choose_group_styles, choose_styles
from seqwise.page.scales import (
    Axis,
    find_limits,
    make_axis,
    make_padded_axis,
    reduce_points,
    split_at_gaps,
    to_fractions,
)
from seqwise.page.terminal.screen import SHADES, Screen, align, describe_shades, fit_name, flow, pad, show_line

LETTERS = string.ascii_uppercase + string.ascii_lowercase
HEIGHT = 14  # lines of a plot
LETTER_DISTANCE = 24  # columns between two letters on a line of a chart
BRAILLE, BITS = 0x2800, np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of 4 × 2 dots
NUM_NAMES = 12  # in a scatter plot
NAME_WIDTH = 12
MAX_SERIES = 20  # or groups, in what is written below a plot

Grid = list[list[str]]  # a character for each line and column; wide characters are followed by an empty one


def draw_lines(figure: LineChart, screen: Screen) -> list[str]:
    """Returns lines in braille dots, each marked by a letter, and a table with the ends of each series."""
    series = list(figure.series)
    x_references = [reference.value for reference in figure.references if reference.axis == "x"]
    y_references = [reference.value for reference in figure.references if reference.axis == "y"]
    x_axis = make_axis([np.array(x_references), *(each.x for each in series)], figure.x_log, is_tight=True)
    y_axis = make_axis([np.array(y_references), *(each.y for each in series)], figure.y_log)
    width = screen.width - _measure_ticks(y_axis) - 2
    grid: Grid = [[" "] * width for _ in range(HEIGHT)]
    for value in y_references:
        _fill(grid, [_to_cell(1 - y_axis.locate(value), HEIGHT)], range(width), "┄")
    for value in x_references:
        _fill(grid, range(HEIGHT), [_to_cell(x_axis.locate(value), width)], "┊")
    letters: list[tuple[int, int, str]] = []
    styles = choose_styles([each.name for each in series], [each.role for each in series])
    for index, (each, style) in enumerate(zip(series, styles)):
        dots, colour = _draw_dots(x_axis.locate(each.x), y_axis.locate(each.y), width), style.colours[1]
        for row, column in np.argwhere(dots):
            grid[row][column] = screen.paint(chr(BRAILLE + dots[row, column]), colour)
        if len(series) > 1:
            letters += _place_letters(dots, index, len(series), screen.paint(LETTERS[index % len(LETTERS)], colour))
    for row, column, letter in letters:
        grid[row][column] = letter
    plot = _add_frame(grid, x_axis, y_axis, figure.x_label, figure.y_label, figure.x_names)
    references = [
        f"{'┄' if each.axis == 'y' else '┊'} {show_line(each.label)}: {format_tick(each.value)}"
        for each in figure.references
    ]
    return [*plot, *references, *_list_series(series, screen)]


def _measure_ticks(axis: Axis) -> int:
    return max((len(format_tick(tick)) for tick in axis.ticks), default=1)


def _to_cell(fraction: np.ndarray | float, count: int) -> int:
    return int(np.clip(np.nan_to_num(fraction) * count, 0, count - 1))


def _fill(grid: Grid, rows: Sequence[int], columns: Sequence[int], character: str) -> None:
    for row in rows:
        for column in columns:
            grid[row][column] = character


def _draw_dots(x: np.ndarray, y: np.ndarray, width: int) -> np.ndarray:
    """Returns (HEIGHT, width): the braille dots of a line through points, as bits; NaN interrupts the line."""
    dots = np.zeros((HEIGHT * 4, width * 2), dtype=bool)
    points = np.stack([x * (width * 2 - 1), (1 - y) * (HEIGHT * 4 - 1)], axis=1)
    for first, last in split_at_gaps(points):
        piece = reduce_points(points[first:last], 4 * width)
        _set_dots(dots, piece)
        for start, end in pairwise(piece):
            steps = int(np.abs(end - start).max()) + 1
            _set_dots(dots, start + (end - start) * np.linspace(0, 1, steps + 1)[:, None])
    blocks = dots.reshape(HEIGHT, 4, width, 2).transpose(0, 2, 1, 3)
    return (blocks * BITS).sum(axis=(2, 3))


def _set_dots(dots: np.ndarray, points: np.ndarray) -> None:
    columns, rows = np.rint(points).astype(int).T
    dots[rows.clip(0, dots.shape[0] - 1), columns.clip(0, dots.shape[1] - 1)] = True


def _place_letters(dots: np.ndarray, index: int, num_series: int, letter: str) -> list[tuple[int, int, str]]:
    """Returns places on a line, different ones for each series."""
    columns = np.flatnonzero(dots.any(axis=0))
    if not columns.size:
        return []
    offset = round((index + 0.5) * LETTER_DISTANCE / num_series)
    wanted = range(offset, dots.shape[1], LETTER_DISTANCE)
    chosen = [column for column in wanted if dots[:, column].any()] or [int(columns[-1])]
    return [(int(np.argmax(dots[:, column] > 0)), column, letter) for column in chosen]


def _add_frame(
    grid: Grid, x_axis: Axis, y_axis: Axis, x_label: str, y_label: str, x_names: Sequence[str] = ()
) -> list[str]:
    """Returns a plot with its axes, ticks and labels."""
    margin, width = _measure_ticks(y_axis), len(grid[0])
    labels = {_to_cell(1 - y_axis.locate(tick), len(grid)): format_tick(tick) for tick in y_axis.ticks}
    lines = [f"{show_line(y_label)}{' (log scale)' if y_axis.is_log else ''}"]
    for row, cells in enumerate(grid):
        lines.append(f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{''.join(cells)}")
    ticks: list[tuple[float, str]] = [(tick, format_tick(tick)) for tick in x_axis.ticks]
    if x_names:
        shown = [index for index in range(len(x_names)) if x_axis.low <= index <= x_axis.high]
        step = len(shown) // width + 1
        ticks = [(index, fit_name(x_names[index], NAME_WIDTH)) for index in shown[::step]]
    rule, texts = _draw_ticks([(_to_cell(x_axis.locate(value), width), text) for value, text in ticks], width)
    label = f"{show_line(x_label)}{' (log scale)' if x_axis.is_log else ''}"
    return [*lines, " " * (margin + 1) + "└" + rule, " " * (margin + 2) + texts, pad(label, margin + 2 + width, "^")]


def _draw_ticks(ticks: Sequence[tuple[int, str]], width: int) -> tuple[str, str]:
    """Returns a horizontal axis and the texts below it; a text without room is left out."""
    rule, texts, end = ["─"] * width, "", -1
    for column, text in ticks:
        size = measure_cells(text)
        start = max(0, min(column - size // 2, width - size))
        if start > end:
            rule[column] = "┬"
            texts = pad(texts, start) + text
            end = start + size
    return "".join(rule), texts


def _list_series(series: Sequence[Series], screen: Screen) -> list[str]:
    """Returns a table with the first, last, lowest and highest value of each series."""
    if not series:
        return ["(no series)"]
    rows = [["", "series", "first", "last", "lowest", "highest"]]
    for index, each in enumerate(series[:MAX_SERIES]):
        y = np.asarray(each.y, dtype=float)
        finite = np.flatnonzero(np.isfinite(y))
        letter = LETTERS[index % len(LETTERS)] if len(series) > 1 else "⠒"
        name = fit_name(each.name, screen.width // 3)
        if not finite.size:
            rows.append([letter, name, *[format_number(np.nan)] * 4])
            continue
        last = format_number(y[finite[-1]])
        if each.low is not None and each.high is not None:
            last += f" [{format_number(each.low[finite[-1]])}, {format_number(each.high[finite[-1]])}]"
        extremes = [format_number(y[finite].min()), format_number(y[finite].max())]
        rows.append([letter, name, format_number(y[finite[0]]), last, *extremes])
    rest = [f"({MAX_SERIES} of {len(series)} series)"] if len(series) > MAX_SERIES else []
    return [*align(rows, "<<>>>>"), *rest]


def draw_scatter(figure: ScatterPlot, screen: Screen) -> list[str]:
    """Returns points as a coarse grid of characters, with the names of those furthest from the centre."""
    x_axis, y_axis = make_padded_axis(figure.x), make_padded_axis(figure.y)
    width = screen.width - _measure_ticks(y_axis) - 2
    grid: Grid = [[" "] * width for _ in range(HEIGHT)]
    x, y = x_axis.locate(figure.x), 1 - y_axis.locate(figure.y)
    visible = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    places = {int(index): (_to_cell(y[index], HEIGHT), _to_cell(x[index], width)) for index in visible}
    marks, legend = _choose_marks(figure, screen)
    for index, (row, column) in places.items():
        grid[row][column] = marks[index]
    far = sorted(places, key=lambda index: -np.hypot(x[index] - x[visible].mean(), y[index] - y[visible].mean()))
    num_names = 0
    for index in far[: 5 * NUM_NAMES] if figure.names else []:
        if num_names < NUM_NAMES:
            num_names += _write_name(grid, *places[index], fit_name(figure.names[index], NAME_WIDTH))
    lines = _add_frame(grid, x_axis, y_axis, figure.x_label, figure.y_label)
    return [*lines, *legend, *_describe_extremes(figure, [int(index) for index in visible])]


def _choose_marks(figure: ScatterPlot, screen: Screen) -> tuple[list[str], list[str]]:
    """Returns a character for each point, by its group or value, and the legend."""
    num_points = len(figure.x)
    if figure.groups:
        styles = choose_group_styles(figure.groups)
        groups = list(styles)
        counts = Counter(figure.groups)
        letters = {group: LETTERS[index % len(LETTERS)] for index, group in enumerate(groups)}
        colours = {group: style.colours[1] for group, style in styles.items()}
        entries = [f"{letters[group]} {fit_name(group, 24)} ({counts[group]:,})" for group in groups[:MAX_SERIES]]
        entries += [f"and {len(groups) - MAX_SERIES} more groups"] if len(groups) > MAX_SERIES else []
        legend = flow(entries, [*list(colours.values())[:MAX_SERIES], ""], screen, "   ")
        return [screen.paint(letters[group], colours[group]) for group in figure.groups], legend
    if figure.values is not None:
        limits = find_limits(figure.values, "sequential")
        fractions = np.nan_to_num(to_fractions(figure.values, limits))
        marks = [SHADES[1 + min(3, int(fraction * 4))] for fraction in fractions]
        shades = describe_shades(figure.value_label, "sequential", limits, False).replace(f"[{SHADES}]", SHADES[1:])
        return marks, [shades]
    return ["•"] * num_points, []


def _write_name(grid: Grid, row: int, column: int, name: str) -> bool:
    """Writes a name beside a point, on the right or on the left; returns False if there is no room."""
    size = measure_cells(name)
    for start in (column + 2, column - 1 - size):
        cells = range(start - 1, start + size + 1)
        if start >= 0 and start + size <= len(grid[0]):
            free = [cell for cell in cells if 0 <= cell < len(grid[0]) and cell != column]
            if all(grid[row][cell] == " " for cell in free):
                grid[row][start : start + size] = [name, *[""] * (size - 1)]
                return True
    return False


def _describe_extremes(figure: ScatterPlot, visible: Sequence[int]) -> list[str]:
    """Returns the points at the four sides by name."""
    if not visible:
        return ["(no points)"]
    if not figure.names:
        return [f"{len(visible):,} points"]
    lines = [f"{len(visible):,} points"]
    for label, values in ((figure.x_label, figure.x), (figure.y_label, figure.y)):
        low, high = min(visible, key=lambda index: values[index]), max(visible, key=lambda index: values[index])
        ends = [f"{fit_name(figure.names[index], 24)} ({format_number(values[index])})" for index in (low, high)]
        lines.append(f"{show_line(label)}: from {ends[0]} to {ends[1]}")
    return lines
