"""`seqwise check`: reads the data as training would, and reports its contents or its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from seqwise.applicability import check_effects
from seqwise.cli import console
from seqwise.cli.models import reject_run_as_data
from seqwise.cli.options import list_typed, parse
from seqwise.config import Settings
from seqwise.errors import DataError, combine_errors

if TYPE_CHECKING:
    from seqwise.training.check import DataReport

EXAMPLES = """seqwise check book.txt
seqwise check reviews.csv --task classify --columns text,label
seqwise check sales.csv --task forecast --target sales --horizon 24 --json"""


@dataclass
class Check:
    """Read DATA as `seqwise train` would. Errors name file, line, cause and fix."""

    main_options: ClassVar = (
        "task", "columns", "target", "horizon", "text.tokenizer", "text.lowercase",
        "data.valid-fraction", "data.on-empty", "forecast.time", "forecast.series", "json",
    )  # fmt: skip
    without: ClassVar = (
        "model", "budget", "seed", "device", "network", "recurrent", "transformer", "context", "training"
    )  # fmt: skip
    refused: ClassVar = dict.fromkeys(
        without, ("{} has no effect here: seqwise check reads the data and trains nothing.", "Leave it out.")
    )

    data: Annotated[str, tyro.conf.Positional]
    """Data to check."""
    json: bool = False
    """Print the result as one JSON document on standard output."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    args = parse(Check, argv, prog="seqwise check", example=EXAMPLES)
    check_effects([args.settings], list_typed(argv))  # again when the task is known
    reject_run_as_data(args.data)
    from seqwise.cli.progress import ProgressBar
    from seqwise.training.check import read_and_check

    with ProgressBar("reading") as bar:
        report = read_and_check(args.data, args.settings, list_typed(argv), console.log, bar)
    if args.json:
        console.print_json(_as_dict(report))
    if report.errors:
        raise combine_errors(report.errors)
    if args.json:
        return 0
    for line in [*report.format_table(), *report.description]:
        console.write(line)
    for note in report.notes:
        console.log(f"note: {note}")
    for warning in report.warnings:
        console.warn(warning)
    console.write(report.conclusion)
    return 0


def _error_as_dict(error: DataError) -> dict[str, Any]:
    fixes = {"fix": error.fix, "repair": error.fix}  # repair: the old key, until version 0.3
    return {"file": error.file, "line": error.line, "problem": error.problem, **fixes}


def _as_dict(report: DataReport) -> dict[str, Any]:
    """Returns the JSON document: the errors, or the content of the data."""
    if report.errors:
        return {"data": report.data, "errors": [_error_as_dict(error) for error in report.errors]}
    notes = [*report.description, *report.notes]
    return {
        "data": report.data,
        "task": report.task,
        "split_rule": report.split_rule,
        "tokenizer": report.tokenizer,
        "vocabulary": report.vocabulary,
        "splits": report.splits,
        "fingerprint": report.fingerprint,
        "notes": notes,
        "remarks": notes,  # the old name of "notes", until version 0.3
        "warnings": report.warnings,
    }
