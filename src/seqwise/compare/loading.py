"""`seqwise.load`: the model of a run folder, or the best one of a comparison."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path

from seqwise.callbacks import LogFunction
from seqwise.compare.plan.folder import PLAN_FILE
from seqwise.errors import check_type
from seqwise.training.api import TrainedModel, load_run


def load(folder: str | Path, device: str = "auto", *, log: LogFunction | None = None) -> TrainedModel:
    """Loads a trained run, ready to evaluate and predict; of a comparison the best model, with a warning that names it.

    `log` receives that message instead of the warning.
    """
    check_type("folder", folder, (str, PathLike), "the path of a run folder")
    if not (Path(folder) / PLAN_FILE).is_file():
        return load_run(folder, device)
    from seqwise.compare.api import Comparison
    from seqwise.compare.report.gather import load_report

    best = Comparison(Path(folder), load_report(folder)).best.run
    message = f"{folder} is a comparison; its best model is used: {best.settings.model}, {best.folder}"
    if log is None:
        warnings.warn(message, stacklevel=2)
    else:
        log(message)
    return load_run(best.folder, device)
