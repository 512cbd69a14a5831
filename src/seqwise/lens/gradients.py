"""`gradients`: how far back the derivative of the last state reaches, for one or several models on one chart.

The chart shows ‖∂h_T/∂h_k‖ against the distance T − k: it falls where gradients vanish and rises where they explode.
Of an LSTM it also shows the direct path ∂c_T/∂c_k = ∏ f, which passes through no matrix. How the numbers are computed
is in `jacobians.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress, report_part
from seqwise.errors import UsageError
from seqwise.lens.jacobians import GradientFlow, Trajectory, measure_flow, record_trajectory
from seqwise.lens.recurrent import RecurrentLayer, choose_layers, list_layers
from seqwise.lens.subject import CHOOSING_SHARE, Subject, open_subjects
from seqwise.lens.view import View
from seqwise.page.figures import Figure, LineChart, Reference, Series, Table

FLOOR = 1e-12  # smaller norms are not drawn


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if list_layers(subject) else f"{subject.name} has no recurrent layer."


def gradients(
    models: Any, text: Any = None, *, layer: int | str | None = None, progress: ProgressCallback = no_progress
) -> View:
    """Returns the norm of ∂h_T/∂h_k over k, and the Jacobians of single steps along the text.

    models: a trained model, or several
    layer: number from 1 or name; label, such as "encoder, layer 1, backward", or path of one direction; of each model
        the last layer that has a one-step Jacobian unless set

    `data`: per model, and per direction if there are two ("NAME, forward"), `layer`, `tokens` in the order in which
    they are read, `norms` (tokens,), `direct` (tokens,) of an LSTM, `singular` and `radius` (tokens,) of each step's
    Jacobian, `exponents` (Lyapunov, nats per token) and `half_life` (tokens).
    """
    subjects = open_subjects(models, text, report_part(progress, 0.0, CHOOSING_SHARE))
    progress = report_part(progress, CHOOSING_SHARE, 1.0)
    lines, steps, rows, summary = [], [], [], []
    data: dict[str, dict[str, Any]] = {}
    for index, subject in enumerate(subjects):
        directions = record_last(subject, choose_layers(subject, layer))
        if directions[0][1].num_steps < 2:
            problem = f"gradients through time need at least 2 {subject.position_plural}; received 1."
            raise UsageError(problem, fix="Pass a longer text.")
        for chosen, trajectory in directions:
            flow = measure_flow(trajectory)
            direction = "backward" if chosen.is_backward else "forward"
            name = f"{subject.name}, {direction}" if len(directions) > 1 else subject.name
            values = collect_values(subject, chosen, flow)
            half_life, largest = values["half_life"], float(flow.exponents[0])
            lines += draw_norms(name, flow)
            steps += draw_steps(name, flow, chosen.is_backward)
            medians = float(flow.singular.median()), float(flow.radius.nanmedian())
            rows.append((subject.name, chosen.label, half_life, largest, *medians))
            summary.append(describe(subject, chosen, largest, half_life))
            data[name] = values
        summary += describe_layers(subject, directions[0][0])
        progress(index + 1, len(subjects))
    tokens = subjects[0].name_positions(chosen.path, len(flow.norms)) if len(subjects) == 1 else ()
    figures = draw_figures(subjects[0], lines, steps, rows, tokens)
    return View("gradients", "Gradients through time", tuple(summary), figures, data)


def record_last(subject: Subject, layers: Sequence[RecurrentLayer]) -> list[tuple[RecurrentLayer, Trajectory]]:
    """Returns the directions of the last layer whose steps can be computed alone: those of some decoders cannot."""
    for path in reversed(dict.fromkeys(layer.layer_path for layer in layers)):
        directions = [layer for layer in layers if layer.layer_path == path]
        with suppress(UsageError):
            return [(layer, record_trajectory(subject, layer)) for layer in directions]
    return [(layers[-1], record_trajectory(subject, layers[-1]))]  # raises an error that says why


def collect_values(subject: Subject, layer: RecurrentLayer, flow: GradientFlow) -> dict[str, Any]:
    """Returns the numbers of a layer, or of one direction of it."""
    tokens = subject.name_positions(layer.path, len(flow.norms))
    return {
        "layer": layer.label,
        "tokens": tokens[::-1] if layer.is_backward else tokens,
        "norms": flow.norms.numpy(),
        "singular": flow.singular.numpy(),
        "radius": flow.radius.numpy(),
        "exponents": flow.exponents.numpy(),
        "half_life": compute_half_life(flow.norms.numpy()),
        **({} if flow.direct is None else {"direct": flow.direct.numpy()}),
    }


def draw_figures(
    subject: Subject,
    norms: Sequence[Series],
    steps: Sequence[Series],
    rows: Sequence[tuple[Any, ...]],
    tokens: Sequence[str],
) -> tuple[Figure, ...]:
    """Returns the norms against distance, the Jacobians along the text, and a table of both."""
    return (
        LineChart(
            title="Gradient through time",
            note="An identity has 1. Where a line falls, gradients vanish; where it rises, they explode.",
            series=norms,
            x_label=f"distance T − k in {subject.position_plural}",
            y_label="‖∂h_T/∂h_k‖ / √units",
            y_log=True,
            references=[Reference(axis="y", value=1.0, label="preserved")],
        ),
        LineChart(
            title="Jacobian of each step along the text",
            note="A step can amplify some direction (singular value above 1) although repeated steps shrink all.",
            series=steps,
            x_label=subject.position_name,
            y_label="largest singular value, spectral radius",
            x_names=tokens,
            references=[Reference(axis="y", value=1.0, label="1")],
        ),
        Table(
            title="Growth of perturbations",
            note="Half-life: of ‖∂h_T/∂h_k‖, by a straight line through its logarithm. Lyapunov exponent: the largest, "
            f"in nats per {subject.position_name}. Singular value and spectral radius: of the Jacobian of one step, "
            "medians.",
            columns=(
                "model", "layer", f"half-life ({subject.position_plural})",
                "Lyapunov exponent", "singular value", "spectral radius",
            ),
            rows=rows,
        ),
    )  # fmt: skip


def draw_norms(name: str, flow: GradientFlow) -> list[Series]:
    """Returns the line of a model's norms against distance, and of its direct path if it has one."""
    distance = np.arange(len(flow.norms))
    lines = [Series(name=name, x=distance, y=_mask_tiny(flow.norms.numpy()[::-1]))]
    if flow.direct is not None:
        lines.append(Series(name=f"{name}: direct path ∏f", x=distance, y=_mask_tiny(flow.direct.numpy()[::-1])))
    return lines


def draw_steps(name: str, flow: GradientFlow, is_backward: bool = False) -> list[Series]:
    """Returns the lines of the singular values and spectral radii of the steps, in the order of the text."""
    position, order = np.arange(len(flow.singular)), -1 if is_backward else 1
    singular, radius = flow.singular.numpy()[::order], flow.radius.numpy()[::order]
    known = ~np.isnan(radius)
    return [
        Series(name=f"{name}: singular value", x=position, y=singular),
        Series(name=f"{name}: spectral radius", x=position[known], y=radius[known]),
    ]


def _mask_tiny(norms: np.ndarray) -> np.ndarray:
    return np.where(norms > FLOOR, norms, np.nan)


def compute_half_life(norms: np.ndarray) -> float:
    """Returns the tokens after which the norm has halved, by a fit of log ‖·‖ over distance; infinite if it grows."""
    distance, logs = np.arange(len(norms)), np.log(np.maximum(norms[::-1], FLOOR))
    usable = norms[::-1] > FLOOR
    if usable.sum() < 2:
        return 0.0
    log_rate = float(np.polyfit(distance[usable], logs[usable], 1)[0])
    return math.inf if log_rate >= 0 else math.log(2) / -log_rate


def describe_layers(subject: Subject, shown: RecurrentLayer) -> list[str]:
    """Returns a sentence with the number of layers and how to show the one below `shown`; none if there is one cell."""
    layers = list_layers(subject)
    names = {layer.layer_path: layer.layer_name for layer in layers}
    is_bidirectional = len(layers) == 2 * len(names)
    if len(names) == 1:
        sentence = f"{subject.name} has one recurrent layer with two directions, forward and backward."
        return [sentence] if is_bidirectional else []
    each, below = " with two directions each" if is_bidirectional else "", list(names).index(shown.layer_path)
    other = f"; --layer {below} shows {list(names.values())[below - 1]}" if below else ""
    return [f"{subject.name} has {len(names)} recurrent layers{each}{other}."]


def describe(subject: Subject, layer: RecurrentLayer, exponent: float, half_life: float) -> str:
    """Returns a sentence about the growth of perturbations in a layer."""
    name, growth = subject.name, f"largest Lyapunov exponent {exponent:+.3f} nats per {subject.position_name}"
    if math.isinf(half_life):
        return f"{name}, {layer.label}: gradients do not vanish over this text ({growth})."
    return (
        f"{name}, {layer.label}: by a straight line through its logarithm, ‖∂h_T/∂h_k‖ halves every {half_life:.1f} "
        f"{subject.position_plural} ({growth})."
    )
