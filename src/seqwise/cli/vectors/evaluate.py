"""`seqwise vectors evaluate`: analogies answered, and similarities beside people's judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.cli.vectors.analogy import RULES
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.evaluation import Analogies, Section, Similarities
    from seqwise.vectors.keyed import KeyedVectors

EXAMPLE = "seqwise vectors evaluate vectors.safetensors questions-words.txt wordsim353.tsv"
FEW = 30  # lines below which a figure is mostly chance


@dataclass
class Evaluate:
    """How good vectors are on each TEST: a file of analogies (four words a line, `: name` begins a section) or of
    similarities (two words and a number). Which of the two it is, its content tells."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    tests: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEST …", help_behavior_hint="")]
    """Files of questions."""
    restrict: int = 300_000
    """Analogies: only the most frequent words are known, and can be answers."""
    by: Literal["add", "multiply"] = "add"
    """Analogies: add (3CosAdd) or multiply (3CosMul)."""
    keep_question: bool = False
    """Analogies: let the question's words answer too."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Evaluate, argv, prog="seqwise vectors evaluate", example=EXAMPLE)
    if not asked.tests:
        raise UsageError("there is no test to evaluate on.", repair=f"For example: {EXAMPLE}")
    from seqwise.cli.vectors.output import load_with_progress
    from seqwise.vectors.evaluation import Analogies, detect_kind, read_analogies, read_similarities

    if asked.restrict < 1:
        raise UsageError(f"--restrict: expected at least 1 word; received {asked.restrict}.")
    reading: dict[str, Any] = {"analogies": read_analogies, "similarities": read_similarities}
    # All tests are read before the vectors, which are larger: what is wrong is said at once.
    tests = [(path, kind, reading[kind](path)) for path in asked.tests for kind in [detect_kind(path)]]
    keyed = load_with_progress(asked.file)
    found = [(path, _measured(keyed, kind, items, asked)) for path, kind, items in tests]
    for path, one in found:
        known = one.total.asked if isinstance(one, Analogies) else one.used
        if not known:
            console.warn(f"{path}: nothing could be measured: no line has all its words among the vectors.")
        elif known < FEW:
            console.warn(f"{path}: only {known} of its lines have all their words among the vectors; that says little.")
    if asked.json:
        about = {"file": asked.file, "words": len(keyed), "dim": keyed.dim}
        console.print_json({**about, "tests": [{"test": path, **_plain(one, keyed, asked)} for path, one in found]})
        return 0
    for number, (path, one) in enumerate(found):
        console.write("\n" * (number > 0) + str(path), style="bold")
        _show_analogies(one) if isinstance(one, Analogies) else _show_similarities(one)
        console.write(_how(one, keyed, asked), style="dim")
    return 0


def _measured(keyed: KeyedVectors, kind: str, items: list, asked: Evaluate) -> Analogies | Similarities:
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.evaluation import evaluate_analogies, evaluate_similarities

    if kind == "similarities":
        return evaluate_similarities(keyed, items)
    with ProgressBar("answering") as bar:
        return evaluate_analogies(keyed, items, asked.restrict, asked.by, not asked.keep_question, bar)


def _how(one: Analogies | Similarities, keyed: KeyedVectors, asked: Evaluate) -> str:
    """How the numbers were computed."""
    from seqwise.vectors.evaluation import Analogies

    if not isinstance(one, Analogies):
        return (
            "Spearman (equal values share their mean rank) and Pearson, between cosine and people's score, over the "
            "pairs of which both words are known."
        )
    policy = "may answer" if asked.keep_question else "excluded"
    known = min(asked.restrict, len(keyed))
    which = f"the {known:,} most frequent words" if known < len(keyed) else f"all {known:,} words"
    return (
        f"{RULES[asked.by]}, the question's words {policy}, answers among {which}; questions with an unknown word are "
        "skipped, accuracy is of those asked."
    )


def _show_analogies(found: Analogies) -> None:
    from seqwise.cli.vectors.output import make_printable, write_table

    sections = [*found.sections, found.total] if len(found.sections) > 1 else [found.total]
    rows = [
        [make_printable(one.name), f"{one.right:,}", f"{one.asked:,}", _percent(one.accuracy), f"{one.skipped:,}"]
        for one in sections
    ]
    write_table(["section", "right", "asked", "accuracy", "skipped"], rows, "<>>>>")


def _show_similarities(found: Similarities) -> None:
    from seqwise.cli.vectors.output import write_table

    used = f"{found.used:,} of {found.pairs:,}"
    row = [_number(found.spearman), _number(found.pearson), used, _percent(found.coverage)]
    write_table(["spearman", "pearson", "pairs used", "coverage"], [row], ">>>>")


def _plain(one: Analogies | Similarities, keyed: KeyedVectors, asked: Evaluate) -> dict[str, Any]:
    """As JSON."""
    from seqwise.vectors.evaluation import Analogies

    how = _how(one, keyed, asked)
    if not isinstance(one, Analogies):
        numbers = {"spearman": one.spearman, "pearson": one.pearson, "used": one.used, "pairs": one.pairs}
        return {"kind": "similarities", "how": how, **numbers, "coverage": one.coverage}
    return {
        "kind": "analogies",
        "how": how,
        "sections": [_section(section) for section in one.sections],
        "total": _section(one.total),
    }


def _section(one: Section) -> dict[str, Any]:
    return {
        "name": one.name, "right": one.right, "asked": one.asked, "accuracy": one.accuracy, "skipped": one.skipped,
    }  # fmt: skip


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
