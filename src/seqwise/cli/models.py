"""Run folders as arguments of commands: loading the model, and errors about confused arguments and other data."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seqwise.cli import console
from seqwise.errors import DataError, MissingColumnError, UsageError

if TYPE_CHECKING:
    from seqwise.training.api import TrainedModel


def load_model(command: str, folder: Path, others: Sequence[str], device: str) -> TrainedModel:
    """Loads a run, or the best model of a comparison; `others` are the arguments after it, in case they are swapped."""
    from seqwise.compare.loading import load

    if not is_run(folder):
        for other in filter(is_run, others):
            problem = f"{folder} is not a run, but {other} is: RUN is the first argument."
            raise UsageError(problem, fix=f"Put it first: {shlex.join(['seqwise', command, other, str(folder)])}")
    return load(folder, device, log=console.log)


def is_run(folder: str | Path) -> bool:
    """Returns whether a folder contains a run or a comparison."""
    from seqwise.compare.plan.folder import PLAN_FILE
    from seqwise.training.run import CONFIG

    return any(os.path.isfile(os.path.join(folder, name)) for name in (CONFIG, PLAN_FILE))


def reject_run_as_data(data: str) -> None:
    """Raises an error if the argument for data is the folder of a run or of a comparison."""
    from seqwise.compare.plan.folder import PLAN_FILE

    if is_run(data):
        kind, command = "run", "train"
        if os.path.isfile(os.path.join(data, PLAN_FILE)):
            kind, command = "comparison", "compare"
        resume = shlex.join(["seqwise", command, "--resume", data])
        raise UsageError(f"{data} is a {kind}, not data.", fix=f"Name the data; or resume the {kind}: {resume}")


@contextmanager
def explain_missing_columns(trained: TrainedModel, option: str = "") -> Iterator[None]:
    """Adds to an error about a missing column that its name comes from the run; `option` can set other names."""
    try:
        yield
    except MissingColumnError as error:
        suggested = _suggest_columns(trained, error.header) if option else []
        rename = f"Rename the columns of this file; it has {', '.join(error.header)}."
        fix = f"Name those of this file: {option} {shlex.quote(','.join(suggested))}" if suggested else rename
        problem = f"{error.problem.removesuffix('.')}. The run has the names of the columns from its training data."
        raise DataError(problem, fix=fix, file=error.file, line=error.line) from None


def _suggest_columns(trained: TrainedModel, header: Sequence[str]) -> list[str]:
    """Returns the columns of a file that have the names of the run, else the usual names of the task, else others."""
    from seqwise.data.tables import split_commas, suggest_columns

    names = [name.lower() for name in header]
    own = split_commas(trained.settings.columns) or []
    wanted = [name.lower() if name.lower() in names else usual for name, usual in zip(own, trained.task.row_columns)]
    return suggest_columns(wanted, header)
