"""Detects a noisy machine: on a busy one, timed trials of one family get less done than those of another.

Trainings of one family do the same work, so in the same time they should process about as many tokens.
"""

from __future__ import annotations

from pathlib import Path

from seqwise.budget import Budget
from seqwise.compare.plan.budgets import MIN_UPDATES
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import TrainingResult, load_training_results

MAX_TOKEN_RATIO = 1.5  # between two trainings of a family
MAX_OVERTIME = 1.1  # ratio of the time of a training, which ends with an update, to its budget


def find_noise(folder: Path, plan: Plan) -> str:
    """Returns a warning where the times cannot be trusted; empty without signs of noise or a budget in time."""
    if not plan.budgets.is_timed:
        return ""
    seconds = Budget.parse(plan.budgets.training).amount
    for name in plan.families:
        results = load_training_results(folder, [trial for trial in plan.trainings() if trial.family == name])
        if results and not plan.is_counted(name):
            sign = _find_sign(name, results, seconds, plan.unit)
            if sign:
                advice = "Repeat it when the machine is idle, or with a budget in tokens."
                return f"These results are not reliable: the machine was busy. {sign} {advice}"
    return ""


def _find_sign(name: str, results: list[TrainingResult], seconds: float, unit: str) -> str:
    """Returns what the trainings of one family show."""
    tokens = [result.tokens for result in results]
    updates, longest = min(result.updates for result in results), max(result.seconds for result in results)
    if updates < MIN_UPDATES["train"]:
        return f"A training of {name} made only {updates} update{'s' if updates > 1 else ''}."
    if max(tokens) > MAX_TOKEN_RATIO * min(tokens):
        return (
            f"In the same time {name} was trained on {min(tokens):,} {unit} once and on {max(tokens):,} another time."
        )
    if longest > MAX_OVERTIME * seconds + 1:
        return f"A training of {name} took {longest:.1f} s instead of {seconds:g} s."
    return ""
