"""Contextual vectors → `.npy` with a `.json` of the tokens beside it, or `.jsonl`. Files appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.files import check_output_path, replace_file, write_text
from seqwise.tasks.contextual import Contextual, TextTokens

SUFFIXES = (".npy", ".jsonl")
DIGITS = 6  # significant digits of a number in JSON: those of float32

ProgressCallback = Callable[[int, int], None]


def check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    check_output_path(out, SUFFIXES)


def save_vectors(
    out: Path,
    source: Contextual,
    texts: Sequence[str],
    layer: int,
    mean: bool,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Write the vectors of all texts, one per token or with `mean` one per text; returns the numbers of each."""
    check_out(out)
    read = [source.read(text) for text in texts]
    facts = {
        "texts": len(read), "tokens": sum(map(len, read)), "width": source.width(layer), "layer": layer,
        "pool": "mean" if mean else "none",
    }  # fmt: skip
    found = _pooled(source.vectors(read, layer), mean)
    if progress:
        found = _counted(found, len(read), progress)
    (_save_array if out.suffix.lower() == ".npy" else _save_lines)(out, read, found, facts)
    return {"out": str(out), **facts}


def _save_array(out: Path, read: list[TextTokens], found: Iterator[np.ndarray], facts: dict[str, Any]) -> None:
    """All vectors below each other in `out`; which are whose in the `.json` beside it."""
    mean = facts["pool"] == "mean"
    rows, at, texts = facts["texts" if mean else "tokens"], 0, []
    with replace_file(out, concurrent=True) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, (rows, facts["width"]))
        for text, vectors in zip(read, found):
            array[at : at + len(vectors)] = vectors
            texts.append({**_about(text), "rows": [at, at + len(vectors)]})
            at += len(vectors)
        array.flush()
        del array
    content = json.dumps({**facts, "texts": texts}, ensure_ascii=False)
    write_text(out.with_suffix(".json"), content + "\n", concurrent=True)


def _save_lines(out: Path, read: list[TextTokens], found: Iterator[np.ndarray], facts: dict[str, Any]) -> None:
    """One object per text."""
    mean = facts["pool"] == "mean"
    with replace_file(out, concurrent=True) as temporary, temporary.open("w", encoding="utf-8") as file:
        for text, vectors in zip(read, found):
            numbers = [[float(f"{value:.{DIGITS}g}") for value in row] for row in vectors.tolist()]
            line = {**_about(text), **({"vector": numbers[0]} if mean else {"vectors": numbers})}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _about(text: TextTokens) -> dict[str, Any]:
    return {"text": text.text, "tokens": text.tokens, "offsets": text.offsets.tolist()}


def _pooled(found: Iterator[np.ndarray], mean: bool) -> Iterator[np.ndarray]:
    """One vector per text: the mean; zeros for a text without tokens."""
    for vectors in found:
        yield vectors.sum(axis=0, keepdims=True) / max(1, len(vectors)) if mean else vectors


def _counted(found: Iterator[np.ndarray], total: int, progress: ProgressCallback) -> Iterator[np.ndarray]:
    for number, vectors in enumerate(found, start=1):
        progress(number, total)
        yield vectors
