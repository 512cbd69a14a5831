"""`seqwise lab exercise` writes an exercise to a file; `seqwise lab grade` checks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.errors import UsageError
from seqwise.files import check_output_path, write_text

if TYPE_CHECKING:
    from seqwise.lab.exercises import Grade


@dataclass
class ExerciseOptions:
    """Write an exercise to a file: an equation to fill in, with an explanation. Without ID the exercises are listed."""

    id: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ID]", help_behavior_hint="")] = None
    """The statement that the exercise is about, such as D7."""
    out: Annotated[Path | None, UNSET] = None
    """File to write; d7.py in the current folder unless set. A file that exists is not replaced."""
    json: bool = False
    """Print the list of exercises as JSON on standard output."""


@dataclass
class GradeOptions:
    """Check a solved exercise against the solution and finite differences, and name the term that is wrong.

    The file is run in a process of its own with a time limit. Only grade files that you trust: it is your code that
    runs, with your permissions.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """A file that seqwise lab exercise has written."""
    seconds: float = 10.0
    """Time limit."""
    json: bool = False
    """Print the grade as one JSON document on standard output."""


def exercise(argv: Sequence[str]) -> int:
    options = parse(ExerciseOptions, argv, prog="seqwise lab exercise", example="seqwise lab exercise D7")
    from seqwise.lab.exercises import EXERCISES, get_exercise

    if options.id is None:
        rows = [{"id": each.id, "title": each.title} for each in EXERCISES.values()]
        if options.json:
            console.print_json(rows)
        else:
            console.write("\n".join(console.align([[row["id"], row["title"]] for row in rows], num_left=2)))
        return 0
    chosen = get_exercise(options.id)
    path = options.out or Path(f"{chosen.id.lower()}.py")
    check_output_path(path, (".py",))
    if path.exists():
        raise UsageError("the file exists and is not replaced.", fix="Name another one with --out.", file=path)
    write_text(path, chosen.build_template(str(path)))
    console.log(f"saved to {path}: {chosen.title}. Fill in the lines with ..., then: seqwise lab grade {path}")
    return 0


def grade(argv: Sequence[str]) -> int:
    options = parse(GradeOptions, argv, prog="seqwise lab grade", example="seqwise lab grade d7.py")
    if options.seconds <= 0:
        raise UsageError(f"--seconds: expected more than 0; received {options.seconds:g}.")
    from seqwise.lab.exercises import grade as grade_file

    result = grade_file(options.file, options.seconds)
    if options.json:
        console.print_json(
            {
                "id": result.exercise.id,
                "is_right": result.is_right,
                "outputs": result.outputs,
                "printed": result.printed,
            }
        )
    else:
        _print_grade(result)
    return 0 if result.is_right else 1


def _print_grade(result: Grade) -> None:
    if result.printed.strip():
        console.log(
            f"the file printed, for the first of {len(result.exercise.seeds)} inputs:\n{result.printed.rstrip()}"
        )
    num_right = sum(not output.problem for output in result.outputs)
    console.write(f"{result.exercise.id}, {result.exercise.title}: {num_right} of {len(result.outputs)} right")
    for output in result.outputs:
        if output.problem:
            console.write(f"  {output.name}: wrong. {output.problem}", style="red")
            continue
        evidence = f"agrees with the solution (relative error {output.relative_error:.1g})"
        if output.difference_error is not None:
            evidence += f" and with finite differences ({output.difference_error:.1g})"
        console.write(f"  {output.name}: right, {evidence}", style="green")
