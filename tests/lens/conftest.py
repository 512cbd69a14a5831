"""Small runs for the tests of views."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from small_runs import train_small_run

from seqwise.training.api import TrainedModel


@pytest.fixture(scope="session")
def small_run(tmp_path_factory, book: Path) -> Callable[..., TrainedModel]:
    """(task, family) → a run that was trained for a few updates; its data is beside it in the folder `data`."""

    @cache
    def train(task: str, family: str) -> TrainedModel:
        folder = tmp_path_factory.mktemp(f"{task}-{family}")
        return train_small_run(task, family, book, folder / "data", folder / "run")

    return train
