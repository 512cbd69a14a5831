"""`seqwise vectors nearest`, `analogy` and `different`, and functions of all vector commands: reading files, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro
from rich.cells import cell_len

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors, Neighbour

Spec = TypeVar("Spec")
NEAREST_EXAMPLE = "seqwise vectors nearest vectors.safetensors king queen --n 5"
ANALOGY_EXAMPLE = "seqwise vectors analogy vectors.safetensors man king woman"
DIFFERENT_EXAMPLE = "seqwise vectors different vectors.safetensors breakfast lunch dinner car"
SCORE_NAMES = {"cosine": "cosine", "dot": "dot", "scaled": "dot / √dim"}  # value of --by → heading
ANALOGY_METHODS = {"add": "3CosAdd", "multiply": "3CosMul"}  # value of --by → name in the literature
MIN_DIFFERENT = 3  # words: two have the same cosine to their mean


@dataclass
class Nearest:
    """List the words nearest to each WORD, nearest first."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Words whose neighbours are listed."""
    n: int = 10
    """Number of neighbours per word."""
    by: Literal["cosine", "dot", "scaled"] = "cosine"
    """cosine of the angle; dot product; scaled: dot product divided by the square root of the dimension."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


@dataclass
class Analogy:
    """Solve the analogy: A is to B as C is to … The words of the question are excluded as answers, unless
    --keep-question."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    a: Annotated[str, tyro.conf.Positional]
    """First word, such as man."""
    b: Annotated[str, tyro.conf.Positional]
    """Second word, such as king."""
    c: Annotated[str, tyro.conf.Positional]
    """Third word, such as woman."""
    n: int = 5
    """Number of answers."""
    by: Literal["add", "multiply"] = "add"
    """add: nearest to b - a + c (3CosAdd). multiply: product of similarities to b and c over that to a (3CosMul)."""
    keep_question: bool = False
    """Allow the words of the question as answers."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


@dataclass
class Different:
    """Find the WORD that does not belong: the one whose vector has the smallest cosine to the mean of all."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Three words or more."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def nearest(argv: Sequence[str]) -> int:
    options = parse_words(Nearest, argv, prog="seqwise vectors nearest", example=NEAREST_EXAMPLE)
    if not options.words:
        raise UsageError("expected at least one word; received none.", fix=f"For example: {NEAREST_EXAMPLE}")
    check_minimums(options, n=1)
    vectors = load_with_progress(options.file, words=options.words)
    neighbours = {word: vectors.nearest(word, options.n, options.by) for word in options.words}
    if options.json:
        answers = [
            {"word": word, "composed": word not in vectors, "nearest": to_json(vectors, each)}
            for word, each in neighbours.items()
        ]
        header = {"file": options.file, "words": len(vectors), "dim": vectors.dim, "by": options.by}
        console.print_json({**header, "answers": answers})
        return 0
    for index, (word, each) in enumerate(neighbours.items()):
        note = "" if word in vectors else ", which is not in the vocabulary: composed from its n-grams"
        console.write("\n" * (index > 0) + f"nearest to {show_word(word)}{note}", style="bold")
        write_answers(vectors, each, SCORE_NAMES[options.by])
    return 0


def analogy(argv: Sequence[str]) -> int:
    options = parse_words(Analogy, argv, prog="seqwise vectors analogy", example=ANALOGY_EXAMPLE)
    check_minimums(options, n=1)
    question = (options.a, options.b, options.c)
    vectors = load_with_progress(options.file, words=question)
    neighbours = vectors.analogy(*question, n=options.n, by=options.by, exclude=not options.keep_question)
    if options.json:
        answers = [{**answer, "of_question": answer["word"] in question} for answer in to_json(vectors, neighbours)]
        header = {"file": options.file, "question": question, "by": options.by, "keep_question": options.keep_question}
        console.print_json({**header, "composed": find_composed(vectors, question), "answers": answers})
        return 0
    report_composed(vectors, question)
    a, b, c = map(show_word, question)
    policy = "allowed" if options.keep_question else "excluded"
    method = f"{ANALOGY_METHODS[options.by]}, words of the question {policy}"
    console.write(f"{a} is to {b} as {c} is to …   ({method})", style="bold")
    notes = ["a word of the question" if each.word in question else "" for each in neighbours]
    write_answers(vectors, neighbours, "cosine" if options.by == "add" else "score", notes)
    return 0


def different(argv: Sequence[str]) -> int:
    options = parse_words(Different, argv, prog="seqwise vectors different", example=DIFFERENT_EXAMPLE)
    words = tuple(dict.fromkeys(options.words))
    if len(words) < MIN_DIFFERENT:
        problem = f"expected at least {MIN_DIFFERENT} different words; received {len(words)}."
        raise UsageError(problem, fix=f"For example: {DIFFERENT_EXAMPLE}")
    vectors = load_with_progress(options.file, words=words)
    ranking = vectors.rank_by_centrality(words)
    if options.json:
        header = {"file": options.file, "different": ranking[0].word, "composed": find_composed(vectors, words)}
        console.print_json({**header, "words": to_json(vectors, ranking)})
        return 0
    report_composed(vectors, words)
    console.write(f"{show_word(ranking[0].word)} is least similar to the others", style="bold")
    write_answers(vectors, ranking, "cosine to the mean")
    return 0


def parse_words(spec: type[Spec], argv: Sequence[str], *, prog: str, example: str) -> Spec:
    """Calls `parse` for a command with words as arguments, which may start with a dash like an option."""
    try:
        return parse(spec, argv, prog=prog, example=example)
    except UsageError as error:
        unknown = re.match(r"unknown option '(.+?)'\.", error.problem)
        if unknown is None:
            raise
        fix = f"{error.fix}\nIf it is a word, put -- before it, after all options: {prog} FILE -- {unknown[1]}"
        raise UsageError(error.problem, fix=fix) from None


def check_minimums(options: Any, **minimums: int) -> None:
    """Raises an error for an option below its minimum, before anything is read."""
    for name, minimum in minimums.items():
        value = getattr(options, name)
        if value < minimum:
            raise UsageError(f"--{name}: expected at least {minimum}; received {value}.")


def load_with_progress(path: Path, kind: str | None = None, words: Iterable[str] = ()) -> KeyedVectors:
    """Reads a file of vectors, with a progress bar and warnings on standard error.

    Raises one error about all of `words` that are unknown.
    """
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.formats import load_vectors

    messages: list[str] = []
    with ProgressBar("reading") as bar:
        vectors = load_vectors(path, kind, progress=bar, log=messages.append)
    progress = vectors.about.get("progress", 1)
    if isinstance(progress, float) and progress < 1:
        messages.append(f"its training was stopped after {progress:.0%}.")
    for message in messages:
        console.warn(f"{path}: {message}")
    errors: list[UsageError] = []
    for word in dict.fromkeys(words):
        try:
            vectors.vector(word)
        except UsageError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else UsageError("\n".join(map(str, errors)))
    return vectors


def find_composed(vectors: KeyedVectors, words: Iterable[str]) -> list[str]:
    """Returns the words outside the vocabulary, whose vectors are composed from n-grams."""
    return [word for word in words if word not in vectors]


def report_composed(vectors: KeyedVectors, words: Iterable[str]) -> None:
    for word in find_composed(vectors, words):
        console.log(f"{show_word(word)} is not in the vocabulary; its vector is composed from its n-grams.")


def to_json(vectors: KeyedVectors, neighbours: Iterable[Neighbour]) -> list[dict[str, Any]]:
    return [{"word": each.word, "score": each.score, "count": vectors.count(each.word)} for each in neighbours]


def write_answers(
    vectors: KeyedVectors, neighbours: Sequence[Neighbour], score: str, notes: Sequence[str] = ()
) -> None:
    """Writes a table of words with scores, and with counts and notes if there are any."""
    columns = [
        ["", *map(str, range(1, len(neighbours) + 1))],
        ["word", *(show_word(each.word) for each in neighbours)],
        [score, *(f"{each.score:.4f}" for each in neighbours)],
    ]
    alignments = "><>"
    if vectors.counts is not None:
        columns.append(["count", *(f"{vectors.count(each.word) or 0:,}" for each in neighbours)])
        alignments += ">"
    if any(notes):
        columns.append(["", *notes])
        alignments += "<"
    write_table(columns, alignments)


def write_table(columns: Sequence[Sequence[str]], alignments: str) -> None:
    """Writes columns, each with its name first, beside each other; `alignments` has < or > per column."""
    padded = []
    for cells, alignment in zip(columns, alignments):
        widths = list(map(cell_len, cells))  # a letter may be two cells wide
        max_width = max(widths)
        spaces = [" " * (max_width - width) for width in widths]
        padded.append([space + cell if alignment == ">" else cell + space for space, cell in zip(spaces, cells)])
    for row in zip(*padded):
        console.write("  ".join(row).rstrip())


def show_word(word: str) -> str:
    """Returns a word that stays on its line, whatever a file of vectors contains."""
    return console.make_printable(word, is_line=True)
