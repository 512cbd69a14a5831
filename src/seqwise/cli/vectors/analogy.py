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
    """A is to B as C is to … The words of the question are excluded as answers, unless --keep-question."""

    file: Annotated[Path, tyro.conf.Positional]
    """File of vectors."""
    a: Annotated[str, tyro.conf.Positional]
    """Such as man."""
    b: Annotated[str, tyro.conf.Positional]
    """Such as king."""
    c: Annotated[str, tyro.conf.Positional]
    """Such as woman."""
    n: int = 5
    """Number of answers."""
    by: Literal["add", "multiply"] = "add"
    """add: nearest to b - a + c (3CosAdd). multiply: product of similarities to b and c over that to a (3CosMul)."""
    keep_question: bool = False
    """Allow the words of the question as answers."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    options = parse_words(Analogy, argv, prog="seqwise vectors analogy", example=EXAMPLE)
    check_number(options.n)
    from seqwise.cli.vectors import output

    question = (options.a, options.b, options.c)
    keyed = output.load_with_progress(options.file)
    output.check_words(keyed, question)
    neighbours = keyed.analogy(*question, n=options.n, by=options.by, exclude=not options.keep_question)
    if options.json:
        answers = [
            {**answer, "of_question": answer["word"] in question}
            for answer in output.answers_as_json(keyed, neighbours)
        ]
        about = {"file": options.file, "question": question, "by": options.by, "keep_question": options.keep_question}
        console.print_json({**about, "composed": output.find_unknown(keyed, question), "answers": answers})
        return 0
    output.report_composed(keyed, question)
    a, b, c = map(output.make_printable, question)
    policy = "the question's words may answer" if options.keep_question else "without the question's words"
    console.write(f"{a} is to {b} as {c} is to …   ({RULES[options.by]}, {policy})", style="bold")
    notes = ["a word of the question" if each.word in question else "" for each in neighbours]
    output.write_answers(keyed, neighbours, "cosine" if options.by == "add" else "score", notes)
    return 0
