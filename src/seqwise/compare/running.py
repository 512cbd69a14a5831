"""A plan carried out: rehearsal, tries, trainings, tests; each stage when the one before it is over.

What is in the folder already is not done again, so a comparison that was interrupted or killed simply goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seqwise.compare.engines import Engine, Event
from seqwise.compare.limits import too_short
from seqwise.compare.outcomes import Job, done, forget_failures, missing, outcome_of
from seqwise.compare.plan import Plan, withdraw
from seqwise.errors import UsageError
from seqwise.training.budgets import Budget

Stage = Callable[[str, Sequence[Job]], None]  # the name of a stage that begins, and its jobs


def carry_out(
    folder: Path,
    plan: Plan,
    engine: Engine,
    listen: Callable[[Event], None],
    begin: Stage = lambda name, jobs: None,
    stop: Callable[[], bool] = lambda: False,
    strict: bool = True,
) -> bool:
    """Do what is left to do; was all of it done? A time that is too short is refused where that is `strict`."""

    def stage(name: str, jobs: list[Job]) -> bool:
        left = missing(folder, jobs)
        if left and not stop():
            begin(name, left)
            engine.run(left, listen, stop)
        return not missing(folder, jobs)

    tries = [Job("train", trial.name) for trial in plan.tries()]
    trainings = [Job("train", trial.name) for trial in plan.trainings()]
    fresh = len(missing(folder, [*tries, *trainings])) == len(tries) + len(trainings)
    if fresh:
        if not stage("rehearsal", [Job("rehearse", name) for name in plan.families]):
            return False
        if strict:
            _refuse_short(folder, plan)
    else:
        forget_failures(folder, plan)
    if not stage("learning rates", tries) or not stage("training", trainings):
        return False
    return stage("test", [Job("test", trial.name) for trial in done(folder, plan.trainings())])


def _refuse_short(folder: Path, plan: Plan) -> None:
    """A budget in time that is over before a model was validated once says nothing; the rehearsal tells."""
    spending = plan.spending
    training = Budget.parse(spending.training)
    if training.unit != "seconds":
        return
    for name in plan.families:
        outcome = outcome_of(folder, "rehearse", name)
        measured = (outcome.values if outcome else None) or {}
        if measured.get("update") is None:
            continue
        seconds = measured["update"], measured["validation"]
        problem = too_short(*seconds, training.amount, name)
        if spending.tries > 1:
            problem = problem or too_short(*seconds, Budget.parse(spending.a_try).amount, name, a_try=True)
        if problem:
            withdraw(folder)  # the same command with another budget may use the same folder
            raise UsageError(problem, repair="Give a larger --budget, or fewer --tries.")
