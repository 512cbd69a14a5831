"""Line charts and scatter plots as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.page.drawing.canvas import (
    INK,
    LINE_HEIGHT,
    MARGIN,
    MUTED,
    RULE,
    SAMPLE_WIDTH,
    WIDTH,
    Canvas,
    Point,
    format_limit,
)
from seqwise.page.drawing.colours import format_colour, make_ramp
from seqwise.page.figures import LineChart, Reference, ScatterPlot, Series
from seqwise.page.labels import measure_pixels, shorten, shorten_all
from seqwise.page.palette import SeriesStyle, choose_group_styles, choose_styles, make_style
from seqwise.page.scales import (
    Axis,
    choose_step,
    find_limits,
    make_axis,
    make_padded_axis,
    reduce_points,
    split_at_gaps,
    to_fractions,
)

LINE_PLOT_HEIGHT, SCATTER_HEIGHT = 280, 460
RIGHT = 24  # pixels between a plot and the end of the page
NAME_WIDTH = 90
NAMED_TICK = 14  # pixels that a vertical name below an axis needs
MAX_POINTS = 1500  # of a line
MAX_MARKED = 40  # points of a line with a mark on each
MAX_GROUPS = 40  # in a legend
RADIUS, LINE_RADIUS = 3.6, 2.4  # of a point, of one on a line
OUTLINES: dict[str, tuple[Point, ...]] = {  # of marks that are not circles, in units of the radius
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "up": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "down": ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    "cross": (
        (-1.2, -0.45), (-0.45, -0.45), (-0.45, -1.2), (0.45, -1.2), (0.45, -0.45), (1.2, -0.45),
        (1.2, 0.45), (0.45, 0.45), (0.45, 1.2), (-0.45, 1.2), (-0.45, 0.45), (-1.2, 0.45),
    ),
    "hexagon": ((1.2, 0), (0.6, 1.04), (-0.6, 1.04), (-1.2, 0), (-0.6, -1.04), (0.6, -1.04)),
}  # fmt: skip


@dataclass(frozen=True)
class Plot:
    """The area between two axes, in pixels."""

    canvas: Canvas
    x_axis: Axis
    y_axis: Axis
    left: float
    top: float
    width: float
    height: float

    def locate(self, x: np.ndarray | float, y: np.ndarray | float) -> np.ndarray:
        """Returns (…, 2): positions of values in pixels."""
        across, down = self.x_axis.locate(x), 1 - self.y_axis.locate(y)
        return np.stack(np.broadcast_arrays(self.left + self.width * across, self.top + self.height * down), axis=-1)

    def move(self, fraction: float) -> float:
        return self.left + self.width * fraction


def make_plot(canvas: Canvas, x_axis: Axis, y_axis: Axis, x_label: str, y_label: str, height: float) -> Plot:
    """Adds a frame, grid lines and ticks of the y axis and the labels of both axes below all that is there."""
    widest = max((measure_pixels(format_limit(tick)) for tick in y_axis.ticks), default=0)
    left = MARGIN + LINE_HEIGHT + widest + 8
    plot = Plot(canvas, x_axis, y_axis, left, canvas.height + 10, WIDTH - RIGHT - left, height)
    for tick in y_axis.ticks:
        y = plot.top + height * (1 - float(y_axis.locate(tick)))
        canvas.add_line([(left, y), (left + plot.width, y)], RULE, 0.7)
        _add_tick(canvas, left - 8, y + 4, y_axis, tick, "end")
    label = shorten(_describe(y_label, y_axis), height, measure_pixels)
    canvas.add_text(MARGIN + 10, plot.top + height / 2, label, anchor="middle", is_vertical=True)
    canvas.add_line([(left, plot.top), (left, plot.top + height), (left + plot.width, plot.top + height)], MUTED)
    return plot


def _add_tick(canvas: Canvas, x: float, y: float, axis: Axis, tick: float, anchor: str) -> None:
    """Adds the number of a tick; on a logarithmic axis of many decades it is a power of ten."""
    if axis.is_log and axis.high > 1e4 * axis.low:
        canvas.add_power(x, y, round(math.log10(tick)), anchor=anchor)
    else:
        canvas.add_text(x, y, format_limit(tick), anchor=anchor)


def _describe(label: str, axis: Axis) -> str:
    return f"{label} (log scale)" if axis.is_log else label


def add_x_axis(plot: Plot, label: str, names: Sequence[str] = ()) -> None:
    """Adds ticks and the label of the x axis; `names` are those of 0, 1, 2, … and replace numbers."""
    canvas, bottom = plot.canvas, plot.top + plot.height
    if names:
        _add_names(plot, names)
    else:
        end = -np.inf
        for tick in plot.x_axis.ticks:
            x, text = plot.move(float(plot.x_axis.locate(tick))), format_limit(tick)
            canvas.add_line([(x, bottom), (x, bottom + 4)], MUTED)
            if x - measure_pixels(text) / 2 > end:
                _add_tick(canvas, x, bottom + 17, plot.x_axis, tick, "middle")
                end = x + measure_pixels(text) / 2 + 6
    text = _describe(label, plot.x_axis)
    canvas.add_text(plot.left + plot.width / 2, canvas.height + LINE_HEIGHT, text, anchor="middle")


def _add_names(plot: Plot, names: Sequence[str]) -> None:
    """Adds names at whole numbers, side by side or from bottom to top; every n-th if there is no room for all."""
    fitted = shorten_all(names, NAME_WIDTH, measure_pixels)
    shown = [index for index in range(len(fitted)) if 0 <= float(plot.x_axis.locate(index)) <= 1]
    spacing = plot.width / max(1, plot.x_axis.high - plot.x_axis.low)
    widest = max((measure_pixels(fitted[index]) for index in shown), default=0)
    is_vertical = widest + 4 > spacing
    step = choose_step(spacing, NAMED_TICK) if is_vertical else 1
    bottom = plot.top + plot.height
    for index in shown[::step]:
        x = plot.move(float(plot.x_axis.locate(index)))
        plot.canvas.add_line([(x, bottom), (x, bottom + 4)], MUTED)
        if is_vertical:
            plot.canvas.add_text(x + 4, bottom + 8, fitted[index], anchor="end", is_vertical=True)
        else:
            plot.canvas.add_text(x, bottom + 17, fitted[index], anchor="middle")


def draw_lines(figure: LineChart) -> Canvas:
    """Returns lines, each in its colour and dash pattern, over axes with ticks."""
    canvas, series = Canvas(), list(figure.series)
    if not series:
        canvas.add_paragraph("no series", colour=MUTED)
        return canvas
    styles = choose_styles([each.name for each in series], [each.role for each in series])
    _add_line_legend(canvas, series, styles)
    bounds = [bound for each in series for bound in (each.y, each.low, each.high) if bound is not None]
    references = {axis: [np.array(each.value) for each in figure.references if each.axis == axis] for axis in "xy"}
    x_axis = make_axis([*references["x"], *(each.x for each in series)], figure.x_log, 8, is_tight=True)
    y_axis = make_axis([*references["y"], *bounds], figure.y_log)
    plot = make_plot(canvas, x_axis, y_axis, figure.x_label, figure.y_label, LINE_PLOT_HEIGHT)
    for each, style in zip(series, styles):
        _add_band(plot, each, style.colours[0])
    points = np.concatenate([plot.locate(each.x, each.y) for each in series])
    for reference in figure.references:
        _add_reference(plot, reference, points)
    for each, style in zip(series, styles):
        _add_series(plot, each, style)
    add_x_axis(plot, figure.x_label, figure.x_names)
    return canvas


def _add_line_legend(canvas: Canvas, series: Sequence[Series], styles: Sequence[SeriesStyle]) -> None:
    x, y = float(MARGIN), 12.0
    for each, style in zip(series, styles):
        name = shorten(each.name, 300, measure_pixels)
        width = SAMPLE_WIDTH + 6 + measure_pixels(name)
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + LINE_HEIGHT
        canvas.add_line([(x, y - 4), (x + SAMPLE_WIDTH, y - 4)], style.colours[0], 2, style.dash)
        canvas.add_text(x + SAMPLE_WIDTH + 6, y, name)
        x += width + 18


def _add_band(plot: Plot, series: Series, colour: str) -> None:
    if series.low is None or series.high is None:
        return
    lower, upper = plot.locate(series.x, series.low), plot.locate(series.x, series.high)
    for start, stop in split_at_gaps(np.concatenate([lower, upper], axis=1)):
        outline = [*upper[start:stop], *lower[start:stop][::-1]]
        plot.canvas.add_polygon([(float(x), float(y)) for x, y in outline], colour, 0.16)


def _add_series(plot: Plot, series: Series, style: SeriesStyle) -> None:
    points = plot.locate(series.x, series.y)
    is_marked = len(points) <= MAX_MARKED
    for start, stop in split_at_gaps(points):
        piece = reduce_points(points[start:stop], MAX_POINTS)
        plot.canvas.add_line([(float(x), float(y)) for x, y in piece], style.colours[0], 1.8, style.dash)
        for point in piece if is_marked or len(piece) == 1 else []:
            _add_point(plot.canvas, point, style.colours[0], style.shape, radius=LINE_RADIUS)


def _add_reference(plot: Plot, reference: Reference, points: np.ndarray) -> None:
    """Adds a dotted line across the plot with its label, at the end where it covers fewer points of the series."""
    canvas = plot.canvas
    if reference.axis == "y":
        y = float(plot.locate(plot.x_axis.low, reference.value)[1])
        if np.isfinite(y):
            canvas.add_line([(plot.left, y), (plot.left + plot.width, y)], INK, 1, "2 3")
            length, right = measure_pixels(reference.label), plot.left + plot.width
            is_near = np.abs(points[:, 1] - (y - 8)) < 10
            num_left, num_right = (
                int((is_near & (start < points[:, 0]) & (points[:, 0] < start + length)).sum())
                for start in (plot.left, right - length)
            )
            x, anchor = (plot.left + 4, "start") if num_left < num_right else (right - 4, "end")
            canvas.add_text(x, y - 4, reference.label, anchor=anchor, colour=MUTED)
        return
    x = float(plot.locate(reference.value, plot.y_axis.low)[0])
    if np.isfinite(x):
        canvas.add_line([(x, plot.top), (x, plot.top + plot.height)], INK, 1, "2 3")
        is_right = x > plot.left + plot.width / 2
        anchor = "end" if is_right else "start"
        canvas.add_text(x + (-4 if is_right else 4), plot.top + 11, reference.label, anchor=anchor, colour=MUTED)


def draw_scatter(figure: ScatterPlot) -> Canvas:
    """Returns points with a colour and shape per group or a colour per value, and as many names as have room."""
    canvas = Canvas()
    colours, shapes = _choose_marks(canvas, figure)
    x_axis, y_axis = make_padded_axis(figure.x), make_padded_axis(figure.y)
    plot = make_plot(canvas, x_axis, y_axis, figure.x_label, figure.y_label, SCATTER_HEIGHT)
    points = plot.locate(figure.x, figure.y)
    visible = [int(index) for index in np.flatnonzero(np.isfinite(points).all(axis=1))]
    for index in visible:
        _add_point(canvas, points[index], colours[index], shapes[index], "#ffffff" if figure.groups else "#555555")
    add_x_axis(plot, figure.x_label)
    if not visible:
        canvas.add_text(plot.left + plot.width / 2, plot.top + plot.height / 2, "no points", anchor="middle")
    if figure.is_labelled and figure.names and visible:
        num_names = _add_point_names(plot, figure.names, points, visible)
        if num_names < len(visible):
            canvas.height += 4
            canvas.add_paragraph(f"{num_names:,} of {len(visible):,} points have room for their names.", colour=MUTED)
    return canvas


def _choose_marks(canvas: Canvas, figure: ScatterPlot) -> tuple[list[str], list[str]]:
    """Returns the colour and shape of each point, and adds the legend."""
    first, num_points = make_style(0), len(figure.x)
    if figure.groups:
        styles = choose_group_styles(figure.groups)
        _add_group_legend(canvas, styles)
        own = [styles[group] for group in figure.groups]
        return [style.colours[0] for style in own], [style.shape for style in own]
    if figure.values is not None:
        ramp, limits = make_ramp("sequential"), find_limits(figure.values, "sequential")
        canvas.add_colour_scale(MARGIN, 4, figure.value_label, limits, ramp)
        return list(map(format_colour, ramp.sample(to_fractions(figure.values, limits)))), [first.shape] * num_points
    return [first.colours[0]] * num_points, [first.shape] * num_points


def _add_group_legend(canvas: Canvas, styles: Mapping[str, SeriesStyle]) -> None:
    x, y = float(MARGIN), 12.0
    names = shorten_all(list(styles)[:MAX_GROUPS], 160, measure_pixels)
    for name, style in zip(names, styles.values()):
        width = 14 + measure_pixels(name)
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = float(MARGIN), y + LINE_HEIGHT
        _add_point(canvas, np.array([x + 4, y - 4]), style.colours[0], style.shape, "#ffffff")
        canvas.add_text(x + 14, y, name)
        x += width + 16
    if len(styles) > MAX_GROUPS:
        canvas.add_text(MARGIN, y + LINE_HEIGHT, f"and {len(styles) - MAX_GROUPS} more groups", colour=MUTED)


def _add_point(
    canvas: Canvas, position: np.ndarray, colour: str, shape: str, stroke: str = "none", radius: float = RADIUS
) -> None:
    x, y = float(position[0]), float(position[1])
    if shape in OUTLINES:
        outline = [(x + radius * across, y + radius * down) for across, down in OUTLINES[shape]]
        canvas.add_polygon(outline, colour, stroke=stroke)
    else:
        canvas.add_circle(x, y, radius, colour, stroke=stroke)


def _add_point_names(plot: Plot, names: Sequence[str], points: np.ndarray, visible: Sequence[int]) -> int:
    """Adds names beside points, those far from the centre first, where they cover no other; returns how many."""
    boxes = np.zeros((0, 4))  # left, top, right, bottom of what may not be covered
    marks = np.concatenate([points[visible] - RADIUS, points[visible] + RADIUS], axis=1)
    centre = points[visible].mean(axis=0)
    order = sorted(visible, key=lambda index: -float(np.hypot(*(points[index] - centre))))
    for index in order:
        name = shorten_all([names[index]], NAME_WIDTH + 50, measure_pixels)[0]
        width, (x, y) = measure_pixels(name), points[index]
        starts = [(x + 6, y + 4), (x - 6 - width, y + 4), (x - width / 2, y - 7), (x - width / 2, y + 15)]
        for left, baseline in starts:
            box = np.array([left, baseline - 10, left + width, baseline + 3])
            if _is_inside(box, plot) and not _overlaps(box, boxes) and not _overlaps(box, marks):
                plot.canvas.add_text(float(left), float(baseline), name)
                boxes = np.vstack([boxes, box])
                break
    return len(boxes)


def _is_inside(box: np.ndarray, plot: Plot) -> bool:
    left, top, right, bottom = box
    return left > plot.left and right < WIDTH - 2 and top > plot.top - 8 and bottom < plot.top + plot.height


def _overlaps(box: np.ndarray, others: np.ndarray) -> bool:
    left, top, right, bottom = others.T
    return bool(((box[0] < right) & (left < box[2]) & (box[1] < bottom) & (top < box[3])).any())
