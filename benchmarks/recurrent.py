"""Speed and memory of the recurrent layers compared with PyTorch's own (cuDNN on a GPU, ATen and oneDNN on a CPU).

    python benchmarks/recurrent.py [--device cpu|cuda] [--rows lstm 512×64×512 …] [--quick] [--json FILE]

Rows are named by T×B×H: steps, batch size, and width of both input and hidden state. Both implementations have the same
weights and the same input (B, T, H), and compute the gradients of the input and of every weight; the product with the
input is included. The baseline gets its input in its fastest layout, time first, and its weights in one buffer.
Sequences of different lengths are sorted and packed for it; packing and unpacking are timed, because users need them.
The baseline `loop` is the reference scan of this package, one cell step at a time.

Microseconds are those of the median call divided by T. `ratio` is the baseline's time divided by ours: above 1 ours is
faster. `forward` columns are without gradients. `MB` is the peak memory of a training call in addition to weights and
input. `rel. error` is the relative error of outputs and input gradients after at most 16 steps: rounding errors of a
layer norm inside a recurrence double with every dozen steps. `backend` is the one that computed our layer, with and
without gradients. "bidirectional" rows have two bidirectional layers; "drop-in" rows are `seqwise.layers.LSTM`, `GRU`
and `RNN`, called as PyTorch's modules are; `min ratio` is the ratio required.

Required on an H200: the ratios in `MIN_RATIO`, the microseconds in `MAX_MICROSECONDS`, and no more memory than the
baseline. On a CPU: the medians in `MIN_MEDIAN_RATIO`, and a ratio of at least 0.97 in every row.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from measuring import (
    QUICK_REPEATS,
    Column,
    Report,
    build_parser,
    is_h200,
    measure_peak_memory,
    select_rows,
    set_up_device,
    time_interleaved,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwise.backbones.encoder import build_recurrent_layers
from seqwise.layers.cells import make_cell
from seqwise.layers.recurrent import Recurrent, StackedRecurrent
from seqwise.layers.rnn import GRU, LSTM, RNN
from seqwise.layers.scan import scan_reference
from seqwise.resolved_settings import ResolvedRecurrentSettings

Call = Callable[[Tensor], Tensor]
CELLS = ("lstm", "gru", "rnn")
DROP_IN = {"lstm": LSTM, "gru": GRU, "rnn": RNN}
SHAPES = ((512, 64, 256), (512, 64, 512), (1024, 16, 768), (512, 64, 1024), (128, 20, 1536), (512, 256, 1024))
MIN_LENGTH = 10  # of the shortest sequence in rows with different lengths; the longest has all steps
COMPARED_STEPS = 16  # steps after which outputs and gradients are compared
MAX_RELATIVE_ERROR = {"float32": 0.01, "float16": 0.02, "bfloat16": 0.05}

# Minimum ratio on an H200, bfloat16, forward and backward.
MIN_RATIO = {SHAPES[0]: 2.0, SHAPES[1]: 2.0, SHAPES[2]: 2.0, SHAPES[3]: 1.5, SHAPES[4]: 1.5, SHAPES[5]: 1.0}
MIN_RATIO_BIDIRECTIONAL, MIN_RATIO_LENGTHS, MIN_RATIO_RESET_BEFORE = 2.5, 2.5, 1 / 1.8
# Maximum microseconds per step there: those of the fused CUDA kernels of FlashRNN on the same machine.
MAX_MICROSECONDS = {
    ("lstm", SHAPES[0]): 18.6, ("lstm", SHAPES[1]): 26.1, ("lstm", SHAPES[3]): 65.9, ("lstm", SHAPES[2]): 13.8,
    ("gru", SHAPES[1]): 43.2, ("rnn", SHAPES[1]): 14.8,
}  # fmt: skip
# Targets that are not required.
TARGET_MICROSECONDS = {("lstm", SHAPES[1]): 13.0, ("lstm", SHAPES[0]): 10.0, ("rnn", SHAPES[1]): 8.0}
# Minimum median ratio of each group on a CPU, float32, forward and backward; every row must reach MIN_CPU_RATIO.
MIN_MEDIAN_RATIO = {"lstm": 1.0, "gru": 1.2, "rnn": 1.2, "bidirectional": 1.5, "lengths": 1.5}
MIN_CPU_RATIO = 0.97


@dataclass(frozen=True)
class Row:
    """One measurement: a layer, two bidirectional layers, or a layer on sequences of different lengths."""

    cell: str
    steps: int
    batch: int
    units: int
    dtype: str = "float32"
    kind: str = "layer"  # or "bidirectional", "lengths", "drop-in"
    variant: str = ""  # or "reset before", "layer norm"
    baseline: str = "pytorch"  # or "loop", "reset after"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.steps, self.batch, self.units

    @property
    def group(self) -> str:
        return self.cell if self.kind == "layer" else self.kind

    def __str__(self) -> str:
        short = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}[self.dtype]
        words = [self.cell, self.variant, "" if self.kind == "layer" else self.kind, "×".join(map(str, self.shape))]
        return " ".join(word for word in (*words, short) if word)


def list_rows(device: str, quick: bool) -> list[Row]:
    return _list_gpu_rows(quick) if device == "cuda" else _list_cpu_rows(quick)


def _list_gpu_rows(quick: bool) -> list[Row]:
    shapes, usual_shape = SHAPES[1:2] if quick else SHAPES, SHAPES[1]
    rows = [Row(cell, *shape, dtype="bfloat16") for cell in CELLS for shape in shapes]
    rows += [Row("lstm", *usual_shape, dtype="bfloat16", kind=kind) for kind in ("bidirectional", "lengths")]
    rows += [Row(cell, *usual_shape, dtype="bfloat16", kind="drop-in") for cell in CELLS]
    rows.append(Row("gru", *usual_shape, dtype="bfloat16", variant="reset before", baseline="reset after"))
    if quick:
        return rows
    rows += [Row(cell, *usual_shape, dtype=dtype) for dtype in ("float16", "float32") for cell in CELLS]
    rows.append(Row("lstm", *usual_shape, dtype="bfloat16", baseline="loop"))
    rows += [Row(cell, *usual_shape, dtype="bfloat16", variant="layer norm", baseline="loop") for cell in CELLS]
    return rows


def _list_cpu_rows(quick: bool) -> list[Row]:
    times, batches, units = ((32,), (20,), (128,)) if quick else ((32, 128), (1, 20, 64), (64, 128, 256, 512))
    rows = [Row(cell, t, b, u) for cell in CELLS for t in times for b in batches for u in units]
    unaligned_units = () if quick else (170, 650)  # not a multiple of the SIMD width
    rows += [Row(cell, 128, 20, u) for cell in CELLS for u in unaligned_units]
    common_units = units[:1] if quick else (128, 256)
    large_batches = batches[:1] if quick else (20, 64)
    rows += [
        Row(cell, times[-1], b, u, kind="bidirectional")
        for cell in ("lstm", "gru")
        for b in large_batches
        for u in common_units
    ]
    rows += [Row(cell, 128, b, u, kind="lengths") for cell in CELLS for b in large_batches for u in common_units]
    rows += [Row(cell, 128, 20, common_units[-1], kind="drop-in") for cell in CELLS]
    rows += [Row("gru", 32, 20, common_units[-1], variant="reset before", baseline="loop")]
    rows += [Row(cell, 32, 20, common_units[-1], variant="layer norm", baseline="loop") for cell in CELLS]
    return rows


# The two implementations


def build_layer(row: Row) -> Recurrent | StackedRecurrent:
    settings = ResolvedRecurrentSettings(
        reset="before" if row.variant == "reset before" else "after", layer_norm=row.variant == "layer norm"
    )
    if row.kind == "bidirectional":
        return StackedRecurrent(build_recurrent_layers(row.cell, row.units, row.units, 2, settings, bidirectional=True))
    return Recurrent(make_cell(row.cell, row.units, row.units, settings))


def build_baseline(row: Row, layer: nn.Module) -> nn.Module:
    """Returns PyTorch's module with the weights of our layer."""
    module_class = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[row.cell]
    bidirectional = row.kind == "bidirectional"
    module = module_class(row.units, row.units, 2 if bidirectional else 1, bidirectional=bidirectional)
    directions = [part for part in layer.modules() if isinstance(part, Recurrent)]
    with torch.no_grad():
        for number, direction in enumerate(directions):
            cell: Any = direction.cell
            name = f"l{number // 2}{'_reverse' if number % 2 else ''}" if bidirectional else "l0"
            getattr(module, f"weight_ih_{name}").copy_(cell.weight_input)
            getattr(module, f"weight_hh_{name}").copy_(cell.weight_hidden)
            getattr(module, f"bias_ih_{name}").copy_(cell.bias)
            bias_hidden = (
                F.pad(cell.bias_hidden, (2 * row.units, 0)) if row.cell == "gru" else torch.zeros_like(cell.bias)
            )
            getattr(module, f"bias_hh_{name}").copy_(bias_hidden)
    return module


@dataclass
class Implementation:
    """A module with its input and output gradient; `call` takes and returns tensors in the layout of `x`."""

    module: nn.Module
    call: Call
    x: Tensor
    gradient: Tensor
    batch_first: bool = True

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.call(self.x)

    def forward_backward(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.call(self.x), [self.x, *self.module.parameters()], self.gradient)

    def compute_results(self) -> list[Tensor]:
        """Returns the outputs and the gradient of x, batch first."""
        results = self.forward(), self.forward_backward()[0]
        return [tensor if self.batch_first else tensor.transpose(0, 1) for tensor in results]


def build_implementations(row: Row, device: torch.device) -> dict[str, Implementation]:
    torch.manual_seed(0)
    dtype = getattr(torch, row.dtype)
    with device:  # orthogonal initialisation is faster on the device
        layer = build_layer(row).to(dtype)
    x = torch.randn(row.batch, row.steps, row.units, device=device, dtype=dtype)
    width = 2 * row.units if row.kind == "bidirectional" else row.units
    gradient = torch.randn(row.batch, row.steps, width, device=device, dtype=dtype)
    lengths = draw_lengths(row) if row.kind == "lengths" else None
    if lengths is not None:
        valid = torch.arange(row.steps) < lengths[:, None]
        gradient *= valid[..., None].to(device, dtype)
    device_lengths = None if lengths is None else lengths.to(device)
    seqwise = Implementation(layer, lambda x: layer(x, lengths=device_lengths)[0], x.clone().requires_grad_(), gradient)
    if row.baseline == "pytorch":
        module = build_baseline(row, layer).to(device, dtype)
        time_first = [tensor.transpose(0, 1).contiguous() for tensor in (x, gradient)]
        baseline = Implementation(
            module,
            build_call(module, lengths, row.steps),
            time_first[0].requires_grad_(),
            time_first[1],
            batch_first=False,
        )
        if row.kind == "drop-in":
            drop_in = DROP_IN[row.cell].from_torch(module)
            x = baseline.x.detach().clone().requires_grad_()
            seqwise = replace(baseline, module=drop_in, call=build_call(drop_in, lengths, row.steps), x=x)
    elif row.baseline == "loop":
        cell: Any = layer.cell
        state = cell.start(row.batch, x)
        baseline = Implementation(
            layer, lambda x: scan_reference(cell, x, state, cell.weight_hidden, None)[0], seqwise.x, gradient
        )
    else:
        reset_after = Recurrent(make_cell(row.cell, row.units, row.units, ResolvedRecurrentSettings())).to(
            device, dtype
        )
        baseline = Implementation(reset_after, lambda x: reset_after(x)[0], seqwise.x, gradient)
    return {"seqwise": seqwise, "baseline": baseline}


def build_call(module: nn.Module, lengths: Tensor | None, steps: int) -> Call:
    if lengths is None:
        return lambda x: module(x)[0]
    return lambda x: pad_packed_sequence(module(pack_padded_sequence(x, lengths))[0], total_length=steps)[0]


def draw_lengths(row: Row) -> Tensor:
    """Returns uniformly distributed lengths, longest first, as packing requires."""
    lengths = torch.randint(
        min(MIN_LENGTH, row.steps), row.steps + 1, (row.batch,), generator=torch.Generator().manual_seed(1)
    )
    lengths[0] = row.steps
    return lengths.sort(descending=True).values


def get_backend(module: nn.Module) -> str | None:
    """Returns the backend of the layer's last call, None where the module does not record it."""
    return next((part.backend for part in module.modules() if isinstance(part, Recurrent)), None)


# Measuring


def measure(row: Row, device: torch.device, repeats: int) -> dict[str, Any]:
    implementations = build_implementations(row, device)
    layer = implementations["seqwise"].module
    repeats = min(repeats, QUICK_REPEATS) if row.baseline == "loop" else repeats  # the loop is slow
    times = time_interleaved(
        {name: implementation.forward_backward for name, implementation in implementations.items()}, device, repeats
    )
    backend = get_backend(layer)
    memory = {
        name: measure_peak_memory(implementation.forward_backward, device)
        for name, implementation in implementations.items()
    }
    for implementation in implementations.values():
        implementation.module.eval()
    forward = time_interleaved(
        {name: implementation.forward for name, implementation in implementations.items()}, device, repeats
    )
    scale = 1e6 / row.steps  # from seconds per call to microseconds per step
    return {
        "seqwise_us": times["seqwise"].median * scale,
        "baseline_us": times["baseline"].median * scale,
        "ratio": times["baseline"].median / times["seqwise"].median,
        "ratio_of_minima": times["baseline"].minimum / times["seqwise"].minimum,
        "forward_us": forward["seqwise"].median * scale,
        "forward_baseline_us": forward["baseline"].median * scale,
        "forward_ratio": forward["baseline"].median / forward["seqwise"].median,
        "memory": memory["seqwise"],
        "memory_baseline": memory["baseline"],
        "first_call": times["seqwise"].first,
        "backend": backend if backend == get_backend(layer) else f"{backend}, forward {get_backend(layer)}",
        "relative_error": None
        if row.baseline == "reset after"
        else compare_implementations(replace(row, steps=min(row.steps, COMPARED_STEPS)), device),
        "repeats": repeats,
    }


def compare_implementations(row: Row, device: torch.device) -> float:
    """Returns the relative error of the outputs or of the gradient of the input, whichever is larger."""
    implementations = build_implementations(row, device)
    return max(
        map(
            compute_relative_error,
            implementations["seqwise"].compute_results(),
            implementations["baseline"].compute_results(),
        )
    )


def compute_relative_error(a: Tensor, b: Tensor) -> float:
    """Returns |a − b| / |b|; infinite where a is not finite."""
    value = float((a.double() - b.double()).norm() / b.double().norm())
    return value if value == value else float("inf")


def describe_row(row: Row) -> dict[str, Any]:
    """Returns the columns that describe a row, with its requirements on an H200."""
    is_required = row.dtype == "bfloat16" and row.baseline == "pytorch"
    min_ratio: float | None = None
    if row.variant == "reset before" and row.baseline == "reset after":
        min_ratio = MIN_RATIO_RESET_BEFORE
    elif is_required:
        min_ratio = {"bidirectional": MIN_RATIO_BIDIRECTIONAL, "lengths": MIN_RATIO_LENGTHS}.get(
            row.kind, MIN_RATIO.get(row.shape)
        )
    is_layer = is_required and row.kind == "layer"
    key = row.cell, row.shape
    return {
        "name": str(row), **asdict(row), "group": row.group,
        "min_ratio": min_ratio, "max_us": MAX_MICROSECONDS.get(key) if is_layer else None,
        "target_us": TARGET_MICROSECONDS.get(key) if is_layer else None,
    }  # fmt: skip


def check_relative_errors(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the rows whose results differ too much from the baseline's."""
    missed = []
    for row in rows:
        limit = MAX_RELATIVE_ERROR[row["dtype"]]
        if (row.get("relative_error") or 0) > limit:
            missed.append(f"{row['name']}: relative error {row['relative_error']:.0e}, at most {limit} allowed")
    return missed


def check_gpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    missed = check_relative_errors(rows)
    for row in rows:
        if "failed" in row:
            continue
        if row["min_ratio"] and row["ratio"] < row["min_ratio"]:
            missed.append(f"{row['name']}: ratio {row['ratio']:.3f}, required {row['min_ratio']:.3f}")
        if row["max_us"] and row["seqwise_us"] > row["max_us"]:
            missed.append(f"{row['name']}: {row['seqwise_us']:.3f} µs per step, at most {row['max_us']} allowed")
        if row["baseline"] == "pytorch" and row["memory"] > row["memory_baseline"]:
            memory, baseline = row["memory"] / 1e6, row["memory_baseline"] / 1e6
            missed.append(f"{row['name']}: {memory:.0f} MB, at most {baseline:.0f} allowed")
    return missed


def check_cpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    missed = check_relative_errors(rows)
    measured = [row for row in rows if "failed" not in row and row["baseline"] == "pytorch"]
    for group, min_ratio in MIN_MEDIAN_RATIO.items():
        ratios = [row["ratio"] for row in measured if row["group"] == group]
        if ratios and statistics.median(ratios) < min_ratio:
            missed.append(f"{group}: median ratio {statistics.median(ratios):.3f}, required {min_ratio}")
    for row in measured:
        for suffix, ratio in (("", row["ratio"]), (" forward", row["forward_ratio"])):
            if ratio < MIN_CPU_RATIO:
                missed.append(f"{row['name']}{suffix}: ratio {ratio:.3f}, required {MIN_CPU_RATIO}")
    return missed


COLUMNS = (
    Column("name", "T×B×H", width=-38),
    Column("baseline", "baseline", width=-11),
    Column("seqwise_us", "µs/step", ".2f"),
    Column("baseline_us", "baseline", ".2f", width=10),
    Column("ratio", "ratio", ".2f", width=7),
    Column("min_ratio", "min ratio", ".2f", width=11),
    Column("forward_us", "forward", ".2f"),
    Column("forward_baseline_us", "baseline", ".2f", width=10),
    Column("forward_ratio", "ratio", ".2f", width=7),
    Column("memory", "MB", ",.0f", 1e-6),
    Column("memory_baseline", "baseline", ",.0f", 1e-6, width=10),
    Column("relative_error", "rel. error", ".0e", width=12),
    Column("first_call", "first call s", ".1f", width=14),
    Column("backend", "  backend", width=-24),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="only rows that have all these words")
    options = parser.parse_args(arguments)
    device = set_up_device(options)
    repeats = options.repeats or (QUICK_REPEATS if options.quick else 10)
    rows = select_rows(list_rows(device.type, options.quick), options.rows, lambda row: {*str(row).split(), row.group})
    check = check_cpu if device.type == "cpu" else check_gpu if is_h200(device) else None
    row_names = [str(row) + ("" if row.baseline == "pytorch" else f" vs {row.baseline}") for row in rows]
    report = Report("recurrent", options, device, COLUMNS, arguments, row_names=row_names, check=check)
    for row in rows:
        report.add_measurement(describe_row(row), lambda row=row: measure(row, device, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
