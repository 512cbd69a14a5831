"""Figures as text for a terminal. `draw_text` is the entry point; the other modules draw one group of figures each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seqwise.page import figures as kinds
from seqwise.page.labels import wrap
from seqwise.page.terminal import heatmaps, lists, plots, trees
from seqwise.page.terminal.screen import Screen, open_screen, show_line

DRAW: dict[type[kinds.Figure], Callable[[Any, Screen], list[str]]] = {
    kinds.Heatmap: heatmaps.draw_heatmap,
    kinds.HeatmapGrid: heatmaps.draw_grid,
    kinds.ImageOverlay: heatmaps.draw_overlay,
    kinds.LineChart: plots.draw_lines,
    kinds.ScatterPlot: plots.draw_scatter,
    kinds.BarChart: lists.draw_bars,
    kinds.TokenText: lists.draw_tokens,
    kinds.Table: lists.draw_table,
    kinds.Tree: trees.draw_tree,
    kinds.Findings: lists.draw_findings,
}


def draw_text(
    title: str,
    summary: Sequence[str],
    figures: Sequence[kinds.Figure],
    width: int | None = None,
    has_colour: bool | None = None,
) -> str:
    """Returns a title, sentences and figures as text.

    Width and colour are those of the terminal, unless set; text that is not written to a terminal has no colour.
    """
    screen = open_screen(width, has_colour)
    blocks = [[screen.paint(line, "bold") for line in wrap(show_line(title), screen.width)]] if title else []
    if summary:
        blocks.append([line for sentence in summary for line in wrap(show_line(sentence), screen.width)])
    blocks += [draw_figure(figure, screen) for figure in figures]
    return "\n\n".join("\n".join(block) for block in blocks)


def draw_figure(figure: kinds.Figure, screen: Screen) -> list[str]:
    """Returns the lines of a figure with its title above and its note below."""
    title = [screen.paint(line, "bold") for line in wrap(show_line(figure.title), screen.width)]
    note = [screen.paint(line, "dim") for line in wrap(show_line(figure.note), screen.width)] if figure.note else []
    return [*title, *(line.rstrip() for line in DRAW[type(figure)](figure, screen)), *note]
