"""`seqwise predict`: let a run continue a text, token by token as it is chosen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.errors import DataError, RunError, UsageError

EXAMPLE = "seqwise predict runs/book 'It was' --sample --temperature 0.8 --top-p 0.9 --seed 1"


@dataclass
class Predict:
    """Continue TEXT (or the text in a file, or standard input with -). Samples unless --greedy is given."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    text: Annotated[str, tyro.conf.Positional] = ""
    """The beginning: words, a file, or - for standard input."""
    max_length: int = 200
    """Tokens to write."""
    greedy: bool = False
    """Always take the most likely token."""
    sample: bool = False
    """Draw tokens at random (the default)."""
    temperature: float = 1.0
    """Below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int | None = None
    """Draw among the k most likely tokens only."""
    top_p: float | None = None
    """Draw among the fewest tokens that together have this probability."""
    repetition_penalty: float = 1.0
    """Above 1 makes tokens that occurred already less likely."""
    seed: int = 0
    """The same seed writes the same text."""
    device: str = "auto"
    """auto, cpu or cuda."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Predict, argv, prog="seqwise predict", example=EXAMPLE)
    if asked.greedy and asked.sample:
        raise UsageError("--greedy and --sample exclude each other.")
    if asked.max_length < 1:
        raise UsageError(f"--max-length must be at least 1; received {asked.max_length}.")
    from seqwise.decoding.sampling import Choice
    from seqwise.training.api import load

    choice = Choice(asked.greedy, asked.temperature, asked.top_k, asked.top_p, asked.repetition_penalty)
    prompt = _read(asked.text)
    loaded = load(asked.run, asked.device)
    if loaded.settings.task != "language":
        raise RunError(f"{asked.run} was trained for {loaded.settings.task}, which does not continue text.")
    pieces = loaded.predict(prompt, choice=choice, seed=asked.seed, max_length=asked.max_length)
    if asked.json:
        console.print_json({"prompt": prompt, "continuation": "".join(pieces), "seed": asked.seed})
        return 0
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _read(text: str) -> str:
    """A name of a file means its content, - means standard input, anything else itself."""
    if text == "-":
        return sys.stdin.read()
    try:
        path = Path(text)
        if text and path.is_file():
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"byte {error.start:,} is not UTF-8.", file=text) from None
    except OSError:
        pass  # too long for a file name: it is the text itself
    return text
