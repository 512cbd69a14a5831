"""The translate task for the task contracts: small numbers in digits and in words, in two files."""

from __future__ import annotations

import random
from pathlib import Path

from task_row import TaskRow

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def write(folder: Path) -> str:
    """Writes train.num beside train.eng, with one to four digits per line."""
    random_state = random.Random(3)
    lines = [[random_state.randrange(10) for _ in range(random_state.randint(1, 4))] for _ in range(60)]
    (folder / "train.num").write_text("".join(" ".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
    names = "".join(" ".join(NAMES[digit] for digit in line) + "\n" for line in lines)
    (folder / "train.eng").write_text(names, encoding="utf-8")
    return str(folder / "train.num")


ROW = TaskRow(
    task="translate",
    write=write,
    inputs=["1 2", "7", "3 0 4 4"],
    settings={
        "network": {"width": 16, "depth": 1, "embedding": 8},
        "training": {"batch_size": 8},
        "transformer": {"heads": 2, "hidden": 16},
        "text": {"tokenizer": "words"},
    },
)
