"""Budgets that are too small to compare anything, said before anything starts.

A training that makes a handful of updates says how a family begins, not how it learns. This page knows nothing of how
a budget is divided into trials; it judges the part that one training gets.
"""

from __future__ import annotations

import math
from itertools import islice

from seqwise.budget import Budget
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Task

LEAST_UPDATES = 20  # of one training: below, even the learning rate has hardly risen and fallen
LEAST_OF_TRY = 10  # of a try, which has only to tell learning rates apart
MARGIN = 1.2  # times what was measured: another rehearsal may be slower
SAMPLE = 8  # batches that are looked at to know how many tokens an update learns from


def too_small(
    task: Task, settings: ResolvedSettings, budget: Budget | str, name: str = "", a_try: bool = False
) -> str | None:
    """What is wrong with a budget in tokens for one training with resolved settings; None: nothing is."""
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    if budget.unit != "tokens" or not get_family(settings.model).has_gradients:
        return None  # what a second holds must be measured; n-grams are counted, whatever the budget
    fewest, least = LEAST_OF_TRY if a_try else LEAST_UPDATES, least_tokens(task, settings, a_try)
    if budget.amount >= least:
        return None
    return (
        f"{name or settings.model}: with {budget.amount:,.10g} {task.unit} a {'try' if a_try else 'training'} would "
        f"make {fewest * budget.amount / least:,.1f} updates; it takes at least {fewest}, which is {least:,.0f} "
        f"{task.unit}."
    )


def least_tokens(task: Task, settings: ResolvedSettings, a_try: bool = False) -> float:
    """What one training with resolved settings needs at least."""
    if not get_family(settings.model).has_gradients:
        return 0.0
    sizes = [batch.num_tokens for batch in islice(task.batches(settings).epoch(0), SAMPLE)]
    return (LEAST_OF_TRY if a_try else LEAST_UPDATES) * sum(sizes) / len(sizes)


def too_short(
    seconds_per_update: float, seconds_of_validation: float, budget_seconds: float, name: str = "", a_try: bool = False
) -> str | None:
    """What is wrong with a time for one training, by what was measured. A try is validated after it."""
    fewest = LEAST_OF_TRY if a_try else LEAST_UPDATES
    least = least_seconds(seconds_per_update, seconds_of_validation, a_try)
    if budget_seconds >= least:
        return None
    also = "" if a_try else " and one validation"
    each = "" if a_try else f", {_time(seconds_of_validation)} a validation"
    return (
        f"{name}: {_time(budget_seconds)} {'for a try' if a_try else 'of training'} are too short: {fewest} "
        f"updates{also} take {_time(least)} here ({_time(seconds_per_update)} an update{each})."
    ).removeprefix(": ")


def least_seconds(seconds_per_update: float, seconds_of_validation: float, a_try: bool = False) -> float:
    """What one training needs at least, by what was measured."""
    return LEAST_OF_TRY * seconds_per_update if a_try else LEAST_UPDATES * seconds_per_update + seconds_of_validation


def larger(least: Budget, tries: int) -> str:
    """What to do about a budget that is too small."""
    return f"Give a larger --budget, at least {typed(least)}{', or fewer --tries' if tries > 1 else ''}."


def typed(least: Budget) -> str:
    """No less than that, and as short as somebody would type it."""
    if least.unit == "epochs":
        return f"{_up(max(least.amount, 0.01)):.10g}-epochs"
    if least.unit == "tokens":
        count = _up(max(least.amount, 1.0))
        size, letter = next((size, letter) for size, letter in ((1e6, "M"), (1e3, "k"), (1.0, "")) if count >= size)
        return f"{count / size:.10g}{letter}-tokens"
    if least.amount <= 120:
        return f"{max(1, math.ceil(least.amount))}s"
    minutes = math.ceil(least.amount / 60)
    return f"{minutes}m" if minutes <= 120 else f"{math.ceil(minutes / 30) / 2:g}h"


def _up(amount: float) -> float:
    """Rounded up to two digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return math.ceil(amount / step - 1e-9) * step


def _time(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
