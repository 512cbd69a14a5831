"""Code that the query commands share: loading vectors, and tables of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from seqwise.cli import console
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors, Neighbour

Row = Sequence[str]


def load_with_progress(path: Path, kind: str | None = None) -> KeyedVectors:
    """Reads a file of vectors, with a progress bar and warnings on standard error."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.formats import load_vectors

    messages: list[str] = []
    with ProgressBar("reading") as bar:
        keyed = load_vectors(path, kind, progress=bar, log=messages.append)
    for message in messages:
        console.warn(f"{path}: {message}")
    progress = keyed.about.get("progress", 1)
    if isinstance(progress, float) and progress < 1:
        console.warn(f"{path}: its training was stopped after {progress:.0%}.")
    return keyed


def check_words(keyed: KeyedVectors, words: Iterable[str]) -> None:
    """Raises one error about all unknown words."""
    errors: list[UsageError] = []
    for word in dict.fromkeys(words):
        try:
            keyed.vector(word)
        except UsageError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else UsageError("\n".join(map(str, errors)))


def find_unknown(keyed: KeyedVectors, words: Iterable[str]) -> list[str]:
    """Returns the words outalignment the vocabulary, whose vectors are composed from n-grams."""
    return [word for word in words if word not in keyed]


def report_composed(keyed: KeyedVectors, words: Iterable[str]) -> None:
    for word in find_unknown(keyed, words):
        console.log(f"{make_printable(word)} is not in the vocabulary; its vector is composed from its n-grams.")


def answers_as_json(keyed: KeyedVectors, neighbours: Iterable[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": each.word, "score": each.score, "count": keyed.count(each.word)} for each in neighbours]


def write_answers(keyed: KeyedVectors, neighbours: Sequence[Neighbour], score: str, notes: Sequence[str] = ()) -> None:
    """Writes a table of words with scores, and with counts and notes if there are any."""
    columns, alignments = ["", "word", score], "><>"
    rows = [[str(rank), make_printable(each.word), f"{each.score:.4f}"] for rank, each in enumerate(neighbours, 1)]
    if keyed.counts is not None:
        columns, alignments = [*columns, "count"], alignments + ">"
        rows = [[*row, f"{keyed.count(each.word) or 0:,}"] for row, each in zip(rows, neighbours)]
    if any(notes):
        columns, alignments = [*columns, ""], alignments + "<"
        rows = [[*row, note] for row, note in zip(rows, notes)]
    write_table(columns, rows, alignments)


def write_table(columns: Row, rows: Sequence[Row], alignments: str) -> None:
    """Writes rows below the names of their columns; `alignments` has < or > per column."""
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows)]
    for row in (columns, *rows):
        cells = (_pad(cell, width, alignment) for cell, width, alignment in zip(row, widths, alignments))
        console.write("  ".join(cells).rstrip())


def make_printable(word: str) -> str:
    """Returns a word that is safe to print: control characters of a file must not reach the terminal."""
    return word if word.isprintable() else repr(word)


def _pad(cell: str, width: int, alignment: str) -> str:
    padding = " " * (width - cell_len(cell))  # letters of some scripts are two cells wide
    return padding + cell if alignment == ">" else cell + padding
