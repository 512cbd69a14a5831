"""The figures of `training`: curves over the updates, for runs and for layers. It knows nothing of files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from seqwise.layers.diagnostics import CLOSED, DEAD_RATIO, OPEN, make_label
from seqwise.page.figures import Figure, Heatmap, LineChart, Reference, Series

MAX_POINTS = 200  # of a curve; more are drawn as means of neighbours, with an interval
INTERVAL = (0.1, 0.9)  # quantiles of the neighbours
MAX_LINES = 8  # in a chart of layers; more are drawn as a heatmap
MAX_COLUMNS = 60  # of such a heatmap
LOG_RANGE = 50.0  # a loss whose largest value is this many times the smallest is drawn on a log scale


def draw_metrics(data: Mapping[str, Mapping[str, Any]], clip_threshold: float | None) -> list[Figure]:
    """Returns charts of loss, learning rate and gradient norm, with a line for each run."""
    losses = [line for name, values in data.items() for line in _draw_loss(name, values, len(data) > 1)]
    values = np.concatenate([line.y for line in losses])
    values = values[np.isfinite(values)]
    note = (
        f"Training curves are means of neighbouring updates; bands have {INTERVAL[1] - INTERVAL[0]:.0%} of them."
        if any(len(each["step"]) > MAX_POINTS for each in data.values())
        else ""
    )
    is_log = bool(len(values) and values.min() > 0 and values.max() > LOG_RANGE * values.min())
    clip = [] if clip_threshold is None else [Reference(axis="y", value=clip_threshold, label="clipped above")]
    return [
        LineChart(title="Loss", note=note, series=losses, x_label="update", y_label="loss per target", y_log=is_log),
        LineChart(
            title="Gradient norm",
            note="Norm of the gradient of all weights, before clipping.",
            series=[_average(name, each["step"], each["gradient_norm"], is_log=True) for name, each in data.items()],
            x_label="update",
            y_label="gradient norm",
            y_log=True,
            references=clip,
        ),
        LineChart(
            title="Learning rate",
            series=[_average(name, each["step"], each["learning_rate"]) for name, each in data.items()],
            x_label="update",
            y_label="learning rate",
        ),
    ]


def _draw_loss(name: str, data: Mapping[str, Any], has_suffix: bool) -> list[Series]:
    suffix = f": {name}" if has_suffix else ""
    lines = [_average(f"training{suffix}", data["step"], data["loss"])]
    if len(data["validation_step"]):
        lines.append(Series(name=f"validation{suffix}", x=data["validation_step"], y=data["validation_loss"]))
    return lines


def _average(name: str, x: np.ndarray, y: np.ndarray, is_log: bool = False) -> Series:
    """Returns a line; of more than `MAX_POINTS` points, means of neighbours. On a log scale only positive values."""
    y = np.where(y > 0, y, np.nan) if is_log else y
    if len(x) <= MAX_POINTS:
        return Series(name=name, x=x, y=y)
    bounds = np.linspace(0, len(x), MAX_POINTS + 1).astype(int)
    groups = [slice(start, stop) for start, stop in pairwise(bounds)]
    finite = [y[group][np.isfinite(y[group])] for group in groups]
    low, high = (np.array([np.quantile(g, q) if len(g) else np.nan for g in finite]) for q in INTERVAL)
    mean = np.array([g.mean() if len(g) else np.nan for g in finite])
    return Series(name=name, x=np.array([x[group].mean() for group in groups]), y=mean, low=low, high=high)


def draw_layers(data: Mapping[str, Any], run_name: str, usual_ratio: float) -> list[Figure]:
    """Returns charts of the layers of a run over its updates; none if they were not recorded."""
    if "layers" not in data:
        return []
    steps, suffix = data["watch_step"], f", {run_name}" if run_name else ""
    blocks = merge_layers(data["layers"])
    figures = [
        _draw_many(
            f"Update-to-weight ratio per layer{suffix}",
            steps,
            {name: values["update_ratio"] for name, values in blocks.items()},
            "‖Δw‖ / ‖w‖",
            references=[Reference(axis="y", value=usual_ratio, label="usual")],
        ),
        _draw_many(
            f"Gradient norm per layer{suffix}",
            steps,
            {name: values["gradient_norm"] for name, values in blocks.items()},
            "gradient norm",
        ),
        *_draw_gates(data["gates"], steps, suffix),
    ]
    if any(np.nanmax(shares, initial=0.0) > 0 for shares in data["dead_units"].values()):
        title = f"Dead units{suffix}"
        note = f"Units whose value varies over tokens by less than {DEAD_RATIO:.0%} of that of active ones."
        figures.append(_draw_many(title, steps, data["dead_units"], "share of units", is_log=False, note=note))
    return figures


def merge_layers(layers: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Returns the norms of modules merged into layers: the attention and the norms of a Transformer layer are one."""
    squares: dict[str, list[np.ndarray]] = {}
    for path, values in layers.items():
        has_number = re.search(r"\.layer\.\d+", f".{path}") is not None
        name = make_label(path) if has_number else path
        update_norm = values["update_ratio"] * values["weight_norm"]
        norms = np.stack([values["gradient_norm"], values["weight_norm"], update_norm]) ** 2
        squares.setdefault(name, []).append(norms)
    merged = {name: np.sqrt(np.sum(each, axis=0)) for name, each in squares.items()}
    return {
        name: {"gradient_norm": gradient, "update_ratio": update / np.where(weight > 0, weight, np.nan)}
        for name, (gradient, weight, update) in merged.items()
    }


def _draw_gates(gates: Mapping[str, Mapping[str, np.ndarray]], steps: np.ndarray, suffix: str) -> list[Figure]:
    """Returns the saturated shares of each gate over the updates: one chart for all, or one for each gate."""
    note = f"Share of the gate's values below {CLOSED} (closed) or above {OPEN} (open), on a fixed batch."
    sides = ("closed", "open")
    lines = {
        (gate, layer, side): shares[:, index]
        for layer, each in gates.items()
        for gate, shares in each.items()
        for index, side in enumerate(sides)
    }
    if not lines:
        return []
    if len(lines) <= MAX_LINES:
        several = len(gates) > 1
        named = {f"{gate} {side}{f', {layer}' * several}": y for (gate, layer, side), y in lines.items()}
        roles = [gate for gate, _, _ in lines] if not several else ()
        title = f"Saturated gates{suffix}"
        return [_draw_many(title, steps, named, "share of values", is_log=False, note=note, roles=roles)]
    figures = []
    for name in dict.fromkeys(gate for gate, _, _ in lines):
        named = {f"{layer}: {side}": y for (gate, layer, side), y in lines.items() if gate == name}
        title = f"Saturation of the {name} gate{suffix}"
        figures.append(_draw_many(title, steps, named, "share of values", is_log=False, note=note))
    return figures


def _draw_many(
    title: str,
    steps: np.ndarray,
    lines: Mapping[str, np.ndarray],
    y_label: str,
    *,
    is_log: bool = True,
    note: str = "",
    references: Sequence[Reference] = (),
    roles: Sequence[str] = (),
) -> Figure:
    """Returns a line chart, or a heatmap of more lines than a reader can tell apart."""
    lines = {name: np.where(y > 0, y, np.nan) if is_log else y for name, y in lines.items()}
    if len(lines) <= MAX_LINES:
        series = [
            Series(name=name, x=steps, y=y, role=roles[index] if roles else "")
            for index, (name, y) in enumerate(lines.items())
        ]
        return LineChart(
            title=title, note=note, series=series, x_label="update", y_label=y_label, y_log=is_log,
            references=references,
        )  # fmt: skip
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MAX_COLUMNS)).astype(int))
    values = np.stack([y[chosen] for y in lines.values()])
    return Heatmap(
        title=title,
        note=note,
        values=np.log10(values) if is_log else values,
        rows=list(lines),
        columns=[f"{int(step)}" for step in steps[chosen]],
        row_label="layer",
        column_label="update",
        value_label=f"log₁₀ {y_label}" if is_log else y_label,
        low=None if is_log else 0.0,
        high=None if is_log else 1.0,
    )
