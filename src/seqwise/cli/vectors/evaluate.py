"""`seqwise vectors evaluate`: accuracy on analogies, and correlation with human similarity scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.cli.vectors.query import RULES, check_minimums, load_with_progress, make_printable, write_table
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.evaluation import AnalogyResult, SimilarityResult
    from seqwise.vectors.keyed import KeyedVectors

EXAMPLE = "seqwise vectors evaluate vectors.safetensors questions-words.txt wordsim353.tsv"
MIN_LINES = 30  # fewer lines give a figure that is mostly chance
SIMILARITIES = (
    "Spearman (equal values share their mean rank) and Pearson, between cosines and human scores, over the "
    "pairs of which both words are known."
)


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


def evaluate(argv: Sequence[str]) -> int:
    options = parse(Evaluate, argv, prog="seqwise vectors evaluate", example=EXAMPLE)
    if not options.tests:
        raise UsageError("there is no test to evaluate on.", repair=f"For example: {EXAMPLE}")
    check_minimums(options, restrict=1)
    from seqwise.vectors.evaluation import read_test

    # Tests are read before the vectors, which are larger, so that errors are reported at once.
    tests = [(path, read_test(path)) for path in options.tests]
    keyed = load_with_progress(options.file)
    results = [(path, _evaluate(keyed, items, options)) for path, items in tests]
    for path, result in results:
        if not result.num_known:
            console.warn(f"{path}: nothing could be measured: no line has all its words among the vectors.")
        elif result.num_known < MIN_LINES:
            problem = f"only {result.num_known} of its lines have all their words among the vectors"
            console.warn(f"{path}: {problem}; the result is unreliable.")
    analogies = _describe_analogies(len(keyed), options)
    methods = {"analogies": analogies, "similarities": SIMILARITIES}
    if options.json:
        evaluations = [
            {"test": path, "kind": result.kind, "how": methods[result.kind], **result.to_json()}
            for path, result in results
        ]
        about = {"file": options.file, "words": len(keyed), "dim": keyed.dim}
        console.print_json({**about, "tests": evaluations})
        return 0
    for number, (path, result) in enumerate(results):
        console.write("\n" * (number > 0) + str(path), style="bold")
        _write_result(result)
        console.write(methods[result.kind], style="dim")
    return 0


def _evaluate(keyed: KeyedVectors, items: list, options: Evaluate) -> AnalogyResult | SimilarityResult:
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.evaluation import Pair, evaluate_analogies, evaluate_similarities

    if isinstance(items[0], Pair):
        return evaluate_similarities(keyed, items)
    with ProgressBar("answering") as bar:
        return evaluate_analogies(keyed, items, options.restrict, options.by, not options.keep_question, bar)


def _describe_analogies(vocabulary_size: int, options: Evaluate) -> str:
    policy = "may answer" if options.keep_question else "excluded"
    known = min(options.restrict, vocabulary_size)
    which = f"the {known:,} most frequent words" if known < vocabulary_size else f"all {known:,} words"
    return (
        f"{RULES[options.by]}, the question's words {policy}, answers among {which}; "
        "questions with an unknown word are skipped and do not count."
    )


def _write_result(result: AnalogyResult | SimilarityResult) -> None:
    from seqwise.vectors.evaluation import SimilarityResult

    if isinstance(result, SimilarityResult):
        numbers = ["–" if value is None else f"{value:.4f}" for value in (result.spearman, result.pearson)]
        row = [*numbers, f"{result.num_known:,} of {result.num_pairs:,}", f"{result.coverage:.1%}"]
        write_table(list(zip(("spearman", "pearson", "pairs used", "coverage"), row)), ">>>>")
        return
    rows = [("section", "correct", "answered", "accuracy", "skipped")]
    for each in [*result.sections, result.total] if len(result.sections) > 1 else [result.total]:
        accuracy = "–" if each.accuracy is None else f"{each.accuracy:.1%}"
        correct, answered, skipped = f"{each.num_correct:,}", f"{each.num_answered:,}", f"{each.num_skipped:,}"
        rows.append((make_printable(each.name), correct, answered, accuracy, skipped))
    write_table(list(zip(*rows)), "<>>>>")
