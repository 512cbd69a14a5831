"""Training speed of our decoder-only Transformer compared with a page of plain PyTorch.

    python benchmarks/transformer.py [--device cpu|cuda] [--variants trainer loop+whole …] [--profile] [--json FILE]

On a GPU: 124 million weights (12 layers of 768, 12 heads, vocabulary 50,304), batches of 32 sequences of 1,024 tokens,
bfloat16 products. On a CPU: 6 layers of 384 on characters, batches of 12 sequences of 64 tokens, float32.

`baseline` is the GPT in `language.py` (learned positions, pre-norm, GELU, fused causal attention, tied weights,
`cross_entropy`, clipping, fused AdamW), compiled as a whole on a GPU, with batches that are already on the device.
`trainer` is our model as `seqwise train` runs it: batches read from disk, clipping, the check for finite gradients, the
`Step`. Further words describe variants that isolate a difference:

    loop       our model in the baseline's loop instead of the trainer
    compiled   layers compiled as with --training.compile; backbone, whole: that part of the model in one graph
    learned    learned positions, as in the baseline
    eager      `cross_entropy` on all logits instead of `kernels/loss.py`

Samples of several steps are interleaved; a variant whose first sample fails is recorded and skipped. TFLOP/s count 6
operations per weight and 12 per layer, width and position; `utilisation` is their share of the rate of a large matrix
product (8192³, bfloat16) measured in the same run, `matmul`. --profile prints a profile of each variant. Required on an
H200 from the baseline's architecture (`trainer+compiled+learned`): 0.56 of the matrix product, and 514,000 tokens per
second, which is that share of 784 TFLOP/s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast

import torch
from language import (
    CLIP_THRESHOLD,
    LEARNING_RATE,
    WEIGHT_DECAY,
    PlainGPT,
    Row,
    build_loader,
    build_settings,
    write_store,
)
from measuring import (
    QUICK_REPEATS,
    Column,
    Report,
    build_parser,
    describe_failure,
    is_h200,
    release_memory,
    set_up_device,
    synchronize,
    time_interleaved,
)
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.budget import Budget
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.initialization import compile_layers
from seqwise.training.loop import Trainer
from seqwise.training.optimizers import build_optimizer

ROWS = {
    "cuda": Row("gpt-124m", "transformer", 12, 768, 50_304, 32, 1024, "rotary"),
    "cpu": Row("gpt-small", "transformer", 6, 384, 65, 12, 64, "rotary"),
}
VARIANTS = {
    "cuda": ("trainer", "trainer+compiled", "trainer+compiled+learned"),
    "cpu": ("trainer", "trainer+learned"),
}
WORDS = {"trainer", "loop", "compiled", "backbone", "whole", "learned", "eager"}
# Requirements on an H200, and the variant that they apply to.
MIN_TOKENS_PER_SECOND, MIN_UTILISATION, REQUIRED_VARIANT = 514_000, 0.56, "trainer+compiled+learned"
STEPS_PER_SAMPLE = {"cuda": 20, "cpu": 1}
NUM_READY_BATCHES = 4  # batches of the baseline, kept on the device

Steps = Iterator[Tensor | float]  # losses


# The baseline


def train_baseline(row: Row, batches: Sequence[TokenBatch], device: torch.device, compiled: bool) -> Steps:
    torch.manual_seed(0)
    model = PlainGPT(row, head_bias=False).to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=WEIGHT_DECAY, fused=True
    )
    forward = torch.compile(model) if compiled else model
    return train_in_plain_loop(
        model, optimiser, lambda batch: forward(batch.ids, batch.targets, None)[0], batches, device
    )


def train_in_plain_loop(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    compute_loss: Callable[[TokenBatch], Tensor],
    batches: Sequence[TokenBatch],
    device: torch.device,
) -> Steps:
    """Trains in a plain loop without synchronisation; yields the loss of each step."""
    for batch in cycle(batches):
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = compute_loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_THRESHOLD)
        optimiser.step()
        yield loss.detach()


# Seqwise


def parse_variant(variant: str) -> set[str]:
    """Returns the words of a variant such as `trainer+compiled`; exits with a message for unknown ones."""
    words = set(variant.split("+"))
    if not words <= WORDS or len(words & {"trainer", "loop"}) != 1:
        raise SystemExit(f"a variant is trainer or loop, with words of {', '.join(sorted(WORDS))}; received {variant}")
    return words


def train_seqwise(
    words: set[str], row: Row, store: TokenStore, batches: Sequence[TokenBatch], device: torch.device
) -> Steps:
    settings = build_settings(row)
    settings.transformer.positions = "learned" if "learned" in words else row.positions
    settings.training.precision = "bfloat16" if device.type == "cuda" else "float32"
    torch.manual_seed(0)
    model = apply_words(LanguageModel(settings, row.vocabulary).to(device), words)
    if "trainer" in words:
        trainer = Trainer(model, build_loader(row, store), settings.training, Budget(1e12, "tokens"))
        return (step.loss for step in trainer.steps())

    def compute_loss(batch: TokenBatch) -> Tensor:
        loss, _ = model(batch, None)
        return loss.total / loss.count

    return train_in_plain_loop(model, build_optimizer(model, settings.training), compute_loss, batches, device)


def apply_words(model: LanguageModel, words: set[str]) -> LanguageModel:
    """Changes the model as the words of its variant say, and returns it."""
    output, backbone = cast(Any, model.head.output), cast(Any, model.backbone)
    if "eager" in words:
        output.loss = lambda vectors, targets: F.cross_entropy(
            output.logits(vectors).flatten(0, -2), targets.flatten(), reduction="none"
        ).view_as(targets)
    if "compiled" in words:
        compile_layers(model, next(model.parameters()).device)
    if "backbone" in words:
        backbone.compile()
    if "whole" in words:
        model.compile()
    return model


# Measurement


def count_flops_per_token(row: Row) -> float:
    """Returns 6 operations per weight (without positions), and 12 per layer, width and position for attention."""
    weights = 12 * row.depth * row.width**2 + row.vocabulary * row.width
    return 6 * weights + 12 * row.depth * row.width * row.window


def build_product(device: torch.device) -> tuple[Callable[[], object], float]:
    """Returns a large matrix product and its number of operations."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1536, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return lambda: a @ b, 2.0 * size**3


def build_runs(
    row: Row, variants: Sequence[str], device: torch.device, num_samples: int, folder: Path
) -> tuple[dict[str, Callable[[], object]], dict[str, list[Tensor | float]]]:
    """Returns a function per variant (and the baseline) that takes some steps, and the lists of their losses."""
    steps = STEPS_PER_SAMPLE[device.type]
    store = write_store(folder / row.name, row, batches=steps * num_samples + NUM_READY_BATCHES + 2)
    batches = [batch.to(device) for batch in islice(build_loader(row, store).epoch(0), NUM_READY_BATCHES)]
    losses: dict[str, list[Tensor | float]] = {name: [] for name in ("baseline", *variants)}
    steps_by_name: dict[str, Steps] = {}

    def take_steps(name: str) -> None:
        if name not in steps_by_name:  # created here, so that an error counts as a failed first sample
            if name == "baseline":
                steps_by_name[name] = train_baseline(row, batches, device, device.type == "cuda")
            else:
                steps_by_name[name] = train_seqwise(parse_variant(name), row, store, batches, device)
        losses[name].extend(islice(steps_by_name[name], steps))

    return {name: partial(take_steps, name) for name in losses}, losses


def run_first_samples(
    runs: dict[str, Callable[[], object]], device: torch.device
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Returns the seconds of each first sample with compilation, and a row for each failure, removed from `runs`."""
    seconds, failed = {}, []
    for name in list(runs):
        started_at = time.perf_counter()
        try:
            runs[name]()
            synchronize(device)
            seconds[name] = time.perf_counter() - started_at
        except Exception as error:
            failed.append({"name": name, **describe_failure(error)})
            del runs[name]
        release_memory(device)  # outside the handler, which references the failed sample
    return seconds, failed


def measure(
    row: Row, variants: Sequence[str], device: torch.device, repeats: int, folder: Path, profile: bool = False
) -> list[dict[str, Any]]:
    """Returns one row for the baseline and each variant; failures come first."""
    runs, losses = build_runs(row, variants, device, 4 + repeats + profile, folder)
    first, failed = run_first_samples(runs, device)
    multiply, operations = build_product(device)
    times = time_interleaved({**runs, "product": multiply}, device, repeats, num_warmup=1)
    if profile:
        for name, run in runs.items():
            print_profile(name, run, device)
    rate = operations / times["product"].median
    tokens = row.batch_size * row.window * STEPS_PER_SAMPLE[device.type]
    speeds = {name: tokens / times[name].median for name in runs}
    return failed + [
        {
            "name": name,
            "tokens_per_second": speed,
            "ratio": times["baseline"].median / times[name].median if "baseline" in times else None,
            "tflops": speed * count_flops_per_token(row) / 1e12,
            "utilisation": speed * count_flops_per_token(row) / rate,
            "product_tflops": rate / 1e12,
            "milliseconds": times[name].median / STEPS_PER_SAMPLE[device.type] * 1e3,
            "first_call": first[name],
            "first_loss": float(losses[name][0]),
            "last_loss": float(losses[name][-1]),
        }
        for name, speed in speeds.items()
    ]


def print_profile(name: str, run: Callable[[], object], device: torch.device) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        run()
    key = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    table = profile.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70)
    print(f"== {name}, {STEPS_PER_SAMPLE[device.type]} steps\n{table}", file=sys.stderr, flush=True)


COLUMNS = (
    Column("name", "", width=-34),
    Column("tokens_per_second", "tokens/s", ",.0f", width=11),
    Column("ratio", "ratio", ".3f"),
    Column("milliseconds", "ms/step", ".1f"),
    Column("tflops", "TFLOP/s", ".2f"),
    Column("utilisation", "utilisation", ".3f", width=13),
    Column("product_tflops", "matmul", ".2f"),
    Column("first_call", "first call s", ".1f", width=14),
    Column("first_loss", "first loss", ".3f", width=12),
    Column("last_loss", "last loss", ".3f", width=11),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--variants", nargs="+", metavar="WORD+WORD", help=f"of {', '.join(sorted(WORDS))}")
    parser.add_argument("--profile", action="store_true", help="print a profile of each variant")
    options = parser.parse_args(arguments)
    for variant in options.variants or ():
        parse_variant(variant)  # report an error before any work
    device = set_up_device(options)
    row, variants = ROWS[device.type], options.variants or VARIANTS[device.type]
    repeats = options.repeats or (QUICK_REPEATS if options.quick else 6 if device.type == "cuda" else 15)
    sizes = {
        "model": str(row),
        "parameters": sum(p.numel() for p in LanguageModel(build_settings(row), row.vocabulary).parameters()),
    }
    check = check_rows if is_h200(device) else None
    report = Report("transformer", options, device, COLUMNS, arguments, sizes, ("baseline", *variants), check)
    with tempfile.TemporaryDirectory() as folder:
        for result in measure(row, variants, device, repeats, Path(folder), options.profile):
            report.add(result)
    return report.finish()


def check_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    missed = []
    for row in rows:
        if row["name"] != REQUIRED_VARIANT or "failed" in row:
            continue
        if row["tokens_per_second"] < MIN_TOKENS_PER_SECOND:
            missed.append(
                f"{row['name']}: {row['tokens_per_second']:,.0f} tokens per second, required {MIN_TOKENS_PER_SECOND:,}"
            )
        if row["utilisation"] < MIN_UTILISATION:
            missed.append(f"{row['name']}: {row['utilisation']:.3f} of the matrix product, required {MIN_UTILISATION}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
