"""The results of experiments as HTML files that load nothing: a page of all statements, and slides of a chapter.

Both take records as `seqwise.lab.running.to_record` returns them. `lab.js` draws the page, which shows a verdict only
after the reader has guessed it; `slides.js` draws the slides; `live/` has figures that recompute in the browser. This
module runs no experiment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqwise.environment import get_version
from seqwise.errors import capitalize, pluralize
from seqwise.lab.catalogue import CHAPTERS, list_ids
from seqwise.page.html import FIGURE_STYLE, build_document, fill_template, list_scales
from seqwise.page.palette import SERIES, make_style

NUM_STATEMENTS = 90  # of the textbook; a page may have fewer, after an interrupted run
COPIED = ("id", "claim", "equation", "measurement", "rule", "verdict", "condition", "instead", "evidence", "seconds")

PAGE_STYLES = ("statement.css", "lab.css")  # the studio uses the first one too

_FOLDER = Path(__file__).parent
_COMMAND = re.compile(r"seqwise lab run [A-H]\d+")
_OPTION = re.compile(r"\s+--(?P<name>[\w-]+)")
_VALUE = re.compile(r"[ =](?!--)[^\s:;]*[^\s:;,.)]")  # without the punctuation of the sentence around it
_NUMBER = re.compile(r" -?\d[\d.]*(?<!\.)(?![^\s:;,.)])")  # a further value of an option that takes several
_ARTICLE = re.compile(r"an? (?!is |has |and |or )(?=[A-Za-z]{2})")  # not the variable a
_WORD = re.compile(r"[a-z]{2,}(?=[\s,;:.!?-]|$)(?! ?=)")  # not a variable, nor a function such as exp(x) or tanh'


def build_lab_page(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns an HTML file with all results: the reader guesses each verdict before it is shown."""
    title = make_title([record["id"] for record in records])
    data = {
        "title": title,
        "total": NUM_STATEMENTS,
        "chapters": [
            {"letter": chapter.letter, "title": chapter.title, "records": _select(records, chapter.letter)}
            for chapter in CHAPTERS.values()
        ],
        "scales": list_scales(),
        "styles": list_styles(),
    }
    body = fill_template(_FOLDER / "lab.html", title=title, version=get_version())
    return build_document(
        title, body, data, _FOLDER / "lab.js", FIGURE_STYLE, *(_FOLDER / name for name in PAGE_STYLES)
    )


def make_title(ids: Sequence[str]) -> str:
    """Returns the title of a page with these statements: it names the chapter if all are of one."""
    letters = {identifier[0] for identifier in ids}
    if len(letters) != 1:
        return f"The lab: {pluralize(len(ids) or NUM_STATEMENTS, 'statements')} about sequence models, put to the test"
    (letter,) = letters
    total = len(list_ids(letter))
    count = f"{len(ids)} of " if len(ids) < total else ""
    return f"{CHAPTERS[letter].title}: {count}{pluralize(total, 'statements')}"


def build_slides(records: Sequence[Mapping[str, Any]], title: str) -> str:
    """Returns an HTML file with slides: of each statement first the question, then the verdict with its figures."""
    data = {
        "title": title,
        "records": [record for letter in CHAPTERS for record in _select(records, letter)],
        "scales": list_scales(),
        "styles": list_styles(),
    }
    body = fill_template(_FOLDER / "slides.html", title=title)
    return build_document(title, body, data, _FOLDER / "slides.js", FIGURE_STYLE, _FOLDER / "slides.css")


def list_styles() -> list[dict[str, str]]:
    """Returns the styles that figures computed in the browser choose from."""
    return [make_style(index).to_plain() for index in range(2 * len(SERIES))]


def _select(records: Sequence[Mapping[str, Any]], letter: str) -> list[dict[str, Any]]:
    """Returns what a page needs of the records of a chapter, in the order of the textbook."""
    chosen = [record for record in records if record["id"].startswith(letter)]
    return [convert_record(record) for record in sorted(chosen, key=lambda record: int(record["id"][1:]))]


def convert_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a page needs of a record, with the command in `try_next` apart from its explanation."""
    command, hint = split_command(record["try_next"], record["parameters"])
    return {
        **{key: record[key] for key in COPIED},
        "instead": begin_sentence(record["instead"] or ""),
        "numbers": _list_single(record["measured"]),
        "parameters": {name: _show(value) for name, value in record["parameters"].items()},
        "size": record.get("size", ""),
        "command": command,
        "hint": hint,
        "figures": record["figures"],
    }


def _list_single(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers and texts of a measurement; arrays are left to the figures, which have them already."""
    return {
        name: value for name, value in measured.items() if value is None or isinstance(value, (bool, int, float, str))
    }


def _show(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def split_command(text: str, parameters: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the command of a sentence such as "seqwise lab run C2 --steps 9: …", and what there is to look for.

    parameters: of the experiment; an option whose parameter is true or false has no value
    """
    match = _COMMAND.search(text)
    if match is None:
        return "", text
    end = match.end()
    while option := _OPTION.match(text, end):
        end = option.end()
        name = option["name"].replace("-", "_")
        is_switch = name == "quick" or isinstance(parameters.get(name.removeprefix("no_")), bool)
        if not is_switch and (value := _VALUE.match(text, end)):
            end = value.end()
            while isinstance(parameters.get(name), (list, tuple)) and (value := _NUMBER.match(text, end)):
                end = value.end()
    command = text[match.start() : end]
    if match.start() > 0:
        return command, text
    hint = text[end:].lstrip(" :;,.–—")
    return command, begin_sentence(hint)


def begin_sentence(text: str) -> str:
    """Returns a text with an upper-case first letter, unless it begins with a variable or a formula."""
    return capitalize(text) if _WORD.match(text) or _ARTICLE.match(text) else text
