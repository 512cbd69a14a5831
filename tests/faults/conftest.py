"""Fixtures of the fault battery: the process that forks `seqwise`, and short training runs of every task."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_cases import build_arguments
from forked_runs import ForkServer, TrainingCase, draw_seed


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Iterator[ForkServer]:
    root = tmp_path_factory.mktemp("forks")
    arguments = build_arguments(root / "data", "language", "lstm")
    server = ForkServer(root, [["train", *arguments, "--budget", "320-tokens", "--out", str(root / "warm-up")]])
    yield server
    server.close()


@pytest.fixture
def make_case(server: ForkServer, tmp_path: Path) -> Callable[..., TrainingCase]:
    """Returns a function that runs a task and a family once without a fault; `options` are added to the command."""

    def make(task: str = "language", family: str = "lstm", *options: str) -> TrainingCase:
        arguments = build_arguments(tmp_path / f"{task}-data", task, family)
        root = tmp_path / f"{task}-{family}"
        root.mkdir()
        return TrainingCase(server, root, [*arguments, *options])

    return make


@pytest.fixture
def generator() -> random.Random:
    return random.Random(draw_seed())
