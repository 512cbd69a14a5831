"""Small runs of each task and family for the tests of views: a few updates on the data of the task contracts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from used_settings import keep_used

import seqwise
from seqwise.training.api import TrainedModel

LANGUAGE = {
    "network": {"width": 16, "depth": 1},
    "text": {"tokenizer": "words"},
    "data": {"window": 16},
    "training": {"batch_size": 4, "validate_every": 1000},
}


@pytest.fixture(scope="session")
def small_run(tmp_path_factory, book: Path) -> Callable[..., TrainedModel]:
    """(task, family) → a run that was trained for a few updates; its data is beside it in the folder `data`."""

    @cache
    def train(task: str, family: str) -> TrainedModel:
        folder = tmp_path_factory.mktemp(f"{task}-{family}")
        (folder / "data").mkdir()
        data, small = str(book), LANGUAGE
        if task != "language":
            row = import_module(f"rows_{task}").ROW
            data, small = row.write(folder / "data"), row.settings
        settings = keep_used({**small, "task": task, "model": family, "budget": "300-tokens", "device": "cpu"})
        return seqwise.train(data, settings=settings, out=folder / "run")

    return train
