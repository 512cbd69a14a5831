"""Figures as one SVG document for papers and slides. `draw_svg` is the entry point; other modules draw the figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from seqwise.page import figures as kinds
from seqwise.page.drawing import heatmaps, lists, overlays, plots, trees
from seqwise.page.drawing.canvas import MARGIN, MUTED, WIDTH, Canvas
from seqwise.page.labels import show_text
from seqwise.svg import build_document

TITLE_SIZE, FIGURE_TITLE_SIZE = 17, 14
GAP = 24  # between two figures

DRAW: dict[type[kinds.Figure], Callable[[Any], Canvas]] = {
    kinds.Heatmap: heatmaps.draw_heatmap,
    kinds.HeatmapGrid: heatmaps.draw_grid,
    kinds.ImageOverlay: overlays.draw_overlay,
    kinds.LineChart: plots.draw_lines,
    kinds.ScatterPlot: plots.draw_scatter,
    kinds.BarChart: lists.draw_bars,
    kinds.TokenText: lists.draw_tokens,
    kinds.Table: lists.draw_table,
    kinds.Tree: trees.draw_tree,
    kinds.Findings: lists.draw_findings,
}


def draw_svg(title: str, summary: Sequence[str], figures: Sequence[kinds.Figure]) -> str:
    """Returns a title, sentences and figures below each other as an SVG document, at least 760 pixels wide."""
    page = Canvas()
    page.height = MARGIN
    if title:
        page.add_paragraph(title, size=TITLE_SIZE)
    for sentence in summary:
        page.add_paragraph(sentence)
    for figure in figures:
        page.place(draw_figure(figure), 0, page.height + (GAP if page.parts else 0))
    width, height = max(WIDTH, math.ceil(page.width + MARGIN)), math.ceil(page.height + MARGIN)
    background = f'<rect x="0" y="0" width="{width}" height="{height}" fill="#ffffff"/>'
    return build_document([background, *page.parts], height, show_text(title), width)


def draw_figure(figure: kinds.Figure) -> Canvas:
    """Returns a figure with its title above and its note below."""
    canvas = Canvas()
    if figure.title:
        canvas.add_paragraph(figure.title, size=FIGURE_TITLE_SIZE)
    canvas.place(DRAW[type(figure)](figure), 0, canvas.height + (4 if figure.title else 0))
    if figure.note:
        canvas.height += 6
        canvas.add_paragraph(figure.note, colour=MUTED)
    return canvas
