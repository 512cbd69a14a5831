"""Files of questions that vectors are measured by: analogies, and pairs of words beside people's scores.

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

LOOKED_AT = 3  # lines that say what a file holds; the first may be names of columns
SCORES = ("simlex999", "human (mean)", "score", "similarity", "relatedness", "human", "mean", "rating")  # such names


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    a: str
    b: str
    c: str
    d: str


class Pair(NamedTuple):
    """Two words and how alike people found them."""

    a: str
    b: str
    score: float


def recognise(path: str | Path) -> Literal["analogies", "similarities"]:
    """Which of the two a file holds, by its first lines."""
    path = Path(path)
    lines = [text for _, text in islice(_lines(path), LOOKED_AT)]
    rows = [_fields(text) for text in lines]
    rows = rows[1:] if rows and _named(rows[0]) is not None else rows
    if any(text.startswith(":") for text in lines):
        return "analogies"
    # A number for a second word is rather the first number of a vector.
    if any(_first_number(row) is not None and _number(row[1]) is None for row in rows):
        return "similarities"
    if any(len(row) == 4 for row in rows):
        return "analogies"
    raise DataError(
        "expected four words per line (analogies), or two words and a number (similarities).",
        repair="Give a file like questions-words.txt or wordsim353.tsv.",
        file=path,
    )


def read_analogies(path: str | Path) -> list[Question]:
    """Lines of four words; a line ": name" begins a section."""
    path, section, questions = Path(path), "all", []
    for line, text in _lines(path):
        if text.startswith(":"):
            section = text[1:].strip() or "all"
            continue
        words = _fields(text)
        if len(words) != 4:
            repair = "Write a b c d: a is to b as c is to d."
            raise DataError(f"expected four words; found {len(words)}.", repair=repair, file=path, line=line)
        questions.append(Question(section, *words))
    return _some(questions, path)


def read_similarities(path: str | Path) -> list[Pair]:
    """Lines of two words and a score, parted by tabs, commas or blanks.

    A first line may name the columns; then the score is where it says so. Else it is the third, or after a part of
    speech the fourth.
    """
    path, pairs = Path(path), []
    column: int | None = None
    for place, (line, text) in enumerate(_lines(path)):
        fields = _fields(text)
        if place == 0 and (column := _named(fields)) is not None:
            continue
        column = _first_number(fields) if column is None else column
        score = _number(fields[column]) if column is not None and column < len(fields) else None
        if score is not None:
            pairs.append(Pair(fields[0], fields[1], score))
        elif place > 0 or len(fields) < 3:
            raise DataError(
                f"expected two words and a number; found {text[:40]!r}.",
                repair="Part them by tabs: tiger<TAB>cat<TAB>7.35",
                file=path,
                line=line,
            )
    return _some(pairs, path)


def _named(fields: Sequence[str]) -> int | None:
    """The column of the scores, if these are names of columns of which one says so."""
    names = [field.casefold() for field in fields]
    return next((names.index(name, 2) for name in SCORES if name in names[2:]), None)


def _first_number(fields: Sequence[str]) -> int | None:
    """The column of the score in a line of a file without names: behind both words, or the part of speech too."""
    return next((at for at in (2, 3) if at < len(fields) and _number(fields[at]) is not None), None)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that are neither blank nor a remark."""
    offset = 0
    with open_binary(path) as file:
        for number, data in enumerate(file, start=1):
            check_utf8(data, offset, number, path)
            text = data.removeprefix(BOM if not offset else b"").decode().strip()
            offset += len(data)
            if text and not text.startswith("#"):
                yield number, text


def _fields(text: str) -> list[str]:
    """Parted by tabs; by commas where there are enough of them, for one may be a word; else by blanks."""
    for mark, least in (("\t", 1), (",", 2)):
        if text.count(mark) >= least:
            return [field.strip() for field in text.split(mark)]
    return text.split()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _some(found: list, path: Path) -> list:
    if not found:
        raise DataError("there is no question in it.", repair="Give a file with one per line.", file=path)
    return found
