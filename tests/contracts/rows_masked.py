"""The masked task for the task contracts: lines of common words."""

from __future__ import annotations

from pathlib import Path

from task_row import TaskRow

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "the",
    "mat",
    "and",
    "the",
    "dog",
    "lay",
    "under",
    "a",
    "chair",
    "while",
    "it",
    "rained",
]


def write(folder: Path) -> str:
    """Lines of unequal length, enough of them that every split has masked tokens."""
    lines = (" ".join(WORDS[(index + number) % len(WORDS)] for index in range(3 + number % 9)) for number in range(240))
    path = folder / "lines.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


ROW = TaskRow(
    "masked",
    write,
    inputs=["the [MASK] sat", "the dog lay [MASK] a chair while it [MASK]"],
    settings={
        "network": {"width": 16, "depth": 1},
        "data": {"window": 12},
        "training": {"batch_size": 4, "learning_rate": 0.01},
    },
)
