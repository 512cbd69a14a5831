"""How fast does our decoder-only Transformer train beside a page of plain PyTorch?

    python benchmarks/transformer.py [--device cpu|cuda] [--variants trainer loop+whole …] [--profile] [--json FILE]

On a GPU: 124 million weights (12 layers of 768, 12 heads, 50,304 tokens), 32 rows of 1,024 tokens, bfloat16 products.
On a CPU: 6 layers of 384 on characters, 12 rows of 64 tokens, float32.

`peer` is the GPT in `language.py` (learned positions, pre-norm, GELU, fused causal attention, a tied output matrix,
`cross_entropy`, clipping, fused AdamW), compiled as a whole on a GPU, on batches that are ready there. `trainer` is
ours as `seqwise train` runs it: batches read from disk, clipping, the finite check, the `Step`. To see what a
difference comes from, a variant may be written with more words:

    loop       our model in the peer's loop, not the trainer's
    compiled   layers compiled as --training.compile does it; backbone, whole: that part of the model compiled as one
    learned    learned positions, as the peer's
    eager      `cross_entropy` on whole scores in place of `kernels/loss.py`

Turns of some steps each follow one another; a variant whose first turn fails is noted and left out. TFLOP/s count 6
operations per weight and 12 per layer, width and position; `share` is that of the matrix product measured in the same
run (8192³, bfloat16). --profile prints what the time of each variant goes to. Required on an H200, of the peer's own
design (`trainer+compiled+preprocessor`): 0.56 of the product, and 514,000 tokens per second, which is that much of 784
TFLOP/s.
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
from language import CLIP, DECAY, RATE, PlainGPT, Row, batches_of, settings_of, write_store
from measuring import QUICK, Column, Report, failure, in_turn, is_h200, parser, release, settle, wait
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.budget import Budget
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.tasks.language.task import LanguageModel
from seqwise.training.compiling import compile_layers
from seqwise.training.loop import Trainer
from seqwise.training.optimizers import make_optimizer

ROWS = {
    "cuda": Row("gpt-124m", "transformer", 12, 768, 50_304, 32, 1024, "rotary"),
    "cpu": Row("gpt-small", "transformer", 6, 384, 65, 12, 64, "rotary"),
}
VARIANTS = {
    "cuda": ("trainer", "trainer+compiled", "trainer+compiled+learned"),
    "cpu": ("trainer", "trainer+learned"),
}
WORDS = {"trainer", "loop", "compiled", "backbone", "whole", "learned", "eager"}
REQUIRED, SHARE, BY = 514_000, 0.56, "trainer+compiled+learned"  # tokens/s and share on an H200, and by what
STEPS = {"cuda": 20, "cpu": 1}  # of one turn
READY = 4  # batches that stay on the device for the peer

Steps = Iterator[Tensor | float]  # losses


# The peer


def peer_steps(row: Row, batches: Sequence[TokenBatch], device: torch.device, compiled: bool) -> Steps:
    torch.manual_seed(0)
    model = PlainGPT(row, head_bias=False).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=DECAY, fused=True)
    forward = torch.compile(model) if compiled else model
    return plain_loop(model, optimiser, lambda batch: forward(batch.ids, batch.targets, None)[0], batches, device)


def plain_loop(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss_of: Callable[[TokenBatch], Tensor],
    batches: Sequence[TokenBatch],
    device: torch.device,
) -> Steps:
    """The usual loop; nothing in it waits for the device."""
    for batch in cycle(batches):
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        yield loss.detach()


# Ours


def words_of(variant: str) -> set[str]:
    words = set(variant.split("+"))
    if not words <= WORDS or len(words & {"trainer", "loop"}) != 1:
        raise SystemExit(f"a variant is trainer or loop, and words of {', '.join(sorted(WORDS))}; received {variant}")
    return words


def our_steps(
    words: set[str], row: Row, store: TokenStore, batches: Sequence[TokenBatch], device: torch.device
) -> Steps:
    settings = settings_of(row)
    settings.transformer.positions = "learned" if "learned" in words else row.positions
    settings.training.precision = "bfloat16" if device.type == "cuda" else "float32"
    torch.manual_seed(0)
    model = changed(LanguageModel(settings, row.vocabulary).to(device), words)
    if "trainer" in words:
        trainer = Trainer(model, batches_of(row, store), settings.training, Budget(1e12, "tokens"))
        return (step.loss for step in trainer.steps())

    def loss_of(batch: TokenBatch) -> Tensor:
        loss, _ = model(batch, None)
        return loss.total / loss.count

    return plain_loop(model, make_optimizer(model, settings.training), loss_of, batches, device)


def changed(model: LanguageModel, words: set[str]) -> LanguageModel:
    """The model with what the words ask for."""
    output, backbone = cast(Any, model.head.output), cast(Any, model.backbone)
    if "eager" in words:
        output.loss = lambda vectors, targets: F.cross_entropy(output.logits(vectors), targets, reduction="none")
    if "compiled" in words:
        compile_layers(model, next(model.parameters()).device)
    if "backbone" in words:
        backbone.compile()
    if "whole" in words:
        model.compile()
    return model


# Side by side


def flops_per_token(row: Row) -> float:
    """Training: 6 per weight (but for positions), and 12 per layer, width and position for attention."""
    weights = 12 * row.depth * row.width**2 + row.vocabulary * row.width
    return 6 * weights + 12 * row.depth * row.width * row.window


def product(device: torch.device) -> tuple[Callable[[], object], float]:
    """A large matrix product, and its operations."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1536, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return lambda: a @ b, 2.0 * size**3


def runs_of(
    row: Row, variants: Sequence[str], device: torch.device, turns: int, folder: Path
) -> tuple[dict[str, Callable[[], object]], dict[str, list[Tensor | float]]]:
    """For the peer and each variant a function that takes some steps, and where it leaves their losses."""
    per_turn = STEPS[device.type]
    store = write_store(folder / row.name, row, batches=per_turn * turns + READY + 2)
    batches = [batch.to(device) for batch in islice(batches_of(row, store).epoch(0), READY)]
    losses: dict[str, list[Tensor | float]] = {name: [] for name in ("peer", *variants)}
    sides: dict[str, Steps] = {}

    def turn(name: str) -> None:
        if name not in sides:  # made by the first turn, so that one that cannot be made is a turn that fails
            if name == "peer":
                sides[name] = peer_steps(row, batches, device, device.type == "cuda")
            else:
                sides[name] = our_steps(words_of(name), row, store, batches, device)
        losses[name].extend(islice(sides[name], per_turn))

    return {name: partial(turn, name) for name in losses}, losses


def first_turns(
    runs: dict[str, Callable[[], object]], device: torch.device
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Seconds of the first turn, compilation included; and a row for each that fails, which is taken out."""
    seconds, failed = {}, []
    for name in list(runs):
        began = time.perf_counter()
        try:
            runs[name]()
            wait(device)
            seconds[name] = time.perf_counter() - began
        except Exception as error:
            failed.append({"name": name, **failure(error)})
            del runs[name]
        release(device)  # outside the handler, which holds what the failed turn had
    return seconds, failed


def measure(
    row: Row, variants: Sequence[str], device: torch.device, repeats: int, folder: Path, profile: bool = False
) -> list[dict[str, Any]]:
    """One result for the peer and each variant; those that failed come first."""
    runs, losses = runs_of(row, variants, device, 4 + repeats + profile, folder)
    first, failed = first_turns(runs, device)
    multiply, operations = product(device)
    times = in_turn({**runs, "product": multiply}, device, repeats, warm=1)
    if profile:
        for name, run in runs.items():
            print_profile(name, run, device)
    rate = operations / times["product"].median
    tokens = row.rows * row.window * STEPS[device.type]
    speeds = {name: tokens / times[name].median for name in runs}
    return failed + [
        {
            "name": name,
            "tokens_per_second": speed,
            "ratio": times["peer"].median / times[name].median if "peer" in times else None,
            "tflops": speed * flops_per_token(row) / 1e12,
            "share": speed * flops_per_token(row) / rate,
            "product_tflops": rate / 1e12,
            "milliseconds": times[name].median / STEPS[device.type] * 1e3,
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
    with torch.profiler.profile(activities=activities) as seen:
        run()
    key = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    table = seen.key_averages().table(sort_by=key, row_limit=30, max_name_column_width=70)
    print(f"== {name}, {STEPS[device.type]} steps\n{table}", file=sys.stderr, flush=True)


COLUMNS = (
    Column("name", "", width=-34),
    Column("tokens_per_second", "tokens/s", ",.0f", width=11),
    Column("ratio", "ratio", ".3f"),
    Column("milliseconds", "ms/step", ".1f"),
    Column("tflops", "TFLOP/s", ".2f"),
    Column("share", "share", ".3f"),
    Column("product_tflops", "product", ".2f"),
    Column("first_call", "first s", ".1f"),
    Column("first_loss", "loss", ".3f"),
    Column("last_loss", "last", ".3f"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    command.add_argument("--variants", nargs="+", metavar="WORD+WORD", help=f"of {', '.join(sorted(WORDS))}")
    command.add_argument("--profile", action="store_true", help="print what the time goes to")
    options = command.parse_args(arguments)
    for variant in options.variants or ():
        words_of(variant)  # a wrong one must not cost anything
    device = settle(options)
    row, variants = ROWS[device.type], options.variants or VARIANTS[device.type]
    repeats = options.repeats or (QUICK if options.quick else 6 if device.type == "cuda" else 15)
    sizes = {
        "model": str(row),
        "parameters": sum(p.numel() for p in LanguageModel(settings_of(row), row.vocabulary).parameters()),
    }
    judge = missed_of if is_h200(device) else None
    report = Report("transformer", options, device, COLUMNS, arguments, sizes, ("peer", *variants), judge)
    with tempfile.TemporaryDirectory() as folder:
        for result in measure(row, variants, device, repeats, Path(folder), options.profile):
            report.add(result)
    return report.finish()


def missed_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        if row["name"] != BY or "failed" in row:
            continue
        if row["tokens_per_second"] < REQUIRED:
            found.append(f"{BY}: {row['tokens_per_second']:,.0f} tokens per second, not {REQUIRED:,}")
        if row["share"] < SHARE:
            found.append(f"{BY}: {row['share']:.3f} of the product, not {SHARE}")
    return found


if __name__ == "__main__":
    sys.exit(main())
