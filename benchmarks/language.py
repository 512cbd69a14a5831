"""How fast do our language models train beside the same models on PyTorch's own modules?

    python benchmarks/language.py [--rows transformer-words lstm-words …] [--steps 15] [--threads N] [--json]

Each row of the table is one size. Our model goes through the whole trainer: batches read from a token store, the
gradient clipped, AdamW, the finite check, the `Step`. Its peer is a page of plain PyTorch with a plain loop, and finds
its batches ready in memory. Both run in this process in float32 without dropout, one step in turn, so that whatever
else the machine does falls on both alike; rates are those of the median step. Ratios are ours divided by the peer's:
above 1 we are faster. `cpu ratio` counts processor time instead of the clock, which a busy machine disturbs less.
The exit status is 1 if a ratio by the clock is below 0.95.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.config import DataSettings, NetworkSettings, Settings, TrainingSettings, TransformerSettings
from seqwise.data.corpus.batching import Streams, Windows
from seqwise.data.corpus.store import StoreFacts, StoreWriter, TokenStore
from seqwise.environment import cpu_count, describe
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.budgets import Budget
from seqwise.training.loop import Trainer

REQUIRED, RATE, DECAY, CLIP = 0.95, 1e-3, 0.1, 1.0
READY = 8  # batches the peer finds in memory


@dataclass(frozen=True)
class Row:
    """One size of one model. `positions` are ours; the peer's are learned."""

    name: str
    model: Literal["transformer", "lstm"]
    depth: int
    width: int
    vocabulary: int
    rows: int
    window: int
    positions: Literal["learned", "rotary"] = "learned"

    def __str__(self) -> str:
        sizes = f"{self.depth}×{self.width}, V {self.vocabulary:,}, B {self.rows}, T {self.window}"
        return sizes + (", rotary" if self.positions == "rotary" else "")


ROWS = (
    Row("transformer-characters", "transformer", 6, 384, 65, 12, 64),
    Row("transformer-rotary", "transformer", 6, 384, 65, 12, 64, "rotary"),
    Row("transformer-words", "transformer", 4, 256, 10_000, 16, 64),
    Row("lstm-words", "lstm", 2, 256, 10_000, 16, 35),
    Row("lstm-words-wide", "lstm", 2, 650, 10_000, 20, 35),
    Row("lstm-characters", "lstm", 2, 512, 100, 32, 64),
)


# The peers: what one writes in an afternoon with PyTorch's own modules.


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, time, width = x.shape
        q, k, v = (
            part.view(rows, time, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, row: Row):
        super().__init__()
        self.tokens, self.places = nn.Embedding(row.vocabulary, row.width), nn.Embedding(row.window, row.width)
        self.blocks = nn.ModuleList(Block(row.width, heads_of(row)) for _ in range(row.depth))
        self.norm, self.head = nn.LayerNorm(row.width), nn.Linear(row.width, row.vocabulary)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten()), None


class PlainLSTM(nn.Module):
    def __init__(self, row: Row):
        super().__init__()
        self.tokens = nn.Embedding(row.vocabulary, row.width)
        self.lstm = nn.LSTM(row.width, row.width, row.depth, batch_first=True)
        self.head = nn.Linear(row.width, row.vocabulary)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        outputs, state = self.lstm(self.tokens(ids), state)
        loss = F.cross_entropy(self.head(outputs).flatten(0, 1), targets.flatten())
        return loss, tuple(part.detach() for part in state)


def heads_of(row: Row) -> int:
    return max(1, row.width // 64)


def plain_steps(row: Row, batches: Sequence[tuple[Tensor, Tensor]]) -> Iterator[float]:
    """The peer's loop: the loss of each step."""
    model = PlainGPT(row) if row.model == "transformer" else PlainLSTM(row)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=DECAY, fused=True)
    state = None
    for ids, targets in cycle(batches):
        optimiser.zero_grad(set_to_none=True)
        loss, state = model(ids, targets, state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        yield loss.item()


# Ours


def settings_of(row: Row) -> Settings:
    return Settings(
        model=row.model,
        network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
        data=DataSettings(window=row.window),
        transformer=TransformerSettings(heads=heads_of(row), positions=row.positions),
        training=TrainingSettings(
            learning_rate=RATE, weight_decay=DECAY, clip_at=CLIP, schedule="constant", warmup=0.0, precision="float32"
        ),
    )


def batches_of(row: Row, store: TokenStore) -> Windows | Streams:
    return (Windows if row.model == "transformer" else Streams)(store, row.rows, row.window, seed=0)


def our_steps(row: Row, store: TokenStore) -> Iterator[float]:
    """The real trainer: the loss of each step."""
    settings = settings_of(row)
    model = LanguageModel(settings, row.vocabulary)
    trainer = Trainer(model, batches_of(row, store), settings.training, Budget(1e12, "tokens"))
    return (step.loss for step in trainer.steps())


# Side by side


def measure(row: Row, steps: int, folder: Path) -> dict[str, Any]:
    """Seconds of the median step, ours and the peer's, by the clock and in processor time."""
    torch.manual_seed(0)
    warm = 3  # the first steps allocate memory and the optimiser's state
    store = write_store(folder / row.name, row, batches=max(READY, steps + warm) + 2)
    ready = [(batch.ids, batch.targets) for batch, _ in zip(batches_of(row, store).epoch(0), range(READY))]
    ours, peer = our_steps(row, store), plain_steps(row, ready)
    for _ in range(warm):
        next(ours), next(peer)
    times = [(*timed(lambda: next(ours)), *timed(lambda: next(peer))) for _ in range(steps)]
    our_clock, our_cpu, peer_clock, peer_cpu = (statistics.median(column) for column in zip(*times))
    tokens = row.rows * row.window
    return {
        **asdict(row),
        "ours_tokens_per_second": tokens / our_clock,
        "peer_tokens_per_second": tokens / peer_clock,
        "ratio": peer_clock / our_clock,
        "cpu_ratio": peer_cpu / our_cpu,
        "steps": steps,
    }


def timed(run: Callable[[], object]) -> tuple[float, float]:
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def write_store(path: Path, row: Row, batches: int) -> TokenStore:
    """Random tokens, rare ones rarer (Zipf's law), for so many batches of one epoch."""
    count = batches * row.rows * row.window
    chance = 1 / np.arange(1, row.vocabulary + 1)
    ids = np.random.default_rng(0).choice(row.vocabulary, count, p=chance / chance.sum())
    with StoreWriter(path, row.vocabulary) as writer:
        writer.append(ids)
        return writer.finish(StoreFacts(count, 0, 0, 0, 0, row.vocabulary, "random", "random"))


def compare(rows: Sequence[Row], steps: int, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    say(f"{'':<12}{'':<44}{'ours':>9}{'peer':>9}  tokens/s    ratio  cpu ratio")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            result = measure(row, steps, Path(folder))
            rates = f"{result['ours_tokens_per_second']:>9,.0f}{result['peer_tokens_per_second']:>9,.0f}"
            say(f"{row.model:<12}{row!s:<44}{rates}{result['ratio']:>19.3f}{result['cpu_ratio']:>11.3f}")
            results.append(result)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--steps", type=int, default=15, help="measured steps of each model")
    threads = int(os.environ.get("OMP_NUM_THREADS") or cpu_count())
    parser.add_argument("--threads", type=int, default=threads, help="all processors, or OMP_NUM_THREADS")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    quiet = (lambda line: None) if options.json else print
    results = compare([row for row in ROWS if row.name in options.rows], options.steps, quiet)
    worst = min(result["ratio"] for result in results)
    if options.json:
        print(json.dumps({"machine": describe(), "required": REQUIRED, "worst": worst, "rows": results}, indent=1))
    return int(worst < REQUIRED)


if __name__ == "__main__":
    sys.exit(main())
