"""Heatmaps and grids of heatmaps as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.page.drawing.canvas import (
    BAR_WIDTH,
    LINE_HEIGHT,
    MARGIN,
    MUTED,
    WIDTH,
    Canvas,
    format_limit,
    replace_minus,
)
from seqwise.page.drawing.colours import Ramp, choose_ink, find_levels, make_ramp
from seqwise.page.figures import Heatmap, HeatmapGrid
from seqwise.page.labels import are_numbered, format_number, measure_pixels, shorten, shorten_all
from seqwise.page.scales import (
    choose_step,
    find_common_limits,
    get_quantity,
    pool,
    split_titles,
    to_fractions,
)

MAX_CELLS = 1000  # rows or columns; larger matrices are reduced
NAMED_CELL = 13  # pixels that a cell needs to have its name beside it
MAX_NAMED = 120  # rows or columns that all get a name, for which the figure grows if necessary
MIN_CELL, MAX_CELL_WIDTH, MAX_CELL_HEIGHT = 3, 48, 28
MAX_SIZE, HEIGHT = 1500, 420  # maximum size of a matrix; height up to which its rows are enlarged
NAME_WIDTH = 110
NUMBER_WIDTH, NUMBER_HEIGHT = 36, 17  # minimum size of cells that show their numbers
MAX_NUMBERS = 14  # rows of a square matrix whose cells may be wider than high, to have room for numbers
MIN_PANEL, PANEL_GAP = 44, 8


@dataclass(frozen=True)
class Matrix:
    """A heatmap with the limits of its colours and the size of its cells in pixels."""

    heatmap: Heatmap
    values: np.ndarray
    limits: Sequence[float]
    rows: Sequence[str]
    columns: Sequence[str]
    cell_width: float
    cell_height: float

    @property
    def width(self) -> float:
        return self.cell_width * self.values.shape[1]

    @property
    def height(self) -> float:
        return self.cell_height * self.values.shape[0]

    @property
    def ramp(self) -> Ramp:
        return make_ramp(self.heatmap.scale, self.heatmap.role)


def draw_heatmap(figure: Heatmap) -> Canvas:
    """Returns a heatmap with the names of its rows and columns; large cells show their numbers."""
    canvas = Canvas()
    if not np.size(figure.values):
        canvas.add_paragraph("no values", colour=MUTED)
        return canvas
    [matrix], note = _measure([figure], 1)
    _add_legend(canvas, [matrix])
    left = MARGIN + _measure_names(matrix) + LINE_HEIGHT
    top = canvas.height + 8
    if measure_pixels(figure.row_label) > matrix.height:  # above the names of rows, not beside them
        canvas.add_text(MARGIN, top + 10, figure.row_label)
        top += LINE_HEIGHT
    else:
        _add_row_label(canvas, matrix, MARGIN + 10, top)
    _add_matrix(canvas, matrix, left, top)
    _add_row_names(canvas, matrix, left, top)
    _add_column_names(canvas, matrix, left, top + matrix.height)
    canvas.add_text(left + matrix.width / 2, canvas.height + LINE_HEIGHT, figure.column_label, anchor="middle")
    _add_note(canvas, note)
    return canvas


def draw_grid(figure: HeatmapGrid) -> Canvas:
    """Returns heatmaps side by side; titles such as "layer 1, head 2" become names of rows and columns."""
    canvas = Canvas()
    panels = [panel for panel in figure.panels if np.size(panel.values)]
    if not panels:
        canvas.add_paragraph("no values", colour=MUTED)
        return canvas
    num_columns = min(figure.num_columns, len(panels))
    matrices, note = _measure(panels, num_columns)
    is_shared = len({get_quantity(panel) for panel in panels}) == 1
    if is_shared:
        _add_legend(canvas, matrices)
    names = split_titles([panel.title for panel in panels], num_columns)
    has_names = _has_room(matrices[0])
    left = MARGIN + (_measure_names(matrices[0]) + LINE_HEIGHT if has_names else 0)
    if names:
        left += max(measure_pixels(name) for name in names[0]) + 10
    y, step = canvas.height + 8, matrices[0].width + PANEL_GAP
    if names:
        for column, name in enumerate(names[1]):
            x = left + column * step + matrices[0].width / 2
            canvas.add_text(x, y + 12, _fit_end(name, matrices[0].width), anchor="middle")
        y += LINE_HEIGHT
    for start in range(0, len(matrices), num_columns):
        row = matrices[start : start + num_columns]
        y += 0 if names else _add_panel_titles(canvas, row, left, y, step, is_shared)
        for column, matrix in enumerate(row):
            _add_matrix(canvas, matrix, left + column * step, y)
        if names:
            middle = y + matrices[0].height / 2 + 4
            canvas.add_text(left - 10, middle, names[0][start // num_columns], anchor="end")
        elif has_names:
            _add_row_names(canvas, row[0], left, y)
            _add_row_label(canvas, row[0], MARGIN + 10, y)
        y += matrices[0].height + PANEL_GAP
    _add_grid_axes(canvas, matrices[:num_columns], left, step, has_names)
    _add_note(canvas, note)
    return canvas


def _measure(panels: Sequence[Heatmap], num_columns: int) -> tuple[list[Matrix], str]:
    """Returns the panels with their limits and the size of their cells, and a note if they were reduced."""
    max_cells = MAX_CELLS if num_columns == 1 else round(2 * _measure_panel(num_columns))
    pooled = [pool(panel.values, max_cells, max_cells) for panel in panels]
    values, first = [each.values for each in pooled], pooled[0]
    limits = find_common_limits(panels, values, first.is_pooled)
    rows = shorten_all([panels[0].rows[index] for index in first.rows], NAME_WIDTH, measure_pixels)
    columns = shorten_all([panels[0].columns[index] for index in first.columns], NAME_WIDTH, measure_pixels)
    room = WIDTH - 2 * MARGIN - LINE_HEIGHT - 6 - max(map(measure_pixels, rows))
    sizes = _choose_cell(rows, columns, room) if num_columns == 1 else _choose_panel_cell(values[0], num_columns)
    if num_columns == 1 and len(panels) > 1:
        sizes = (sizes[0], min(sizes[1], max(1.5, 130 / len(rows))))
    matrices = [Matrix(panel, each, ends, rows, columns, *sizes) for panel, each, ends in zip(panels, values, limits)]
    return matrices, first.describe()


def _choose_cell(rows: Sequence[str], columns: Sequence[str], room: float) -> tuple[float, float]:
    """Returns width and height of the cells of a single heatmap, such that its names can be read."""
    width = min(room / len(columns), MAX_CELL_WIDTH)
    if _are_all_named(columns):
        width = max(width, NAMED_CELL)
    width = max(width, min(MIN_CELL, MAX_SIZE / len(columns)))
    height = min(HEIGHT / len(rows), MAX_CELL_HEIGHT)
    if _are_all_named(rows):
        height = max(height, NAMED_CELL)
    height = max(height, min(MIN_CELL, MAX_SIZE / len(rows)))
    if len(rows) == len(columns) and len(rows) > MAX_NUMBERS:
        width = height = min(width, MAX_CELL_HEIGHT)
    return width, height


def _are_all_named(names: Sequence[str]) -> bool:
    return len(names) <= MAX_NAMED and not are_numbered(names)


def _choose_panel_cell(values: np.ndarray, num_columns: int) -> tuple[float, float]:
    """Returns width and height of the cells of a small panel."""
    num_rows, num_cells = values.shape
    width = _measure_panel(num_columns)
    height = width * min(1.2, max(0.35, num_rows / num_cells))
    return min(width / num_cells, MAX_CELL_HEIGHT), min(height / num_rows, MAX_CELL_HEIGHT)


def _measure_panel(num_columns: int) -> float:
    return max(MIN_PANEL, (WIDTH - 2 * MARGIN - 80) / num_columns - PANEL_GAP)


def _add_legend(canvas: Canvas, matrices: Sequence[Matrix]) -> None:
    first = matrices[0]
    x, y = float(MARGIN), canvas.height + 4
    if any(np.isfinite(matrix.values).any() for matrix in matrices):
        x = canvas.add_colour_scale(x, y, first.heatmap.value_label, first.limits, first.ramp) + 18
    if any(np.isnan(matrix.values).any() for matrix in matrices):
        canvas.add_swatch(x, y, "no value")


def _add_matrix(canvas: Canvas, matrix: Matrix, x: float, y: float) -> None:
    """Adds the cells of a heatmap, as an image with several pixels per cell so that no viewer blurs them."""
    levels, palette = find_levels(to_fractions(matrix.values, matrix.limits)), matrix.ramp.build_palette()
    repeats = [max(1, min(8, int(2 * size))) for size in (matrix.cell_height, matrix.cell_width)]
    enlarged = levels.repeat(repeats[0], axis=0).repeat(repeats[1], axis=1)
    canvas.add_image(x, y, matrix.width, matrix.height, enlarged, palette)
    canvas.add_rectangle(x, y, matrix.width, matrix.height, stroke="#9a9a9a", line=0.7)
    if matrix.cell_width < NUMBER_WIDTH or matrix.cell_height < NUMBER_HEIGHT:
        return
    for (row, column), value in np.ndenumerate(matrix.values):
        if np.isfinite(value):
            middle = (x + (column + 0.5) * matrix.cell_width, y + (row + 0.5) * matrix.cell_height + 4)
            text = shorten(_format_cell(value, matrix.values), matrix.cell_width, measure_pixels)
            canvas.add_text(*middle, text, anchor="middle", colour=choose_ink(palette[levels[row, column]]))


def _format_cell(value: float, values: np.ndarray) -> str:
    """Returns a number with as many decimals as the largest of the matrix needs for two digits."""
    largest = np.nanmax(np.abs(values))
    if np.nansum(np.abs(values - np.round(values))) == 0 or not 1e-3 <= largest < 1e4:
        return replace_minus(format_number(value))
    decimals = max(0, 2 - math.ceil(math.log10(largest)))
    return replace_minus(f"{value:.{decimals}f}")


def _measure_names(matrix: Matrix) -> float:
    return max(map(measure_pixels, matrix.rows)) + 6


def _has_room(matrix: Matrix) -> bool:
    """Returns whether rows of a panel can have names."""
    return matrix.width > 2 * NAME_WIDTH and (matrix.cell_height >= NAMED_CELL or are_numbered(matrix.rows))


def _add_row_names(canvas: Canvas, matrix: Matrix, left: float, top: float) -> None:
    step = choose_step(matrix.cell_height, NAMED_CELL)
    for index in range(0, len(matrix.rows), step):
        y = top + (index + 0.5) * matrix.cell_height + 4
        canvas.add_text(left - 6, y, matrix.rows[index], anchor="end")


def _add_column_names(canvas: Canvas, matrix: Matrix, left: float, bottom: float) -> None:
    """Adds names below the columns, side by side or, where they are too long, from bottom to top."""
    widest = max(map(measure_pixels, matrix.columns))
    is_vertical = widest > matrix.cell_width - 2 and not are_numbered(matrix.columns)
    step = choose_step(matrix.cell_width, NAMED_CELL if is_vertical else widest + 2)
    for index in range(0, len(matrix.columns), step):
        x = left + (index + 0.5) * matrix.cell_width
        if is_vertical:
            canvas.add_text(x + 4, bottom + 6, matrix.columns[index], anchor="end", is_vertical=True)
        else:
            canvas.add_text(x, bottom + 15, matrix.columns[index], anchor="middle")


def _add_row_label(canvas: Canvas, matrix: Matrix, x: float, top: float) -> None:
    label = shorten(matrix.heatmap.row_label, matrix.height, measure_pixels)
    canvas.add_text(x, top + matrix.height / 2, label, anchor="middle", is_vertical=True)


def _add_panel_titles(
    canvas: Canvas, row: Sequence[Matrix], left: float, y: float, step: float, is_shared: bool
) -> float:
    """Adds the title above each panel of a row and, if each has its own, the colour scale; returns the height."""
    is_wide = row[0].width > 2.5 * NAME_WIDTH
    for column, matrix in enumerate(row):
        x = left + column * step
        canvas.add_text(x, y + 12, shorten(matrix.heatmap.title, matrix.width, measure_pixels))
        if is_shared:
            continue
        length = BAR_WIDTH + sum(measure_pixels(format_limit(each)) + 6 for each in matrix.limits)
        if is_wide:
            canvas.add_colour_scale(x + matrix.width - length, y + 2, "", matrix.limits, matrix.ramp)
        elif length <= matrix.width:
            canvas.add_colour_scale(x, y + 2 + LINE_HEIGHT, "", matrix.limits, matrix.ramp)
        else:
            limits = " to ".join(map(format_limit, matrix.limits))
            canvas.add_text(x, y + 12 + LINE_HEIGHT, shorten(limits, matrix.width, measure_pixels), colour=MUTED)
    return LINE_HEIGHT + 2 + (0 if is_shared or is_wide else LINE_HEIGHT)


def _add_grid_axes(canvas: Canvas, last_row: Sequence[Matrix], left: float, step: float, has_names: bool) -> None:
    """Adds the names of columns below the grid where there is room, and what rows and columns are."""
    first = last_row[0]
    bottom = canvas.height
    has_columns = first.cell_width >= NAMED_CELL or (are_numbered(first.columns) and first.width > NAME_WIDTH)
    if has_columns:
        for column, matrix in enumerate(last_row):
            _add_column_names(canvas, matrix, left + column * step, bottom)
    rows, columns = first.heatmap.row_label, first.heatmap.column_label
    text = columns if has_names and has_columns else f"rows: {rows}; columns: {columns}"
    width = step * len(last_row) - PANEL_GAP
    canvas.add_text(left + width / 2, canvas.height + LINE_HEIGHT, text, anchor="middle")


def _fit_end(name: str, limit: float) -> str:
    """Returns a name, or only its last word where there is no room: "head 11" → "11"."""
    return name if measure_pixels(name) <= limit else shorten(name.split(" ")[-1], limit, measure_pixels)


def _add_note(canvas: Canvas, note: str) -> None:
    if note:
        canvas.height += 4
        canvas.add_paragraph(note, colour=MUTED)
