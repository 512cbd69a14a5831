"""Terminal output of all commands: text, warnings, errors, and one JSON document.

Results go to standard output, everything else to standard error. Text is never interpreted as markup and never
wrapped, so that paths can be copied. Control characters, escape sequences and bidirectional marks of data are printed
as visible symbols by `make_printable`; it is imported from `seqwise/printable.py` because images and pages, which must
not import the command line, need it too. Only `write_text` and `print_json` write values that other programs read, and
these stay exact. This module does not know any particular command.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from seqwise.errors import SeqwiseError
from seqwise.printable import escape_json
from seqwise.printable import make_printable as make_printable

UNLIMITED = 1_000_000  # columns of an output that is not a terminal


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # handled by `main`; rich would exit with status 1


out = _Console(markup=False, highlight=False, emoji=False)
err = _Console(markup=False, highlight=False, emoji=False, stderr=True)


def log(message: str, style: str = "") -> None:
    """Prints a line to standard error: progress, notes, paths."""
    err.print(Text(make_printable(message), style=style), soft_wrap=True)


def warn(message: str) -> None:
    """Prints a warning to standard error."""
    err.print(Text.assemble(("warning: ", "bold yellow"), make_printable(message)), soft_wrap=True)


def fail(error: SeqwiseError | str) -> None:
    """Prints an error to standard error, with its suggested fix on a separate line."""
    err.print(Text.assemble(("error: ", "bold red"), make_printable(str(error))), soft_wrap=True)


def write(message: str, style: str = "") -> None:
    """Prints a line of the result to standard output."""
    out.print(Text(make_printable(message), style=style), soft_wrap=True)


def write_text(text: str) -> None:
    """Writes a predicted text to standard output, as it is for a file or a program, and printable for a terminal."""
    sys.stdout.write(make_printable(text) if out.is_terminal else text)
    sys.stdout.flush()


def align(rows: Sequence[Sequence[str]], num_left: int = 1) -> list[str]:
    """Returns the rows of a table as lines; the first `num_left` columns are aligned left, the others right."""
    rows = _make_printable(rows)
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = ["<" if column < num_left else ">" for column in range(len(widths))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip() for row in rows
    ]


def _make_printable(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[make_printable(cell, is_line=True) for cell in row] for row in rows]


def align_to_width(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the rows of a table as lines; columns that do not fit into the terminal follow below."""
    rows = _make_printable(rows)
    lines = align(rows)
    if not lines or max(map(len, lines)) <= width():
        return lines
    widths, num_after_first = [max(map(len, column)) + 2 for column in zip(*rows)], 1  # columns after the first
    name_width = widths[0] - 2
    while num_after_first < len(widths) - 1 and name_width + sum(widths[1 : num_after_first + 2]) <= width():
        num_after_first += 1
    rest = [[row[0], *row[num_after_first + 1 :]] for row in rows]
    first = align([row[: num_after_first + 1] for row in rows])
    return [*first, "", *align_to_width(rest)] if len(rest[0]) > 1 else first


def width() -> int:
    """Returns the columns of the terminal; without a terminal nothing is wrapped."""
    return out.width if out.is_terminal else UNLIMITED


def print_json(value: Any) -> None:
    """Prints one JSON document to standard output. NaN and infinities become null.

    Characters that a terminal would obey or hide are written as \\uXXXX, which every program reads as the same value.
    """
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    document = json.dumps(_to_json(value), indent=2, ensure_ascii=not is_utf8, allow_nan=False)
    sys.stdout.write(escape_json(document) + "\n")
    sys.stdout.flush()


def _to_json(value: Any) -> Any:
    """Converts nested values to types that JSON has."""
    if hasattr(value, "model_dump"):
        return _to_json(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and PyTorch, without importing either
        return _to_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
