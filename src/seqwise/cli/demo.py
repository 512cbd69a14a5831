"""`seqwise demo`: the main job on data that every Python brings along, to see what there is before bringing any."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from seqwise.cli import console
from seqwise.cli.compare import conclude, planned
from seqwise.cli.options import UNSET, parse
from seqwise.compare.plan.options import Question
from seqwise.config import Settings, TaskName

BUDGET = "11s"  # 3 × 5 families: with reading, testing and the report under four minutes on two cores


@dataclass(frozen=True)
class Example:
    """The built-in data of a task, a size at which families learn something in seconds, and something to ask."""

    data: str
    parameters: int
    question: str


EXAMPLES = {
    "language": Example("builtin:docs", 250_000, "The "),
    "masked": Example("builtin:docs", 400_000, "The value of the [MASK] is returned."),
    "classify": Example("builtin:modules", 300_000, "Return a list of the files in a folder."),
    "tag": Example("builtin:code", 400_000, "for line in open(path):"),
    "translate": Example("builtin:dates", 250_000, "Sunday, May 3rd, 1998"),
    "caption": Example("builtin:shapes", 250_000, ""),
    "forecast": Example("builtin:sunspots", 30_000, "builtin:sunspots"),
}


@dataclass
class Demo:
    """Compare five families on built-in data in under four minutes: a table, a verdict and a report."""

    task: TaskName = "language"
    """Which task; each has its own built-in data."""
    budget: str = BUDGET
    """What each family may spend per seed."""
    out: Annotated[Path | None, UNSET] = None
    """Folder to make; runs/demo-N unless set."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Demo, argv, prog="seqwise demo", example="seqwise demo --task classify")
    example = EXAMPLES[asked.task]
    console.log(
        f"Which family of sequence models suits {example.data}? Five of them get the same data, about as many\n"
        "parameters and the same time. `seqwise compare` does this with your own data."
    )
    # On a busy machine a poor demo is better than none.
    question = Question(budget=asked.budget, parameters=example.parameters, seeds=3, tries=2, strict=False)
    command = _command(example, asked)
    folder, plan = planned(example.data, question, Settings(task=asked.task), asked.out, command, name="demo")
    status = conclude(folder, plan)
    if status == 0:
        _show_best(folder, asked.task, example)
    return status


def _command(example: Example, asked: Demo) -> str:
    """The comparison that the demo is."""
    words = ["seqwise", "compare", example.data, "--task", asked.task, "--budget", asked.budget]
    return shlex.join([*words, "--parameters", str(example.parameters), "--seeds", "3", "--tries", "2"])


def _show_best(folder: Path, task: str, example: Example) -> None:
    """What the best model makes of something, and what to try next."""
    from seqwise.compare.api import Comparison
    from seqwise.compare.report.gather import load_report
    from seqwise.decoding.options import SamplingOptions

    comparison = Comparison(folder, load_report(folder))
    run = shlex.quote(str(comparison.best.run.folder))
    if task == "language":
        text: Any = comparison.best.predict(example.question, sampling=SamplingOptions(temperature=0.6), max_length=200)
        console.write(f"\nThe best model writes on:\n{_quoted(example.question + ''.join(text))}")
    console.log("\nWhat to try next:")
    if example.question:
        console.log(f"  seqwise predict {run} {shlex.quote(example.question)}")
    console.log(f"  seqwise compare YOUR-DATA --task {task} --budget 2m")


def _quoted(text: str) -> str:
    return "\n".join(f"  │ {line}" for line in text.splitlines())
