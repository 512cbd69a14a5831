"""`seqwise vectors evaluate`: accuracy on analogies, and correlation with human similarity scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.cli.vectors.query import (
    ANALOGY_METHODS,
    check_minimums,
    load_with_progress,
    show_word,
    write_table,
)
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.vectors.evaluation import AnalogyResult, Pair, Question, SimilarityResult
    from seqwise.vectors.keyed import KeyedVectors

EXAMPLE = "seqwise vectors evaluate vectors.safetensors questions-words.txt wordsim353.tsv"
MIN_LINES = 30  # fewer lines give an unreliable result
SIMILARITY_METHOD = (
    "Spearman (ties get average ranks) and Pearson correlation of cosines and human scores, over the pairs whose words "
    "are both in the vocabulary."
)


@dataclass
class Evaluate:
    """Evaluate vectors on each TEST: a file of analogies (four words per line, `: name` begins a section) or of
    similarities (two words and a number). The content determines which."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    tests: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEST …", help_behavior_hint="")]
    """Files of analogies or of similarities."""
    restrict: int = 300_000
    """Analogies: use only this many most frequent words, in questions and as answers."""
    by: Literal["add", "multiply"] = "add"
    """Analogies: method, add (3CosAdd) or multiply (3CosMul)."""
    keep_question: bool = False
    """Analogies: allow the words of the question as answers."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def evaluate(argv: Sequence[str]) -> int:
    options = parse(Evaluate, argv, prog="seqwise vectors evaluate", example=EXAMPLE)
    if not options.tests:
        raise UsageError("there is no test to evaluate on.", fix=f"For example: {EXAMPLE}")
    check_minimums(options, restrict=1)
    from seqwise.vectors.evaluation import read_test

    # Tests are read before the vectors, which are larger, so that errors are reported at once.
    tests = [(path, read_test(path)) for path in options.tests]
    vectors = load_with_progress(options.file)
    results = [(path, _evaluate_test(vectors, lines, options)) for path, lines in tests]
    for path, result in results:
        if not result.num_known:
            console.warn(f"{path}: nothing could be measured: no line has all its words in the vocabulary.")
        elif result.num_known < MIN_LINES:
            problem = f"only {result.num_known} of its lines have all their words in the vocabulary"
            console.warn(f"{path}: {problem}; the result is unreliable.")
    methods = {"analogies": _describe_analogy_method(len(vectors), options), "similarities": SIMILARITY_METHOD}
    if options.json:
        evaluations = []
        for path, result in results:
            method = methods[result.kind]
            keys = {"test": path, "kind": result.kind, "method": method, "how": method}  # how: until version 0.3
            evaluations.append({**keys, **result.to_json()})
        header = {"file": options.file, "words": len(vectors), "dim": vectors.dim}
        console.print_json({**header, "tests": evaluations})
        return 0
    for index, (path, result) in enumerate(results):
        console.write("\n" * (index > 0) + str(path), style="bold")
        _write_result(result)
        console.write(methods[result.kind], style="dim")
    return 0


def _evaluate_test(
    vectors: KeyedVectors, lines: list[Question] | list[Pair], options: Evaluate
) -> AnalogyResult | SimilarityResult:
    from seqwise.cli.progress import ProgressBar
    from seqwise.vectors.evaluation import Pair, evaluate_analogies, evaluate_similarities

    if isinstance(lines[0], Pair):
        return evaluate_similarities(vectors, lines)
    with ProgressBar("analogies") as bar:
        return evaluate_analogies(vectors, lines, options.restrict, options.by, not options.keep_question, bar)


def _describe_analogy_method(vocabulary_size: int, options: Evaluate) -> str:
    policy = "allowed as answers" if options.keep_question else "excluded as answers"
    num_words = min(options.restrict, vocabulary_size)
    words = f"the {num_words:,} most frequent words" if num_words < vocabulary_size else f"all {num_words:,} words"
    return (
        f"{ANALOGY_METHODS[options.by]} over {words}; words of the question are {policy}; "
        "questions with an unknown word are skipped and do not count."
    )


def _write_result(result: AnalogyResult | SimilarityResult) -> None:
    from seqwise.vectors.evaluation import SimilarityResult

    if isinstance(result, SimilarityResult):
        numbers = ["–" if value is None else f"{value:.4f}" for value in (result.spearman, result.pearson)]
        row = [*numbers, f"{result.num_known:,} of {result.num_pairs:,}", f"{result.coverage:.1%}"]
        write_table(list(zip(("spearman", "pearson", "pairs used", "coverage"), row)), alignments=">>>>")
        return
    rows = [("section", "correct", "answered", "accuracy", "skipped")]
    for section in [*result.sections, result.total] if len(result.sections) > 1 else [result.total]:
        accuracy = "–" if section.accuracy is None else f"{section.accuracy:.1%}"
        counts = f"{section.num_correct:,}", f"{section.num_answered:,}", accuracy, f"{section.num_skipped:,}"
        rows.append((show_word(section.name), *counts))
    write_table(list(zip(*rows)), alignments="<>>>>")
