"""A studio with small runs of every task, and a browser. All of them are created once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import launch_chromium
from small_runs import train_small_run
from studio_server import StudioServer, StudioTab

from seqwise.cli.check import Check
from seqwise.cli.compare import Compare
from seqwise.cli.train import Train
from seqwise.studio.forms import register_commands

register_commands(train=Train, compare=Compare, check=Check)  # as the command line does

RUNS = {  # name of the folder → task, family
    "book-lstm": ("language", "lstm"),
    "book-gru": ("language", "gru"),
    "book-transformer": ("language", "transformer"),
    "fill-transformer": ("masked", "transformer"),
    "labels-gru": ("classify", "gru"),
    "tags-lstm": ("tag", "lstm"),
    "translate-attention": ("translate", "attentive-rnn"),
    "translate-transformer": ("translate", "transformer"),
    "captions-lstm": ("caption", "lstm"),
    "series-gru": ("forecast", "gru"),
}


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """A folder `runs` with a run of each task."""
    folder = tmp_path_factory.mktemp("studio")
    for name, (task, family) in RUNS.items():
        train_small_run(task, family, book, folder / "data" / name, folder / "runs" / name)
    return folder / "runs"


@pytest.fixture(scope="session")
def server(runs_folder: Path) -> Iterator[StudioServer]:
    """A studio that shows `runs_folder`. Tests that change runs start their own with a copy."""
    with StudioServer(runs_folder) as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def open_tab(chromium: Any, server: StudioServer) -> Iterator[Callable[..., StudioTab]]:
    """(width, scheme) → a tab; after the test, its console must have shown no error."""
    tabs: list[StudioTab] = []

    def open_tab(width: int = 1300, scheme: str = "light", address: str = "") -> StudioTab:
        tabs.append(StudioTab(chromium, address or server.address, width, scheme))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.check()
        tab.close()
