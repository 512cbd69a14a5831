"""Parses JSON: one value per line, or one array of values, each with the line at which it starts.

The text is streamed: one line, or one element of an array, is in memory at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from seqwise.data.limits import MB, build_size_error, get_limits, iterate_lines
from seqwise.errors import Findings

BLANK_LINES = "blank lines, which are skipped"
FORMAT_FIX = 'Each line must be one object, {"text": "…"}, or the file an array of objects.'
WHITESPACE = re.compile(r"[ \t\n\r]*")  # between the values of an array
NUMBER_CHARACTERS = "0123456789+-.eE"
CHUNK_CHARACTERS = 1 << 16  # of an array that are read at once; more for an element that is longer


class DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names: set[str] = set()
        repeated = next(name for name, _ in pairs if name in names or names.add(name))  # type: ignore[func-returns-value]
        raise DuplicateKeyError(f"the key {repeated[:80]!r} occurs twice in one object")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text; raises ValueError with the reason in words if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(_get_reason(error)) from None


def parse_objects(file: TextIO, path: Path, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) of each line, or of each element if the text is one array."""
    window = _Window(file)
    if window.skip_whitespace() == "[":
        window.index += 1
        yield from _parse_array(window, path, findings)
        return
    for line, content in iterate_lines(window.read, path, window.line):
        if not content.strip():
            findings.note(BLANK_LINES, path, line)
            continue
        try:
            yield line, _DECODER.decode(content)
        except (ValueError, RecursionError) as error:
            findings.error(f"not valid JSON: {_get_reason(error)}.", fix=FORMAT_FIX, file=path, line=line)


def _parse_array(window: _Window, path: Path, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yields the elements one by one; reading stops at the first that is not valid JSON."""
    max_characters, is_first = get_limits().max_text_mb * MB, True
    while True:
        next_character = window.skip_whitespace()
        if next_character == "]":
            window.index += 1
            if not window.skip_whitespace():
                return
            reason = "text follows the end of the array"
        elif not is_first and next_character != ",":
            reason = "expected a comma" if next_character else "the array is not closed: the file may be truncated"
        else:
            if not is_first:
                window.index += 1
                window.skip_whitespace()
            is_first, line = False, window.line
            try:
                value = window.parse_value(max_characters)
            except _TooLargeError:
                raise build_size_error("this element of the array", path, line) from None
            except (ValueError, RecursionError) as error:
                window.advance(getattr(error, "pos", window.index))
                reason = _get_reason(error)
            else:
                yield line, value
                continue
        findings.error(f"not valid JSON: {reason}.", fix=FORMAT_FIX, file=path, line=window.line)
        return


class _TooLargeError(Exception):
    """A value is larger than allowed."""


class _Window:
    """The part of a text that is in memory: the value at `index`, which is in `line`."""

    def __init__(self, file: TextIO):
        self.file, self.text, self.index, self.line = file, "", 0, 1

    def read(self, size: int) -> str:
        """Returns the characters that are in memory, or else the next `size` of the file."""
        text, self.index = self.text[self.index :], len(self.text)
        return text or self.file.read(size)

    def extend(self) -> bool:
        """Reads as much again as there is behind `index`; returns whether there was more."""
        more = self.file.read(max(CHUNK_CHARACTERS, len(self.text) - self.index))
        if more:
            self.text, self.index = self.text[self.index :] + more, 0
        return bool(more)

    def advance(self, index: int) -> None:
        """Moves to another index, counting lines."""
        self.line += self.text.count("\n", self.index, index)
        self.index = index

    def skip_whitespace(self) -> str:
        """Moves to the next character that is not white space, and returns it; "" at the end."""
        while True:
            self.advance(WHITESPACE.match(self.text, self.index).end())  # type: ignore[union-attr]
            if self.index < len(self.text):
                return self.text[self.index]
            if not self.extend():
                return ""

    def parse_value(self, max_characters: int) -> Any:
        """Returns the value at `index`, and moves behind it; reads more as long as it is incomplete."""
        while True:
            error: Exception | None = None
            try:
                value, end = _DECODER.raw_decode(self.text, self.index)
            except ValueError as problem:
                error, end = problem, len(self.text)
            # A number may continue in what follows: 10 of 10.5, or 1 of 1e5.
            is_complete = error is None and end < len(self.text) and self.text[end] not in NUMBER_CHARACTERS
            if not is_complete and len(self.text) - self.index > max_characters:
                if error is None or getattr(error, "pos", 0) == len(self.text) or "Unterminated" in str(error):
                    raise _TooLargeError
                raise error
            if is_complete or not self.extend():
                if error is not None:
                    raise error
                self.advance(end)
                return value


def _get_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deeply"
    reason = getattr(error, "msg", str(error))
    return "a number has thousands of digits" if "set_int_max_str_digits" in reason else reason
