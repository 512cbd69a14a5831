"""`seqwise vectors evaluate`: accuracy on analogies, and correlation with human similarity scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
MIN_LINES = 30  # fewer lines give a figure that is mostly chance


@dataclass
class Evaluate:
    """Evaluate vectors on each TEST: a file of analogies (four words per line, `: name` begins a section) or of
    similarities (two words and a number). The content determines which."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    tests: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEST …", help_behavior_hint="")]
    """Files of questions."""
    restrict: int = 300_000
    """Analogies: number of most frequent words that are known and can be answers."""
    by: Literal["add", "multiply"] = "add"
    """Analogies: add (3CosAdd) or multiply (3CosMul)."""
    keep_question: bool = False
    """Analogies: allow the words of the question as answers."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    options = parse(Evaluate, argv, prog="seqwise vectors evaluate", example=EXAMPLE)
    if not options.tests:
        raise UsageError("there is no test to evaluate on.", repair=f"For example: {EXAMPLE}")
    from seqwise.cli.vectors.output import load_with_progress
    from seqwise.vectors.evaluation import Analogies, detect_kind, read_analogies, read_similarities

    if options.restrict < 1:
        raise UsageError(f"--restrict: expected at least 1 word; received {options.restrict}.")
    readers: dict[str, Any] = {"analogies": read_analogies, "similarities": read_similarities}
    # Tests are read before the vectors, which are larger, so that errors are reported at once.
    tests = [(path, kind, readers[kind](path)) for path in options.tests for kind in [detect_kind(path)]]
    keyed = load_with_progress(options.file)
    results = [(path, _evaluate(keyed, kind, items, options)) for path, kind, items in tests]
    for path, result in results:
        known = result.total.asked if isinstance(result, Analogies) else result.used
        if not known:
            console.warn(f"{path}: nothing could be measured: no line has all its words among the vectors.")
        elif known < MIN_LINES:
            problem = f"only {known} of its lines have all their words among the vectors"
            console.warn(f"{path}: {problem}; the result is unreliable.")
    if options.json:
        about = {"file": options.file, "words": len(keyed), "dim": keyed.dim}
        evaluations = [{"test": path, **_to_json(result, keyed, options)} for path, result in results]
        console.print_json({**about, "tests": evaluations})
        return 0
    for number, (path, result) in enumerate(results):
        console.write("\n" * (number > 0) + str(path), style="bold")
        _write_analogies(result) if isinstance(result, Analogies) else _write_similarities(result)
        console.write(_describe_method(result, keyed, options), style="dim")
    return 0


def _evaluate(keyed: KeyedVectors, kind: str, items: list, options: Evaluate) -> Analogies | Similarities:
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.evaluation import evaluate_analogies, evaluate_similarities

    if kind == "similarities":
        return evaluate_similarities(keyed, items)
    with ProgressBar("answering") as bar:
        return evaluate_analogies(keyed, items, options.restrict, options.by, not options.keep_question, bar)


def _describe_method(result: Analogies | Similarities, keyed: KeyedVectors, options: Evaluate) -> str:
    """Returns a sentence on how the numbers were computed."""
    from seqwise.vectors.evaluation import Analogies

    if not isinstance(result, Analogies):
        return (
            "Spearman (equal values share their mean rank) and Pearson, between cosines and human scores, over the "
            "pairs of which both words are known."
        )
    policy = "may answer" if options.keep_question else "excluded"
    known = min(options.restrict, len(keyed))
    which = f"the {known:,} most frequent words" if known < len(keyed) else f"all {known:,} words"
    return (
        f"{RULES[options.by]}, the question's words {policy}, answers among {which}; "
        "questions with an unknown word are skipped, accuracy is of those asked."
    )


def _write_analogies(result: Analogies) -> None:
    from seqwise.cli.vectors.output import make_printable, write_table

    sections = [*result.sections, result.total] if len(result.sections) > 1 else [result.total]
    rows = [
        [
            make_printable(each.name),
            f"{each.right:,}",
            f"{each.asked:,}",
            _format_percent(each.accuracy),
            f"{each.skipped:,}",
        ]
        for each in sections
    ]
    write_table(["section", "right", "asked", "accuracy", "skipped"], rows, "<>>>>")


def _write_similarities(result: Similarities) -> None:
    from seqwise.cli.vectors.output import write_table

    used = f"{result.used:,} of {result.pairs:,}"
    row = [_format_number(result.spearman), _format_number(result.pearson), used, _format_percent(result.coverage)]
    write_table(["spearman", "pearson", "pairs used", "coverage"], [row], ">>>>")


def _to_json(result: Analogies | Similarities, keyed: KeyedVectors, options: Evaluate) -> dict[str, Any]:
    from seqwise.vectors.evaluation import Analogies

    how = _describe_method(result, keyed, options)
    if not isinstance(result, Analogies):
        return {"kind": "similarities", "how": how, **asdict(result), "coverage": result.coverage}
    return {
        "kind": "analogies",
        "how": how,
        "sections": [_section_to_json(section) for section in result.sections],
        "total": _section_to_json(result.total),
    }


def _section_to_json(section: Section) -> dict[str, Any]:
    return {**asdict(section), "accuracy": section.accuracy}


def _format_percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
