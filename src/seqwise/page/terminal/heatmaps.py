"""Heatmaps, grids of heatmaps and weights over an image, as numbers or shading blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seqwise.page.figures import Heatmap, HeatmapGrid, ImageOverlay
from seqwise.page.labels import LEFT_TO_RIGHT_MARK, format_number, isolate, measure_cells, shorten, split_clusters
from seqwise.page.scales import find_common_limits, get_quantity, pool, split_titles, to_fractions
from seqwise.page.terminal.screen import (
    MISSING,
    Screen,
    describe_shades,
    draw_cell,
    fit_name,
    fit_names,
    pad,
    show_line,
)

MAX_ROWS = 40  # of a heatmap
MAX_NUMBERS = 24  # rows and columns of a heatmap that is written as numbers
NAME_WIDTH, HEADING_HEIGHT = 16, 10  # of the names of rows and columns
MIN_NUMBER_WIDTH, MAX_NUMBER_WIDTH = 3, 8
MIN_PANEL, MAX_PANEL = 12, 24  # columns of a panel with a title of its own
MAX_PANEL_HEIGHT = 8
MAX_GRID_ROWS = 24


def draw_heatmap(figure: Heatmap, screen: Screen) -> list[str]:
    """Returns a heatmap as numbers where they fit, otherwise as shading blocks."""
    values = np.asarray(figure.values, dtype=float)
    if not values.size:
        return ["(no values)"]
    if numbers := _draw_numbers(figure, values, screen):
        return numbers
    lines, legend, pooling = _draw_shades(figure, values, screen, MAX_ROWS)
    return [*lines, _describe_axes(figure), legend, *pooling]


def _draw_numbers(figure: Heatmap, values: np.ndarray, screen: Screen) -> list[str]:
    """Returns a small matrix as whole numbers of a power of ten; nothing if it is too large."""
    if max(values.shape) > MAX_NUMBERS:
        return []
    unit = _choose_unit(values)
    cells = [[_format_cell(value, unit) for value in row] for row in values]
    names = fit_names(figure.rows, NAME_WIDTH)
    room = (screen.width - measure_cells(names[0])) // len(cells[0]) - 1
    width = max(MIN_NUMBER_WIDTH, *(len(cell) for row in cells for cell in row))
    wanted = max(measure_cells(fit_name(name, MAX_NUMBER_WIDTH)) for name in figure.columns)
    width = max(width, min(room, wanted))
    if width > room:
        return []
    heading = _draw_heading(figure.columns, width + 1, measure_cells(names[0]))
    rows = [name + "".join(pad(cell, width + 1, ">") for cell in row) for name, row in zip(names, cells)]
    legend = show_line(figure.value_label) + ("" if unit == 1 else f", in units of {unit:g}")
    missing = f"; {MISSING} no value" if not np.isfinite(values).all() else ""
    return [*heading, *rows, _describe_axes(figure), f"cells: {legend}{missing}"]


def _choose_unit(values: np.ndarray) -> float:
    """Returns the power of ten in which the largest value has two digits; 1 for whole numbers below 100,000."""
    finite = values[np.isfinite(values)]
    largest = np.abs(finite).max(initial=0.0)
    if largest < 100_000 and (finite == np.round(finite)).all():
        return 1.0
    return 10.0 ** (math.ceil(math.log10(largest)) - 2)


def _format_cell(value: float, unit: float) -> str:
    return f"{round(value / unit)}" if np.isfinite(value) else MISSING


def _draw_shades(
    figure: Heatmap, values: np.ndarray, screen: Screen, max_rows: int, has_heading: bool = True
) -> tuple[list[str], str, list[str]]:
    """Returns the lines of a heatmap, its legend, and a sentence about cells that were joined, if there is one."""
    names = [fit_name(name, NAME_WIDTH) for name in figure.rows]
    name_width = max(map(measure_cells, names)) + 1
    is_wide = any(measure_cells(each) > 1 for name in figure.columns for each in split_clusters(fit_name(name, 9)))
    room = screen.width - name_width
    cell_width = 2 if is_wide or 2 * values.shape[1] <= room else 1
    pooled = pool(values, max_rows, room // cell_width)
    [limits] = find_common_limits([figure], [pooled.values], pooled.is_pooled)
    columns = [figure.columns[index] for index in pooled.columns]
    lines = _draw_heading(columns, cell_width, name_width) if has_heading else []
    for index, row in zip(pooled.rows, to_fractions(pooled.values, limits)):
        cells = (draw_cell(fraction, figure.scale, cell_width, figure.role, screen) for fraction in row)
        lines.append(pad(names[index], name_width) + "".join(cells))
    legend = describe_shades(figure.value_label, figure.scale, limits, bool(np.isnan(pooled.values).any()))
    return lines, legend, [pooled.describe()] if pooled.is_pooled else []


def _draw_heading(names: Sequence[str], cell_width: int, indent: int) -> list[str]:
    """Returns the names of columns above them: side by side where they fit, otherwise from top to bottom."""
    fitted = [fit_name(name, 10**6) for name in names]
    if max(map(measure_cells, fitted)) < cell_width:
        return [" " * indent + "".join(pad(name, cell_width, ">") for name in fitted)]
    columns = [[isolate(each) for each in split_clusters(name.rstrip(LEFT_TO_RIGHT_MARK))] for name in fitted]
    columns = [each if len(each) <= HEADING_HEIGHT else [*each[: HEADING_HEIGHT - 1], "…"] for each in columns]
    height = max(map(len, columns))
    filled = [[" "] * (height - len(each)) + each for each in columns]
    side = ">" if cell_width > 2 else "<"
    return [" " * indent + "".join(pad(each[level], cell_width, side) for each in filled) for level in range(height)]


def _describe_axes(figure: Heatmap) -> str:
    rows, columns = show_line(figure.row_label), show_line(figure.column_label)
    return f"rows: {rows}; columns: {columns}" if rows or columns else ""


def draw_grid(figure: HeatmapGrid, screen: Screen) -> list[str]:
    """Returns all panels of a grid, each reduced to a few cells."""
    panels = [panel for panel in figure.panels if np.size(panel.values)]
    if not panels:
        return ["(no values)"]
    names = split_titles([panel.title for panel in panels], figure.num_columns) if len(panels) > 1 else None
    if names:
        return _draw_named_grid(panels, names, screen)
    if figure.num_columns == 1:
        return _draw_stack(panels, screen)
    return _draw_titled_panels(panels, [panel.title for panel in panels], screen)


def _draw_stack(panels: Sequence[Heatmap], screen: Screen) -> list[str]:
    """Returns panels below each other, as wide as the screen, with the names of columns above the first."""
    lines: list[str] = []
    pooling: list[str] = []
    for index, panel in enumerate(panels):
        values = np.asarray(panel.values, dtype=float)
        cells, legend, pooling = _draw_shades(panel, values, screen, MAX_PANEL_HEIGHT, index == 0)
        lines += [screen.paint(show_line(panel.title), "bold"), *cells, legend, ""]
    return [*lines[:-1], _describe_axes(panels[0]), *pooling]


def _draw_named_grid(panels: Sequence[Heatmap], names: tuple[list[str], list[str]], screen: Screen) -> list[str]:
    """Returns a grid whose rows and columns have names, such as layers and heads."""
    row_names, column_names = fit_names(names[0], NAME_WIDTH), names[1]
    indent, num_columns = measure_cells(row_names[0]) + 1, len(column_names)
    width = max(2, min(MAX_PANEL, (screen.width - indent) // num_columns - 1))
    per_line = (screen.width - indent) // (width + 1)
    thumbnails, legend = _draw_thumbnails(panels, width, screen)
    lines = []
    for start in range(0, num_columns, per_line):
        stop = min(start + per_line, num_columns)
        headings = [pad(_fit_end(name, width), width + 1) for name in column_names[start:stop]]
        lines.append(" " * indent + "".join(headings))
        for row, name in enumerate(row_names[:MAX_GRID_ROWS]):
            cells = thumbnails[row * num_columns + start : row * num_columns + stop]
            lines += _join_side_by_side(cells, [pad(name, indent)], indent)
    if len(row_names) > MAX_GRID_ROWS:
        lines.append(f"({MAX_GRID_ROWS} of {len(row_names)} rows of panels)")
    return [*lines, *legend, *_describe_peak(panels, names, screen)]


def _fit_end(name: str, limit: int) -> str:
    """Returns a name, or only its last word where there is no room: "head 11" → "11"."""
    fitted = fit_name(name, 10**6)
    return fitted if measure_cells(fitted) <= limit else shorten(fitted.split(" ")[-1], limit)


def _describe_peak(panels: Sequence[Heatmap], names: tuple[list[str], list[str]], screen: Screen) -> list[str]:
    """Returns where the largest cell of the whole grid is."""
    tops = [np.nanmax(panel.values) if np.isfinite(panel.values).any() else -np.inf for panel in panels]
    index = int(np.argmax(tops))
    if not np.isfinite(tops[index]):
        return []
    where = " ".join(filter(None, (names[0][index // len(names[1])], names[1][index % len(names[1])])))
    return [f"largest: {_describe_largest(panels[index])} in {show_line(where)}"]


def _describe_largest(panel: Heatmap) -> str:
    values = np.asarray(panel.values, dtype=float)
    if not np.isfinite(values).any():
        return "no values"
    row, column = divmod(int(np.nanargmax(np.where(np.isfinite(values), values, np.nan))), values.shape[1])
    names = f"{fit_name(panel.rows[row], NAME_WIDTH)}, {fit_name(panel.columns[column], NAME_WIDTH)}"
    return f"{format_number(values[row, column])} ({names})"


def _draw_titled_panels(panels: Sequence[Heatmap], titles: Sequence[str], screen: Screen) -> list[str]:
    """Returns panels one after the other, as many in a line as fit, each below its title."""
    per_line = max(1, min(len(panels), (screen.width + 2) // (MIN_PANEL + 2)))
    width = min(MAX_PANEL if len(panels) > 1 else 2 * MAX_PANEL, (screen.width + 2) // per_line - 2)
    per_line = (screen.width + 2) // (width + 2)
    thumbnails, legend = _draw_thumbnails(panels, width, screen)
    blocks = [
        [pad(fit_name(title, width), width), *cells] for title, cells in zip(titles, thumbnails[: MAX_GRID_ROWS * 4])
    ]
    lines = []
    for start in range(0, len(blocks), per_line):
        lines += _join_side_by_side(blocks[start : start + per_line], [], 0, "  ")
    if len(blocks) < len(panels):
        lines.append(f"({len(blocks)} of {len(panels)} panels)")
    return [*lines, *legend]


def _draw_thumbnails(panels: Sequence[Heatmap], width: int, screen: Screen) -> tuple[list[list[str]], list[str]]:
    """Returns the lines of each panel, at most `width` columns wide, and the legend."""
    shape = panels[0].values.shape
    height = max(1, min(MAX_PANEL_HEIGHT, math.ceil(width / 2 * min(2.0, shape[0] / shape[1]))))
    pooled = [pool(panel.values, height, width) for panel in panels]
    matrices = [each.values for each in pooled]
    limits = find_common_limits(panels, matrices, pooled[0].is_pooled)
    thumbnails = []
    for panel, matrix, ends in zip(panels, matrices, limits):
        repeat = max(1, width // matrix.shape[1])
        rows = to_fractions(matrix, ends)
        lines = ["".join(draw_cell(each, panel.scale, repeat, panel.role, screen) for each in row) for row in rows]
        thumbnails.append([line + " " * (width - repeat * matrix.shape[1]) for line in lines])
    has_missing = any(np.isnan(matrix).any() for matrix in matrices)
    legend = {
        get_quantity(panel): describe_shades(panel.value_label, panel.scale, ends, has_missing)
        for panel, ends in zip(panels, limits)
    }
    pooling = [pooled[0].describe()] if pooled[0].is_pooled else []
    return thumbnails, [_describe_axes(panels[0]), *dict.fromkeys(legend.values()), *pooling]


def _join_side_by_side(blocks: Sequence[Sequence[str]], names: Sequence[str], indent: int, gap: str = " ") -> list[str]:
    height = max(map(len, blocks), default=0)
    starts = [*names, *[" " * indent] * height][:height]
    return [start + gap.join(block[level] for block in blocks) for level, start in enumerate(starts)]


def draw_overlay(figure: ImageOverlay, screen: Screen) -> list[str]:
    """Returns the weights over an image, one grid per caption."""
    panels = [
        Heatmap(
            title=caption,
            values=np.asarray(weights, dtype=float),
            rows=[str(row) for row in range(len(weights))],
            columns=[str(column) for column in range(weights.shape[1])],
            row_label="regions from top to bottom",
            column_label="from left to right",
            value_label=figure.value_label,
            low=0.0 if np.nanmin(figure.weights, initial=0.0) >= 0 else None,
            role="attention",
        )
        for caption, weights in zip(figure.captions, figure.weights)
    ]
    return _draw_titled_panels(panels, figure.captions, screen) if panels else ["(no values)"]
