"""`gates`: what the gates of a recurrent model do at each token.

    LSTM   i, f, o = σ(…), g = tanh(…), c = f ⊙ c + i ⊙ g, h = o ⊙ tanh(c)
    GRU    r, z = σ(…), n = tanh(…), h = z ⊙ h + (1 − z) ⊙ n     (or with z and 1 − z exchanged)
    RNN    h = φ(W x + U h + b)

A gate is *saturated* where it is below 0.1 or above 0.9: it is closed or open, and passes hardly any gradient to its
own weights. The *time constant* 1 / (1 − f) is the number of steps over which a unit forgets. What an LSTM *stores* is
tanh(c); what it *exposes* of that to other units is o.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError, capitalize
from seqwise.layers.diagnostics import CLOSED, GATES, OPEN
from seqwise.layers.record import Recording
from seqwise.lens.recurrent import (
    RecurrentLayer,
    choose_layers,
    compute_time_constants,
    get_keep_gate,
    list_gates,
    list_layers,
)
from seqwise.lens.subject import Subject, open_subject
from seqwise.lens.view import View
from seqwise.page.figures import BarChart, Figure, Heatmap, HeatmapGrid, Table

MAX_UNITS = 40  # rows of a heatmap: those that vary most
OVERVIEW_UNITS = 10  # of each gate in an image of all of them
MAX_OVERVIEW_PANELS = 12  # gates in such an image: two layers, or directions, of an LSTM
SHARES = (f"share below {CLOSED}", f"share above {OPEN}")
NAMES = {"input": "input gate i", "forget": "forget gate f", "output": "output gate o", "update": "update gate z",
         "reset": "reset gate r", "candidate": "candidate", "cell": "cell c", "hidden": "state h"}  # fmt: skip


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if list_layers(subject) else f"{subject.name} has no recurrent layer."


def gates(
    model: Any,
    text: Any = None,
    *,
    layer: int | str | None = None,
    unit: int | None = None,
    max_units: int = MAX_UNITS,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns the gates of each unit at each token, the units that vary most first.

    layer: number from 1 or name; label, such as "encoder, layer 1, backward", or dotted path of one direction
    unit: number from 0, as in the arrays of `data`: shows all gates of this unit

    `data`: per layer label a dictionary with `tokens`, `units` (sorted by variation), each gate as an array
    (tokens, units) in the original order of units, `saturation` (gate → shares closed and open); of an LSTM or GRU
    `time_constant` (units,), and of an LSTM `stored` and `exposed` (units,): the means of |tanh(c)| and |h|.
    """
    subject = open_subject(model, text, progress)
    layers = choose_layers(subject, layer)
    recordings = subject.record_each([f"{one.path}.*" for one in layers])
    figures: list[Figure] = []
    summary: list[str] = []
    data: dict[str, Any] = {}
    for one, recording in zip(layers, recordings):
        values = measure_layer(subject, one, recording)
        data[one.label] = values
        summary.append(describe(one, values, subject.position_plural))
        figures += draw_layer(subject, one, values, unit, max_units)
    overview = draw_overview(subject, data, min(OVERVIEW_UNITS, max_units)) if unit is None else ()
    return View("gates", f"Gates of {subject.name}", tuple(summary), tuple(figures), data, overview)


def measure_layer(subject: Subject, layer: RecurrentLayer, recording: Recording) -> dict[str, Any]:
    """Returns the gates of a layer and what is computed from them."""
    arrays = {name: layer.get_values(recording, name).float().cpu().numpy() for name in list_gates(layer.cell)}
    hidden = arrays["hidden"]
    variation = hidden.std(axis=0)
    values: dict[str, Any] = {
        "tokens": subject.name_positions(layer.path, len(hidden)),
        "units": np.argsort(-variation, kind="stable"),
        **arrays,
        "saturation": {
            name: (float((arrays[name] < CLOSED).mean()), float((arrays[name] > OPEN).mean()))
            for name in GATES
            if name in arrays
        },
    }
    keep = get_keep_gate(layer, recording)
    if keep is not None:
        values["time_constant"] = compute_time_constants(keep.float()).cpu().numpy()
    if "cell" in arrays:
        values["stored"] = np.abs(np.tanh(arrays["cell"])).mean(axis=0)
        values["exposed"] = np.abs(hidden).mean(axis=0)
    return values


def describe(layer: RecurrentLayer, values: dict[str, Any], position_plural: str) -> str:
    """Returns a sentence with the most important numbers of a layer; `position_plural` is what its positions are."""
    parts = [
        f"{NAMES[name]} closed at {closed:.0%}, open at {opened:.0%} of all values"
        for name, (closed, opened) in values["saturation"].items()
    ]
    if "time_constant" in values:
        low, middle, high = np.quantile(values["time_constant"], (0.1, 0.5, 0.9))
        parts.append(
            f"units forget over {middle:.1f} {position_plural} (a tenth below {low:.1f}, a tenth above {high:.1f})"
        )
    if "stored" in values:
        parts.append(f"{values['exposed'].sum() / max(values['stored'].sum(), 1e-12):.0%} of what is stored is exposed")
    if not parts:
        saturated = float((np.abs(values["hidden"]) > OPEN).mean())
        parts.append(f"{saturated:.0%} of the states are above {OPEN} in size")
    return f"{capitalize(layer.label)} ({layer.cell.units:,} units): {'; '.join(parts)}."


def draw_layer(
    subject: Subject, layer: RecurrentLayer, values: dict[str, Any], unit: int | None, max_units: int
) -> list[Figure]:
    """Returns a heatmap per gate, saturation and time constants; with `unit` only a heatmap of all its gates."""
    names = [name for name in NAMES if name in values]
    if unit is not None:
        if not 0 <= unit < layer.cell.units:
            raise UsageError(
                f"{layer.label} has no unit {unit}.", fix=f"Choose a number from 0 to {layer.cell.units - 1}."
            )
        return [draw_unit(subject, layer, values, names, unit)]
    figures: list[Figure] = [
        draw_gate(subject, values, name, max_units, f"{NAMES[name]}, {layer.label}") for name in names
    ]
    if values["saturation"]:
        rows = [(NAMES[name], closed, opened) for name, (closed, opened) in values["saturation"].items()]
        figures.append(Table(title=f"Saturation, {layer.label}", columns=("gate", *SHARES), rows=rows))
    if "time_constant" in values:
        slowest = np.argsort(-values["time_constant"], kind="stable")[:max_units]
        gate = "forget gate" if "forget" in values else "share that is kept"
        figures.append(
            BarChart(
                title=f"Units that remember longest, {layer.label}",
                names=[f"unit {number}" for number in slowest],
                values=values["time_constant"][slowest],
                value_label=f"time constant 1 / (1 − geometric mean of the {gate}) in {subject.position_plural}",
            )
        )
    return figures


def draw_gate(subject: Subject, values: dict[str, Any], name: str, max_units: int, title: str) -> Heatmap:
    """Returns one gate of the units whose state varies most, over the tokens."""
    units = values["units"][:max_units]
    return Heatmap(
        title=title,
        note=describe_units(len(units), len(values["units"])),
        values=values[name][:, units].T,
        rows=[str(number) for number in units],
        columns=values["tokens"],
        row_label="unit",
        column_label=subject.position_name,
        value_label=NAMES[name],
        scale="sequential" if name in GATES else "diverging",
        low=0.0 if name in GATES else None,
        high=1.0 if name in GATES else None,
        role="state" if name == "hidden" else name,
    )


def describe_units(num_shown: int, num_units: int) -> str:
    """Returns which units of a layer are shown."""
    if num_shown == num_units:
        return "Units are counted from 0."
    return f"The {num_shown} of {num_units} units whose state varies most, counted from 0."


def draw_overview(subject: Subject, data: dict[str, dict[str, Any]], max_units: int) -> tuple[Figure, ...]:
    """Returns a grid of all gates per layer with few units, as many layers as fit into an image, and their saturation.

    data: label of a layer → its values
    """
    grids: list[HeatmapGrid] = []
    rows: list[tuple[str, str, float, float]] = []
    num_panels = 0
    for label, values in data.items():
        names = [name for name in NAMES if name in values]
        num_panels += len(names)
        if grids and num_panels > MAX_OVERVIEW_PANELS:
            break
        panels = [draw_gate(subject, values, name, max_units, NAMES[name]) for name in names]
        grids.append(HeatmapGrid(title=f"Gates, {label}", note=panels[0].note, panels=panels, num_columns=1))
        rows += [(label, NAMES[name], closed, opened) for name, (closed, opened) in values["saturation"].items()]
    note = describe_left_out(data, len(grids), max_units)
    if rows:
        return (*grids, Table(title="Saturation", note=note, columns=("layer", "gate", *SHARES), rows=rows))
    return (*grids[:-1], replace(grids[-1], note=f"{grids[-1].note} {note}".strip()))


def describe_left_out(data: dict[str, dict[str, Any]], num_layers: int, max_units: int) -> str:
    """Returns what the overview of some layers leaves out, and the option that shows it; empty if nothing."""
    details = ["more units"] if any(len(values["units"]) > max_units for values in data.values()) else []
    if any("time_constant" in values for values in data.values()):
        details.append("how long units remember")
    parts = [f"{' and '.join(details)} (--figure N or --out FILE.html)"] if details else []
    parts += [f"{label} (--layer)" for label in list(data)[num_layers:]]
    return f"Not in this image: {'; '.join(parts)}." if parts else ""


def draw_unit(subject: Subject, layer: RecurrentLayer, values: dict[str, Any], names: list[str], unit: int) -> Heatmap:
    """Returns all gates of one unit over the tokens."""
    return Heatmap(
        title=f"Unit {unit}, {layer.label}",
        values=np.stack([values[name][:, unit] for name in names]),
        rows=[NAMES[name] for name in names],
        columns=values["tokens"],
        row_label="gate",
        column_label=subject.position_name,
        value_label="value",
        scale="diverging",
        low=-1.0,
        high=1.0,
    )
