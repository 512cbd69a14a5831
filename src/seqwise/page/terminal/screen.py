"""`Screen`: the width and the colours of a terminal, and texts aligned in its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from seqwise.page.figures import Scale
from seqwise.page.labels import format_number, isolate, measure_cells, shorten, show_name, show_text, simplify_clusters
from seqwise.page.palette import ROLES

MIN_WIDTH, MAX_WIDTH = 40, 120  # columns
SHADES = " ░▒▓█"
NEGATIVE_SHADES = " -~=#"  # so that the sign shows without colours
MISSING = "·"


@dataclass(frozen=True)
class Screen:
    """Where text is written. `colours` is None without colours."""

    width: int
    colours: ColorSystem | None = None

    def paint(self, text: str, style: str) -> str:
        """Returns a text with the codes of a style of rich, such as "bold #d55e00"."""
        return Style.parse(style).render(text, color_system=self.colours) if self.colours and style else text


def open_screen(width: int | None = None, has_colour: bool | None = None) -> Screen:
    """Returns a screen as wide and as colourful as the terminal, unless set."""
    console = Console()
    if width is None:
        width = console.width
    if has_colour is None:
        has_colour = console.is_terminal and console.color_system is not None and not console.no_color
    names = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "windows": ColorSystem.WINDOWS}
    system = names.get(console.color_system or "", ColorSystem.TRUECOLOR)
    return Screen(max(MIN_WIDTH, min(width, MAX_WIDTH)), system if has_colour else None)


def show_line(text: str) -> str:
    """Returns a text on one line, whose width every terminal agrees on."""
    return isolate(simplify_clusters(show_text(text)))


def fit_name(name: str, limit: int) -> str:
    """Returns the name of a token or unit in at most `limit` columns."""
    return isolate(shorten(simplify_clusters(show_name(name[: 20 * limit])), limit))


def fit_names(names: Sequence[str], limit: int) -> list[str]:
    """Returns names in at most `limit` columns, filled with spaces to equal width."""
    fitted = [fit_name(name, limit) for name in names]
    width = max(map(measure_cells, fitted), default=0)
    return [pad(name, width) for name in fitted]


def pad(text: str, width: int, side: str = "<") -> str:
    """Returns a text with spaces after it ("<"), before it (">") or on both sides ("^")."""
    spaces = max(0, width - measure_cells(text))
    before = {"<": 0, ">": spaces, "^": spaces // 2}[side]
    return " " * before + text + " " * (spaces - before)


def flow(texts: Sequence[str], styles: Sequence[str], screen: Screen, gap: str = " ") -> list[str]:
    """Returns texts one after the other in lines; a line ends when it is full and after a line break."""
    lines, width = [""], 0
    for text, style in zip(texts, styles):
        size = measure_cells(text)
        if width and width + len(gap) + size > screen.width:
            lines, width = [*lines, ""], 0
        lines[-1] += (gap if width else "") + screen.paint(text, style)
        width += size + (len(gap) if width else 0)
        if text.strip("[]«»").startswith("↵"):
            lines, width = [*lines, ""], 0
    return lines


def align(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Returns the rows of a table as lines; `sides` has "<" or ">" for each column."""
    widths = [max(map(measure_cells, column)) for column in zip(*rows)]
    return ["  ".join(map(pad, row, widths, sides)).rstrip() for row in rows]


def draw_cell(fraction: float, scale: Scale, width: int, role: str, screen: Screen) -> str:
    """Returns a cell of a heatmap, shaded by where its value is between the limits of the scale."""
    if np.isnan(fraction):
        return MISSING * width
    if scale == "sequential":
        colour = ROLES.get(role, ROLES["input"])[1]
        return screen.paint(_choose_shade(SHADES, fraction) * width, colour)
    size, is_positive = abs(2 * fraction - 1), fraction >= 0.5
    shades = SHADES if is_positive else NEGATIVE_SHADES
    return screen.paint(_choose_shade(shades, size) * width, ROLES["positive" if is_positive else "negative"][1])


def _choose_shade(shades: str, fraction: float) -> str:
    return shades[min(len(shades) - 1, int(fraction * len(shades)))]


def describe_shades(value_label: str, scale: Scale, limits: Sequence[float], has_missing: bool) -> str:
    """Returns the legend of a heatmap."""
    low, high = map(format_number, limits)
    missing = f"   {MISSING} no value" if has_missing else ""
    if scale == "sequential":
        return f"{show_line(value_label)}: {low} [{SHADES}] {high}{missing}"
    return f"{show_line(value_label)}: {low} [{NEGATIVE_SHADES[:0:-1]}] 0 [{SHADES[1:]}] {high}{missing}"
