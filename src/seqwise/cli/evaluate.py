"""`seqwise evaluate`: metrics of a trained run on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.predict import DECODING_OPTION_TASKS, DecodingOptions, build_beam_search, reject_options_of_other_tasks
from seqwise.config import DYNAMIC_RATE, Device

# Option → the tasks that use it; it is rejected for the others.
OPTION_TASKS = DECODING_OPTION_TASKS | {
    "max_length": ("translate", "caption"),
    "dynamic": ("language",),
    "dynamic_rate": ("language",),
    "columns": ("classify", "tag", "translate", "caption"),
    "out": ("translate", "caption", "tag", "classify", "forecast"),
}


@dataclass
class Evaluate(DecodingOptions):
    """The metrics of a run on DATA: its test split where it has one, all of it otherwise."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    data: Annotated[str, tyro.conf.Positional]
    """Data to evaluate on."""
    split: Annotated[Literal["train", "valid", "test", "all"] | None, UNSET] = None
    """Split of DATA to evaluate on."""
    columns: Annotated[str | None, UNSET] = None
    """Columns to read, if their names differ from the training data."""
    dynamic: bool = False
    """language: dynamic evaluation; the model is updated on each segment after scoring it."""
    dynamic_rate: float = DYNAMIC_RATE
    """Learning rate of --dynamic."""
    out: Annotated[Path | None, UNSET] = None
    """translate, caption, tag, classify: write the predictions to this file; forecast: a plot (.svg)."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    args = parse(Evaluate, argv, prog="seqwise evaluate", example="seqwise evaluate runs/book book.txt --json")
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks.task import InferenceOptions
    from seqwise.training.api import load

    trained = load(args.run, args.device)
    reject_options_of_other_tasks(args, str(trained.settings.task), OPTION_TASKS)
    if args.columns is not None:
        trained.settings = trained.settings.model_copy(update={"columns": args.columns})
    options = InferenceOptions(
        beam_search=build_beam_search(args, trained.task.beam_search),
        max_length=args.max_length,
        target=args.target,
        dynamic=args.dynamic,
        rate=args.dynamic_rate,
        out=args.out,
    )
    with ProgressBar("evaluating") as bar:
        evaluation = trained.evaluate(args.data, split=args.split, options=options, progress=bar)
    if args.json:
        values = evaluation.as_dict()
        console.print_json(values | ({"remarks": values["warnings"]} if "warnings" in values else {}))  # until 0.3
        return 0
    console.log("\n".join(filter(None, [evaluation.data, evaluation.method])))
    width = max(20, *(len(name) + 2 for name in evaluation.metrics))
    for name, value in evaluation.metrics.items():
        text = f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3e}"
        text = f"{value:,}" if isinstance(value, int) else text
        console.write(f"{name:{width}}{text:>14}   {evaluation.definitions.get(name, '')}".rstrip())
    for table in evaluation.tables:
        rows = [[name, *map(_format_cell, row)] for name, row in table.rows.items()]
        console.write("\n".join(["", table.title, *console.align([["", *table.columns], *rows])]))
    for warning in evaluation.warnings:
        console.log(warning)
    if args.out is not None:
        console.log(f"written: {args.out}")
    return 0


def _format_cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
