"""`horizon`: loss, or error, against the number of visible past tokens, for one or several models.

It answers how far back a model uses its context: "90 % of the benefit of context comes from the last N tokens". As in
U. Khandelwal et al., "Sharp nearby, fuzzy far away: how neural language models use context", ACL 2018, §3, a trained
model reads only the n tokens before each target. How the losses are computed is in `visible_context.py`, how N follows
from them in `context_curves.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.python_messages import explain_in_python
from seqwise.data.records import Data
from seqwise.errors import UsageError, check_type, pluralize
from seqwise.lens.context_curves import SHARE, ContextCurve, measure_curve
from seqwise.lens.subject import Subject, evaluation_mode, list_models, name_run, name_runs
from seqwise.lens.view import View
from seqwise.lens.visible_context import MIN_TARGETS, VisibleContext, limit_context, open_corpus_context
from seqwise.lens.visible_context_examples import open_classify_context, open_forecast_context, open_tag_context
from seqwise.page.figures import Figure, LineChart, Reference, Series, Table
from seqwise.training.api import TrainedModel, save_data

NUM_TARGETS = 1000
PERCENT = f"{100 * SHARE:.0f} %"


@dataclass(frozen=True)
class Wording:
    """How the context of a task is described."""

    benefit: str  # of what the benefit is
    visible: str  # for N, a number with its unit
    unit: str  # of N, plural
    axis: str  # of the charts
    loss: str  # what it is
    loss_unit: str  # "" if there is none
    baseline: str  # what is known without context


NATS = "nats per"
FREQUENCIES = "token frequencies of the training split"
SIDES = "the nearest {} on each side"
WORDINGS = {
    "language": Wording(
        "context", "the last {}", "tokens", "visible tokens before the target", "loss", f"{NATS} token", FREQUENCIES
    ),
    "masked": Wording("context", SIDES, "tokens", "visible tokens on each side", "loss", f"{NATS} token", FREQUENCIES),
    "classify": Wording(
        "the text", "its last {}", "tokens", "visible tokens at the end of the text",
        "error rate", "", "the most frequent label",
    ),
    "tag": Wording("context", SIDES, "words", "visible words on each side", "loss", f"{NATS} word", "the word alone"),
    "forecast": Wording(
        "the past", "the last {}", "steps", "visible steps before the forecast",
        "mean squared error", "", "the mean of the training part",
    ),
}  # fmt: skip
REASONS = {
    "translate": "a translation depends on its source, which has no past: see attention and attribution.",
    "caption": "a caption depends on its image, which has no past: see attention and attribution.",
}


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    if subject.trained is None:
        return "it needs a trained run, whose loss it measures."
    task = str(subject.trained.settings.task)
    if task not in WORDINGS:
        return REASONS.get(task, f"it does not know how to hide the context of the task {task}.")
    if task in ("language", "masked") and limit_context(subject.trained, None) < 1:
        return f"{subject.name} predicts each token without context."
    return None


def horizon(
    models: Any,
    text: str | None = None,
    *,
    data: Data | None = None,
    max_context: int | None = None,
    num_targets: int = NUM_TARGETS,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns the loss against the number of visible tokens, and the number that brings 90 % of the benefit.

    models: a trained run, or several of one task
    text: a text of a language model or masked model, whose tokens are the targets; the validation split unless set
    data: other data to measure on, as `evaluate` reads it
    max_context: the longest context; all that the model can read unless set, 256 tokens for a model with a state
    num_targets: how many targets are scored, evenly spread
    progress: called with the number of tokens read and an estimate of their total

    `data`: per model `horizon` (NaN if context has no benefit), `low` and `high` (its 95 % interval, or None),
    `contexts` (C,) from 0 on, `loss` (C,), `loss_name` (what it is, such as "error rate"), `share` of the benefit,
    `share_low` and `share_high` (C,), `losses` (C, M) of each target, `max_context`, `num_targets` and `targets`, a
    description.
    """
    several = list_models(models)
    check_arguments(several, text, data, max_context, num_targets)
    wording = WORDINGS[str(several[0].settings.task)]
    contexts, names = open_contexts(several, text, data, max_context, num_targets), name_runs(several)
    curves, keys, results = [], set(), {}
    for number, (model, name, context) in enumerate(zip(several, names, contexts)):

        def report(done: int, total: int, number: int = number) -> None:
            progress(number * total + done, len(several) * total)

        with evaluation_mode(model.model), torch.no_grad():
            curve = measure_curve(context.baseline, context.score, context.max_context, context.num_segments, report)
        curves.append((name, context, curve))
        keys.add(context.target_key)
        results[name] = {**collect_values(context, curve), "loss_name": wording.loss}
    summary = [describe(name, context, curve, wording) for name, context, curve in curves]
    if len(keys) == 1:
        summary.append(f"Measured on {curves[0][1].description}.")
    else:
        summary.append(f"The runs are measured on different targets: compare their horizons, not their {wording.loss}.")
    figures = draw_curves(curves, wording, has_same_targets=len(keys) == 1)
    return View("horizon", "Horizon: how much of the context is used", tuple(summary), figures, results)


def check_arguments(
    models: Sequence[Any], text: str | None, data: Data | None, max_context: int | None, num_targets: int
) -> None:
    """Raises an error for arguments that cannot work."""
    for model in models:
        check_type("models", model, TrainedModel, "a trained run (seqwise.load), or several")
        reason = explain_inapplicable(Subject(name_run(model), model.model, lambda: None, (), trained=model))
        if reason is not None:
            raise UsageError(f"the view horizon does not apply to {model.run.folder}: {reason}", fix="Choose another.")
    tasks = list(dict.fromkeys(str(model.settings.task) for model in models))
    if len(tasks) > 1:
        problem = f"expected runs of one task, received runs of {' and '.join(tasks)}."
        raise UsageError(problem, fix="Show the runs of each task by themselves.")
    if text is not None and (tasks[0] not in ("language", "masked") or data is not None):
        measured = f"the {WORDINGS[tasks[0]].loss} of {tasks[0]}"
        problem = f"the view horizon measures {measured} on many examples, not on one input."
        if tasks[0] in ("language", "masked"):
            problem = "expected a text or data, received both."
        raise UsageError(problem, fix="Leave out the text; --data names other data.")
    check_type("text", text, (str, type(None)), "a text")
    for option, value, minimum in (("max_context", max_context, 1), ("num_targets", num_targets, MIN_TARGETS)):
        check_type(option, value, (int, type(None)), "a whole number")
        if value is not None and value < minimum:
            name = f"--{option.replace('_', '-')}"
            raise UsageError(f"{name}: expected at least {minimum}, received {value}.", fix="Choose a larger number.")


def open_contexts(
    models: Sequence[TrainedModel],
    text: str | None,
    data: Data | None,
    max_context: int | None,
    num_targets: int,
) -> list[VisibleContext]:
    """Returns the targets of each model, the same ones where the data and the tokeniser are the same."""
    task, settings = str(models[0].settings.task), models[0].settings
    path = None
    if data is not None:
        with explain_in_python(data):
            path = save_data(data, settings)
    if task in ("language", "masked"):
        limits = [limit_context(model, max_context) for model in models]
        return [
            open_corpus_context(model, text, path, num_targets, limit, max(limits))
            for model, limit in zip(models, limits)
        ]
    open_context = {"classify": open_classify_context, "tag": open_tag_context, "forecast": open_forecast_context}[task]
    return [open_context(model, path, num_targets, max_context) for model in models]


def collect_values(context: VisibleContext, curve: ContextCurve) -> dict[str, Any]:
    """Returns the numbers of a model."""
    low, high = curve.interval or (None, None)
    share_low, share_high = curve.share_interval
    return {
        "horizon": curve.horizon,
        "low": low,
        "high": high,
        "contexts": curve.contexts,
        "loss": curve.mean,
        "share": curve.share,
        "share_low": share_low,
        "share_high": share_high,
        "losses": curve.losses,
        "max_context": context.max_context,
        "num_targets": curve.losses.shape[1],
        "targets": context.description,
    }


def describe(name: str, context: VisibleContext, curve: ContextCurve, wording: Wording) -> str:
    """Returns two sentences: the horizon of a model, and the losses from which it follows."""
    longest = wording.visible.format(pluralize(context.max_context, wording.unit))
    losses = (
        f"The {wording.loss} is {curve.mean[-1]:.3f} with {longest}, and {curve.mean[0]:.3f} with "
        f"{wording.baseline.removesuffix(' alone')} alone."
    )
    if curve.interval is None:
        return f"{name}: no benefit of {wording.benefit} can be measured. {losses}"
    low, high = (int(value) for value in curve.interval)
    source = wording.visible.format(pluralize(int(curve.horizon), wording.unit))
    answer = f"{PERCENT} of the benefit of {wording.benefit} comes from {source}"
    return f"{name}: {answer} (95 % interval {low:,} to {high:,}). {losses}"


def draw_curves(
    curves: Sequence[tuple[str, VisibleContext, ContextCurve]], wording: Wording, has_same_targets: bool
) -> tuple[Figure, ...]:
    """Returns the losses and the shares of the benefit against the visible context, and a table of the horizons."""
    losses, shares = [], []
    for name, _, curve in curves:
        visible, (low, high) = curve.contexts[1:].astype(float), curve.share_interval
        losses.append(Series(name=name, x=visible, y=curve.mean[1:]))
        shares.append(Series(name=name, x=visible, y=100 * curve.share[1:], low=100 * low[1:], high=100 * high[1:]))
    baseline = round(float(curves[0][2].mean[0]), 4)
    return (
        LineChart(
            title=f"{wording.loss[0].upper()}{wording.loss[1:]} against visible context",
            note=f"Each point is a mean over {curves[0][2].losses.shape[1]:,} targets, the same for all points.",
            series=losses,
            x_label=wording.axis,
            y_label=f"{wording.loss}{wording.loss_unit and f' in {wording.loss_unit}'}",
            x_log=True,
            references=[Reference(axis="y", value=baseline, label=wording.baseline)] if has_same_targets else [],
        ),
        LineChart(
            title=f"Share of the benefit of {wording.benefit}",
            note=f"Bands are 95 % intervals. The horizon is where the line first reaches {PERCENT}.",
            series=shares,
            x_label=wording.axis,
            y_label="share of the benefit in %",
            x_log=True,
            references=[Reference(axis="y", value=100 * SHARE, label=PERCENT)],
        ),
        Table(
            title=f"Horizon in {wording.unit}",
            note=f"low, high: 95 % interval; {wording.loss} (0): {wording.baseline}; max: the longest context.",
            columns=("model", "horizon", "low", "high", f"{wording.loss} (0)", f"{wording.loss} (max)", "max"),
            rows=[build_row(*each) for each in curves],
        ),
    )


def build_row(name: str, context: VisibleContext, curve: ContextCurve) -> tuple[str | float | int | None, ...]:
    """Returns the row of a model in the table."""
    low, high = (None, None) if curve.interval is None else map(int, curve.interval)
    number = None if np.isnan(curve.horizon) else int(curve.horizon)
    return name, number, low, high, float(curve.mean[0]), float(curve.mean[-1]), context.max_context
