"""The tag task for the task contracts: names of people and places in made-up sentences, as BIO columns."""

from __future__ import annotations

import random
from pathlib import Path

from task_row import TaskRow

PEOPLE, LOCATIONS = ["Ann", "Bob", "Carla Diaz", "Dan"], ["Oslo", "New York", "Rome"]
TEMPLATES = [
    "{p} lives in {l} .",
    "{p} met {p} .",
    "in {l} it rains",
    "yes",
    "{l} and {l} are far from {l} , said {p} .",
]


def generate_sentence(random_state: random.Random) -> list[tuple[str, str]]:
    """Words of one sentence with their tags."""
    tokens: list[tuple[str, str]] = []
    for word in random_state.choice(TEMPLATES).split():
        kind = {"{p}": "PER", "{l}": "LOC"}.get(word)
        if kind is None:
            tokens.append((word, "O"))
        else:
            names = random_state.choice(PEOPLE if kind == "PER" else LOCATIONS).split()
            tokens += [(name, f"{'I' if index else 'B'}-{kind}") for index, name in enumerate(names)]
    return tokens


def write(folder: Path) -> str:
    random_state = random.Random(0)
    sentences = [generate_sentence(random_state) for _ in range(120)]
    text = "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    path = folder / "names.conll"
    path.write_text(text, encoding="utf-8")
    return str(path)


ROW = TaskRow(
    task="tag",
    write=write,
    inputs=["Ann lives in New York.", "yes", "Rome and Oslo are far, said Carla Diaz."],
    settings={
        "network": {"width": 12, "embedding": 8},
        "tag": {"characters": 4},
        "training": {"batch_size": 8},
        "transformer": {"heads": 2, "hidden": 16},
    },
)
