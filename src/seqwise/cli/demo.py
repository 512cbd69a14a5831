"""`seqwise demo`: a comparison on built-in data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from seqwise.cli import console
from seqwise.cli.compare import create_plan, run
from seqwise.cli.options import UNSET, parse
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.config import Settings, TaskName

BUDGET = "5s"  # 5 seeds × 5 families: with reading, testing and the report about four minutes on two cores
SEEDS = 5


@dataclass(frozen=True)
class Example:
    """The built-in data of a task, a model size that learns something in seconds, and an input for a prediction."""

    data: str
    parameters: int
    input: str


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
    """Compare five families on built-in data in about four minutes: a table, a verdict and a report."""

    task: TaskName = "language"
    """Which task; each has its own built-in data."""
    budget: str = BUDGET
    """Budget of each family per seed."""
    out: Annotated[Path | None, UNSET] = None
    """Folder to create; runs/demo-N unless set."""


def main(argv: Sequence[str]) -> int:
    arguments = parse(Demo, argv, prog="seqwise demo", example="seqwise demo --task classify")
    example = EXAMPLES[arguments.task]
    console.log(
        f"Which family of sequence models suits {example.data}? Five of them get the same data, about as many\n"
        "parameters and the same time. `seqwise compare` does this with your own data."
    )
    # Not strict: on a busy machine a demo with few updates is better than an error.
    options = ComparisonOptions(budget=arguments.budget, parameters=example.parameters, seeds=SEEDS, strict=False)
    settings = Settings(task=arguments.task)
    command_line = ["seqwise", "compare", example.data, "--task", arguments.task, "--budget", arguments.budget]
    command = shlex.join([*command_line, "--parameters", str(example.parameters), "--seeds", str(SEEDS)])
    with create_plan(example.data, options, settings, arguments.out, command, name="demo") as (folder, plan):
        status = run(folder, plan)
    if status == 0:
        _show_best(folder, arguments.task, example)
    return status


def _show_best(folder: Path, task: str, example: Example) -> None:
    """Prints a sample of the best model, and commands to try next."""
    from seqwise.compare.api import Comparison
    from seqwise.compare.report.gather import load_report
    from seqwise.decoding.options import SamplingOptions

    comparison = Comparison(folder, load_report(folder))
    best = shlex.quote(str(comparison.best.run.folder))
    if task == "language":
        text: Any = comparison.best.predict(example.input, sampling=SamplingOptions(temperature=0.6), max_length=200)
        lines = "".join([example.input, *text]).splitlines()
        console.write("\n".join(["\nThe best model continues a text:", *(f"  │ {line}" for line in lines)]))
    console.log("\nWhat to try next:")
    if example.input:
        console.log(f"  seqwise predict {best} {shlex.quote(example.input)}")
    console.log(f"  seqwise compare YOUR-DATA --task {task} --budget 2m")
