"""`seqwise evaluate`: how well a run does on data it has not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.searching import SEARCHED, SearchOptions, refuse_foreign, search_of
from seqwise.config import DYNAMIC_RATE, Device

# Option → the tasks it is for; the others would not notice it.
FOR = SEARCHED | {
    "max_length": ("translate", "caption"),
    "dynamic": ("language",),
    "dynamic_rate": ("language",),
    "columns": ("classify", "tag", "translate", "caption"),
    "out": ("translate", "caption", "tag", "classify", "forecast"),
}


@dataclass
class Evaluate(SearchOptions):
    """The metrics of a run on DATA: its test split where it has one, all of it otherwise."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    data: Annotated[str, tyro.conf.Positional]
    """What to measure on."""
    split: Annotated[Literal["train", "valid", "test", "all"] | None, UNSET] = None
    """Which part of DATA to measure on."""
    columns: Annotated[str | None, UNSET] = None
    """Columns to read, where they are called otherwise than in training."""
    dynamic: bool = False
    """language: let the model learn from each piece after scoring it."""
    dynamic_rate: float = DYNAMIC_RATE
    """Learning rate of --dynamic."""
    out: Annotated[Path | None, UNSET] = None
    """translate, caption, tag, classify: write the answers to this file; forecast: a picture (.svg)."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Evaluate, argv, prog="seqwise evaluate", example="seqwise evaluate runs/book book.txt --json")
    from seqwise.cli.progress import Bar
    from seqwise.tasks.task import InferenceOptions
    from seqwise.training.api import load

    loaded = load(asked.run, asked.device)
    refuse_foreign(asked, str(loaded.settings.task), FOR)
    if asked.columns is not None:
        loaded.settings = loaded.settings.model_copy(update={"columns": asked.columns})
    request = InferenceOptions(
        search=search_of(asked, loaded.task.search),
        max_length=asked.max_length,
        target=asked.target,
        dynamic=asked.dynamic,
        rate=asked.dynamic_rate,
        out=asked.out,
    )
    with Bar("scoring") as bar:
        found = loaded.evaluate(asked.data, split=asked.split, request=request, progress=bar)
    if asked.json:
        console.print_json(found.as_dict())
        return 0
    console.log("\n".join(filter(None, [found.on, found.how])))
    width = max(20, *(len(name) + 2 for name in found.metrics))
    for name, value in found.metrics.items():
        console.write(f"{name:{width}}{_shown(value):>14}   {found.definitions.get(name, '')}".rstrip())
    for table in found.tables:
        _show(table.title, table.columns, table.rows)
    for warning in found.warnings:
        console.log(warning)
    if asked.out is not None:
        console.log(f"written: {asked.out}")
    return 0


def _show(title: str, columns: tuple[str, ...], rows: dict[str, tuple[float, ...]]) -> None:
    """One table, a row per name."""
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


def _shown(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3e}"
