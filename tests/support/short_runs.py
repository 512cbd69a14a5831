"""`seqwise train` called in the test process, with a tiny network on the characters of a text."""

from __future__ import annotations

from pathlib import Path

from seqwise.cli.main import main

BATCH_SIZE, WINDOW = 4, 16
TOKENS_PER_STEP = BATCH_SIZE * WINDOW
OPTIONS = [
    *("--text.tokenizer", "characters", "--network.width", "8"),
    *("--training.batch-size", str(BATCH_SIZE), "--data.window", str(WINDOW)),
]


def train(*arguments: str | Path) -> int:
    """Returns the exit status."""
    return main(["train", *map(str, arguments)])
