"""`seqwise lab quiz`: shows a statement, asks for a prediction, runs the experiment and shows the evidence."""

from __future__ import annotations

import random
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.progress import ProgressBar, format_seconds
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.lab.experiment import Experiment

EXAMPLES = """seqwise lab quiz C
seqwise lab quiz --number 10 --seed 1"""
VERDICTS = {"true": "holds", "false": "refuted", "depends": "holds if"}
SYNONYMS = {"holds": "true", "refuted": "false", "holds if": "depends", "yes": "true", "no": "false"}
STOP, SKIP = "quit", "skip"
MAX_WIDTH = 100  # columns of a paragraph
QUESTION = "true, false or depends? (t, f, d; s skips, q ends) "


@dataclass
class Quiz:
    """Predict, then run: answer true, false or depends for each statement, and see what the experiment measures.

    Statements are asked in the order of the textbook. Depends means: true only under a condition.
    """

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[CHAPTER|ID …]", help_behavior_hint="")
    ] = ()
    """Chapters, such as C, or statements, such as C2; all of them unless given."""
    rest: ClassVar = "names"
    number: Annotated[int | None, UNSET] = None
    """Ask only this many, chosen at random."""
    seed: int = 0
    """Seed of the choice and of the experiments."""
    text_only: bool = False
    """Do not draw the figures."""
    full: bool = False
    """Run at full size instead of the quick one."""


def quiz(argv: Sequence[str]) -> int:
    args = parse(Quiz, argv, prog="seqwise lab quiz", example=EXAMPLES)
    from seqwise.lab.catalogue import CHAPTERS, find_experiments

    kinds = find_experiments(args.names or tuple(CHAPTERS))
    if args.number is not None:
        if args.number < 1:
            raise UsageError(f"--number: expected at least 1; received {args.number}.")
        kinds = random.Random(args.seed).sample(kinds, min(args.number, len(kinds)))
    answers: dict[str, bool] = {}  # id → whether the prediction was right
    try:
        for position, kind in enumerate(kinds, start=1):
            console.write("")
            _write_wrapped(f"{kind.id} ({position} of {len(kinds)})  {kind.claim}", style="bold")
            console.write(f"   {kind.equation}")
            answer = _ask()
            if answer == STOP:
                break
            if answer != SKIP:
                answers[kind.id] = _show_evidence(kind, answer, args)
    finally:
        _print_score(answers)
    return 0


def _ask() -> str:
    """Returns an answer that was typed: true, false, depends, skip, or quit at the end of the input."""
    choices = (*VERDICTS, SKIP, STOP)
    while True:
        sys.stdout.write(QUESTION)
        sys.stdout.flush()
        line = sys.stdin.readline()
        word = line.strip().lower()
        word = SYNONYMS.get(word, word)
        if not line:
            console.write("")
            return STOP
        matches = [choice for choice in choices if word and choice.startswith(word)]
        if len(matches) == 1:
            return matches[0]
        console.log("Type t for true, f for false, d for depends, s to skip or q to end.")


def _show_evidence(kind: type[Experiment], answer: str, args: Quiz) -> bool:
    """Runs the experiment and returns whether the answer agrees with its verdict."""
    from seqwise.lab.running import build_experiment
    from seqwise.page.terminal import draw_text

    experiment = build_experiment(kind, quick=not args.full, seed=args.seed)
    with ProgressBar(f"running {kind.id}, about {format_seconds(kind.seconds)} at full size"):
        result = experiment.run()
    is_right = VERDICTS[answer] == result.verdict.kind
    verb = "is " if result.verdict.kind == "refuted" else ""
    _write_wrapped(f"{'Right' if is_right else 'Wrong'}: {kind.id} {verb}{result.verdict}.".replace("..", "."))
    _write_wrapped(result.verdict.evidence)
    if not args.text_only:
        sys.stdout.write(draw_text("", (), result.figures[:1]).strip("\n") + "\n")
    console.write(f"Read more: seqwise lab run {kind.id}")
    return is_right


def _write_wrapped(text: str, style: str = "") -> None:
    console.write(textwrap.fill(text, min(console.width(), MAX_WIDTH)), style)


def _print_score(answers: dict[str, bool]) -> None:
    if not answers:
        console.write("No statement was answered.")
        return
    wrong = [name for name, is_right in answers.items() if not is_right]
    console.write(f"\nScore: {len(answers) - len(wrong)} of {len(answers)}.", style="bold")
    if wrong:
        console.write(f"To look at again: seqwise lab run {' '.join(wrong)}")
