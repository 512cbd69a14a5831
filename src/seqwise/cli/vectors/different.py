"""`seqwise vectors different`: which of some words does not belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.vectors.arguments import parse_words
from seqwise.errors import UsageError

EXAMPLE = "seqwise vectors different vectors.safetensors breakfast lunch dinner car"
FEWEST = 3  # of two words, neither belongs less


@dataclass
class Different:
    """Which WORD does not belong: the one whose vector lies furthest from the mean of all, by cosine."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Three words or more."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse_words(Different, argv, prog="seqwise vectors different", example=EXAMPLE)
    words = tuple(dict.fromkeys(asked.words))
    if len(words) < FEWEST:
        raise UsageError(
            f"expected at least {FEWEST} different words; received {len(words)}.", repair=f"For example: {EXAMPLE}"
        )
    from seqwise.cli.vectors.output import answers, check_words, composed, opened, plain, say_composed, write_answers

    keyed = opened(asked.file)
    check_words(keyed, words)
    found = keyed.rank_by_centrality(words)
    if asked.json:
        about = {"file": asked.file, "different": found[0].word, "composed": composed(keyed, words)}
        console.print_json({**about, "words": answers(keyed, found)})
        return 0
    say_composed(keyed, words)
    console.write(f"{plain(found[0].word)} belongs least", style="bold")
    write_answers(keyed, found, "cosine to the mean")
    return 0
