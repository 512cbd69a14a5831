"""Time per token of each model family as a function of sequence length, batch size and width.

    python benchmarks/cost.py [--device cpu|cuda] [--chart FILE.png] [--quick] [--json FILE]

Measures the backbone of each family with two layers (the feed-forward one has a context of 5 tokens, attentive-rnn
attends to 256 states, heads have width 64), forward and backward, with the gradients of the input and of all weights;
float32 on a CPU, bfloat16 on a GPU. One of sequence length T, batch size B and width H varies at a time; the three
curves share one point, which is measured once. The calls of the families are interleaved at each point. Microseconds
per token are those of the fastest sample; on a CPU the minimum of three passes over all points, so that a busy minute
does not distort a curve.

The chart has one panel for each axis with logarithmic scales: a flat curve means a constant cost per token, a slope of
−1 that the machine is underused, a slope of 2 in H that matrix products dominate. No minimum speed is required.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measuring import QUICK_REPEATS, Column, Report, build_parser, set_up_device, time_interleaved

from seqwise.backbones.encoder import build_backbone
from seqwise.config import DataSettings, NetworkSettings, Settings, TransformerSettings
from seqwise.resolved_settings import ResolvedSettings

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
AXES = {"T": "sequence length", "B": "batch size", "H": "width"}
# The sizes that do not vary; together the point that the three curves share.
MIDDLE = {"cpu": {"T": 64, "B": 16, "H": 128}, "cuda": {"T": 512, "B": 32, "H": 512}}
POINTS = {
    "cpu": {"T": (16, 32, 64, 128, 256, 512), "B": (1, 4, 16, 64), "H": (32, 64, 128, 256, 512)},
    "cuda": {"T": (64, 128, 256, 512, 1024, 2048), "B": (1, 8, 32, 128), "H": (128, 256, 512, 1024)},
}
DEPTH = 2  # layers
PASSES = {"cpu": 3, "cuda": 1}
COLOURS = ("#777777", "#d1495b", "#edae49", "#00798c", "#6a4c93", "#2e5339")
MARKERS = "osD^vP"  # of matplotlib


def list_points(device: str, quick: bool) -> list[tuple[str, dict[str, int]]]:
    """Returns (varying axis, sizes) of each point; the middle belongs to every axis."""
    points = []
    for axis, values in POINTS[device].items():
        for value in (values[0], MIDDLE[device][axis]) if quick else values:
            points.append((axis, {**MIDDLE[device], axis: value}))
    return points


def build_step(family: str, sizes: dict[str, int], device: torch.device) -> Callable[[], object]:
    """Returns a function that runs one backbone forward and backward on random vectors."""
    length, batch_size, width = sizes["T"], sizes["B"], sizes["H"]
    settings = Settings(
        model=family,
        network=NetworkSettings(width=width, depth=DEPTH, dropout=0.0),
        data=DataSettings(window=length),
        transformer=TransformerSettings(heads=max(1, width // 64)),
    )
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    with device:  # orthogonal initialisation is faster on the device
        backbone = build_backbone(ResolvedSettings.from_settings(settings), width).to(dtype)
    x = torch.randn(batch_size, length, width, device=device, dtype=dtype, requires_grad=True)
    gradient = torch.randn_like(x)
    inputs = [x, *backbone.parameters()]
    return lambda: torch.autograd.grad(backbone(x).vectors, inputs, gradient)


def measure(sizes: dict[str, int], device: torch.device, repeats: int) -> dict[str, Any]:
    """Returns the microseconds per token of each family."""
    steps = {family: build_step(family, sizes, device) for family in FAMILIES}
    times = time_interleaved(steps, device, repeats, num_warmup=1)
    tokens = sizes["T"] * sizes["B"]
    return {family: each.minimum / tokens * 1e6 for family, each in times.items()}


def take_minimum(results: dict[str, Any], previous: dict[str, Any]) -> dict[str, Any]:
    return {family: min(value, previous[family]) for family, value in results.items()}


def cache_by_sizes(measure: Callable[[dict[str, int]], dict[str, Any]]) -> Callable[[dict[str, int]], dict[str, Any]]:
    """Returns a function that measures each combination of sizes once."""
    cache: dict[tuple[int, ...], dict[str, Any]] = {}

    def measure_cached(sizes: dict[str, int]) -> dict[str, Any]:
        key = tuple(sizes.values())
        if key not in cache:
            cache[key] = measure(sizes)
        return cache[key]

    return measure_cached


def repeat_pass(report: Report, measure_again: Callable[[dict[str, int]], dict[str, Any]]) -> None:
    """Measures all points again, except those that failed, and keeps the minimum."""
    points: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for row in report.rows:
        if "failed" not in row:
            points.setdefault(tuple(row[axis] for axis in AXES), []).append(row)
    for sizes, rows in points.items():
        report.update_rows(
            rows, lambda sizes=sizes, rows=rows: take_minimum(measure_again(dict(zip(AXES, sizes))), rows[0])
        )


def draw(document: dict[str, Any], path: Path) -> None:
    """Draws the chart with one panel per axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(12, 4.6), sharey=True, layout="constrained")
    rows = [row for row in document["rows"] if "failed" not in row]
    for panel, (axis, name) in zip(panels, AXES.items()):
        line = sorted((row for row in rows if row["axis"] == axis), key=lambda row: row[axis])
        for family, colour, marker in zip(FAMILIES, COLOURS, MARKERS):
            x, y = [row[axis] for row in line], [row[family] for row in line]
            panel.plot(x, y, color=colour, marker=marker, markersize=4, linewidth=1.6, label=family)
        values = sorted({row[axis] for row in line})
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(values, [str(value) for value in values])
        others = ", ".join(f"{key} {value}" for key, value in document["middle"].items() if key != axis)
        panel.set_title(f"{name} {axis}  ({others})", fontsize=11)
        panel.grid(True, which="major", color="#dddddd", linewidth=0.7)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("µs per token, forward and backward")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(FAMILIES), frameon=False)
    figure.suptitle(f"Cost of a token: {document['where']}, {document['precision']}", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


COLUMNS = (
    Column("axis", "", width=-3),
    *(Column(axis, axis, width=6) for axis in AXES),
    *(Column(family, family, ",.2f", width=15) for family in FAMILIES),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--chart", type=Path, metavar="FILE", help=".png or .svg")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="only draw the chart of saved results")
    options = parser.parse_args(arguments)
    if options.draw:
        draw(json.loads(options.draw.read_text(encoding="utf-8")), options.chart or options.draw.with_suffix(".png"))
        return 0
    device = set_up_device(options)
    repeats = options.repeats or QUICK_REPEATS + 2 * (not options.quick)
    precision = "bfloat16" if device.type == "cuda" else "float32"
    details = {"middle": MIDDLE[device.type], "depth": DEPTH, "precision": precision, "unit": "µs per token"}
    points = list_points(device.type, options.quick)
    row_names = [f"{axis} {sizes[axis]}" for axis, sizes in points]
    report = Report("cost", options, device, COLUMNS, arguments, details, row_names)
    measure_cached = cache_by_sizes(lambda sizes: measure(sizes, device, repeats))
    for axis, sizes in points:
        report.add_measurement({"axis": axis, **sizes}, lambda sizes=sizes: measure_cached(sizes))
    passes = 1 if options.quick else PASSES[device.type]
    for number in range(1, passes):
        repeat_pass(report, lambda sizes: measure(sizes, device, repeats))
        report.log(f"minimum of {number + 1} of {passes} passes")
        report.print_header()
        for row in report.rows:
            report.print_row(row)
    if options.chart:
        draw(report.to_dict(), options.chart)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
