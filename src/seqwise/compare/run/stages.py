"""A plan carried out: rehearsal, tries, trainings, tests, timing; each stage when the one before it is over.

What is in the folder already is not done again, so a comparison that was interrupted or killed simply goes on.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from seqwise.budget import Budget
from seqwise.compare.plan.budget_limits import MARGIN, larger, least_seconds, too_short
from seqwise.compare.plan.plan import Plan, begun, resume_command, withdraw
from seqwise.compare.run.engine import Engine, Event
from seqwise.compare.run.execute import read_data
from seqwise.compare.run.jobs import PACE, Job, done, forget_failures, missing, outcome_of, unfinished
from seqwise.errors import DataError, RunError, SeqwiseError, UsageError
from seqwise.tasks.task import ProgressCallback

Stage = Callable[[str, Sequence[Job]], None]  # the name of a stage that begins, and its jobs


def reopen(folder: Path, progress: ProgressCallback | None = None) -> Plan:
    """The plan of a comparison that goes on; refused without the data it began with, if that is still needed."""
    plan = Plan.open(folder)
    if unfinished(folder, plan):
        try:
            read_data(folder, plan, next(iter(plan.families.values())), progress)
        except DataError as error:
            if not _elsewhere(plan):
                raise
            command = f"cd {shlex.quote(plan.home)} && {resume_command(folder.resolve())}"
            raise RunError(f"{plan.data} was named in {plan.home}. {error.problem}", repair=f"Use: {command}") from None
    return plan


def _elsewhere(plan: Plan) -> bool:
    """Was the data named where the user no longer is?"""
    relative = not plan.data.startswith("builtin:") and not Path(plan.data).is_absolute()
    return relative and plan.home not in ("", os.getcwd()) and not Path(plan.data).exists()


def carry_out(
    folder: Path,
    plan: Plan,
    engine: Engine,
    listen: Callable[[Event], None],
    begin: Stage = lambda name, jobs: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Do what is left to do; False: `stop()` asked for an end before that."""

    def stage(name: str, jobs: list[Job]) -> bool:
        left = missing(folder, jobs)
        if left and not stop():
            begin(name, left)
            engine.run(left, listen, stop)
            left = missing(folder, jobs)
        if left and not stop():
            problem = f"{len(left)} of {len(jobs)} jobs have no result, and nobody works on them: {left[0].name} …"
            raise SeqwiseError(problem, repair=f"Go on with: {resume_command(folder)}")
        return not left

    tries = [Job("train", trial.name) for trial in plan.tries()]
    trainings = [Job("train", trial.name) for trial in plan.trainings()]
    if begun(folder) or len(missing(folder, [*tries, *trainings])) < len(tries) + len(trainings):
        forget_failures(folder, plan)
    else:
        if not stage("rehearsal", [Job("rehearse", name) for name in plan.families]):
            return False
        if plan.strict:
            _refuse_short(folder, plan)
    if not stage("learning rates", tries) or not stage("training", trainings):
        return False
    if not stage("test", [Job("test", trial.name) for trial in done(folder, plan.trainings())]):
        return False
    return stage("timing", [PACE])


def _refuse_short(folder: Path, plan: Plan) -> None:
    """A budget in time that is over before a model was validated once says nothing; the rehearsal tells."""
    spending = plan.spending
    training = Budget.parse(spending.training)
    if training.unit != "seconds":
        return
    measured = {}
    for name in plan.families:
        outcome = outcome_of(folder, "rehearse", name)
        values = (outcome.values if outcome else None) or {}
        if values.get("update") is not None:
            measured[name] = values["update"], values["validation"]
    for name, seconds in measured.items():
        problem = too_short(*seconds, training.amount, name)
        if spending.tries > 1:
            problem = problem or too_short(*seconds, Budget.parse(spending.a_try).amount, name, a_try=True)
        if problem:
            withdraw(folder)  # the same command with another budget may use the same folder
            whole, a_try = (
                MARGIN * max(least_seconds(*each, short) for each in measured.values()) for short in (False, True)
            )
            raise UsageError(problem, repair=larger(spending.least(whole, a_try), spending.tries))
