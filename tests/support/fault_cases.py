"""The training runs of the fault battery: every task with each group of models, about half a second each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

# One family of each group: recurrent, attention, feedforward; and the one that is fitted in a single pass.
GROUPS = ("lstm", "transformer", "feedforward")
TASKS = ("language", "masked", "classify", "tag", "translate", "caption", "forecast")
CASES = [*((task, family) for task in TASKS for family in GROUPS), ("language", "ngram")]

WORDS = ["the", "a", "small", "old", "model", "learns", "reads", "writes", "forgets", "every", "word"]
LANGUAGE = {
    "text": {"tokenizer": "characters"},
    "network": {"width": 16, "depth": 1, "dropout": 0.2},
    "data": {"window": 16},
    "training": {"batch_size": 4, "learning_rate": 0.01, "patience": 99, "validate_every": 20},
}
EPOCHS = {"classify": 5, "tag": 7, "translate": 8, "caption": 4, "forecast": 4, "masked": 3}


def write_text(folder: Path, lines: int = 200) -> Path:
    """Writes a text of about 130 updates."""
    generator = random.Random(1)
    path = folder / "text.txt"
    path.write_text(
        "".join(" ".join(generator.choices(WORDS, k=generator.randint(4, 14))) + ".\n" for _ in range(lines))
    )
    return path


def build_arguments(folder: Path, task: str, family: str) -> list[str]:
    """Writes data into a folder; returns the arguments of `seqwise train` for it, with saves every few updates."""
    folder.mkdir(exist_ok=True)
    if task == "language":
        data, settings = str(write_text(folder)), {key: dict(values) for key, values in LANGUAGE.items()}
        if family == "ngram":
            return [data, "--task", task, "--model", family, "--text.tokenizer", "characters"]
        budget = f"{64 * 150}-tokens"
    else:
        row = import_module(f"rows_{task}").ROW  # of the task contracts
        data = row.write(folder) if not any(folder.iterdir()) else ""
        settings, budget = dict(row.settings), f"{EPOCHS[task]}-epochs"
    if family != "transformer":
        settings.pop("transformer", None)
        if "forecast" in settings:
            settings["forecast"] = {name: value for name, value in settings["forecast"].items() if name != "patch"}
    options = [*list_options(settings), "--training.save-every", "3", "--budget", budget]
    return [data, "--task", task, "--model", family, *options]


def list_options(settings: dict[str, Any], prefix: str = "--") -> Iterator[str]:
    """Yields the command-line options of nested settings."""
    for name, value in settings.items():
        option = prefix + name.replace("_", "-")
        if isinstance(value, dict):
            yield from list_options(value, f"{option}.")
        else:
            yield from (option, str(value))
