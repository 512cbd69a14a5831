"""What the queries share: opening a file of vectors, and tables of words. It knows nothing of any one query."""

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
    """Read a file of vectors, with a bar and remarks on standard error."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.formats import load_vectors

    remarks: list[str] = []
    with ProgressBar("reading") as bar:
        keyed = load_vectors(path, kind, progress=bar, log=remarks.append)
    for remark in remarks:
        console.warn(f"{path}: {remark}")
    done = keyed.about.get("progress", 1)
    if isinstance(done, float) and done < 1:
        console.warn(f"{path}: its training was stopped after {done:.0%}.")
    return keyed


def check_words(keyed: KeyedVectors, words: Iterable[str]) -> None:
    """Complain about all unknown words at once, before anything is answered."""
    problems: list[UsageError] = []
    for word in dict.fromkeys(words):
        try:
            keyed.vector(word)
        except UsageError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else UsageError("\n".join(map(str, problems)))


def find_unknown(keyed: KeyedVectors, words: Iterable[str]) -> list[str]:
    """Those of the words that have no vector of their own: theirs is made of their n-grams."""
    return [word for word in words if word not in keyed]


def report_composed(keyed: KeyedVectors, words: Iterable[str]) -> None:
    for word in find_unknown(keyed, words):
        console.log(f"{make_printable(word)} is not in the list; its vector is composed from its n-grams.")


def count(keyed: KeyedVectors, word: str) -> int | None:
    """How often the word stood in the corpus, where that is known."""
    return None if keyed.counts is None or word not in keyed else int(keyed.counts[keyed.index(word)])


def answers_as_json(keyed: KeyedVectors, found: Iterable[Neighbour]) -> list[dict[str, Any]]:
    """Words with scores, as JSON."""
    return [{"word": one.word, "score": one.score, "count": count(keyed, one.word)} for one in found]


def write_answers(keyed: KeyedVectors, found: Sequence[Neighbour], score: str, remarks: Sequence[str] = ()) -> None:
    """A table of words with scores; counts where the file has them, remarks where there are any."""
    columns, sides = ["", "word", score], "><>"
    rows = [[str(place), make_printable(one.word), f"{one.score:.4f}"] for place, one in enumerate(found, start=1)]
    if keyed.counts is not None:
        columns, sides = [*columns, "count"], sides + ">"
        rows = [[*row, f"{count(keyed, one.word) or 0:,}"] for row, one in zip(rows, found)]
    if any(remarks):
        columns, sides = [*columns, ""], sides + "<"
        rows = [[*row, remark] for row, remark in zip(rows, remarks)]
    write_table(columns, rows, sides)


def write_table(columns: Row, rows: Sequence[Row], sides: str) -> None:
    """Rows below the names of their columns; `sides` has < or > per column."""
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows)]
    for row in (columns, *rows):
        cells = (_padded(cell, width, side) for cell, width, side in zip(row, widths, sides))
        console.write("  ".join(cells).rstrip())


def make_printable(word: str) -> str:
    """A word as a terminal may show it: a file must not be able to send it commands."""
    return word if word.isprintable() else repr(word)


def _padded(cell: str, width: int, side: str) -> str:
    room = " " * (width - cell_len(cell))  # letters of some scripts are two cells wide
    return room + cell if side == ">" else cell + room
