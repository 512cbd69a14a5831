"""One small run per family for the tests of the command line, and a fixture that runs a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from used_settings import keep_used

import seqwise
from seqwise.cli.main import main

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1},
    "data": {"window": 16},
    "training": {"batch_size": 4, "validate_every": 1000},
}


@dataclass(frozen=True)
class CommandResult:
    """Exit status and output of a command line."""

    status: int
    out: str
    err: str


@pytest.fixture
def seqwise_command(capsys) -> Callable[..., CommandResult]:
    """Runs `seqwise …` in this process."""

    def run(*arguments: object) -> CommandResult:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def trained_run(book, tmp_path_factory) -> Callable[..., Path]:
    """The run folder of a family, trained once, briefly."""
    folders: dict[tuple[str, str], Path] = {}

    def get(family: str = "lstm", tokenizer: str = "characters") -> Path:
        if (family, tokenizer) not in folders:
            folder = tmp_path_factory.mktemp("runs") / family
            seqwise.train(book, out=folder, settings=keep_used(SMALL, model=family, text={"tokenizer": tokenizer}))
            folders[family, tokenizer] = folder
        return folders[family, tokenizer]

    return get
