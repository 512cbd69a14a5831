"""`seqwise vectors different`: finds the word that does not belong to the others."""

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
MIN_WORDS = 3  # two words have the same cosine to their mean


@dataclass
class Different:
    """Find the WORD that does not belong: the one whose vector has the smallest cosine to the mean of all."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Three words or more."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    options = parse_words(Different, argv, prog="seqwise vectors different", example=EXAMPLE)
    words = tuple(dict.fromkeys(options.words))
    if len(words) < MIN_WORDS:
        raise UsageError(
            f"expected at least {MIN_WORDS} different words; received {len(words)}.", repair=f"For example: {EXAMPLE}"
        )
    from seqwise.cli.vectors import output

    keyed = output.load_with_progress(options.file)
    output.check_words(keyed, words)
    ranking = keyed.rank_by_centrality(words)
    if options.json:
        about = {"file": options.file, "different": ranking[0].word, "composed": output.find_unknown(keyed, words)}
        console.print_json({**about, "words": output.answers_as_json(keyed, ranking)})
        return 0
    output.report_composed(keyed, words)
    console.write(f"{output.make_printable(ranking[0].word)} belongs least", style="bold")
    output.write_answers(keyed, ranking, "cosine to the mean")
    return 0
