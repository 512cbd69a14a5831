"""`seqwise check`: read the data as training would, and report its contents or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.config import Settings
from seqwise.errors import DataError

if TYPE_CHECKING:
    from seqwise.tasks.task import Task


@dataclass
class Check:
    """Read DATA as `seqwise train` would. Errors name file, line, cause and fix."""

    data: Annotated[str, tyro.conf.Positional]
    """Data to check."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    args = parse(Check, argv, prog="seqwise check", example="seqwise check reviews.csv --task classify")
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks import get_task
    from seqwise.training.initialization import inherit_from_run
    from seqwise.training.training_run import fill_in_task

    try:
        settings, preprocessor = inherit_from_run(fill_in_task(args.settings, args.data, console.log), console.log)
        with ProgressBar("reading") as bar:
            task = get_task(settings.task).prepare(args.data, settings, preprocessor, progress=bar)
    except DataError as error:
        if args.json:
            console.print_json(
                {"data": args.data, "errors": [_error_as_dict(part) for part in error.parts or (error,)]}
            )
        raise
    if args.json:
        console.print_json(_as_dict(args.data, settings, task))
    else:
        _show(task)
    return 0


def _error_as_dict(error: DataError) -> dict:
    return {"file": error.file, "line": error.line, "problem": error.problem, "repair": error.repair}


def _as_dict(data: str, settings: Settings, task: Task) -> dict:
    report = task.report()
    return {
        "data": data,
        "task": settings.task,
        "split_rule": task.split_rule,
        "tokenizer": settings.text.tokenizer,
        "vocabulary": {name: len(tokenizer) for name, tokenizer in task.preprocessor.tokenizers.items()},
        "splits": {split: dict(zip(report.columns, row)) for split, row in report.rows.items()},
        "fingerprint": task.fingerprint,
        "remarks": report.sentences,
        "warnings": report.warnings,
    }


def _show(task: Task) -> None:
    report = task.report()
    widths = [max(len(name), *(len(f"{row[at]:,}") for row in report.rows.values())) + 2
              for at, name in enumerate(report.columns)]  # fmt: skip
    console.write(f"{'split':8}" + "".join(f"{name:>{width}}" for name, width in zip(report.columns, widths)))
    for split, row in report.rows.items():
        console.write(f"{split:8}" + "".join(f"{value:{width},}" for value, width in zip(row, widths)))
    for sentence in report.sentences:
        console.write(sentence)
    for warning in report.warnings:
        console.warn(warning)
    count = len(report.warnings)
    console.write("no errors." if not count else f"no errors, {count} warning{'s' * (count > 1)}.")
