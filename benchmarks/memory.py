"""How much memory does training from a large token file take, above the model's own?

    python benchmarks/memory.py [--tokens 1000000000] [--steps 1500] [--folder DIR]

Writes a store of random tokens (2 GB by default) and trains a tiny model from it in a fresh process for each way of
reading: shuffled windows and contiguous streams with `pread`, and the same shuffled windows from a memory map for
contrast. Each process notes its resident set once the model has taken a few steps on made-up batches, then its largest
one while training. Prints a table and one line of JSON; the exit status is 1 if `pread` took more than 600 MB.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from seqwise.data.batch import Batch
from seqwise.data.batching import Streams, Windows
from seqwise.data.store import StoreFacts, StoreWriter, TokenStore

VOCABULARY, ROWS, WINDOW, LIMIT_MB = 50_000, 64, 128, 600
WAYS = ("windows", "streams", "memmap windows")


class MappedStore(TokenStore):
    """The same file through one persistent memory map."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.map = np.memmap(path.with_suffix(".bin"), dtype=self.dtype, mode="r")

    def read_rows(self, starts: list[int] | np.ndarray, count: int) -> np.ndarray:
        return np.stack([self.map[start : start + count] for start in starts]).astype(np.int64)


class TinyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.output = nn.Linear(16, 16)

    def forward(self, batch: Batch) -> torch.Tensor:
        scores = self.output(self.embedding(batch.ids)).flatten(0, 1)
        return nn.functional.cross_entropy(scores, batch.targets.flatten() % 16)


def write_tokens(path: Path, count: int) -> None:
    chance, left = np.random.default_rng(0), count
    with StoreWriter(path, VOCABULARY) as writer:
        while left:
            piece = chance.integers(0, VOCABULARY, min(left, 10_000_000), dtype=np.uint16)
            writer.append(piece)
            left -= len(piece)
        writer.finish(StoreFacts(count, 0, 0, 0, 0, VOCABULARY, "random", "random"))


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this benchmark reads /proc/self/status")


def endless(source: Streams | Windows) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from source.epoch(epoch)
        epoch += 1


def measure(way: str, path: Path, steps: int) -> dict[str, float | str]:
    """Train in this process; returns what it took."""
    torch.set_num_threads(1)
    model = TinyModel()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch: Batch) -> None:
        optimiser.zero_grad()
        model(batch).backward()
        optimiser.step()

    for _ in range(5):
        ids = torch.randint(VOCABULARY, (ROWS, WINDOW))
        step(Batch(ids, ids))
    before = peak = resident_mb()
    store = MappedStore(path) if way.startswith("memmap") else TokenStore(path)
    batches = endless((Streams if way == "streams" else Windows)(store, ROWS, WINDOW, seed=0))
    began = time.perf_counter()
    for number in range(steps):
        step(next(batches))
        if number % 10 == 0 or number == steps - 1:
            peak = max(peak, resident_mb())
    seconds = time.perf_counter() - began
    rate = steps * ROWS * WINDOW / seconds
    return {"way": way, "model_mb": before, "above_mb": peak - before, "tokens_per_second": rate}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--folder", type=Path, help="where the token file is written, then removed")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # measure in this process
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(options.way, options.folder / "tokens", options.steps)))
        return 0
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        write_tokens(folder / "tokens", options.tokens)
        rows = [run(way, folder, options.steps) for way in WAYS]
    finally:
        shutil.rmtree(folder)
    return report(rows, options.tokens)


def run(way: str, folder: Path, steps: int) -> dict[str, float | str]:
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder), "--steps", str(steps)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(rows: list[dict], tokens: int) -> int:
    print(f"{tokens:,} tokens in a file of {2 * tokens / 1e9:.1f} GB; resident set above the model's own, in MB")
    for row in rows:
        print(f"  {row['way']:<16} {row['above_mb']:8.1f}   {row['tokens_per_second']:12,.0f} tokens/s")
    worst = max(row["above_mb"] for row in rows if not row["way"].startswith("memmap"))
    print(json.dumps({"tokens": tokens, "limit_mb": LIMIT_MB, "worst_mb": worst, "ways": rows}))
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
