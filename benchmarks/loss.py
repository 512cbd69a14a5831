"""Time and memory of the fused output projection and cross-entropy, with gradients.

    python benchmarks/loss.py [--device cpu|cuda] [--vocabularies 128000 …] [--chunks] [--compiled] [--json FILE]

The fused loss is `kernels/loss.py`, which computes the logits of one chunk of rows at a time. `eager` is
`cross_entropy(linear(vectors, weight, bias), targets)` of PyTorch, which stores all logits. `adaptive` is adaptive
softmax with cutoffs at a tenth and at half of the vocabulary: a different model for the same purpose. Each computes the
loss and the gradients of vectors, weight and bias. Targets follow Zipf's law. `chunk` is the number of logits in memory
at a time.

On a GPU, `autocast` rows have float32 weights and bfloat16 products, as in training; `bf16` rows are bfloat16
throughout. `memory ratio` is our memory divided by eager's; `ratio` is eager's time divided by ours. Memory includes
the gradients, not the vectors and weights.

--chunks measures several chunk sizes at one vocabulary size. --compiled adds eager under torch.compile.

Required on an H200 at 128,000 words and 8,192 tokens under autocast: a tenth of eager's memory in 1.2 times its time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measuring import (
    QUICK_REPEATS,
    Column,
    Report,
    build_parser,
    is_h200,
    measure_peak_memory,
    set_up_device,
    time_interleaved,
)
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels import loss as kernel
from seqwise.kernels.loss import linear_cross_entropy
from seqwise.layers.output import AdaptiveSoftmax

VOCABULARIES = (10_000, 32_000, 128_000, 256_000)
REQUIRED_VOCABULARY = 128_000  # the requirements apply to this size
MAX_MEMORY_RATIO, MAX_TIME_RATIO = 0.1, 1.2  # relative to eager
CHUNKS = {"cpu": range(18, 27, 2), "cuda": range(22, 30)}  # powers of two


@dataclass(frozen=True)
class Row:
    vocabulary: int
    tokens: int
    width: int
    dtype: str = "float32"  # or "autocast", "bfloat16"

    def __str__(self) -> str:
        short = {"float32": "fp32", "bfloat16": "bf16"}.get(self.dtype, self.dtype)
        return f"V {self.vocabulary:,}, N {self.tokens:,}, D {self.width}, {short}"


def list_rows(device: str, vocabularies: Sequence[int], quick: bool) -> list[Row]:
    if device == "cpu":
        return [Row(size, 256 if quick else 512, 256) for size in vocabularies[: 2 if quick else None]]
    rows = [Row(size, 8192, 768, dtype) for dtype in ("autocast", "bfloat16") for size in vocabularies]
    if quick:
        quick_vocabularies = (
            (VOCABULARIES[0], REQUIRED_VOCABULARY) if tuple(vocabularies) == VOCABULARIES else vocabularies
        )
        return [row for row in rows if row.vocabulary in quick_vocabularies and row.dtype == "autocast"]
    return [*rows, Row(50_304, 32_768, 768, "autocast")]  # the Transformer of transformer.py


@dataclass
class Case:
    """Vectors, weights and targets of a row, and the losses to compare."""

    row: Row
    device: torch.device

    def __post_init__(self) -> None:
        row, device = self.row, self.device
        torch.manual_seed(0)
        self.dtype = torch.bfloat16 if row.dtype == "bfloat16" else torch.float32
        self.vectors = self._draw_leaf(row.tokens, row.width)
        self.weight = self._draw_leaf(row.vocabulary, row.width, scale=row.width**-0.5)
        self.bias = self._draw_leaf(row.vocabulary)
        self.targets = draw_zipf_ids(row.tokens, row.vocabulary).to(device)

    def _draw_leaf(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, device=self.device) * scale).to(self.dtype).requires_grad_()

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.row.dtype == "autocast")

    def compute_fused(self) -> Tensor:
        with self.autocast():
            losses = linear_cross_entropy(self.vectors, self.weight, self.bias, self.targets)
            return losses.sum() / len(losses)  # as in the trainer; .mean() would give each row its own gradient

    def compute_eager(self) -> Tensor:
        with self.autocast():
            return F.cross_entropy(F.linear(self.vectors, self.weight, self.bias), self.targets)

    def add_gradients(self, loss: Callable[[], Tensor]) -> Callable[[], object]:
        """Returns a function that computes the loss and its gradients."""
        inputs = [self.vectors, self.weight, self.bias]
        return lambda: torch.autograd.grad(loss(), inputs)

    def build_adaptive(self) -> Callable[[], object]:
        """Returns a function that computes the loss of an adaptive softmax and its gradients."""
        size = self.row.vocabulary
        layer = AdaptiveSoftmax(self.row.width, size, [size // 10, size // 2]).to(self.device, self.dtype)
        inputs = [self.vectors, *layer.parameters()]

        def run() -> object:
            with self.autocast():
                loss = layer.loss(self.vectors, self.targets).mean()
            return torch.autograd.grad(loss, inputs, allow_unused=True)  # a cluster may have no target

        return run


def draw_zipf_ids(count: int, vocabulary: int) -> Tensor:
    """Returns token ids that follow Zipf's law; frequent tokens have small ids."""
    weights = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    return torch.multinomial(weights, count, replacement=True, generator=torch.Generator().manual_seed(1))


def measure(row: Row, device: torch.device, repeats: int, compiled: bool = False) -> dict[str, Any]:
    case = Case(row, device)
    runs = {"fused": case.add_gradients(case.compute_fused), "eager": case.add_gradients(case.compute_eager)}
    runs["adaptive"] = case.build_adaptive()
    if compiled:
        runs["compiled"] = case.add_gradients(torch.compile(case.compute_eager))
    with torch.no_grad():
        fused, eager = float(case.compute_fused()), float(case.compute_eager())
    relative_error = abs(fused - eager) / eager
    # Memory first: timing eager may fragment the allocator's cache.
    memory = {name: measure_peak_memory(run, device) for name, run in runs.items()}
    times = time_interleaved(runs, device, repeats)
    results: dict[str, Any] = {f"{name}_seconds": time.median for name, time in times.items()}
    results |= {f"{name}_bytes": num_bytes for name, num_bytes in memory.items()}
    return {
        **results,
        "ratio": times["eager"].median / times["fused"].median,
        "memory_ratio": memory["fused"] / memory["eager"],
        "relative_error": relative_error,
        "chunk": compute_chunk_size(case),
        "repeats": repeats,
    }


def compute_chunk_size(case: Case) -> int:
    """Returns the number of logits that the fused loss computes at a time with the backend of this row."""
    row, product_dtype = case.row, torch.bfloat16 if case.row.dtype == "autocast" else case.dtype
    backend = kernel._choose_backend(case.device, product_dtype)
    if row.tokens * row.vocabulary < kernel.MIN_SCORES[backend]:
        return row.tokens * row.vocabulary
    return kernel._split_rows(row.tokens, row.width, row.vocabulary, backend)[0].stop * row.vocabulary


def measure_chunk(row: Row, device: torch.device, repeats: int, chunk: int) -> dict[str, Any]:
    """Measures a row with chunks of about this many logits, without a minimum number of rows."""
    max_scores, min_rows = dict(kernel.MAX_SCORES), dict(kernel.MIN_ROWS)
    kernel.MAX_SCORES.update(dict.fromkeys(max_scores, chunk))
    kernel.MIN_ROWS.update(dict.fromkeys(min_rows, 1))
    try:
        return measure(row, device, repeats)
    finally:
        kernel.MAX_SCORES.update(max_scores)
        kernel.MIN_ROWS.update(min_rows)


def check_gpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    missed = []
    for row in rows:
        if "failed" in row or row["vocabulary"] != REQUIRED_VOCABULARY or row["dtype"] != "autocast":
            continue
        if row["memory_ratio"] > MAX_MEMORY_RATIO:
            missed.append(
                f"{row['name']}: {row['memory_ratio']:.3f} of eager's memory, at most {MAX_MEMORY_RATIO} allowed"
            )
        if row["ratio"] < 1 / MAX_TIME_RATIO:
            missed.append(f"{row['name']}: {1 / row['ratio']:.3f} times eager's time, at most {MAX_TIME_RATIO} allowed")
    return missed


COLUMNS = (
    Column("name", "", width=-42),
    Column("chunk", "chunk", ",.0f", width=13),
    Column("fused_seconds", "ms", ",.2f", 1e3),
    Column("eager_seconds", "eager", ",.2f", 1e3),
    Column("ratio", "ratio", ".2f", width=7),
    Column("fused_bytes", "MB", ",.0f", 1e-6),
    Column("eager_bytes", "eager", ",.0f", 1e-6),
    Column("memory_ratio", "memory ratio", ".3f", width=14),
    Column("adaptive_seconds", "adaptive ms", ",.2f", 1e3, width=13),
    Column("adaptive_bytes", "MB", ",.0f", 1e-6),
    Column("compiled_seconds", "compiled ms", ",.2f", 1e3, width=13),
    Column("compiled_bytes", "MB", ",.0f", 1e-6),
    Column("relative_error", "rel. error", ".0e", width=12),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--vocabularies", type=int, nargs="+", default=VOCABULARIES)
    parser.add_argument("--chunks", action="store_true", help="measure several chunk sizes")
    parser.add_argument("--compiled", action="store_true", help="also measure eager under torch.compile")
    options = parser.parse_args(arguments)
    device = set_up_device(options)
    repeats = options.repeats or (QUICK_REPEATS if options.quick else 10 if device.type == "cuda" else 5)
    columns = [column for column in COLUMNS if options.compiled or not column.key.startswith("compiled")]
    rows = list_rows(device.type, options.vocabularies, options.quick)
    if options.chunks:
        row, powers = next((row for row in rows if row.vocabulary == REQUIRED_VOCABULARY), rows[0]), CHUNKS[device.type]
        report = Report("loss", options, device, columns, arguments, row_names=[str(row)] * len(powers))
        for power in powers:
            description = {"name": str(row), **asdict(row), "chunk": 1 << power}
            report.add_measurement(description, lambda power=power: measure_chunk(row, device, repeats, 1 << power))
        return report.finish()
    check = check_gpu if is_h200(device) else None
    report = Report("loss", options, device, columns, arguments, row_names=[str(row) for row in rows], check=check)
    for row in rows:
        description = {"name": str(row), **asdict(row)}
        report.add_measurement(description, lambda row=row: measure(row, device, repeats, options.compiled))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
