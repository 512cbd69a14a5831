"""`seqwise vectors analogy`: a is to b as c is to what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.vectors.arguments import check_number, parse_words

EXAMPLE = "seqwise vectors analogy vectors.safetensors man king woman"
RULES = {"add": "3CosAdd", "multiply": "3CosMul"}


@dataclass
class Analogy:
    """A is to B as C is to … The question's own words are no answers, unless --keep-question."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    a: Annotated[str, tyro.conf.Positional]
    """Such as man."""
    b: Annotated[str, tyro.conf.Positional]
    """Such as king."""
    c: Annotated[str, tyro.conf.Positional]
    """Such as woman."""
    n: int = 5
    """How many answers."""
    by: Literal["add", "multiply"] = "add"
    """add: nearest to b - a + c (3CosAdd). multiply: near b and c, not a, as products (3CosMul)."""
    keep_question: bool = False
    """Let the question's words answer too; they often do."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse_words(Analogy, argv, prog="seqwise vectors analogy", example=EXAMPLE)
    check_number(asked.n)
    from seqwise.cli.vectors.output import answers, check_words, composed, opened, plain, say_composed, write_answers

    question = (asked.a, asked.b, asked.c)
    keyed = opened(asked.file)
    check_words(keyed, question)
    found = keyed.analogy(*question, n=asked.n, by=asked.by, exclude=not asked.keep_question)
    if asked.json:
        given = [{**one, "of_question": one["word"] in question} for one in answers(keyed, found)]
        about = {"file": asked.file, "question": question, "by": asked.by, "keep_question": asked.keep_question}
        console.print_json({**about, "composed": composed(keyed, question), "answers": given})
        return 0
    say_composed(keyed, question)
    a, b, c = map(plain, question)
    kept = "the question's words may answer" if asked.keep_question else "without the question's words"
    console.write(f"{a} is to {b} as {c} is to …   ({RULES[asked.by]}, {kept})", style="bold")
    marks = ["a word of the question" if one.word in question else "" for one in found]
    write_answers(keyed, found, "cosine" if asked.by == "add" else "score", marks)
    return 0
