"""Figures as one interactive HTML page that loads nothing from elsewhere, and as a fragment of a notebook.

`page.html` is the frame of every page, also of the comparison report; `view.html` is the body of a page of figures.
`style.css` has what all pages need, `view.css` what a page of figures needs; the modules in `components/` draw.
Titles, tokens and messages may contain any text: they reach the page as JSON in which no character can end a tag, and
the script sets them as text only. Control characters and bidirectional marks in them are visible symbols.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from seqwise.environment import get_version
from seqwise.page.figures import Figure
from seqwise.page.packing import pack_figures
from seqwise.page.palette import ROLES, SERIES, Stops, get_scale
from seqwise.page.script import COMPONENTS, bundle, dump_json_for_script
from seqwise.printable import escape_xml

MAX_PAGE_BYTES = 6_000_000  # of the figures of a page, as far as they can be made coarser
MAX_FRAGMENT_BYTES = 290_000  # of a whole fragment
FRAME_HEIGHT = 600  # pixels, until the script inside a frame sets its height

_PLACEHOLDER = re.compile(r"\{\{([A-Z]+)\}\}")
_FOLDER = Path(__file__).parent
FIGURE_STYLE = _FOLDER / "view.css"  # what a page with figures needs


def build_page(title: str, summary: Sequence[str], figures: Sequence[Figure], max_bytes: int = MAX_PAGE_BYTES) -> str:
    """Returns the text of an HTML file. Large matrices are made coarser until all figures together fit `max_bytes`."""
    data = {
        "title": title,
        "summary": list(summary),
        "figures": pack_figures(figures, max_bytes),
        "scales": list_scales(),
    }
    body = fill_template(_FOLDER / "view.html", title=title, sentences=" ".join(summary), version=get_version())
    return build_document(title, body, data, COMPONENTS / "page.js", FIGURE_STYLE)


def list_scales() -> dict[str, tuple[Stops, Stops]]:
    """Returns the stops of all colour scales by role, as the components of a page read them."""
    sequential = {role: get_scale("sequential", role) for role in ("", *ROLES)}
    return {**sequential, "diverging": get_scale("diverging")}


def build_document(title: str, body: str, data: Any, script: Path, *styles: Path) -> str:
    """Returns the text of an HTML file that loads nothing.

    script: the module that draws the page from `data`
    styles: what the page needs besides `style.css`
    """
    parts = {
        "TITLE": escape_xml(title),
        "STYLE": build_style() + "".join(map(_read, styles)),
        "BODY": body,
        "DATA": dump_json_for_script(data),
        "SCRIPT": _join_modules(script),
    }
    return _fill(_FOLDER / "page.html", parts)


def fill_template(path: Path, **texts: str) -> str:
    """Returns a piece of HTML whose placeholders are replaced by texts, which stay text whatever they contain."""
    return _fill(path, {name.upper(): escape_xml(text) for name, text in texts.items()})


def _fill(path: Path, parts: dict[str, str]) -> str:
    # All at once: a title that looks like a placeholder must stay a title.
    return _PLACEHOLDER.sub(lambda match: parts[match[1]], _read(path))


def build_fragment(title: str, summary: Sequence[str], figures: Sequence[Figure]) -> str:
    """Returns HTML for the output of a notebook cell: the page in a frame of its own, so that several do not clash."""
    size = len(_build_frame(title, build_page(title, summary, ())).encode())
    return _build_frame(title, build_page(title, summary, figures, max(0, MAX_FRAGMENT_BYTES - size)))


def _build_frame(title: str, page: str) -> str:
    # Of the characters of an attribute in single quotes, only these two need to be escaped.
    text = page.replace("&", "&amp;").replace("'", "&#39;")
    style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
    return f'<iframe title="{escape_xml(title)}" style="{style}" srcdoc=\'{text}\'></iframe>'


@cache
def build_style() -> str:
    """Returns the style sheet of all pages, with the colours of roles and series on light and on dark ones."""
    light, dark = ("".join(_declare_colours(mode)) for mode in (0, 1))
    colours = f":root {{{light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{dark}}} }}\n"
    return f"{_read(_FOLDER / 'style.css')}{colours}"


def _declare_colours(mode: int) -> Iterator[str]:
    yield from (f"--role-{role}:{colours[mode]};" for role, colours in ROLES.items())
    yield from (f"--c{index}:{colours[mode]};" for index, colours in enumerate(SERIES))


@cache
def _join_modules(entry: Path) -> str:
    return bundle(entry)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
