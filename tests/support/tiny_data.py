"""Generated data of every kind that recipes need: small, with the file names of the public data."""

from __future__ import annotations

import random
from pathlib import Path

WORDS = ("the", "a", "cat", "dog", "sees", "hears", "big", "small", "red", "house", "of", "near", "old", "new", "runs")
COUNTS = {"train": 60, "valid": 12, "test": 12}


def write_language_data(folder: Path) -> Path:
    """Writes sentences of common words, one per line, in three splits."""
    for split, count in COUNTS.items():
        write_lines(folder / f"{split}.txt", [draw_sentence(seed) for seed in range(count * 2)])
    return folder


def write_translation_data(folder: Path) -> Path:
    """Writes English lines and German ones, which have the same words with another ending."""
    for split, count in {"train": 60, "val": 12, "test_2016_flickr": 12}.items():
        lines = [draw_sentence(seed) for seed in range(count)]
        write_lines(folder / f"{split}.en", lines)
        write_lines(folder / f"{split}.de", [" ".join(f"{word}en" for word in line.split()) for line in lines])
    return folder


def write_tagging_data(folder: Path) -> Path:
    """Writes the columns of CoNLL-2003 with IOB1 tags: words with a capital are persons."""
    for name, count in {"eng.train": 60, "eng.testa": 12, "eng.testb": 12}.items():
        blocks = []
        for seed in range(count):
            words = [word.title() if word in ("cat", "dog") else word for word in draw_sentence(seed).split()]
            blocks.append("\n".join(f"{word} X X {'I-PER' if word.istitle() else 'O'}" for word in words))
        (folder / name).write_text("\n\n".join(blocks) + "\n")
    return folder


def write_labelled_data(folder: Path) -> Path:
    """Writes a text and a label per line."""
    for name, count in {"train.tsv": 60, "dev.tsv": 12, "test.tsv": 12}.items():
        write_lines(folder / name, [f"{draw_sentence(seed)}\t{seed % 2}" for seed in range(count)])
    return folder


def write_series(folder: Path) -> Path:
    """Writes a table of two hourly series."""
    lines = ["date,HUFL,OT"]
    for hour in range(480):
        lines.append(f"2016-07-{1 + hour // 24:02} {hour % 24:02}:00:00,{hour % 24},{(hour * 7) % 24 + 0.5}")
    write_lines(folder / "series.csv", lines)
    return folder / "series.csv"


def draw_sentence(seed: int) -> str:
    generator = random.Random(seed)
    return " ".join(generator.choices(WORDS, k=generator.randint(4, 9)))


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


WRITERS = {
    "language": write_language_data,
    "translate": write_translation_data,
    "tag": write_tagging_data,
    "classify": write_labelled_data,
    "forecast": write_series,
}
