"""Budgets that are too small to compare anything, said before anything starts.

A training that makes a handful of updates says how a family begins, not how it learns. This page knows nothing of how
a budget is divided into trials; it judges the part that one training gets.
"""

from __future__ import annotations

from itertools import islice

from seqwise.config import Settings
from seqwise.tasks.task import Task
from seqwise.training.budgets import Budget

LEAST_UPDATES = 20  # of one training: below, even the learning rate has hardly risen and fallen
LEAST_OF_TRY = 10  # of a try, which has only to tell learning rates apart
SAMPLE = 8  # batches that are looked at to know how many tokens an update learns from


def too_small(task: Task, settings: Settings, budget: Budget | str, name: str = "", a_try: bool = False) -> str | None:
    """What is wrong with a budget in tokens for one training with resolved settings; None: nothing is."""
    budget = Budget.parse(budget) if isinstance(budget, str) else budget
    if budget.unit != "tokens" or settings.model == "ngram":
        return None  # what a second holds must be measured; n-grams are counted, whatever the budget
    fewest = LEAST_OF_TRY if a_try else LEAST_UPDATES
    sizes = [batch.tokens for batch in islice(task.batches(settings).epoch(0), SAMPLE)]
    each = sum(sizes) / len(sizes)
    updates = budget.amount / each
    if updates >= fewest:
        return None
    return (
        f"{name or settings.model}: with {budget} a {'try' if a_try else 'training'} would make {updates:,.1f} "
        f"updates; it takes at least {fewest}, which is {fewest * each:,.0f} {task.unit}."
    )


def too_short(
    seconds_per_update: float, seconds_of_validation: float, budget_seconds: float, name: str = "", a_try: bool = False
) -> str | None:
    """What is wrong with a time for one training, by what was measured. A try is validated after it."""
    fewest = LEAST_OF_TRY if a_try else LEAST_UPDATES
    validation = 0.0 if a_try else seconds_of_validation
    least = fewest * seconds_per_update + validation
    if budget_seconds >= least:
        return None
    also = "" if a_try else " and one validation"
    each = "" if a_try else f", {_time(validation)} a validation"
    return (
        f"{name}: {_time(budget_seconds)} {'for a try' if a_try else 'of training'} are too short: {fewest} "
        f"updates{also} take {_time(least)} here ({_time(seconds_per_update)} an update{each})."
    ).removeprefix(": ")


def _time(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
