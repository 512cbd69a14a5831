"""`seqwise evaluate`: metrics of a trained run on data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.models import load_model
from seqwise.cli.options import UNSET, list_typed, parse
from seqwise.cli.predict import DECODING_OPTION_TASKS, DecodingOptions, build_beam_search, reject_options_of_other_tasks
from seqwise.config import DYNAMIC_RATE, Device
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.metrics.evaluation import Evaluation

# Option → the tasks that use it; it is rejected for the others.
OPTION_TASKS = DECODING_OPTION_TASKS | {
    "max_length": ("translate", "caption"),
    "dynamic": ("language",),
    "dynamic_rate": ("language",),
    "columns": ("classify", "tag", "translate", "caption"),
}
MIN_TEXT_WIDTH = 40  # columns that a definition needs beside its number; in narrower terminals it is below


@dataclass
class Evaluate(DecodingOptions):
    """The metrics of a run on DATA: its test split where it has one, all of it otherwise."""

    main_options: ClassVar = (
        "split", "columns", "out", "json", "device", "dynamic", "beam", "max-length", "length-penalty", "target",
    )  # fmt: skip

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or that of a comparison."""
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
    """Write input, expected and predicted to this file: .jsonl, .csv or .tsv; forecast: also a plot (.svg or .png)."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    args = parse(Evaluate, argv, prog="seqwise evaluate", example="seqwise evaluate runs/book book.txt --json")
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks.task import InferenceOptions

    trained = load_model(args.run, args.device)
    if "dynamic_rate" in list_typed(argv) and not args.dynamic:
        raise UsageError("--dynamic-rate has an effect with --dynamic only.", repair="Add --dynamic.")
    reject_options_of_other_tasks(list_typed(argv), str(trained.settings.task), OPTION_TASKS)
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
    _print_evaluation(evaluation)
    if args.out is not None:
        console.log(f"written: {args.out}")
    return 0


def _print_evaluation(evaluation: Evaluation) -> None:
    """Prints metrics, baselines, tables and notes; on a terminal nothing is wider than it."""
    console.log("\n".join(filter(None, [evaluation.data, evaluation.method])))
    rows = [(name, value, evaluation.definitions.get(name, "")) for name, value in evaluation.metrics.items()]
    baselines = [(each.name, each.value, each.about) for each in evaluation.baselines]
    name_width = max(20, *(len(name) + 2 for name, *_ in [*rows, *baselines]))
    _print_rows(rows, name_width)
    if baselines:
        console.write(f"\nbaselines: {evaluation.primary_metric}")
        _print_rows(baselines, name_width)
    for table in evaluation.tables:
        cells = [[name, *map(_format_cell, row)] for name, row in table.rows.items()]
        console.write("\n".join(["", table.title, *console.align_to_width([["", *table.columns], *cells])]))
    for note in evaluation.notes:
        console.warn(note)
    for warning in evaluation.warnings:
        console.log(warning)


def _print_rows(rows: Sequence[tuple[str, float, str]], name_width: int) -> None:
    """Prints a name, a number and a sentence per line."""
    for name, value, about in rows:
        number = f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3e}"
        number = f"{value:,}" if isinstance(value, int) else number
        head = f"{name:{name_width}}{number:>14}   "
        is_beside = console.width() - len(head) >= MIN_TEXT_WIDTH
        lines = textwrap.wrap(about, console.width() - (len(head) if is_beside else 4))
        indent = " " * len(head) if is_beside else "    "
        first = [head + (lines.pop(0) if is_beside and lines else "")]
        console.write("\n".join(line.rstrip() for line in [*first, *(indent + line for line in lines)]))


def _format_cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
