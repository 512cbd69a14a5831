"""`seqwise vectors nearest`: lists the words nearest to a word."""

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
    """List the words nearest to each WORD, nearest first."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    words: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="WORD …", help_behavior_hint="")]
    """Words whose neighbours are listed."""
    n: int = 10
    """Number of neighbours per word."""
    by: Literal["cosine", "dot", "scaled"] = "cosine"
    """cosine of the angle; dot product; scaled: dot product divided by the square root of the dimension."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    options = parse_words(Nearest, argv, prog="seqwise vectors nearest", example=EXAMPLE)
    if not options.words:
        raise UsageError("expected at least one word; received none.", repair=f"For example: {EXAMPLE}")
    check_number(options.n)
    from seqwise.cli.vectors import output

    keyed = output.load_with_progress(options.file)
    output.check_words(keyed, options.words)
    composed = set(output.find_unknown(keyed, options.words))
    neighbours = {word: keyed.nearest(word, options.n, options.by) for word in options.words}
    if options.json:
        answers = [
            {"word": word, "composed": word in composed, "nearest": output.answers_as_json(keyed, nearest)}
            for word, nearest in neighbours.items()
        ]
        about = {"file": options.file, "words": len(keyed), "dim": keyed.dim, "by": options.by}
        console.print_json({**about, "answers": answers})
        return 0
    for number, (word, nearest) in enumerate(neighbours.items()):
        note = ", which is not in the vocabulary: composed from its n-grams" if word in composed else ""
        console.write("\n" * (number > 0) + f"nearest to {output.make_printable(word)}{note}", style="bold")
        output.write_answers(keyed, nearest, SCORES[options.by])
    return 0
