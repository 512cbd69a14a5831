"""Refuses budgets that are too small for a comparison, before anything is trained.

A training of a handful of updates shows how a family begins, not how it learns. This module judges the budget of one
trial; it knows nothing of how a budget is divided among trials.
"""

from __future__ import annotations

import math
from itertools import islice

from seqwise.budget import Budget
from seqwise.compare.plan.plan import TrialKind
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Task

# Below 20 updates even the learning rate has hardly risen and fallen; the search has only to rank learning rates.
MIN_UPDATES: dict[TrialKind, int] = {"train": 20, "lr": 10}
TRIAL_NAMES: dict[TrialKind, str] = {"train": "training", "lr": "learning-rate trial"}
SAFETY_FACTOR = 1.2  # another measurement of the speed may be slower
NUM_SAMPLE_BATCHES = 8  # from which the tokens of an update are estimated


def check_tokens(
    task: Task, settings: ResolvedSettings, budget: Budget | str, name: str = "", kind: TrialKind = "train"
) -> str | None:
    """Returns what is wrong with a budget in tokens for one trial; None if nothing is."""
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    if budget.unit != "tokens" or not get_family(settings.model).has_gradients:
        return None  # the speed must be measured first; n-grams are counted, whatever the budget
    minimum = estimate_min_tokens(task, settings, kind)
    if budget.amount >= minimum:
        return None
    updates = MIN_UPDATES[kind]
    return (
        f"{name or settings.model}: with {budget.amount:,.10g} {task.unit} a {TRIAL_NAMES[kind]} would make "
        f"{updates * budget.amount / minimum:,.1f} updates; it needs at least {updates}, which is {minimum:,.0f} "
        f"{task.unit}."
    )


def estimate_min_tokens(task: Task, settings: ResolvedSettings, kind: TrialKind = "train") -> float:
    """Returns the tokens that one trial needs at least."""
    if not get_family(settings.model).has_gradients:
        return 0.0
    sizes = [batch.num_tokens for batch in islice(task.batches(settings).epoch(0), NUM_SAMPLE_BATCHES)]
    return MIN_UPDATES[kind] * sum(sizes) / len(sizes)


def check_seconds(
    seconds_per_update: float, validation_seconds: float, budget_seconds: float, name: str, kind: TrialKind = "train"
) -> str | None:
    """Returns what is wrong with a time for one trial, by its measured speed; None if nothing is.

    A trial of the learning-rate search is validated after its time.
    """
    minimum = estimate_min_seconds(seconds_per_update, validation_seconds, kind)
    if budget_seconds >= minimum:
        return None
    also = " and one validation" if kind == "train" else ""
    validation = f", {_format_seconds(validation_seconds)} a validation" if kind == "train" else ""
    return (
        f"{name}: {_format_seconds(budget_seconds)} are too short for a {TRIAL_NAMES[kind]}: {MIN_UPDATES[kind]} "
        f"updates{also} take {_format_seconds(minimum)} here ({_format_seconds(seconds_per_update)} an "
        f"update{validation})."
    )


def estimate_min_seconds(seconds_per_update: float, validation_seconds: float, kind: TrialKind = "train") -> float:
    """Returns the seconds that one trial needs at least."""
    return MIN_UPDATES[kind] * seconds_per_update + (validation_seconds if kind == "train" else 0.0)


def suggest_budget(minimum: Budget, lr_trials: int) -> str:
    """Returns the advice for a budget that is too small."""
    return (
        f"Give a larger --budget, at least {format_option(minimum)}{', or fewer --lr-trials' if lr_trials > 1 else ''}."
    )


def format_option(minimum: Budget) -> str:
    """Formats a budget as a short value of --budget, rounded up."""
    if minimum.unit == "epochs":
        return f"{_round_up(max(minimum.amount, 0.01)):.10g}-epochs"
    if minimum.unit == "tokens":
        count = _round_up(max(minimum.amount, 1.0))
        size, letter = next((size, letter) for size, letter in ((1e6, "M"), (1e3, "k"), (1.0, "")) if count >= size)
        return f"{count / size:.10g}{letter}-tokens"
    if minimum.amount <= 120:
        return f"{max(1, math.ceil(minimum.amount))}s"
    minutes = math.ceil(minimum.amount / 60)
    return f"{minutes}m" if minutes <= 120 else f"{math.ceil(minutes / 30) / 2:g}h"


def _round_up(amount: float) -> float:
    """Rounds up to two significant digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return math.ceil(amount / step - 1e-9) * step


def _format_seconds(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
