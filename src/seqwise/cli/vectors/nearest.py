"""`seqwise vectors nearest`: the words nearest to a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.vectors.arguments import check_number, parse_words
from seqwise.errors import UsageError

EXAMPLE = "seqwise vectors nearest vectors.safetensors king queen --n 5"
SCORES = {"cosine": "cosine", "dot": "dot", "scaled": "dot / √dim"}


@dataclass
class Nearest:
    """The words nearest to each WORD, the nearest first."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Words to look around."""
    n: int = 10
    """How many per word."""
    by: Literal["cosine", "dot", "scaled"] = "cosine"
    """cosine of the angle; dot product; scaled: dot product over the root of the dimension."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse_words(Nearest, argv, prog="seqwise vectors nearest", example=EXAMPLE)
    if not asked.words:
        raise UsageError("there is no word to look for.", repair=f"For example: {EXAMPLE}")
    check_number(asked.n)
    from seqwise.cli.vectors.output import answers, check_words, composed, opened, plain, write_answers

    keyed = opened(asked.file)
    check_words(keyed, asked.words)
    made = set(composed(keyed, asked.words))
    found = {word: keyed.nearest(word, asked.n, asked.by) for word in asked.words}
    if asked.json:
        given = [
            {"word": word, "composed": word in made, "nearest": answers(keyed, near)} for word, near in found.items()
        ]
        about = {"file": asked.file, "words": len(keyed), "dim": keyed.dim, "by": asked.by}
        console.print_json({**about, "answers": given})
        return 0
    for number, (word, near) in enumerate(found.items()):
        note = ", which is not in the list: composed from its n-grams" if word in made else ""
        console.write("\n" * (number > 0) + f"nearest to {plain(word)}{note}", style="bold")
        write_answers(keyed, near, SCORES[asked.by])
    return 0
