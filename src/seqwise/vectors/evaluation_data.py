"""Readers of evaluation files: analogies, and pairs of words with human similarity scores.

It knows nothing of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqwise.data.reading import BOM, check_utf8, open_binary
from seqwise.errors import DataError

SAMPLE_LINES = 3  # lines from which the kind of a file is detected; the first may name the columns
SCORE_COLUMNS = ("simlex999", "human (mean)", "score", "similarity", "relatedness", "human", "mean", "rating")


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    a: str
    b: str
    c: str
    d: str


class Pair(NamedTuple):
    """Two words and their similarity as judged by people."""

    a: str
    b: str
    score: float


def detect_kind(path: str | Path) -> Literal["analogies", "similarities"]:
    """Returns what a file holds, judged by its first lines."""
    path = Path(path)
    lines = [text for _, text in islice(_read_lines(path), SAMPLE_LINES)]
    rows = [_split_fields(text) for text in lines]
    rows = rows[1:] if rows and _find_score_column(rows[0]) is not None else rows
    if any(text.startswith(":") for text in lines):
        return "analogies"
    # A number in place of the second word means that this is a file of vectors.
    if any(_find_number(row) is not None and _parse_number(row[1]) is None for row in rows):
        return "similarities"
    if any(len(row) == 4 for row in rows):
        return "analogies"
    raise DataError(
        "expected four words per line (analogies), or two words and a number (similarities).",
        repair="Give a file like questions-words.txt or wordsim353.tsv.",
        file=path,
    )


def read_analogies(path: str | Path) -> list[Question]:
    """Reads lines of four words; a line ": name" begins a section."""
    path, section, questions = Path(path), "all", []
    for line, text in _read_lines(path):
        if text.startswith(":"):
            section = text[1:].strip() or "all"
            continue
        words = _split_fields(text)
        if len(words) != 4:
            repair = "Write a b c d: a is to b as c is to d."
            raise DataError(f"expected four words; found {len(words)}.", repair=repair, file=path, line=line)
        questions.append(Question(section, *words))
    return _require_nonempty(questions, path)


def read_similarities(path: str | Path) -> list[Pair]:
    """Reads lines of two words and a score, separated by tabs, commas or blanks.

    The first line may name the columns, one of them that of the score. Otherwise the score is the third column, or the
    fourth after a part of speech.
    """
    path, pairs = Path(path), []
    column: int | None = None
    for index, (line, text) in enumerate(_read_lines(path)):
        fields = _split_fields(text)
        if index == 0 and (column := _find_score_column(fields)) is not None:
            continue
        column = _find_number(fields) if column is None else column
        score = _parse_number(fields[column]) if column is not None and column < len(fields) else None
        if score is not None:
            pairs.append(Pair(fields[0], fields[1], score))
        elif index > 0 or len(fields) < 3:
            raise DataError(
                f"expected two words and a number; found {text[:40]!r}.",
                repair="Separate them by tabs: tiger<TAB>cat<TAB>7.35",
                file=path,
                line=line,
            )
    return _require_nonempty(pairs, path)


def _find_score_column(fields: Sequence[str]) -> int | None:
    """Returns the column of the scores if these fields are column names; otherwise None."""
    names = [field.casefold() for field in fields]
    return next((names.index(name, 2) for name in SCORE_COLUMNS if name in names[2:]), None)


def _find_number(fields: Sequence[str]) -> int | None:
    """Returns the column of the score in a file without column names: after both words, or after a part of speech."""
    return next((at for at in (2, 3) if at < len(fields) and _parse_number(fields[at]) is not None), None)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) of the lines that are neither blank nor a comment."""
    offset = 0
    with open_binary(path) as file:
        for number, data in enumerate(file, start=1):
            check_utf8(data, offset, number, path)
            text = data.removeprefix(BOM if not offset else b"").decode().strip()
            offset += len(data)
            if text and not text.startswith("#"):
                yield number, text


def _split_fields(text: str) -> list[str]:
    """Splits at tabs, at commas if there are at least two (one may be a word), otherwise at blanks."""
    for mark, minimum in (("\t", 1), (",", 2)):
        if text.count(mark) >= minimum:
            return [field.strip() for field in text.split(mark)]
    return text.split()


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _require_nonempty(items: list, path: Path) -> list:
    if not items:
        raise DataError("there is no question in it.", repair="Give a file with one per line.", file=path)
    return items
