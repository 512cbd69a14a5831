"""How fast are our recurrent layers beside PyTorch's own (cuDNN on a GPU, ATen and oneDNN on a CPU)?

    python benchmarks/recurrent.py [--device cpu|cuda] [--rows lstm 512×64×512 …] [--quick] [--json FILE]

Both sides have the same weights, the same input (B, T, D = H) with a gradient of its own, and give the gradients of the
input and of every weight; the product with the input is part of it. The peer gets its input time first, which it likes
best, and weights in one buffer. Rows of different length are sorted and packed for it; packing and unpacking count,
because one needs them. `loop` is our own open scan, one step of the cell after the other.

Microseconds are those of the median call divided by T. `ratio` is the peer's time divided by ours: above 1 we are
faster. `forward` is the same without gradients. `MB` is the memory of a call, forward and backward, beyond weights and
input. `apart` is how far outputs and gradients of the input of both sides lie apart, relative to their length, after 16
steps at most: what rounding does to a norm inside a recurrence doubles with every dozen. `path` is how our layer was
computed, with gradients and without; "both ways" are two layers of two directions; `least` is the ratio required.

Required on an H200: the ratios and microseconds in `LEAST` and `MOST`, and no more memory than the peer. On a CPU: the
medians in `MEDIAN`, and every row at least 0.97.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from measuring import QUICK, Column, Report, chosen, in_turn, is_h200, parser, peak, settle
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwise.backbones.recurrent import bidirectional_layers
from seqwise.config import RecurrentSettings
from seqwise.layers.cells import make_cell
from seqwise.layers.recurrent import Recurrent, StackedRecurrent
from seqwise.layers.scan import scan

Call = Callable[[Tensor], Tensor]
CELLS = ("lstm", "gru", "rnn")
SHAPES = ((512, 64, 256), (512, 64, 512), (1024, 16, 768), (512, 64, 1024), (128, 20, 1536), (512, 256, 1024))
SHORTEST = 10  # steps of the shortest row where rows differ in length; the longest has all
NEAR = 16  # steps after which results are compared
FAR = {"float32": 0.01, "float16": 0.02, "bfloat16": 0.05}  # how far apart they may be

# Least ratio on an H200, bfloat16, forward and backward.
LEAST = {SHAPES[0]: 2.0, SHAPES[1]: 2.0, SHAPES[2]: 2.0, SHAPES[3]: 1.5, SHAPES[4]: 1.5, SHAPES[5]: 1.0}
LEAST_BOTH_WAYS, LEAST_LENGTHS, LEAST_EARLY_RESET = 2.5, 2.5, 1 / 1.8
# Most microseconds a step there: what the fused CUDA kernels of FlashRNN took on the same machine.
MOST = {
    ("lstm", SHAPES[0]): 18.6, ("lstm", SHAPES[1]): 26.1, ("lstm", SHAPES[3]): 65.9, ("lstm", SHAPES[2]): 13.8,
    ("gru", SHAPES[1]): 43.2, ("rnn", SHAPES[1]): 14.8,
}  # fmt: skip
AIM = {("lstm", SHAPES[1]): 13.0, ("lstm", SHAPES[0]): 10.0, ("rnn", SHAPES[1]): 8.0}  # hoped for, not required
# Least median ratio of each group on a CPU, float32, forward and backward; no row may be slower than NEVER.
MEDIAN = {"lstm": 1.0, "gru": 1.2, "rnn": 1.2, "both ways": 1.5, "lengths": 1.5}
NEVER = 0.97


@dataclass(frozen=True)
class Row:
    """One layer and its peer. `kind`: a layer, two layers that read both ways, or a layer over rows of any length."""

    cell: str
    steps: int
    batch: int
    units: int
    dtype: str = "float32"
    kind: str = "layer"  # or "both ways", "lengths"
    variant: str = ""  # or "reset before", "layer norm"
    peer: str = "pytorch"  # or "loop", "reset after"

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


def rows_of(device: str, quick: bool) -> list[Row]:
    return _gpu_rows(quick) if device == "cuda" else _cpu_rows(quick)


def _gpu_rows(quick: bool) -> list[Row]:
    shapes, usual = SHAPES[1:2] if quick else SHAPES, SHAPES[1]
    rows = [Row(cell, *shape, dtype="bfloat16") for cell in CELLS for shape in shapes]
    rows += [Row("lstm", *usual, dtype="bfloat16", kind=kind) for kind in ("both ways", "lengths")]
    rows.append(Row("gru", *usual, dtype="bfloat16", variant="reset before", peer="reset after"))
    if quick:
        return rows
    rows += [Row(cell, *usual, dtype=dtype) for dtype in ("float16", "float32") for cell in CELLS]
    rows.append(Row("lstm", *usual, dtype="bfloat16", peer="loop"))
    rows += [Row(cell, *usual, dtype="bfloat16", variant="layer norm", peer="loop") for cell in CELLS]
    return rows


def _cpu_rows(quick: bool) -> list[Row]:
    times, batches, units = ((32,), (20,), (128,)) if quick else ((32, 128), (1, 20, 64), (64, 128, 256, 512))
    rows = [Row(cell, t, b, u) for cell in CELLS for t in times for b in batches for u in units]
    odd = () if quick else (170, 650)  # no whole number of vectors
    rows += [Row(cell, 128, 20, u) for cell in CELLS for u in odd]
    some = units[:1] if quick else (128, 256)
    many = batches[:1] if quick else (20, 64)
    rows += [Row(cell, times[-1], b, u, kind="both ways") for cell in ("lstm", "gru") for b in many for u in some]
    rows += [Row(cell, 128, b, u, kind="lengths") for cell in CELLS for b in many for u in some]
    rows += [Row("gru", 32, 20, some[-1], variant="reset before", peer="loop")]
    rows += [Row(cell, 32, 20, some[-1], variant="layer norm", peer="loop") for cell in CELLS]
    return rows


# Both sides


def ours_of(row: Row) -> Recurrent | StackedRecurrent:
    settings = RecurrentSettings(
        reset="before" if row.variant == "reset before" else "after", layer_norm=row.variant == "layer norm"
    )
    if row.kind == "both ways":
        return StackedRecurrent(bidirectional_layers(row.cell, row.units, row.units, 2, settings))
    return Recurrent(make_cell(row.cell, row.units, row.units, settings))


def peer_of(row: Row, ours: nn.Module) -> nn.Module:
    """PyTorch's own module with our weights."""
    kind = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[row.cell]
    both = row.kind == "both ways"
    peer = kind(row.units, row.units, 2 if both else 1, bidirectional=both)
    layers = [module for module in ours.modules() if isinstance(module, Recurrent)]
    with torch.no_grad():
        for number, layer in enumerate(layers):
            cell: Any = layer.cell
            name = f"l{number // 2}{'_reverse' if number % 2 else ''}" if both else "l0"
            getattr(peer, f"weight_ih_{name}").copy_(cell.weight_input)
            getattr(peer, f"weight_hh_{name}").copy_(cell.weight_hidden)
            getattr(peer, f"bias_ih_{name}").copy_(cell.bias)
            second = F.pad(cell.bias_hidden, (2 * row.units, 0)) if row.cell == "gru" else torch.zeros_like(cell.bias)
            getattr(peer, f"bias_hh_{name}").copy_(second)
    return peer


@dataclass
class Side:
    """A module and how it is called: `call` takes and gives tensors in the layout of `x`."""

    module: nn.Module
    call: Call
    x: Tensor
    gradient: Tensor
    batch_first: bool = True

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.call(self.x)

    def both(self) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.call(self.x), [self.x, *self.module.parameters()], self.gradient)

    def results(self) -> list[Tensor]:
        """Outputs and gradients of x, batch first."""
        found = self.forward(), self.both()[0]
        return [tensor if self.batch_first else tensor.transpose(0, 1) for tensor in found]


def sides_of(row: Row, device: torch.device) -> dict[str, Side]:
    torch.manual_seed(0)
    dtype = getattr(torch, row.dtype)
    with device:  # orthogonal matrices are drawn faster there
        ours = ours_of(row).to(dtype)
    x = torch.randn(row.batch, row.steps, row.units, device=device, dtype=dtype)
    width = 2 * row.units if row.kind == "both ways" else row.units
    gradient = torch.randn(row.batch, row.steps, width, device=device, dtype=dtype)
    lengths = draw_lengths(row) if row.kind == "lengths" else None
    if lengths is not None:
        real = torch.arange(row.steps) < lengths[:, None]
        gradient *= real[..., None].to(device, dtype)
    there = None if lengths is None else lengths.to(device)
    mine = Side(ours, lambda x: ours(x, lengths=there)[0], x.clone().requires_grad_(), gradient)
    if row.peer == "pytorch":
        peer = peer_of(row, ours).to(device, dtype)
        over = [tensor.transpose(0, 1).contiguous() for tensor in (x, gradient)]
        theirs = Side(peer, plain(peer, lengths, row.steps), over[0].requires_grad_(), over[1], batch_first=False)
    elif row.peer == "loop":
        cell: Any = ours.cell
        state = cell.start(row.batch, x)
        theirs = Side(ours, lambda x: scan(cell, x, state, cell.weight_hidden, None)[0], mine.x, gradient)
    else:
        usual = Recurrent(make_cell(row.cell, row.units, row.units, RecurrentSettings())).to(device, dtype)
        theirs = Side(usual, lambda x: usual(x)[0], mine.x, gradient)
    return {"ours": mine, "peer": theirs}


def plain(peer: nn.Module, lengths: Tensor | None, steps: int) -> Call:
    if lengths is None:
        return lambda x: peer(x)[0]
    return lambda x: pad_packed_sequence(peer(pack_padded_sequence(x, lengths))[0], total_length=steps)[0]


def draw_lengths(row: Row) -> Tensor:
    """Uniform, longest first: packing wants them so."""
    drawn = torch.randint(
        min(SHORTEST, row.steps), row.steps + 1, (row.batch,), generator=torch.Generator().manual_seed(1)
    )
    drawn[0] = row.steps
    return drawn.sort(descending=True).values


def path_of(module: nn.Module) -> str | None:
    """How our layer computed its last call."""
    return next(part for part in module.modules() if isinstance(part, Recurrent)).backend


# Measuring


def measure(row: Row, device: torch.device, repeats: int) -> dict[str, Any]:
    sides = sides_of(row, device)
    ours = sides["ours"]
    turns = min(repeats, QUICK) if row.peer == "loop" else repeats
    times = in_turn({name: side.both for name, side in sides.items()}, device, turns)
    path = path_of(ours.module)
    memory = {name: peak(side.both, device) for name, side in sides.items()}
    for side in sides.values():
        side.module.eval()
    forward = in_turn({name: side.forward for name, side in sides.items()}, device, turns)
    step = 1e6 / row.steps
    return {
        "ours": times["ours"].median * step,
        "theirs": times["peer"].median * step,
        "ratio": times["peer"].median / times["ours"].median,
        "ratio_of_least": times["peer"].least / times["ours"].least,
        "forward_ours": forward["ours"].median * step,
        "forward_theirs": forward["peer"].median * step,
        "forward_ratio": forward["peer"].median / forward["ours"].median,
        "memory_ours": memory["ours"],
        "memory_theirs": memory["peer"],
        "first_call": times["ours"].first,
        "path": path if path == path_of(ours.module) else f"{path}, forward {path_of(ours.module)}",
        "apart": None if row.peer == "reset after" else apart(replace(row, steps=min(row.steps, NEAR)), device),
        "repeats": turns,
    }


def apart(row: Row, device: torch.device) -> float:
    sides = sides_of(row, device)
    return max(map(distance, sides["ours"].results(), sides["peer"].results()))


def distance(a: Tensor, b: Tensor) -> float:
    """How far a lies from b, relative to the length of b; infinite where a is not finite."""
    value = float((a.double() - b.double()).norm() / b.double().norm())
    return value if value == value else float("inf")


def known_of(row: Row) -> dict[str, Any]:
    """What a row is, and what is required of it on an H200."""
    usual = row.dtype == "bfloat16" and row.peer == "pytorch"
    least: float | None = None
    if row.variant == "reset before" and row.peer == "reset after":
        least = LEAST_EARLY_RESET
    elif usual:
        least = {"both ways": LEAST_BOTH_WAYS, "lengths": LEAST_LENGTHS}.get(row.kind, LEAST.get(row.shape))
    plainly = usual and row.kind == "layer"
    key = row.cell, row.shape
    return {
        "name": str(row), **asdict(row), "group": row.group,
        "least": least, "most": MOST.get(key) if plainly else None, "aim": AIM.get(key) if plainly else None,
    }  # fmt: skip


def far_apart(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Who computes something else is not faster."""
    far = [row for row in rows if (row.get("apart") or 0) > FAR[row["dtype"]]]
    return [f"{row['name']}: {row['apart']:.0e} apart, not {FAR[row['dtype']]}" for row in far]


def missed_on_gpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = far_apart(rows)
    for row in rows:
        if "failed" in row:
            continue
        if row["least"] and row["ratio"] < row["least"]:
            found.append(f"{row['name']}: {row['ratio']:.3f} times the peer, not {row['least']:.3f}")
        if row["most"] and row["ours"] > row["most"]:
            found.append(f"{row['name']}: {row['ours']:.3f} µs a step, not {row['most']}")
        if row["peer"] == "pytorch" and row["memory_ours"] > row["memory_theirs"]:
            ours, theirs = row["memory_ours"] / 1e6, row["memory_theirs"] / 1e6
            found.append(f"{row['name']}: {ours:.0f} MB, more than the peer's {theirs:.0f}")
    return found


def missed_on_cpu(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = far_apart(rows)
    measured = [row for row in rows if "failed" not in row and row["peer"] == "pytorch"]
    for group, least in MEDIAN.items():
        ratios = [row["ratio"] for row in measured if row["group"] == group]
        if ratios and statistics.median(ratios) < least:
            found.append(f"{group}: {statistics.median(ratios):.3f} times the peer in the median, not {least}")
    for row in measured:
        for what, ratio in (("", row["ratio"]), (" forward", row["forward_ratio"])):
            if ratio < NEVER:
                found.append(f"{row['name']}{what}: {ratio:.3f} times the peer, not {NEVER}")
    return found


COLUMNS = (
    Column("name", "T×B×H", width=-38),
    Column("peer", "beside", width=-11),
    Column("ours", "µs/step", ".2f"),
    Column("theirs", "peer", ".2f"),
    Column("ratio", "ratio", ".2f", width=7),
    Column("least", "least", ".2f", width=7),
    Column("forward_ours", "forward", ".2f"),
    Column("forward_theirs", "peer", ".2f"),
    Column("forward_ratio", "ratio", ".2f", width=7),
    Column("memory_ours", "MB", ",.0f", 1e-6),
    Column("memory_theirs", "peer", ",.0f", 1e-6),
    Column("apart", "apart", ".0e", width=8),
    Column("first_call", "first s", ".1f", width=8),
    Column("path", "  path", width=-24),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    command.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="only rows with all of these words")
    options = command.parse_args(arguments)
    device = settle(options)
    repeats = options.repeats or (QUICK if options.quick else 10)
    rows = chosen(rows_of(device.type, options.quick), options.rows, lambda row: {*str(row).split(), row.group})
    judge = missed_on_cpu if device.type == "cpu" else missed_on_gpu if is_h200(device) else None
    planned = [str(row) + ("" if row.peer == "pytorch" else f" beside {row.peer}") for row in rows]
    report = Report("recurrent", options, device, COLUMNS, arguments, planned=planned, judge=judge)
    for row in rows:
        report.measured(known_of(row), lambda row=row: measure(row, device, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
