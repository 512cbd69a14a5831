"""Figures as data: what is drawn, with names, units and values, but not how.

A view of a model returns some of these. `terminal/` draws them as text, `drawing/` as SVG (which `seqwise.image`
turns into PNG), and `html.py` embeds them as JSON in a page whose script draws them interactively. This module knows
nothing of models.

Arrays are NumPy arrays of floats; NaN means "no value" everywhere. Every figure has a title that can be understood
without the text around it, and names for its axes, with units where there are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

Scale = Literal["sequential", "diverging"]  # from `low` in one colour; or from a neutral zero in two colours


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What all figures have. `note` is a sentence below the figure; other figures can link to its `identifier`."""

    title: str
    note: str = ""
    identifier: str = ""

    @property
    def kind(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, kw_only=True)
class Heatmap(Figure):
    """A matrix of values as coloured cells, such as attention weights or the gates of units over tokens."""

    values: np.ndarray  # (rows, columns)
    rows: Sequence[str]
    columns: Sequence[str]
    row_label: str  # what the rows are: "query token", "unit"
    column_label: str
    value_label: str  # what a cell is, with its unit: "attention weight"
    scale: Scale = "sequential"
    low: float | None = None  # of the colour scale; the smallest value unless set. A diverging scale is symmetric
    high: float | None = None
    role: str = ""  # of the colour, in `palette.ROLES`


@dataclass(frozen=True, kw_only=True)
class HeatmapGrid(Figure):
    """Several heatmaps of one shape side by side, such as all heads of all layers. They share rows and columns."""

    panels: Sequence[Heatmap]  # row after row of the grid
    num_columns: int
    links: Sequence[str] = ()  # one per panel: the identifier of the figure that shows this panel in full


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart; `low` and `high` bound an interval around it."""

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A line across a chart at a value of one axis, with a short label."""

    axis: Literal["x", "y"]
    value: float
    label: str


@dataclass(frozen=True, kw_only=True)
class LineChart(Figure):
    """Lines over a common axis."""

    series: Sequence[Series]
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = False
    x_names: Sequence[str] = ()  # names of x = 0, 1, 2, …, such as tokens
    references: Sequence[Reference] = ()


@dataclass(frozen=True, kw_only=True)
class ScatterPlot(Figure):
    """Points with names, coloured by group or by value."""

    x: np.ndarray
    y: np.ndarray
    names: Sequence[str]
    x_label: str
    y_label: str
    groups: Sequence[str] = ()  # one per point; or
    values: np.ndarray | None = None  # one per point
    value_label: str = ""
    is_labelled: bool = False  # write the names beside the points, as far as there is room


@dataclass(frozen=True, kw_only=True)
class BarChart(Figure):
    """Horizontal bars with optional intervals."""

    names: Sequence[str]
    values: np.ndarray
    value_label: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    roles: Sequence[str] = ()  # one per bar


@dataclass(frozen=True, kw_only=True)
class TokenText(Figure):
    """A running text whose tokens are coloured by a value, such as the contribution of each to an answer."""

    tokens: Sequence[str]
    values: np.ndarray  # (tokens,)
    value_label: str
    scale: Scale = "diverging"
    details: Sequence[str] = ()  # one per token, shown on hovering
    selected: Sequence[int] = ()  # tokens to outline


@dataclass(frozen=True, kw_only=True)
class Table(Figure):
    """Rows of texts and numbers. A number that is not whole has three significant digits; None is empty."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | int | None]]


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """A node of a tree; `parent` is an index into its list of nodes, −1 for the root. Parents precede children."""

    parent: int
    label: str
    value: float  # such as the log-probability of the sequence so far
    state: Literal["kept", "pruned", "finished", "best"] = "kept"
    detail: str = ""  # shown on hovering; of a pruned node the reason


@dataclass(frozen=True, kw_only=True)
class Tree(Figure):
    """A tree whose root is on the left, such as the hypotheses of a beam search."""

    nodes: Sequence[TreeNode]
    value_label: str


@dataclass(frozen=True, kw_only=True)
class ImageOverlay(Figure):
    """An image under a coarser grid of weights, one panel per caption, such as the regions of each word."""

    image: np.ndarray  # (height, width, 3) uint8
    weights: np.ndarray  # (panels, rows, columns)
    captions: Sequence[str]  # one per panel
    value_label: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence about a model, what supports it, and a command to try."""

    text: str
    severity: Literal["problem", "warning", "note", "good"]
    evidence: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Findings(Figure):
    """A list of findings, the most severe first."""

    findings: Sequence[Finding]


def to_plain(value: Any, digits: int | None = None) -> Any:
    """Returns a figure, or part of one, as JSON values; NaN and infinities become None.

    With `digits`, floats are rounded to that many significant digits, which makes pages smaller.
    """
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist(), digits)
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, (float, np.floating)):
        if not np.isfinite(value):
            return None
        return float(value) if digits is None else float(f"{value:.{digits}g}")
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item, digits) for item in value]
    plain = {field.name: to_plain(getattr(value, field.name), digits) for field in fields(value)}
    return {"kind": value.kind, **plain} if isinstance(value, Figure) else plain
