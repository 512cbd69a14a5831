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
    options = parse_words(Analogy, argv, prog="seqwise vectors analogy", example=EXAMPLE)
    check_number(options.n)
    from seqwise.cli.vectors.output import (
        answers_as_json,
        check_words,
        find_unknown,
        load_with_progress,
        make_printable,
        report_composed,
        write_answers,
    )

    question = (options.a, options.b, options.c)
    keyed = load_with_progress(options.file)
    check_words(keyed, question)
    found = keyed.analogy(*question, n=options.n, by=options.by, exclude=not options.keep_question)
    if options.json:
        answers = [{**one, "of_question": one["word"] in question} for one in answers_as_json(keyed, found)]
        about = {"file": options.file, "question": question, "by": options.by, "keep_question": options.keep_question}
        console.print_json({**about, "composed": find_unknown(keyed, question), "answers": answers})
        return 0
    report_composed(keyed, question)
    a, b, c = map(make_printable, question)
    policy = "the question's words may answer" if options.keep_question else "without the question's words"
    console.write(f"{a} is to {b} as {c} is to …   ({RULES[options.by]}, {policy})", style="bold")
    marks = ["a word of the question" if one.word in question else "" for one in found]
    write_answers(keyed, found, "cosine" if options.by == "add" else "score", marks)
    return 0
