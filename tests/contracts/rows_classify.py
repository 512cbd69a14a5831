"""The classify task for the task contracts: made-up opinions with words that determine the label."""

from __future__ import annotations

import random
from pathlib import Path

from task_row import TaskRow

WORDS = {
    "good": ["good", "lovely", "a joy", "well made", "bright"],
    "bad": ["bad", "dull", "a bore", "too long", "empty"],
    "mixed": ["so so", "not bad", "fair", "good in parts"],
}


def write(folder: Path) -> str:
    random_state = random.Random(0)
    lines = []
    for _ in range(120):
        label = random_state.choice(sorted(WORDS))
        text = ", ".join(random_state.choices(WORDS[label], k=random_state.randint(1, 5)))
        lines.append(f"the film is {text}\t{label}" if random_state.random() < 0.7 else f"{text}\t{label}")
    path = folder / "opinions.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


ROW = TaskRow(
    task="classify",
    write=write,
    inputs=["a joy", "the film is dull, a bore, too long", "", "unheard-of words, fair"],
    settings={
        "network": {"width": 12, "embedding": 8},
        "classify": {"ngrams": 2},
        "training": {"batch_size": 8},
        "transformer": {"heads": 2, "hidden": 16},
    },
)
