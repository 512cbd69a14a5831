"""How much memory does training from a large token file take, above the model's own?

    python benchmarks/memory.py [--tokens 1000000000] [--steps 300] [--folder DIR]

Writes a store of random tokens (2 GB by default) and trains a small `LanguageModel` from it with the real `Trainer`, in
a fresh process for each way of reading: an LSTM on contiguous streams and a Transformer on shuffled windows with
`pread`; then the same Transformer on windows from a memory map, for contrast. As `seqwise train` does, each counts the
tokens of the whole store first.

The model's own memory is the resident set after its first update, on a tiny store. Reported is how far the largest one
from there on lies above it, while counting and in all; so what an update needs in passing is part of it. Prints a table
and one line of JSON; the exit status is 1 if `pread` took more than 600 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from seqwise.budget import Budget
from seqwise.config import DataSettings, NetworkSettings, Settings, TrainingSettings, TransformerSettings
from seqwise.data.corpus.batching import StreamLoader, WindowLoader
from seqwise.data.corpus.store import StoreInfo, StoreWriter, TokenStore
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.loop import Trainer

VOCABULARY, ROWS, WINDOW, LIMIT_MB = 1_000, 128, 64, 600
PIECE = 10_000_000  # tokens written at once
WAYS = ("streams", "windows", "memmap windows")


class MappedStore(TokenStore):
    """The same file through one persistent memory map."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.map = np.memmap(path.with_suffix(".bin"), dtype=self.dtype, mode="r")

    def read_rows(self, starts: list[int] | np.ndarray, count: int) -> np.ndarray:
        return np.stack([self.map[start : start + count] for start in starts]).astype(np.int64)


def write_tokens(path: Path, count: int) -> TokenStore:
    chance, left = np.random.default_rng(0), count
    with StoreWriter(path, VOCABULARY) as writer:
        while left:
            piece = chance.integers(0, VOCABULARY, min(left, PIECE), dtype=np.uint16)
            writer.append(piece)
            left -= len(piece)
        return writer.finish(StoreInfo(count, 0, 0, 0, 0, VOCABULARY, "random", "random"))


def resident_mb(largest: bool = False) -> float:
    """The resident set of this process: now, or the largest since `forget_largest`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM" if largest else "VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this benchmark reads /proc/self/status")


def forget_largest() -> None:
    with suppress(OSError):  # where the kernel does not offer it, the largest so far counts too
        Path("/proc/self/clear_refs").write_text("5")


def settings_of(way: str) -> Settings:
    return Settings(
        model="lstm" if way == "streams" else "transformer",
        network=NetworkSettings(width=32, depth=1, embedding=32, dropout=0.0),
        data=DataSettings(window=WINDOW),
        transformer=TransformerSettings(heads=2),
        training=TrainingSettings(learning_rate=1e-3, weight_decay=0.0, schedule="constant", precision="float32"),
    )


def trainer_of(model: LanguageModel, way: str, store: TokenStore) -> Trainer:
    batches = (StreamLoader if way == "streams" else WindowLoader)(store, ROWS, WINDOW, seed=0)
    return Trainer(model, batches, settings_of(way).training, Budget(1e12, "tokens"))


def measure(way: str, folder: Path, steps: int) -> dict[str, float | str]:
    """Train in this process; returns what it took."""
    model = LanguageModel(settings_of(way), VOCABULARY)
    next(trainer_of(model, way, TokenStore(folder / "tiny")).steps())
    own = resident_mb()
    forget_largest()
    store = MappedStore(folder / "tokens") if way.startswith("memmap") else TokenStore(folder / "tokens")
    store.counts(VOCABULARY)
    counted = resident_mb(largest=True)
    began = time.perf_counter()
    last = list(islice(trainer_of(model, way, store).steps(), steps))[-1]
    return {
        "way": way,
        "model_mb": own,
        "counting_mb": counted - own,
        "above_mb": resident_mb(largest=True) - own,
        "tokens_per_second": last.tokens / (time.perf_counter() - began),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="where the token file is written, then removed")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # measure in this process
    options = parser.parse_args(arguments)
    if options.way:
        print(json.dumps(measure(options.way, options.folder, options.steps)))
        return 0
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        write_tokens(folder / "tokens", options.tokens)
        write_tokens(folder / "tiny", 2 * ROWS * WINDOW)
        rows = [run(way, folder, options.steps) for way in WAYS]
    finally:
        shutil.rmtree(folder)
    return report(rows, options.tokens)


def run(way: str, folder: Path, steps: int) -> dict[str, float | str]:
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder), "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report(rows: list[dict], tokens: int) -> int:
    print(f"{tokens:,} tokens in a file of {2 * tokens / 1e9:.1f} GB; resident sets in MB")
    print(f"{'':<16} {'model':>8} {'counting':>9} {'in all':>9}")
    for row in rows:
        print(f"{row['way']:<16} {row['model_mb']:8.0f} {row['counting_mb']:+9.0f} {row['above_mb']:+9.0f}")
    worst = max(row["above_mb"] for row in rows if not row["way"].startswith("memmap"))
    print(json.dumps({"tokens": tokens, "limit_mb": LIMIT_MB, "worst_mb": worst, "ways": rows}))
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
