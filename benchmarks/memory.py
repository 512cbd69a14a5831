"""Memory of training from a large token file, in addition to the model's own.

    python benchmarks/memory.py [--tokens 1000000000] [--steps 300] [--folder DIR]

Writes a store of random tokens (2 GB by default) and trains a small `LanguageModel` from it with the real `Trainer`, in
a new process for each reading method: an LSTM on contiguous streams and a Transformer on shuffled windows, both with
`pread`; for comparison, the same Transformer on windows from a memory map. Like `seqwise train`, each first counts the
tokens of the whole store.

The model's own memory is the resident set after its first update, on a tiny store. The script reports how far the peak
resident set exceeds it, while counting and in total, including the temporary memory of updates. It prints a table and
one line of JSON; the exit status is 1 if `pread` needs more than 600 MB.
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
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.loop import Trainer

VOCABULARY, BATCH_SIZE, WINDOW, LIMIT_MB = 1_000, 128, 64, 600
BLOCK_TOKENS = 10_000_000  # tokens written at once
METHODS = ("streams", "windows", "memmap windows")


class MappedStore(TokenStore):
    """A token store that reads through one persistent memory map."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.map = np.memmap(path.with_suffix(".bin"), dtype=self.dtype, mode="r")

    def read_sequences(self, starts: list[int] | np.ndarray, length: int) -> np.ndarray:
        return np.stack([self.map[start : start + length] for start in starts]).astype(np.int64)


def write_tokens(path: Path, count: int) -> TokenStore:
    random, remaining = np.random.default_rng(0), count
    with StoreWriter(path, VOCABULARY) as writer:
        while remaining:
            block = random.integers(0, VOCABULARY, min(remaining, BLOCK_TOKENS), dtype=np.uint16)
            writer.append(block)
            remaining -= len(block)
        return writer.finish(StoreInfo(count, 0, 0, 0, 0, VOCABULARY, "random", "random"))


def read_resident_mb(peak: bool = False) -> float:
    """Returns the resident set of this process: the current one, or the peak since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM" if peak else "VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this benchmark reads /proc/self/status")


def reset_peak() -> None:
    with suppress(OSError):  # not supported by every kernel; the peak then includes earlier memory
        Path("/proc/self/clear_refs").write_text("5")


def build_settings(method: str) -> ResolvedSettings:
    settings = Settings(
        model="lstm" if method == "streams" else "transformer",
        network=NetworkSettings(width=32, depth=1, embedding=32, dropout=0.0),
        data=DataSettings(window=WINDOW),
        transformer=TransformerSettings(heads=2),
        training=TrainingSettings(learning_rate=1e-3, weight_decay=0.0, schedule="constant", precision="float32"),
    )
    return ResolvedSettings.from_settings(settings)


def build_trainer(model: LanguageModel, method: str, store: TokenStore) -> Trainer:
    batches = (StreamLoader if method == "streams" else WindowLoader)(store, BATCH_SIZE, WINDOW, seed=0)
    return Trainer(model, batches, build_settings(method).training, Budget(1e12, "tokens"))


def measure(method: str, folder: Path, steps: int) -> dict[str, float | str]:
    """Trains in this process and returns memory and speed."""
    model = LanguageModel(build_settings(method), VOCABULARY)
    next(build_trainer(model, method, TokenStore(folder / "tiny")).steps())
    model_mb = read_resident_mb()
    reset_peak()
    store = MappedStore(folder / "tokens") if method.startswith("memmap") else TokenStore(folder / "tokens")
    store.count_tokens(VOCABULARY)
    counting_peak = read_resident_mb(peak=True)
    started_at = time.perf_counter()
    last = list(islice(build_trainer(model, method, store).steps(), steps))[-1]
    return {
        "method": method,
        "model_mb": model_mb,
        "counting_mb": counting_peak - model_mb,
        "above_mb": read_resident_mb(peak=True) - model_mb,
        "tokens_per_second": last.tokens / (time.perf_counter() - started_at),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--folder", type=Path, help="for the temporary token file")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)  # measure in this process
    options = parser.parse_args(arguments)
    if options.method:
        print(json.dumps(measure(options.method, options.folder, options.steps)))
        return 0
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        write_tokens(folder / "tokens", options.tokens)
        write_tokens(folder / "tiny", 2 * BATCH_SIZE * WINDOW)
        rows = [measure_in_new_process(method, folder, options.steps) for method in METHODS]
    finally:
        shutil.rmtree(folder)
    return print_report(rows, options.tokens)


def measure_in_new_process(method: str, folder: Path, steps: int) -> dict[str, float | str]:
    command = [sys.executable, __file__, "--method", method, "--folder", str(folder), "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def print_report(rows: list[dict], tokens: int) -> int:
    """Prints the table and the JSON document; returns the exit status."""
    print(f"{tokens:,} tokens in a file of {2 * tokens / 1e9:.1f} GB; resident sets in MB")
    print(f"{'':<16} {'model':>8} {'counting':>9} {'total':>9}")
    for row in rows:
        print(f"{row['method']:<16} {row['model_mb']:8.0f} {row['counting_mb']:+9.0f} {row['above_mb']:+9.0f}")
    worst = max(row["above_mb"] for row in rows if not row["method"].startswith("memmap"))
    print(json.dumps({"tokens": tokens, "limit_mb": LIMIT_MB, "worst_mb": worst, "methods": rows}))
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
