"""`seqwise evaluate`: metrics of a trained run on data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.decoding_options import (
    DECODING_OPTION_TASKS,
    DecodingOptions,
    build_beam_search,
    reject_options_of_other_tasks,
)
from seqwise.cli.options import UNSET, parse
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
        found = trained.evaluate(args.data, split=args.split, options=options, progress=bar)
    if args.json:
        console.print_json(found.as_dict())
        return 0
    console.log("\n".join(filter(None, [found.on, found.how])))
    width = max(20, *(len(name) + 2 for name in found.metrics))
    for name, value in found.metrics.items():
        console.write(f"{name:{width}}{_format(value):>14}   {found.definitions.get(name, '')}".rstrip())
    for table in found.tables:
        _show(table.title, table.columns, table.rows)
    for warning in found.warnings:
        console.log(warning)
    if args.out is not None:
        console.log(f"written: {args.out}")
    return 0


def _show(title: str, columns: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> None:
    """Print a table with one row per name."""
    first = max(map(len, rows), default=0) + 2
    widths = [
        max(len(column), *(len(_cell(row[at])) for row in rows.values())) + 2 for at, column in enumerate(columns)
    ]
    console.write(f"\n{title}")
    console.write(" " * first + "".join(f"{column:>{width}}" for column, width in zip(columns, widths)))
    for name, row in rows.items():
        console.write(f"{name:{first}}" + "".join(f"{_cell(value):>{width}}" for value, width in zip(row, widths)))


def _cell(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _format(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3e}"
