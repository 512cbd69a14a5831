"""Whether timed trials were disturbed: a busy machine gives one family less than another, and nobody would notice.

Trainings of one family do the same work, so in the same time they should come about as far. It reads outcomes only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqwise.budget import Budget
from seqwise.compare.plan.budget_limits import LEAST_UPDATES
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import outcome_of

UNEVEN = 1.5  # times: how much further one training of a family may come than another
LATE = 1.1  # times its budget: how long a training may take, for it ends with the update at hand


def disturbance(folder: Path, plan: Plan) -> str:
    """What shows that times cannot be trusted, in a sentence; empty if nothing does, or if no budget is a time."""
    budget = Budget.parse(plan.spending.training)
    if budget.unit != "seconds":
        return ""
    worst = ""
    for name in plan.families:
        found = [outcome_of(folder, "train", trial.name) for trial in plan.trainings() if trial.family == name]
        trained = [outcome.values for outcome in found if outcome is not None and outcome.values]
        if trained and not plan.counted(name):
            worst = worst or _sign(name, trained, budget, plan.unit)
    if not worst:
        return ""
    return (
        f"Do not trust this: the machine was disturbed. {worst} Try again when it is quiet, or with a budget in tokens."
    )


def _sign(name: str, trained: list[dict[str, Any]], budget: Budget, unit: str) -> str:
    """What one family's trainings show."""
    tokens = [each["tokens"] for each in trained]
    fewest, longest = min(each["updates"] for each in trained), max(each["seconds"] for each in trained)
    if fewest < LEAST_UPDATES:
        return f"A training of {name} came no further than {fewest} update{'s' if fewest > 1 else ''}."
    if max(tokens) > UNEVEN * min(tokens):
        return (
            f"In the same time {name} learned from {min(tokens):,} {unit} once and from {max(tokens):,} another time."
        )
    if longest > LATE * budget.amount + 1:
        return f"A training of {name} took {longest:.1f} s instead of {budget.amount:g} s."
    return ""
