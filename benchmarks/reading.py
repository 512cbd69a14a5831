"""How fast does text become tokens?

    python benchmarks/reading.py [--characters 50000000] [--kinds characters words bpe] [--quick] [--json FILE]

Writes a text file (`builtin:code` over and over) and takes the three steps that come before training, for each kind of
tokeniser: opening (everything is read once, checked and hashed), learning the vocabulary, and writing the token stores.
Prints millions of characters per second. Nothing is required of them, and no GPU is used.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from measuring import Column, Report, parser, settle

from seqwise.data.corpus.prepare import prepare
from seqwise.data.corpus.sources import Corpus, open_corpus, open_unsplit
from seqwise.text.pipelines import KINDS
from seqwise.text.tokenizer import Tokenizer

Result = TypeVar("Result")


def write_text(path: Path, characters: int) -> int:
    text = "".join(open_unsplit("builtin:code").texts("all"))
    with path.open("w", encoding="utf-8") as file:
        for left in range(characters, 0, -len(text)):
            file.write(text[:left])
    return characters


def timed(run: Callable[[], Result]) -> tuple[Result, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def measure(kind: str, path: Path, characters: int) -> dict[str, Any]:
    corpus: Corpus
    corpus, opening = timed(lambda: open_corpus(path))
    tokenizer, learning = timed(lambda: Tokenizer.train(kind, corpus.texts("train")))
    stores, writing = timed(lambda: prepare(corpus, tokenizer))
    rates = {"opening": opening, "learning": learning, "writing": writing}
    return {
        "tokens": sum(len(store) for store in stores.values()),
        **{name: characters / 1e6 / seconds for name, seconds in rates.items()},
    }


COLUMNS = (
    Column("kind", "million characters/s", width=-22),
    *(Column(step, step, ".1f") for step in ("opening", "learning", "writing")),
    Column("tokens", "tokens", ",", width=14),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    command.add_argument("--characters", type=int, help="50 million unless set, or 2 million")
    command.add_argument("--kinds", nargs="+", choices=KINDS, default=["characters", "words", "bpe"])
    options = command.parse_args(arguments)
    options.device = "cpu"
    device = settle(options)
    characters = options.characters or (2_000_000 if options.quick else 50_000_000)
    facts = {"characters": characters}
    report = Report("reading", options, device, COLUMNS, arguments, facts, planned=options.kinds)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQWISE_CACHE"] = folder  # so that nothing is found ready
        path = Path(folder, "text.txt")
        count = write_text(path, characters)
        for kind in options.kinds:
            report.measured({"kind": kind}, lambda kind=kind: measure(kind, path, count))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
