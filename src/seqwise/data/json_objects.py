"""Parses JSON: one value per line, or one array of values, each with the line at which it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqwise.errors import Findings

BLANK_LINES = "blank lines, which are skipped"
FORMAT_FIX = 'Each line must be one object, {"text": "…"}, or the file an array of objects.'
WHITESPACE = " \t\n\r"  # between the values of an array


class DuplicateKeyError(ValueError):
    """An object has a key twice."""


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DuplicateKeyError(f"the key {repeated!r} occurs twice in one object")
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicates)


def parse_objects(text: str, path: Path, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) of each line, or of each element if the text is one array."""
    if text.lstrip().startswith("["):
        yield from _parse_array(text, path, findings)
        return
    for line, content in enumerate(text.rstrip("\n").split("\n"), start=1):
        if not content.strip():
            findings.note(BLANK_LINES, path, line)
            continue
        try:
            yield line, _DECODER.decode(content)
        except (ValueError, RecursionError) as error:
            findings.error(f"not valid JSON: {_get_reason(error)}.", fix=FORMAT_FIX, file=path, line=line)


def _parse_array(text: str, path: Path, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Yields the elements one by one; reading stops at the first that is not valid JSON."""
    index, line, previous = text.index("[") + 1, 1, 0
    is_first = True
    while True:
        index = _skip_whitespace(text, index)
        if text.startswith("]", index):
            index = _skip_whitespace(text, index + 1)
            if index == len(text):
                return
            reason = "text follows the end of the array"
        elif not is_first and not text.startswith(",", index):
            reason = "the array is not closed: the file may be truncated" if index == len(text) else "expected a comma"
        else:
            index = _skip_whitespace(text, index if is_first else index + 1)
            line, previous, is_first = line + text.count("\n", previous, index), index, False
            try:
                value, index = _DECODER.raw_decode(text, index)
            except (ValueError, RecursionError) as error:
                reason, index = _get_reason(error), getattr(error, "pos", index)
            else:
                yield line, value
                continue
        line += text.count("\n", previous, index)
        findings.error(f"not valid JSON: {reason}.", fix=FORMAT_FIX, file=path, line=line)
        return


def _skip_whitespace(text: str, index: int) -> int:
    while index < len(text) and text[index] in WHITESPACE:
        index += 1
    return index


def _get_reason(error: Exception) -> str:
    return getattr(error, "msg", str(error))
