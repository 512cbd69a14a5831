"""`seqwise check`: read the data as training would, and say what it holds or what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.config import TaskName


@dataclass
class Check:
    """Read DATA as `seqwise train` would. Errors name file, line, cause and repair."""

    data: Annotated[str, tyro.conf.Positional]
    """What you want to learn from."""
    task: TaskName = "language"
    """What is to be learned."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Check, argv, prog="seqwise check", example="seqwise check book.txt --task language")
    from seqwise.cli.progress import Bar
    from seqwise.config import Settings
    from seqwise.tasks.language import Language

    with Bar("reading") as bar:
        task = Language.prepare(asked.data, settings := Settings(), progress=bar)
    remarks = task.remarks()
    rows = {split: store.facts for split, store in task.stores.items()}
    if asked.json:
        splits = {
            split: {
                "tokens": f.tokens,
                "words": f.words,
                "characters": f.characters,
                "lines": f.lines,
                "unknown": f.unknown,
            }
            for split, f in rows.items()
        }
        console.print_json(
            {
                "data": asked.data,
                "split_rule": task.corpus.rule,
                "tokenizer": settings.text.tokenizer,
                "vocabulary": len(task.tokenizer),
                "splits": splits,
                "fingerprint": task.corpus.fingerprint,
                "warnings": remarks,
            }
        )
        return 0
    console.write(f"{'split':8}{'lines':>12}{'words':>14}{'characters':>14}{'tokens':>14}{'unknown':>10}")
    for split, f in rows.items():
        console.write(f"{split:8}{f.lines:12,}{f.words:14,}{f.characters:14,}{f.tokens:14,}{f.unknown:10,}")
    console.write(f"tokeniser: {settings.text.tokenizer}, vocabulary {len(task.tokenizer):,} (from the training split)")
    console.write(f"split: {task.corpus.rule}")
    for remark in remarks:
        console.warn(remark)
    console.write("no errors." if not remarks else f"no errors, {len(remarks)} warning{'s' * (len(remarks) > 1)}.")
    return 0
