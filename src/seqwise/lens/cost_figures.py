"""Figures of the view `cost`. It knows nothing of models: it draws the values that `cost.py` computes."""

from __future__ import annotations

from typing import Any

from seqwise.page.figures import Figure, LineChart, Reference, Series, Table

UNITS = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand"))
BYTES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
CROSSOVERS = {"projections": "= projections", "layers": "= all layers"}  # where attention needs as much

Data = dict[str, dict[str, Any]]


def format_amount(value: float) -> str:
    """Returns a number with three digits and a word, such as "12.3 million"."""
    for size, word in UNITS:
        if value >= size:
            return f"{value / size:.3g} {word}"
    return f"{value:.3g}"


def format_bytes(value: float) -> str:
    for size, unit in BYTES:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} bytes"


def draw_figures(data: Data) -> tuple[Figure, ...]:
    """Returns all figures; of several models, their totals in one chart first."""
    figures: list[Figure] = []
    if len(data) > 1:
        figures.append(draw_totals(data))
    figures += [draw_operations(name, values) for name, values in data.items()]
    if any("measured" in values and len(values["measured"]["lengths"]) > 1 for values in data.values()):
        figures.append(draw_times(data))
    figures += [draw_memory(data), draw_steps(data)]
    figures += [draw_widths(name, values) for name, values in data.items()]
    for name, values in data.items():
        if "reuse" in values:
            figures += draw_reuse(name, values)
    figures += [draw_components(name, values) for name, values in data.items()]
    figures.append(draw_numbers(data))
    return tuple(figures)


def label_length(data: Data) -> str:
    """Returns the label of an axis of lengths."""
    units = {values["unit"] for values in data.values()}
    return f"length in {units.pop()}" if len(units) == 1 else "length"


def describe_symbols(values: dict[str, Any]) -> str:
    """Returns what the letters in a formula are: their values where the model fixes them."""
    symbols = [f"width k = {values['width']:,}"]
    if values["fixed_source"]:
        symbols.append(f"M = {values['fixed_source']:,} positions of the source")
    if values["fixed_target"]:
        symbols.append(f"N = {values['fixed_target']:,} steps of the forecast")
    return " and ".join(symbols)


def draw_totals(data: Data) -> Figure:
    return LineChart(
        title="Operations of one sequence",
        series=[
            Series(name=name, x=values["lengths"], y=sum(values["operations"].values()))
            for name, values in data.items()
        ],
        x_label=label_length(data),
        y_label="operations",
        x_log=True,
        y_log=True,
    )


def draw_operations(name: str, values: dict[str, Any]) -> Figure:
    crossover, lengths = values["crossover"], values["lengths"]
    lines = [
        Reference(axis="x", value=float(crossover[key]), label=label)
        for key, label in CROSSOVERS.items()
        if key in crossover and lengths[0] <= crossover[key] <= lengths[-1]
    ]
    formulas = "; ".join(f"{kind} {formula}" for kind, formula in values["formulas"].items())
    note = f"Products of one sequence, with {describe_symbols(values)}: {formulas}."
    if lines:
        note += " Vertical lines: attention needs as many operations as its projections, and as all layers."
    return LineChart(
        title=f"Operations of {name} by component",
        note=note,
        series=[Series(name=kind, x=lengths, y=operations) for kind, operations in values["operations"].items()],
        x_label=label_length({name: values}),
        y_label="operations",
        x_log=True,
        y_log=True,
        references=lines,
    )


def draw_times(data: Data) -> Figure:
    series = []
    for name, values in data.items():
        measured = values.get("measured")
        if measured is not None and len(measured["lengths"]) > 1:
            median, minimum = 1000 * measured["median"], 1000 * measured["minimum"]
            series.append(Series(name=name, x=measured["lengths"], y=minimum, low=minimum, high=median))
    return LineChart(
        title="Time to read one sequence",
        note="Without gradients, on this machine: the fastest of repeated calls; the band reaches up to their median.",
        series=series,
        x_label=label_length(data),
        y_label="milliseconds",
        x_log=True,
        y_log=True,
    )


def draw_memory(data: Data) -> Figure:
    series = []
    for name, values in data.items():
        prefix = f"{name}: " if len(data) > 1 else ""
        series.append(Series(name=f"{prefix}counted", x=values["lengths"], y=values["activations"] / 2**20))
        measured = values.get("measured", {})
        if len(measured.get("activation_lengths", ())):
            x, y = measured["activation_lengths"], measured["activations"] / 2**20
            series.append(Series(name=f"{prefix}measured", x=x, y=y))
    weights = "; ".join(f"{name} {format_bytes(values['parameters'])}" for name, values in data.items())
    return LineChart(
        title="Activations that are kept for the gradient",
        note=f"Of one sequence, without dropout. Weights, which do not depend on the length: {weights}.",
        series=series,
        x_label=label_length(data),
        y_label="MB",
        x_log=True,
        y_log=True,
    )


def draw_steps(data: Data) -> Figure:
    return LineChart(
        title="Sequential steps",
        note="The longest chain of products of which each needs the one before, when a whole sequence is read. "
        "Generating a sequence token by token repeats the chain for every token, in every model.",
        series=[Series(name=name, x=values["lengths"], y=values["steps"]) for name, values in data.items()],
        x_label=label_length(data),
        y_label="steps",
        x_log=True,
        y_log=True,
    )


def draw_widths(name: str, values: dict[str, Any]) -> Figure:
    return LineChart(
        title=f"Operations of {name} by width",
        note=f"At length {values['length']:,}, if all layers become wider or narrower together; "
        f"the model's own width is {values['width']:,}.",
        series=[
            Series(name=kind, x=values["widths"], y=operations)
            for kind, operations in values["operations_by_width"].items()
        ],
        x_label="width k",
        y_label="operations",
        x_log=True,
        y_log=True,
        references=[Reference(axis="x", value=float(values["width"]), label="this model")],
    )


def draw_reuse(name: str, values: dict[str, Any]) -> list[Figure]:
    """Returns the cost of several targets over one source: in operations, and in time if it was measured."""
    reuse = values["reuse"]
    charts = [("operations", "operations", reuse["shared"], reuse["repeated"])]
    if "shared_seconds" in reuse:
        charts.append(("time", "milliseconds", 1000 * reuse["shared_seconds"], 1000 * reuse["repeated_seconds"]))
    return [
        LineChart(
            title=f"Encode once, decode several targets: {quantity} of {name}",
            note=f"Source and targets of length {values['length']:,}; encoding is "
            f"{reuse['encode'] / (reuse['encode'] + reuse['decode']):.0%} of the operations of one target.",
            series=[
                Series(name="encoded once", x=reuse["targets"], y=shared),
                Series(name="encoded for each target", x=reuse["targets"], y=repeated),
            ],
            x_label="targets of one source",
            y_label=label,
        )
        for quantity, label, shared, repeated in charts
    ]


def draw_components(name: str, values: dict[str, Any]) -> Figure:
    total = sum(each["operations"] for each in values["components"])
    rows = [
        (
            each["label"] or "whole model",
            each["kind"],
            each["formula"],
            format_amount(each["operations"]),
            f"{each['operations'] / total:.1%}",
            each["steps"],
        )
        for each in values["components"]
    ]
    return Table(
        title=f"Components of {name} at length {values['length']:,}",
        note=f"With {describe_symbols(values)}.",
        columns=("part", "component", "operations", f"at length {values['length']:,}", "share", "steps"),
        rows=rows,
    )


def draw_numbers(data: Data) -> Figure:
    """Returns the numbers of all models at their reference length."""
    rows = []
    for name, values in data.items():
        reference, measured, profiler = values["reference"], values.get("measured"), values.get("profiler")
        rows.append(
            (
                name,
                values["length"],
                format_amount(reference["operations"]),
                f"{reference['steps']:,}",
                format_bytes(reference["activations"]),
                format_bytes(values["parameters"]),
                None if measured is None else 1000 * measured["reference"],
                None if profiler is None else f"{profiler['counted'] / profiler['profiled'] - 1:+.2%}",
            )
        )
    columns = ("model", "length", "operations", "steps", "activations", "weights", "ms", "difference from profiler")
    return Table(title="Cost of one sequence", columns=columns, rows=rows)
