"""What every command shares: where text goes, and how one JSON document is printed.

Results go to standard output, everything else to standard error. Text of users (paths, tokens, messages) is never
read as markup and never wrapped, so that a path can be copied. This module knows nothing of any particular command.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from seqwise.errors import SeqwiseError


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with status 1; `main` knows what to do


out = _Console(markup=False, highlight=False, emoji=False)
err = _Console(markup=False, highlight=False, emoji=False, stderr=True)


def log(message: str, style: str = "") -> None:
    """One line on standard error: progress, remarks, where a file was written."""
    err.print(Text(message, style=style), soft_wrap=True)


def warn(message: str) -> None:
    """A remark on standard error that the user should not overlook."""
    err.print(Text.assemble(("warning: ", "bold yellow"), message), soft_wrap=True)


def fail(error: SeqwiseError | str) -> None:
    """The error on standard error; the repair, if there is one, on a line of its own."""
    err.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)


def write(message: str, style: str = "") -> None:
    """One line of the result on standard output."""
    out.print(Text(message, style=style), soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on standard output. Numbers that JSON cannot hold become null."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(_plain(value), indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """Nested values as JSON knows them."""
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and PyTorch, without importing either
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
