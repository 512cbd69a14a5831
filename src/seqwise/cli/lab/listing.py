"""`seqwise lab list`: the experiments with their claims and expected times. It does not reveal the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.cli.progress import format_seconds

EXAMPLES = """seqwise lab list
seqwise lab list C D"""


@dataclass
class List:
    """List the experiments of the lab: id, expected time on two cores, claim. Verdicts are not shown: see lab quiz."""

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[CHAPTER|ID …]", help_behavior_hint="")
    ] = ()
    """Chapters, such as C, or experiments, such as C2; all of them unless given."""
    rest: ClassVar = "names"
    json: bool = False
    """Print a list of objects with id, chapter, claim, equation and seconds on standard output."""


def list(argv: Sequence[str]) -> int:
    args = parse(List, argv, prog="seqwise lab list", example=EXAMPLES)
    from seqwise.lab.catalogue import CHAPTERS, find_experiments

    kinds = find_experiments(args.names or tuple(CHAPTERS))
    if args.json:
        names = ("id", "claim", "equation", "seconds")
        console.print_json([{"chapter": kind.id[0], **{name: getattr(kind, name) for name in names}} for kind in kinds])
        return 0
    letter = ""
    for kind in kinds:
        if kind.id[0] != letter:
            console.write(f"{chr(10) if letter else ''}{kind.id[0]}. {CHAPTERS[kind.id[0]].title}", style="bold")
            letter = kind.id[0]
        console.write(f"  {kind.id:4} {format_seconds(kind.seconds):>7}  {kind.claim}")
    total = sum(kind.seconds for kind in kinds)
    console.log(
        f"{len(kinds)} experiments, about {format_seconds(total)} in all. Run one: seqwise lab run {kinds[0].id}"
    )
    return 0
