"""How fast do our language models train beside the same models on PyTorch's own modules?

    python benchmarks/language.py [--device cpu|cuda] [--rows lstm-words …] [--repeats 15] [--quick] [--json FILE]

Each row of the table is one size. Our model goes through the whole trainer: batches read from a token store, the
gradient clipped, AdamW, the finite check, the `Step`. Its peer is a page of plain PyTorch with a plain loop, and finds
its batches ready in memory. Both run in this process without dropout, in turn, one step on a CPU and ten on a GPU, so
that whatever else the machine does falls on both alike; rates are those of the median turn. On a CPU both compute in
float32, on a GPU with bfloat16 products. Ratios are ours divided by the peer's: above 1 we are faster. `cpu` counts
processor time instead of the clock, which a busy machine disturbs less; on a GPU it says little.

Required: 0.95 by the clock in every row; of `lstm-wikitext2` on an H200 twice the speed of the peer.
"""

from __future__ import annotations

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
from measuring import QUICK, Column, Report, is_h200, parser, settle, wait
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.budget import Budget
from seqwise.config import DataSettings, NetworkSettings, Settings, TrainingSettings, TransformerSettings
from seqwise.data.corpus.batching import StreamLoader, WindowLoader
from seqwise.data.corpus.store import StoreInfo, StoreWriter, TokenStore
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.loop import Trainer

REQUIRED, TWICE, RATE, DECAY, CLIP = 0.95, 2.0, 1e-3, 0.1, 1.0
READY = 8  # batches the peer finds in memory
TURN = {"cpu": 1, "cuda": 10}  # steps that follow one another
CPU = torch.device("cpu")


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
GPU_ROWS = (
    Row("lstm-wikitext2", "lstm", 2, 1024, 33_278, 64, 70),
    Row("transformer-wikitext2", "transformer", 6, 512, 33_278, 32, 256),
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
    def __init__(self, row: Row, head_bias: bool = True):
        super().__init__()
        self.tokens, self.places = nn.Embedding(row.vocabulary, row.width), nn.Embedding(row.window, row.width)
        self.blocks = nn.ModuleList(Block(row.width, heads_of(row)) for _ in range(row.depth))
        self.norm, self.head = nn.LayerNorm(row.width), nn.Linear(row.width, row.vocabulary, bias=head_bias)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
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


def plain_steps(
    row: Row, batches: Sequence[tuple[Tensor, Tensor]], device: torch.device = CPU, precision: str = "float32"
) -> Iterator[float]:
    """The peer's loop: the loss of each step."""
    model = (PlainGPT(row) if row.model == "transformer" else PlainLSTM(row)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=DECAY, fused=True)
    state = None
    for ids, targets in cycle(batches):
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            loss, state = model(ids, targets, state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        yield loss.item()


# Ours


def settings_of(row: Row, precision: Literal["float32", "bfloat16"] = "float32") -> Settings:
    return Settings(
        model=row.model,
        network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
        data=DataSettings(window=row.window),
        transformer=TransformerSettings(heads=heads_of(row), positions=row.positions),
        training=TrainingSettings(
            learning_rate=RATE,
            weight_decay=DECAY,
            clip_threshold=CLIP,
            schedule="constant",
            warmup=0.0,
            precision=precision,
        ),
    )


def batches_of(row: Row, store: TokenStore) -> WindowLoader | StreamLoader:
    return (WindowLoader if row.model == "transformer" else StreamLoader)(store, row.rows, row.window, seed=0)


def our_steps(
    row: Row, store: TokenStore, device: torch.device = CPU, precision: Literal["float32", "bfloat16"] = "float32"
) -> Iterator[float]:
    """The real trainer: the loss of each step."""
    settings = settings_of(row, precision)
    model = LanguageModel(settings, row.vocabulary).to(device)
    trainer = Trainer(model, batches_of(row, store), settings.training, Budget(1e12, "tokens"))
    return (step.loss for step in trainer.steps())


# Side by side


def measure(row: Row, turns: int, folder: Path, device: torch.device = CPU) -> dict[str, Any]:
    """Seconds of the median turn, ours and the peer's, by the clock and in processor time."""
    torch.manual_seed(0)
    warm, steps = 3, TURN[device.type]  # the first steps allocate memory and the optimiser's state
    precision: Literal["float32", "bfloat16"] = "bfloat16" if device.type == "cuda" else "float32"
    store = write_store(folder / row.name, row, batches=max(READY, warm + steps * turns) + 2)
    ready = [batch.to(device) for batch, _ in zip(batches_of(row, store).epoch(0), range(READY))]
    ours = our_steps(row, store, device, precision)
    peer = plain_steps(row, [(batch.ids, batch.targets) for batch in ready], device, precision)
    for _ in range(warm):
        next(ours), next(peer)

    def turn(side: Iterator[float]) -> tuple[float, float]:
        return timed(lambda: [next(side) for _ in range(steps)], device)

    times = [(*turn(ours), *turn(peer)) for _ in range(turns)]
    our_clock, our_cpu, peer_clock, peer_cpu = (statistics.median(column) for column in zip(*times))
    tokens = row.rows * row.window * steps
    return {
        "ours_tokens_per_second": tokens / our_clock,
        "peer_tokens_per_second": tokens / peer_clock,
        "ratio": peer_clock / our_clock,
        "cpu_ratio": peer_cpu / our_cpu,
        "precision": precision,
        "turns": turns,
    }


def timed(run: Callable[[], object], device: torch.device = CPU) -> tuple[float, float]:
    """Seconds by the clock and of the processor, until the device is done."""
    wait(device)
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    wait(device)
    return time.perf_counter() - clock, time.process_time() - cpu


def write_store(path: Path, row: Row, batches: int) -> TokenStore:
    """Random tokens, rare ones rarer (Zipf's law), for so many batches of one epoch."""
    count = batches * row.rows * row.window
    chance = 1 / np.arange(1, row.vocabulary + 1)
    ids = np.random.default_rng(0).choice(row.vocabulary, count, p=chance / chance.sum())
    with StoreWriter(path, row.vocabulary) as writer:
        writer.append(ids)
        return writer.finish(StoreInfo(count, 0, 0, 0, 0, row.vocabulary, "random", "random"))


def missed_of(rows: Sequence[dict[str, Any]], device: torch.device) -> list[str]:
    found = []
    for row in rows:
        twice = row["name"] == "lstm-wikitext2" and is_h200(device)
        least = TWICE if twice else REQUIRED
        if "failed" not in row and row["ratio"] < least:
            found.append(f"{row['name']}: {row['ratio']:.3f} times the peer, not {least}")
    return found


COLUMNS = (
    Column("model", "", width=-12),
    Column("size", "tokens/s", width=-44),
    Column("ours_tokens_per_second", "ours", ",.0f"),
    Column("peer_tokens_per_second", "peer", ",.0f"),
    Column("ratio", "ratio", ".3f"),
    Column("cpu_ratio", "cpu", ".3f"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    names = [row.name for row in (*ROWS, *GPU_ROWS)]
    command.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=", ".join(names))
    options = command.parse_args(arguments)
    device = settle(options)
    usual = GPU_ROWS if device.type == "cuda" else ROWS
    chosen = [row for row in (*ROWS, *GPU_ROWS) if row.name in options.rows] if options.rows else usual
    turns = options.repeats or (QUICK if options.quick else 15)
    planned = [row.name for row in chosen]
    report = Report(
        "language", options, device, COLUMNS, arguments, planned=planned, judge=lambda rows: missed_of(rows, device)
    )
    with tempfile.TemporaryDirectory() as folder:
        for row in chosen:
            known = {**asdict(row), "size": str(row)}
            report.measured(known, lambda row=row: measure(row, turns, Path(folder), device))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
