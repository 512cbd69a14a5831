"""Small runs of each task and family: a few updates on the data of the task contracts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from used_settings import keep_used

import seqwise
from seqwise.training.api import TrainedModel

LANGUAGE = {
    "network": {"width": 16, "depth": 1},
    "text": {"tokenizer": "words"},
    "data": {"window": 16},
    "training": {"batch_size": 4, "validate_every": 1000},
}


def train_small_run(task: str, family: str, book: Path, data_folder: Path, out: Path) -> TrainedModel:
    """Trains for a few updates; the data of tasks other than language is written to a new folder."""
    data, small = str(book), LANGUAGE
    if task != "language":
        row = import_module(f"rows_{task}").ROW
        data_folder.mkdir(parents=True)
        data, small = row.write(data_folder), row.settings
    settings = keep_used({**small, "task": task, "model": family, "budget": "300-tokens", "device": "cpu"})
    return seqwise.train(data, settings=settings, out=out)
