"""Training speed of language models compared with the same models built from PyTorch's own modules.

    python benchmarks/language.py [--device cpu|cuda] [--rows lstm-words …] [--repeats 15] [--quick] [--json FILE]

Each row of the table is one model size. Our model is trained by the complete `Trainer`: batches from a token store,
gradient clipping, AdamW, the check for finite gradients, the `Step`. The baseline is a page of plain PyTorch with a
plain loop and batches in memory. Both run in this process without dropout, alternating after one step on a CPU and ten
on a GPU, so that other load affects both equally; rates are those of the median sample. Both compute in float32 on a
CPU and with bfloat16 products on a GPU. Ratios are our speed divided by the baseline's: above 1 ours is faster.
`CPU ratio` compares processor time instead of wall-clock time, which depends less on other load; it says little on a
GPU.

Required: a ratio of 0.95 in every row, and of 2 for `lstm-wikitext2` on an H200.
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
from measuring import QUICK_REPEATS, Column, Report, build_parser, is_h200, set_up_device, synchronize
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.budget import Budget
from seqwise.config import DataSettings, NetworkSettings, Settings, TrainingSettings, TransformerSettings
from seqwise.data.corpus.batching import StreamLoader, WindowLoader
from seqwise.data.corpus.store import StoreInfo, StoreWriter, TokenStore
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.loop import Trainer

MIN_RATIO, MIN_RATIO_WIKITEXT2 = 0.95, 2.0
LEARNING_RATE, WEIGHT_DECAY, CLIP_THRESHOLD = 1e-3, 0.1, 1.0
NUM_READY_BATCHES = 8  # batches of the baseline, kept in memory
STEPS_PER_SAMPLE = {"cpu": 1, "cuda": 10}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Row:
    """One size of one model. `positions` are those of our model; the baseline's are learned."""

    name: str
    model: Literal["transformer", "lstm"]
    depth: int
    width: int
    vocabulary: int
    batch_size: int
    window: int
    positions: Literal["learned", "rotary"] = "learned"

    def __str__(self) -> str:
        sizes = f"{self.depth}×{self.width}, V {self.vocabulary:,}, B {self.batch_size}, T {self.window}"
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


# The baselines: the models that a PyTorch user writes


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(D, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, row: Row, head_bias: bool = True):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(row.vocabulary, row.width), nn.Embedding(row.window, row.width)
        self.blocks = nn.ModuleList(Block(row.width, count_heads(row)) for _ in range(row.depth))
        self.norm, self.head = nn.LayerNorm(row.width), nn.Linear(row.width, row.vocabulary, bias=head_bias)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
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


def count_heads(row: Row) -> int:
    return max(1, row.width // 64)


def train_baseline(
    row: Row, batches: Sequence[tuple[Tensor, Tensor]], device: torch.device = CPU, precision: str = "float32"
) -> Iterator[float]:
    """Trains the baseline in a plain loop; yields the loss of each step."""
    model = (PlainGPT(row) if row.model == "transformer" else PlainLSTM(row)).to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=WEIGHT_DECAY, fused=True
    )
    state = None
    for ids, targets in cycle(batches):
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            loss, state = model(ids, targets, state)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_THRESHOLD)
        optimiser.step()
        yield loss.item()


# Seqwise


def build_settings(row: Row, precision: Literal["float32", "bfloat16"] = "float32") -> ResolvedSettings:
    settings = Settings(
        model=row.model,
        network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
        data=DataSettings(window=row.window),
        transformer=TransformerSettings(heads=count_heads(row), positions=row.positions),
        training=TrainingSettings(
            learning_rate=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            clip_threshold=CLIP_THRESHOLD,
            schedule="constant",
            warmup=0.0,
            precision=precision,
        ),
    )
    return ResolvedSettings.from_settings(settings)


def build_loader(row: Row, store: TokenStore) -> WindowLoader | StreamLoader:
    return (WindowLoader if row.model == "transformer" else StreamLoader)(store, row.batch_size, row.window, seed=0)


def train_seqwise(
    row: Row, store: TokenStore, device: torch.device = CPU, precision: Literal["float32", "bfloat16"] = "float32"
) -> Iterator[float]:
    """Trains our model with the `Trainer`; yields the loss of each step."""
    settings = build_settings(row, precision)
    model = LanguageModel(settings, row.vocabulary).to(device)
    trainer = Trainer(model, build_loader(row, store), settings.training, Budget(1e12, "tokens"))
    return (step.loss for step in trainer.steps())


# Measurement


def measure(row: Row, repeats: int, folder: Path, device: torch.device = CPU) -> dict[str, Any]:
    """Returns tokens per second and the ratios of wall-clock and processor time."""
    torch.manual_seed(0)
    warmup, steps = 3, STEPS_PER_SAMPLE[device.type]  # the first steps allocate memory and the optimiser's state
    precision: Literal["float32", "bfloat16"] = "bfloat16" if device.type == "cuda" else "float32"
    store = write_store(folder / row.name, row, batches=max(NUM_READY_BATCHES, warmup + steps * repeats) + 2)
    ready_batches = [batch.to(device) for batch, _ in zip(build_loader(row, store).epoch(0), range(NUM_READY_BATCHES))]
    seqwise = train_seqwise(row, store, device, precision)
    baseline = train_baseline(row, [(batch.ids, batch.targets) for batch in ready_batches], device, precision)
    for _ in range(warmup):
        next(seqwise), next(baseline)

    def time_steps(losses: Iterator[float]) -> tuple[float, float]:
        return time_call(lambda: [next(losses) for _ in range(steps)], device)

    times = [(*time_steps(seqwise), *time_steps(baseline)) for _ in range(repeats)]
    seqwise_clock, seqwise_cpu, baseline_clock, baseline_cpu = (statistics.median(column) for column in zip(*times))
    tokens = row.batch_size * row.window * steps
    return {
        "tokens_per_second": tokens / seqwise_clock,
        "baseline_tokens_per_second": tokens / baseline_clock,
        "ratio": baseline_clock / seqwise_clock,
        "cpu_ratio": baseline_cpu / seqwise_cpu,
        "precision": precision,
        "repeats": repeats,
    }


def time_call(run: Callable[[], object], device: torch.device = CPU) -> tuple[float, float]:
    """Returns the wall-clock and processor seconds of a call, including the device's work."""
    synchronize(device)
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    synchronize(device)
    return time.perf_counter() - clock, time.process_time() - cpu


def write_store(path: Path, row: Row, batches: int) -> TokenStore:
    """Writes random tokens, distributed by Zipf's law, for the given number of batches."""
    count = batches * row.batch_size * row.window
    weights = 1 / np.arange(1, row.vocabulary + 1)
    ids = np.random.default_rng(0).choice(row.vocabulary, count, p=weights / weights.sum())
    with StoreWriter(path, row.vocabulary) as writer:
        writer.append(ids)
        return writer.finish(StoreInfo(count, 0, 0, 0, 0, row.vocabulary, "random", "random"))


def check_rows(rows: Sequence[dict[str, Any]], device: torch.device) -> list[str]:
    missed = []
    for row in rows:
        is_wikitext2 = row["name"] == "lstm-wikitext2" and is_h200(device)
        min_ratio = MIN_RATIO_WIKITEXT2 if is_wikitext2 else MIN_RATIO
        if "failed" not in row and row["ratio"] < min_ratio:
            missed.append(f"{row['name']}: ratio {row['ratio']:.3f}, required {min_ratio}")
    return missed


COLUMNS = (
    Column("model", "", width=-12),
    Column("size", "tokens/s", width=-44),
    Column("tokens_per_second", "seqwise", ",.0f"),
    Column("baseline_tokens_per_second", "baseline", ",.0f"),
    Column("ratio", "ratio", ".3f"),
    Column("cpu_ratio", "CPU ratio", ".3f", width=11),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    names = [row.name for row in (*ROWS, *GPU_ROWS)]
    parser.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=", ".join(names))
    options = parser.parse_args(arguments)
    device = set_up_device(options)
    default_rows = GPU_ROWS if device.type == "cuda" else ROWS
    rows = [row for row in (*ROWS, *GPU_ROWS) if row.name in options.rows] if options.rows else default_rows
    repeats = options.repeats or (QUICK_REPEATS if options.quick else 15)
    row_names = [row.name for row in rows]
    report = Report(
        "language",
        options,
        device,
        COLUMNS,
        arguments,
        row_names=row_names,
        check=lambda rows: check_rows(rows, device),
    )
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            description = {**asdict(row), "size": str(row)}
            report.add_measurement(description, lambda row=row: measure(row, repeats, Path(folder), device))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
