"""The caption task for the task contracts: small squares of one colour, with one or two captions each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from task_row import TaskRow

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 50), "blue": (40, 60, 230)}


def write(folder: Path) -> str:
    """Writes captions.csv beside images/; the captions differ in length."""
    random_state = np.random.RandomState(0)
    (folder / "images").mkdir()
    rows = ["image,caption"]
    for number in range(60):
        name = list(COLOURS)[number % 3]
        pixels = np.clip(np.array(COLOURS[name]) + random_state.randint(-20, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        rows.append(f"{number}.png,{name}")
        if number % 2:
            rows.append(f"{number}.png,a square of {name} paint" + " on a wall" * (number % 4 * 2))
    (folder / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(folder)


def list_inputs(folder: Path) -> list[str]:
    return [str(folder / "images" / f"{number}.png") for number in (0, 1, 5)]


ROW = TaskRow(
    task="caption",
    write=write,
    inputs=[],
    inputs_in_folder=list_inputs,
    settings={
        "network": {"width": 16, "embedding": 8},
        "training": {"batch_size": 8},
        "transformer": {"heads": 2, "hidden": 16},
    },
)
