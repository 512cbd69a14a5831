"""`load_model`: the model of a run folder, or the best one of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqwise.cli import console

if TYPE_CHECKING:
    from seqwise.training.api import TrainedModel


def load_model(folder: Path, device: str) -> TrainedModel:
    """Load a run; of a comparison the best model, with a note on standard error."""
    from seqwise.compare.plan.folder import PLAN_FILE
    from seqwise.training.api import load

    if (folder / PLAN_FILE).is_file():
        from seqwise.compare.api import Comparison
        from seqwise.compare.report.gather import load_report

        best = Comparison(folder, load_report(folder)).best.run
        console.log(f"{folder} is a comparison; its best model is used: {best.settings.model}, {best.folder}")
        folder = best.folder
    return load(folder, device)
