"""Writes contextual vectors to `.npy` with the tokens in a `.json` beside it, or to `.jsonl`. Writing is atomic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.files import check_output_path, replace_file, write_text
from seqwise.tasks.contextual import Contextual, TextTokens
from seqwise.tasks.task import ProgressCallback

SUFFIXES = (".npy", ".jsonl")
DIGITS = 6  # significant digits of a number in JSON, as float32 has


def save_vectors(
    out: Path,
    source: Contextual,
    texts: Sequence[str],
    layer: int,
    mean: bool,
    progress: ProgressCallback | None = None,
) -> dict[str, Any]:
    """Writes the vectors of all texts, one per token or with `mean` one per text; returns a summary."""
    check_output_path(out, SUFFIXES)
    tokens = [source.read(text) for text in texts]
    summary = {
        "texts": len(tokens), "tokens": sum(map(len, tokens)), "width": source.width(layer), "layer": layer,
        "pool": "mean" if mean else "none",
    }  # fmt: skip
    vectors = _pool(source.vectors(tokens, layer), mean)
    if progress:
        vectors = _report_progress(vectors, len(tokens), progress)
    (_save_array if out.suffix.lower() == ".npy" else _save_lines)(out, tokens, vectors, summary)
    return {"out": str(out), **summary}


def _save_array(out: Path, texts: list[TextTokens], vectors: Iterator[np.ndarray], summary: dict[str, Any]) -> None:
    """Writes all vectors to `out`, and the rows of each text to a `.json` beside it."""
    mean = summary["pool"] == "mean"
    num_rows, row, descriptions = summary["texts" if mean else "tokens"], 0, []
    with replace_file(out, concurrent=True) as temporary:
        array = np.lib.format.open_memmap(temporary, "w+", np.float32, (num_rows, summary["width"]))
        for text, matrix in zip(texts, vectors):
            array[row : row + len(matrix)] = matrix
            descriptions.append({**_describe(text), "rows": [row, row + len(matrix)]})
            row += len(matrix)
        array.flush()
        del array
    content = json.dumps({**summary, "texts": descriptions}, ensure_ascii=False)
    write_text(out.with_suffix(".json"), content + "\n", concurrent=True)


def _save_lines(out: Path, texts: list[TextTokens], vectors: Iterator[np.ndarray], summary: dict[str, Any]) -> None:
    """Writes one JSON object per text."""
    mean = summary["pool"] == "mean"
    with replace_file(out, concurrent=True) as temporary, temporary.open("w", encoding="utf-8") as file:
        for text, matrix in zip(texts, vectors):
            numbers = [[float(f"{value:.{DIGITS}g}") for value in row] for row in matrix.tolist()]
            line = {**_describe(text), **({"vector": numbers[0]} if mean else {"vectors": numbers})}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _describe(text: TextTokens) -> dict[str, Any]:
    return {"text": text.text, "tokens": text.tokens, "offsets": text.offsets.tolist()}


def _pool(vectors: Iterator[np.ndarray], mean: bool) -> Iterator[np.ndarray]:
    """Yields the matrices; with `mean` their mean rows, zeros for a text without tokens."""
    for matrix in vectors:
        yield matrix.sum(axis=0, keepdims=True) / max(1, len(matrix)) if mean else matrix


def _report_progress(vectors: Iterator[np.ndarray], total: int, progress: ProgressCallback) -> Iterator[np.ndarray]:
    for number, matrix in enumerate(vectors, start=1):
        progress(number, total)
        yield matrix
