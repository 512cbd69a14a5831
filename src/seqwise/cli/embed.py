"""`seqwise embed`: contextual vectors of texts, into a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.config import Device
from seqwise.errors import UsageError

EXAMPLE = "seqwise embed runs/masked lines.txt --out vectors.npy --pool mean"


@dataclass
class Embed:
    """Write what a run of masked, language, classify or tag makes of each token of TEXT, or one vector per text.

    TEXT is one text; a file or - (standard input) holds one per line. F.npy has all vectors below each other, with
    F.json beside it: tokens, character offsets, and which rows are whose. F.jsonl has one object per text.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    text: Annotated[str, tyro.conf.Positional, UNSET] = ""
    """Words, a file, or - for standard input."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: .npy or .jsonl."""
    layer: Annotated[int | None, UNSET] = None
    """0: token vectors, 1: states of the first layer, and so on; the last layer unless set."""
    pool: Literal["none", "mean"] = "none"
    """none: a vector per token. mean: their mean, a vector per text."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Embed, argv, prog="seqwise embed", example=EXAMPLE)
    if asked.out is None:
        raise UsageError("--out is missing: the file for the vectors.", repair=f"For example: {EXAMPLE}")
    from seqwise.cli.predict import lines_of
    from seqwise.cli.progress import Bar
    from seqwise.tasks.vector_files import check_out, save_vectors
    from seqwise.training.api import load

    check_out(asked.out)
    texts = lines_of(asked.text)
    if not any(text.strip() for text in texts):
        raise UsageError("there is no text.", repair=f"For example: {EXAMPLE}")
    loaded = load(asked.run, asked.device)
    source = loaded.contextual
    layer = source.depth if asked.layer is None else asked.layer
    with Bar("embedding") as bar:
        made = save_vectors(asked.out, source, texts, layer, asked.pool == "mean", bar)
    if empty := sum(not text.strip() for text in texts):
        console.warn(f"{empty:,} of {len(texts):,} lines are empty: {_policy(asked.pool)}.")
    if asked.json:
        console.print_json(made)
        return 0
    count = made["texts"] if asked.pool == "mean" else made["tokens"]
    console.write(f"{asked.out}: {count:,} vectors of {made['width']}, layer {layer} of {source.depth}")
    return 0


def _policy(pool: str) -> str:
    return "their vector is zero" if pool == "mean" else "they have no vectors"
