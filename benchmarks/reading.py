"""How fast does text become tokens?

    python benchmarks/reading.py [--characters 50000000] [--kinds characters words bpe] [--json]

Writes a text file (`builtin:code` over and over) and takes the three steps that come before training, for each kind of
tokeniser: opening (everything is read once, checked and hashed), learning the vocabulary, and writing the token stores.
Prints millions of characters per second. Nothing is required of them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seqwise.data.corpus.prepare import prepare
from seqwise.data.corpus.sources import Corpus, open_corpus, open_whole
from seqwise.environment import describe
from seqwise.text.learning import KINDS
from seqwise.text.tokenizer import Tokenizer

Result = TypeVar("Result")


def write_text(path: Path, characters: int) -> int:
    text = "".join(open_whole("builtin:code").texts("all"))
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
        "kind": kind,
        "tokens": sum(len(store) for store in stores.values()),
        **{name: characters / 1e6 / seconds for name, seconds in rates.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--characters", type=int, default=50_000_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["characters", "words", "bpe"])
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQWISE_CACHE"] = folder  # so that nothing is found ready
        path = Path(folder, "text.txt")
        count = write_text(path, options.characters)
        rows = [measure(kind, path, count) for kind in options.kinds]
    if options.json:
        print(json.dumps({"machine": describe(), "characters": count, "rows": rows}, indent=1))
        return
    print(f"{count:,} characters; millions of characters per second")
    print(f"{'':<12} {'opening':>8} {'learning':>8} {'writing':>8} {'tokens':>14}")
    for row in rows:
        print(
            f"{row['kind']:<12} {row['opening']:8.1f} {row['learning']:8.1f} {row['writing']:8.1f} {row['tokens']:14,}"
        )


if __name__ == "__main__":
    main()
