"""`training`: loss, learning rate and gradient norm of one or several runs over their updates.

Every run has these in `metrics.jsonl`. A run that was trained with `--training.watch` also has the gradient norm, the
update-to-weight ratio ‖Δw‖ / ‖w‖ and the saturated gates of each layer (`training/watch.py`). The view reads the files
of the run only: neither data nor weights. So it also shows a run that is being trained, live with `watch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from seqwise.errors import RunError, UsageError, check_type
from seqwise.families import get_family
from seqwise.lens.live import follow
from seqwise.lens.subject import Subject, list_models, name_runs
from seqwise.lens.training_figures import draw_layers, draw_metrics, merge_layers
from seqwise.lens.view import View
from seqwise.training.api import TrainedModel
from seqwise.training.run import Run
from seqwise.training.step import get_objective

HOW_TO_RECORD = "train with --training.watch to see gradient norms, update-to-weight ratios and gates per layer"
USUAL_RATIO = 1e-3  # of updates to weights, by a rule of thumb


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    if subject.trained is None:
        return "a module without a run has no record of its training."
    return explain_missing(subject.trained.run)


def explain_missing(run: Run) -> str | None:
    """Returns why a run has no updates to show, or None."""
    if get_family(run.settings.model).has_gradients:
        return None
    return f"{run.settings.model} in {run.folder} is fitted in one pass over the data, without updates to show."


def training(models: Any, *, watch: bool = False) -> View:
    """Returns the course of training of one or several runs; with `watch` redraws it until the runs end, or Ctrl-C.

    models: a trained model, or several

    `data`: per model the arrays `step`, `tokens`, `seconds`, `loss`, `gradient_norm` (before clipping) and
    `learning_rate`; `validation_step` and `validation_loss`; `saved_step` (the update whose weights are saved);
    `progress` (share of the budget) and `ended` ("" if the run has not ended). If layers were recorded, `watch_step`,
    `layers` (module path → `gradient_norm`, `weight_norm`, `update_ratio`), `gates` (layer → gate → (rows, 2): shares
    closed and open) and `dead_units` (layer → shares).
    """
    several = list_models(models)
    for model in several:
        check_type("models", model, TrainedModel, "a trained model (seqwise.load) or several")
        if reason := explain_missing(model.run):
            raise UsageError(reason, fix="Choose runs of a neural family.")
    build = partial(build_view, several)
    return follow([model.run for model in several], build) if watch else build()


def build_view(models: Sequence[TrainedModel]) -> View:
    """Returns the view of what the runs have written so far."""
    names = name_runs(models)
    data = {name: collect(model.run) for name, model in zip(names, models, strict=True)}
    settings = [model.settings.training for model in models]
    thresholds = {each.clip_threshold for each in settings if each.clip == "norm"}
    figures = draw_metrics(data, thresholds.pop() if len(thresholds) == 1 else None)
    for name in names:
        figures += draw_layers(data[name], name if len(names) > 1 else "", USUAL_RATIO)
    sentences = [describe(name, data[name]) for name in names]
    summary = sentences[0] if len(names) == 1 else [" ".join(each) for each in sentences]
    missing = [name for name in names if "layers" not in data[name]]
    if missing:
        owner = "" if len(missing) == len(names) else f" of {', '.join(missing)}"
        summary.append(f"The layers{owner} were not recorded: {HOW_TO_RECORD}.")
    title = f"Training of {names[0]}" if len(names) == 1 else f"Training of {len(names)} runs"
    return View("training", title, tuple(summary), tuple(figures), data)


def collect(run: Run) -> dict[str, Any]:
    """Returns the numbers of a run as arrays; raises an error if it has not logged any update."""
    rows = run.read_metrics()
    if not rows:
        fix = "Wait for it if the run is training: --watch shows it as soon as it is there."
        raise RunError(f"{run.folder} has no metrics yet: the first update is logged when it is finished.", fix=fix)
    validated = [row for row in rows if row.get("validation")]
    keys = ("step", "tokens", "seconds", "loss", "gradient_norm", "learning_rate")
    data: dict[str, Any] = {key: np.array([row[key] for row in rows], dtype=float) for key in keys}
    data["validation_step"] = np.array([row["step"] for row in validated], dtype=float)
    data["validation_loss"] = np.array([row["validation"]["loss"] for row in validated], dtype=float)
    best = min(validated, key=lambda row: get_objective(row["validation"]), default=None)
    data["saved_step"] = None if best is None else int(best["step"])
    data["ended"] = str(rows[-1].get("ended", ""))
    data["progress"] = float(rows[-1]["progress"])
    return data | collect_layers(run.read_layers())


def collect_layers(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the rows of `watch.jsonl` as arrays by layer; empty if there are none."""
    if not rows:
        return {}
    return {
        "watch_step": np.array([row["step"] for row in rows], dtype=float),
        "layers": _transpose([row["layers"] for row in rows]),
        "gates": _transpose([row["gates"] for row in rows]),
        "dead_units": _transpose([{"": row["dead_units"]} for row in rows]).get("", {}),
    }


def _transpose(rows: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, np.ndarray]]:
    """Returns outer key → inner key → array over the rows; NaN where a row lacks it."""
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for index, row in enumerate(rows):
        for outer, values in row.items():
            for inner, value in values.items():
                array = arrays.setdefault(outer, {}).get(inner)
                if array is None:
                    array = arrays[outer][inner] = np.full((len(rows), *np.shape(value)), np.nan)
                array[index] = value
    return arrays


def describe(name: str, data: Mapping[str, Any]) -> list[str]:
    """Returns sentences about where training stands and, if layers were recorded, about the last row of them."""
    step, tokens = int(data["step"][-1]), int(data["tokens"][-1])
    text = f"{name}: training loss {data['loss'][-1]:.4g} after {step:,} updates ({tokens:,} tokens)"
    if len(data["validation_loss"]):
        best = int(np.nanargmin(data["validation_loss"])) if np.isfinite(data["validation_loss"]).any() else 0
        at = int(data["validation_step"][best])
        text += f"; lowest validation loss {data['validation_loss'][best]:.4g} at update {at:,}"
        if data["saved_step"] not in (None, at):
            text += f", saved are the weights of update {data['saved_step']:,}, better by the task's metric"
    state = f"It has ended: {data['ended']}" if data["ended"] else f"{data['progress']:.0%} of the budget is spent"
    sentences = [f"{text}. {state}."]
    if "layers" in data:
        ratios = {layer: values["update_ratio"][-1] for layer, values in merge_layers(data["layers"]).items()}
        low, high = min(ratios, key=lambda key: ratios[key]), max(ratios, key=lambda key: ratios[key])
        sentences.append(
            f"Update-to-weight ratio at update {int(data['watch_step'][-1]):,}: from {ratios[low]:.2g} ({low}) to "
            f"{ratios[high]:.2g} ({high}); about {USUAL_RATIO:g} is usual."
        )
        sentences += _describe_gates(data["gates"], data["dead_units"])
    return sentences


def _describe_gates(gates: Mapping[str, Mapping[str, np.ndarray]], dead_units: Mapping[str, np.ndarray]) -> list[str]:
    shares = {(layer, gate): values[-1] for layer, each in gates.items() for gate, values in each.items()}
    sentences = []
    if shares:
        layer, gate = max(shares, key=lambda key: float(np.nansum(shares[key])))
        closed, opened = shares[layer, gate]
        sentences.append(
            f"Most saturated gate: {gate} of {layer}, closed at {closed:.0%} and open at {opened:.0%} of all values."
        )
    dead = {layer: values[-1] for layer, values in dead_units.items() if values[-1] > 0}
    if dead:
        listed = ", ".join(f"{share:.0%} in {layer}" for layer, share in dead.items())
        sentences.append(f"Dead units, whose value hardly varies over tokens: {listed}.")
    return sentences
