"""`seqwise check`: read the data as training would, and report its contents or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import tyro

from seqwise.applicability import check_effects
from seqwise.cli import console
from seqwise.cli.options import list_typed, parse
from seqwise.config import Settings
from seqwise.errors import DataError

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
    """Print one JSON document on standard output and nothing else there."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    args = parse(Check, argv, prog="seqwise check", example=EXAMPLES)
    check_effects([args.settings], list_typed(argv))
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks import get_task
    from seqwise.training.initialization import inherit_from_run
    from seqwise.training.training_run import fill_in_task

    try:
        settings = fill_in_task(args.settings, args.data, console.log)
        check_effects([settings], list_typed(argv))
        settings, preprocessor = inherit_from_run(settings, console.log)
        with ProgressBar("reading") as bar:
            task = get_task(settings.task).prepare(args.data, settings, preprocessor, progress=bar)
    except DataError as error:
        if args.json:
            console.print_json(
                {"data": args.data, "errors": [_error_as_dict(part) for part in error.parts or (error,)]}
            )
        raise
    report = task.report()
    if args.json:
        console.print_json({
            "data": args.data,
            "task": settings.task,
            "split_rule": task.split_rule,
            "tokenizer": settings.text.tokenizer,
            "vocabulary": {name: len(tokenizer) for name, tokenizer in task.preprocessor.tokenizers.items()},
            "splits": {split: dict(zip(report.columns, row)) for split, row in report.rows.items()},
            "fingerprint": task.fingerprint,
            "notes": report.sentences,
            "remarks": report.sentences,  # the old name of "notes", until version 0.3
            "warnings": report.warnings,
        })  # fmt: skip
        return 0
    rows = [[f"{split:6}", *(f"{value:,}" for value in row)] for split, row in report.rows.items()]
    for line in [*console.align([["split", *report.columns], *rows]), *report.sentences]:
        console.write(line)
    for warning in report.warnings:
        console.warn(warning)
    count = len(report.warnings)
    console.write("no errors." if not count else f"no errors, {count} warning{'s' * (count > 1)}.")
    return 0


def _error_as_dict(error: DataError) -> dict:
    return {"file": error.file, "line": error.line, "problem": error.problem, "repair": error.repair}
