"""How fast, and in how much memory, does our loss take the gradients of projection and cross-entropy together?

    python benchmarks/loss.py [--device cpu|cuda] [--vocabularies 128000 …] [--chunks] [--compiled] [--json FILE]

`ours` is `kernels/loss.py`, which has the scores of some rows at a time. `eager` is the usual
`cross_entropy(linear(vectors, weight, bias), targets)`, which has them all. `adaptive` is the adaptive softmax with
clusters cut at a tenth and at half of the vocabulary: another model, with the same purpose. Each gives the loss and the
gradients of vectors, weight and bias. Targets are drawn by Zipf's law. `scores` is how many scores ours has at a time.

On a GPU rows marked `autocast` have float32 weights and bfloat16 products, as in training; those marked `bf16` have
everything in bfloat16. `share` is our memory divided by eager's; `ratio` is eager's time divided by ours. Memory is
counted beyond vectors and weights, with the gradients.

--chunks tries several numbers of scores at a time at one vocabulary. --compiled adds eager through torch.compile.

Required on an H200 at 128,000 words and 8,192 tokens under autocast: a tenth of eager's memory in 1.2 times its time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measuring import QUICK, Column, Report, in_turn, is_h200, parser, peak, settle
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels import loss as kernel
from seqwise.kernels.loss import linear_cross_entropy
from seqwise.layers.output import AdaptiveSoftmax

VOCABULARIES = (10_000, 32_000, 128_000, 256_000)
GOAL = 128_000  # words at which something is required
SHARE, TIME = 0.1, 1.2  # most memory and time there, eager's being 1
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


def rows_of(device: str, vocabularies: Sequence[int], quick: bool) -> list[Row]:
    if device == "cpu":
        return [Row(size, 256 if quick else 512, 256) for size in vocabularies[: 2 if quick else None]]
    rows = [Row(size, 8192, 768, dtype) for dtype in ("autocast", "bfloat16") for size in vocabularies]
    if quick:
        some = (VOCABULARIES[0], GOAL) if tuple(vocabularies) == VOCABULARIES else vocabularies
        return [row for row in rows if row.vocabulary in some and row.dtype == "autocast"]
    return [*rows, Row(50_304, 32_768, 768, "autocast")]  # the Transformer of transformer.py


@dataclass
class Case:
    """Vectors, weights and targets of a row, and the losses over them."""

    row: Row
    device: torch.device

    def __post_init__(self) -> None:
        row, device = self.row, self.device
        torch.manual_seed(0)
        self.dtype = torch.bfloat16 if row.dtype == "bfloat16" else torch.float32
        self.vectors = self._leaf(row.tokens, row.width)
        self.weight, self.bias = (
            self._leaf(row.vocabulary, row.width, scale=row.width**-0.5),
            self._leaf(row.vocabulary),
        )
        self.targets = zipf(row.tokens, row.vocabulary).to(device)

    def _leaf(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, device=self.device) * scale).to(self.dtype).requires_grad_()

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.row.dtype == "autocast")

    def ours(self) -> Tensor:
        with self.autocast():
            losses = linear_cross_entropy(self.vectors, self.weight, self.bias, self.targets)
            return losses.sum() / len(losses)  # as the trainer: a mean gives each row a gradient of its own

    def eager(self) -> Tensor:
        with self.autocast():
            return F.cross_entropy(F.linear(self.vectors, self.weight, self.bias), self.targets)

    def run(self, loss: Callable[[], Tensor]) -> Callable[[], object]:
        """Loss and gradients."""
        inputs = [self.vectors, self.weight, self.bias]
        return lambda: torch.autograd.grad(loss(), inputs)

    def adaptive(self) -> Callable[[], object]:
        size = self.row.vocabulary
        layer = AdaptiveSoftmax(self.row.width, size, [size // 10, size // 2]).to(self.device, self.dtype)
        inputs = [self.vectors, *layer.parameters()]

        def run() -> object:
            with self.autocast():
                loss = layer.loss(self.vectors, self.targets).mean()
            return torch.autograd.grad(loss, inputs, allow_unused=True)  # a cluster may have no target

        return run


def zipf(count: int, vocabulary: int) -> Tensor:
    """Ids of which the frequent ones are small."""
    chance = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
    return torch.multinomial(chance, count, replacement=True, generator=torch.Generator().manual_seed(1))


def measure(row: Row, device: torch.device, repeats: int, compiled: bool = False) -> dict[str, Any]:
    case = Case(row, device)
    runs = {"ours": case.run(case.ours), "eager": case.run(case.eager), "adaptive": case.adaptive()}
    if compiled:
        runs["compiled"] = case.run(torch.compile(case.eager))
    with torch.no_grad():
        apart = abs(float(case.ours()) - float(case.eager())) / float(case.eager())
    # Memory first: what eager leaves in the allocator's hands does not count, but fragments might.
    memory = {name: peak(run, device) for name, run in runs.items()}
    times = in_turn(runs, device, repeats)
    found: dict[str, Any] = {f"{name}_seconds": each.median for name, each in times.items()}
    found |= {f"{name}_bytes": each for name, each in memory.items()}
    return {
        **found,
        "ratio": times["eager"].median / times["ours"].median,
        "share": memory["ours"] / memory["eager"],
        "apart": apart,
        "chunk": scores_at_a_time(case),
        "repeats": repeats,
    }


def scores_at_a_time(case: Case) -> int:
    """As our loss decides it: whole rows, on the way that it takes."""
    row, products = case.row, torch.bfloat16 if case.row.dtype == "autocast" else case.dtype
    way = kernel._choose_backend(case.device, products)
    if row.tokens * row.vocabulary < kernel.MIN_SCORES[way]:
        return row.tokens * row.vocabulary
    return kernel._split_rows(row.tokens, row.width, row.vocabulary, way)[0].stop * row.vocabulary


def measure_chunk(row: Row, device: torch.device, repeats: int, chunk: int) -> dict[str, Any]:
    """The same with about so many scores at a time, however few rows that are."""
    before, rows = dict(kernel.MAX_SCORES), dict(kernel.MIN_ROWS)
    kernel.MAX_SCORES.update(dict.fromkeys(before, chunk))
    kernel.MIN_ROWS.update(dict.fromkeys(rows, 1))
    try:
        return measure(row, device, repeats)
    finally:
        kernel.MAX_SCORES.update(before)
        kernel.MIN_ROWS.update(rows)


def missed_on_gpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        if "failed" in row or row["vocabulary"] != GOAL or row["dtype"] != "autocast":
            continue
        if row["share"] > SHARE:
            found.append(f"{row['name']}: {row['share']:.3f} of eager's memory, not {SHARE}")
        if row["ratio"] < 1 / TIME:
            found.append(f"{row['name']}: {1 / row['ratio']:.3f} times eager's time, not {TIME}")
    return found


COLUMNS = (
    Column("name", "", width=-42),
    Column("chunk", "scores", ",.0f", width=13),
    Column("ours_seconds", "ms", ",.2f", 1e3),
    Column("eager_seconds", "eager", ",.2f", 1e3),
    Column("ratio", "ratio", ".2f", width=7),
    Column("ours_bytes", "MB", ",.0f", 1e-6),
    Column("eager_bytes", "eager", ",.0f", 1e-6),
    Column("share", "share", ".3f", width=8),
    Column("adaptive_seconds", "adaptive ms", ",.2f", 1e3, width=13),
    Column("adaptive_bytes", "MB", ",.0f", 1e-6),
    Column("compiled_seconds", "compiled ms", ",.2f", 1e3, width=13),
    Column("compiled_bytes", "MB", ",.0f", 1e-6),
    Column("apart", "apart", ".0e", width=8),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    command.add_argument("--vocabularies", type=int, nargs="+", default=VOCABULARIES)
    command.add_argument("--chunks", action="store_true", help="several numbers of scores at a time")
    command.add_argument("--compiled", action="store_true", help="eager through torch.compile as well")
    options = command.parse_args(arguments)
    device = settle(options)
    repeats = options.repeats or (QUICK if options.quick else 10 if device.type == "cuda" else 5)
    columns = [column for column in COLUMNS if options.compiled or not column.key.startswith("compiled")]
    rows = rows_of(device.type, options.vocabularies, options.quick)
    if options.chunks:
        at, powers = next((row for row in rows if row.vocabulary == GOAL), rows[0]), CHUNKS[device.type]
        report = Report("loss", options, device, columns, arguments, planned=[str(at)] * len(powers))
        for power in powers:
            known = {"name": str(at), **asdict(at), "chunk": 1 << power}
            report.measured(known, lambda power=power: measure_chunk(at, device, repeats, 1 << power))
        return report.finish()
    judge = missed_on_gpu if is_h200(device) else None
    report = Report("loss", options, device, columns, arguments, planned=[str(row) for row in rows], judge=judge)
    for row in rows:
        known = {"name": str(row), **asdict(row)}
        report.measured(known, lambda row=row: measure(row, device, repeats, options.compiled))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
