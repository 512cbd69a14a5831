"""Speed of reading, tokeniser training and tokenisation.

    python benchmarks/reading.py [--characters 50000000] [--kinds characters words bpe] [--quick] [--json FILE]
    python benchmarks/reading.py --checks [--quick] [--json FILE]

Writes a text file (`builtin:code`, repeated) and times the three steps before a model is trained, for each kind of
tokeniser: opening the corpus (the whole text is read, checked and hashed), training the tokeniser, and writing the
token stores. Prints millions of characters per second, and the seconds of CPU time of all three steps, which depend
less on other load. No minimum speed is required, and no GPU is used.

With --checks it measures what the digests of a token store cost instead: the CPU time of reading tokens for the first
time, when each block is checked, and again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from measuring import Column, Report, build_parser, set_up_device

from seqwise.config import TOKENIZERS
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import Corpus, open_corpus, open_unsplit
from seqwise.data.corpus.store import StoreInfo, StoreWriter
from seqwise.text.tokenizer import Tokenizer

Result = TypeVar("Result")


def write_text(path: Path, characters: int) -> None:
    """Writes a text of this many characters."""
    text = "".join(open_unsplit("builtin:code").texts("all"))
    with path.open("w", encoding="utf-8") as file:
        for remaining in range(characters, 0, -len(text)):
            file.write(text[:remaining])


def time_call(run: Callable[[], Result]) -> tuple[Result, float]:
    """Returns the result of a call and its seconds."""
    started_at = time.perf_counter()
    return run(), time.perf_counter() - started_at


def measure(kind: str, path: Path, characters: int) -> dict[str, Any]:
    """Returns the million characters per second of each step, the CPU seconds of all, and the number of tokens."""
    corpus: Corpus
    cpu_started_at = time.process_time()
    corpus, open_seconds = time_call(lambda: open_corpus(path))
    tokenizer, train_seconds = time_call(lambda: Tokenizer.train(kind, corpus.texts("train")))
    stores, tokenize_seconds = time_call(lambda: prepare_stores(corpus, tokenizer))
    return {
        "tokens": sum(len(store) for store in stores.values()),
        "cpu": time.process_time() - cpu_started_at,
        "opening": characters / 1e6 / open_seconds,
        "training": characters / 1e6 / train_seconds,
        "tokenizing": characters / 1e6 / tokenize_seconds,
    }


COLUMNS = (
    Column("kind", "million characters/s", width=-22),
    Column("opening", "open corpus", ".1f", width=13),
    Column("training", "train tokeniser", ".1f", width=17),
    Column("tokenizing", "tokenise", ".1f", width=10),
    Column("cpu", "CPU s", ".1f", width=8),
    Column("tokens", "tokens", ",", width=14),
)


CHECK_COLUMNS = (
    Column("read", "CPU time in ms", width=-32),
    Column("first", "first time", ".2f", width=11),
    Column("again", "again", ".2f", width=10),
)
READS = {"one batch of 64 windows": 1, "100 batches of 64 windows": 100, "all tokens": 0}  # with their batches
NUM_WINDOWS, WINDOW = 64, 513


def measure_checks(num_batches: int, folder: Path, num_tokens: int) -> dict[str, Any]:
    """Returns the CPU milliseconds of reading batches at random positions, or all tokens, from a store on disk."""
    random = np.random.default_rng(0)
    with StoreWriter(folder / "train", 30_000) as writer:
        for _ in range(num_tokens // 1_000_000):
            writer.append(random.integers(0, 30_000, 1_000_000))
        store = writer.finish(StoreInfo(writer.num_tokens, 0, 0, 0, 0, 30_000, "tokenizer", "corpus"))
    starts = random.integers(0, len(store) - WINDOW, (num_batches, NUM_WINDOWS))

    def read() -> float:
        started_at = time.process_time()
        for each in starts:
            store.read_sequences(each, WINDOW)
        if not num_batches:
            store.count_tokens(30_000)
        return 1e3 * (time.process_time() - started_at)

    return {"first": read(), "again": read()}


def report_checks(options: Any, device: Any, arguments: Sequence[str] | None) -> int:
    """Prints the cost of the digests of a token store."""
    num_tokens = 10_000_000 if options.quick else 100_000_000
    report = Report("checks", options, device, CHECK_COLUMNS, arguments, {"tokens": num_tokens}, row_names=list(READS))
    with tempfile.TemporaryDirectory() as folder:
        for name, num_batches in READS.items():
            report.add_measurement(
                {"read": name}, lambda count=num_batches: measure_checks(count, Path(folder), num_tokens)
            )
    return report.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--characters", type=int, help="default: 50 million; 2 million with --quick")
    parser.add_argument("--kinds", nargs="+", choices=TOKENIZERS, default=["characters", "words", "bpe"])
    parser.add_argument("--checks", action="store_true", help="measure the digests of token stores instead")
    options = parser.parse_args(arguments)
    options.device = "cpu"
    device = set_up_device(options)
    if options.checks:
        return report_checks(options, device, arguments)
    characters = options.characters or (2_000_000 if options.quick else 50_000_000)
    details = {"characters": characters}
    report = Report("reading", options, device, COLUMNS, arguments, details, row_names=options.kinds)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQWISE_CACHE"] = folder  # an empty cache
        path = Path(folder, "text.txt")
        write_text(path, characters)
        for kind in options.kinds:
            report.add_measurement({"kind": kind}, lambda kind=kind: measure(kind, path, characters))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
