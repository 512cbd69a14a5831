"""`View`: what a function of `seqwise.lens` returns: sentences, figures, and the numbers behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seqwise.errors import UsageError
from seqwise.files import check_output_path, write_text
from seqwise.page.figures import Figure, to_plain

SUFFIXES = (".html", ".png", ".svg", ".json")


@dataclass(frozen=True)
class View:
    """A result of `seqwise.lens`. Printing it draws it in the terminal; a notebook shows it as a page.

    `data` has plain arrays and names: what the figures show, and often more.
    """

    name: str  # such as "attention"
    title: str
    summary: Sequence[str]  # sentences: what the figures show, with the most important numbers
    figures: Sequence[Figure]
    data: Mapping[str, Any] = field(default_factory=dict)
    overview: Sequence[Figure] = ()  # what an image shows where one of all figures would be too large to read

    def __str__(self) -> str:
        from seqwise.page.terminal import draw_text

        return draw_text(self.title, self.summary, self.figures)

    def __repr__(self) -> str:
        return f"<View {self.name}: {self.title}; {len(self.figures)} figures; data: {', '.join(self.data)}>"

    def _repr_html_(self) -> str:
        from seqwise.page.html import build_fragment

        return build_fragment(self.title, self.summary, self.figures)

    def select(self, number: int) -> View:
        """Returns a view of one figure alone (numbers from 1), without the sentences: for a paper or a slide."""
        if not 1 <= number <= len(self.figures):
            titles = "; ".join(f"{index} {figure.title}" for index, figure in enumerate(self.figures, start=1))
            raise UsageError(f"the view {self.name} has no figure {number}.", fix=f"Choose from: {titles}.")
        return replace(self, title="", summary=(), figures=(self.figures[number - 1],), overview=())

    def save(self, path: str | Path) -> Path:
        """Writes the view to a file: a page (.html), an image (.png, .svg), or its numbers (.json)."""
        path = Path(path)
        check_output_path(path, SUFFIXES, "path")
        suffix = path.suffix.lower()
        if suffix == ".html":
            from seqwise.page.html import build_page

            write_text(path, build_page(self.title, self.summary, self.figures), concurrent=True)
        elif suffix == ".json":
            write_text(path, json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n", concurrent=True)
        else:
            from seqwise.image import write_plot
            from seqwise.page.drawing import draw_svg

            write_plot(path, draw_svg(self.title, self.summary, self.overview or self.figures))
        return path

    def to_json(self) -> dict[str, Any]:
        """Returns the view as JSON values, as `--json` prints it."""
        return {"view": self.name, "title": self.title, "summary": list(self.summary), "data": to_plain(self.data)}
