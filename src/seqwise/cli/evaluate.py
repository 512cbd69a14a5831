"""`seqwise evaluate`: how well a run predicts text it has not learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.config import DYNAMIC_RATE, Device


@dataclass
class Evaluate:
    """Perplexity of a run on DATA: its test split where it has one, the whole text otherwise."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    data: Annotated[str, tyro.conf.Positional]
    """Text to score."""
    split: Annotated[Literal["train", "valid", "test", "all"] | None, UNSET] = None
    """Which part of DATA to score."""
    dynamic: bool = False
    """Let the model learn from each piece after scoring it."""
    dynamic_rate: float = DYNAMIC_RATE
    """Learning rate of --dynamic."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Evaluate, argv, prog="seqwise evaluate", example="seqwise evaluate runs/book book.txt --json")
    from seqwise.cli.progress import Bar
    from seqwise.metrics.perplexity import DEFINITIONS
    from seqwise.training.api import load

    loaded = load(asked.run, asked.device)
    with Bar("scoring") as bar:
        found = loaded.evaluate(
            asked.data, split=asked.split, dynamic=asked.dynamic, rate=asked.dynamic_rate, progress=bar
        )
    if asked.json:
        console.print_json(found.as_dict())
        return 0
    console.say(f"{found.on}\n{found.how}")
    for name, value in found.metrics().items():
        console.write(f"{name:20}{_shown(name, value):>14}   {DEFINITIONS[name]}")
    if unknown := found.result.unknown:
        share = unknown / found.result.tokens
        console.say(f"{share:.1%} of the tokens ({unknown:,}) are <unk>: their spelling was not predicted.")
    return 0


def _shown(name: str, value: float) -> str:
    if name == "tokens":
        return f"{value:,.0f}"
    return f"{value:,.3f}" if value < 1e6 else f"{value:.3e}"
