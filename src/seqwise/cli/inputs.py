"""The inputs of `seqwise predict` and `seqwise embed`: a text, a file with one text per line, or standard input."""

from __future__ import annotations

import os
import shlex
import stat
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from seqwise.cli import console
from seqwise.errors import DataError, Findings, UsageError

MAX_SPOOLED_BYTES = 16_000_000  # of standard input that are kept in memory; more needs a temporary file
MAX_INPUT_CHARACTERS = 100_000_000  # of a file or pipe, whose lines are in memory at once


def get_piped_input() -> str | None:
    """Returns - if standard input is a pipe or a file; None for a terminal and for anything that may never end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # there is no standard input
        return None
    return "-" if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else None


def read_lines(argument: str, command: str = "") -> list[str]:
    """Returns the lines of a file, of standard input or of the text itself; an empty last line is not an input."""
    lines = read_text(argument, command).split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def read_text(argument: str, command: str = "") -> str:
    """Returns the content of the file `argument`, of standard input for -, or else `argument` itself.

    `command` reads a text from a pipe; it is part of the error about an argument that looks like a path.
    """
    if argument == "-":
        return _read_pipe()
    if os.path.exists(argument) and not os.path.isdir(argument):  # also a pipe: <(command) of bash
        from seqwise.data.opening import open_binary

        with open_binary(Path(argument)) as file:
            return _decode(file, Path(argument))
    _reject_path(argument, f"If it is the text itself: echo {shlex.quote(argument)} | {command}" if command else "")
    # Python represents bytes of an argument that are not UTF-8 as lone surrogates.
    if any("\ud800" <= character <= "\udfff" for character in argument):
        raise UsageError("the text is not UTF-8.", fix="Put it into a UTF-8 file, or set LANG=C.UTF-8.")
    return argument


def _read_pipe() -> str:
    """Returns the text of standard input, which may be a pipe that never ends."""
    from seqwise.data.opening import copy_stream

    path = Path("standard input")
    with tempfile.SpooledTemporaryFile(MAX_SPOOLED_BYTES) as copy:
        copy_stream(sys.stdin.buffer, cast(BinaryIO, copy), path)
        return _decode(cast(BinaryIO, copy), path)


def _decode(file: BinaryIO, path: Path) -> str:
    from seqwise.data.text_lines import decode_file

    findings = Findings()
    with decode_file(file, path, findings, newline="") as text:
        for note in findings.note_messages():
            console.log(f"note: {note}")
        content = text.read(MAX_INPUT_CHARACTERS + 1)
    if len(content) > MAX_INPUT_CHARACTERS:
        problem = f"the input has more than {MAX_INPUT_CHARACTERS // 1_000_000:,} million characters."
        raise DataError(problem, fix="Divide it into several files, and give one at a time.", file=path)
    return content.replace("\r\n", "\n")


def _reject_path(argument: str, fix: str) -> None:
    """Raises an error for a folder, and for the path of a file that does not exist: neither is meant as a text."""
    from seqwise.data.reading import missing_file_error

    if os.path.isdir(argument) and argument not in (".", ".."):
        raise DataError("this is a folder; expected a text or a text file.", fix=fix, file=argument)
    if _looks_like_path(argument):
        error = missing_file_error(Path(argument))
        raise DataError(error.problem, fix=f"{error.fix}\n{fix}".strip(), file=argument)


def _looks_like_path(text: str) -> bool:
    """Returns whether a text without blanks has the suffix of a data file, or begins with a folder that exists.

    A slash alone does not make a path: "and/or" and "31/12/1999" are texts.
    """
    from seqwise.data.reading import get_format_suffix
    from seqwise.tasks.guess import FILE_SUFFIXES

    if any(map(str.isspace, text)) or "://" in text:
        return False
    return get_format_suffix(Path(text)) in FILE_SUFFIXES or os.path.isdir(os.path.dirname(text))
