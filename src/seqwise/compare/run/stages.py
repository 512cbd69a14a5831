"""Executes a plan in stages: measure speed, learning-rate search, training, test, latency; estimates their time.

Each stage starts when the one before is complete. Jobs with an outcome in the folder are skipped, so a comparison that
was interrupted or killed continues where it stopped.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from seqwise.callbacks import ProgressCallback
from seqwise.compare.plan.budgets import TrialCost
from seqwise.compare.plan.folder import get_resume_command, has_trained, remove_untrained_comparison
from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.run.engine import Engine
from seqwise.compare.run.jobs import (
    LATENCY_JOB,
    SPEED_JOB,
    Job,
    OnEvent,
    find_missing_jobs,
    find_trained_trials,
    is_unfinished,
    load_speeds,
    remove_failures,
)
from seqwise.compare.run.learning_rates import extend_search
from seqwise.compare.run.shared_data import read_data
from seqwise.errors import DataError, RunError, SeqwiseError, UsageError
from seqwise.files import remove
from seqwise.locks import lock_folder

Stage = Literal["speed", "learning rates", "training", "test", "latency"]
OnStage = Callable[[Stage, Sequence[Job]], None]


@contextmanager
def resume_plan(folder: Path, progress: ProgressCallback | None = None) -> Iterator[Plan]:
    """Yields the plan of a comparison to resume, whose folder is locked for the block."""
    Plan.open(folder)  # only a comparison is locked
    with lock_folder(folder):
        yield reopen_plan(folder, progress)


def reopen_plan(folder: Path, progress: ProgressCallback | None = None) -> Plan:
    """Returns the plan of a comparison to resume; raises an error if its data is needed and missing or changed."""
    plan = Plan.open(folder)
    if is_unfinished(folder, plan):
        try:
            read_data(folder, plan, next(iter(plan.families.values())), progress)
        except DataError as error:
            if not _is_data_elsewhere(plan):
                raise
            command = f"cd {shlex.quote(plan.working_folder)} && {get_resume_command(folder.resolve())}"
            problem = f"{plan.data} is relative to {plan.working_folder}. {error.problem}"
            raise RunError(problem, fix=f"Use: {command}") from None
    return plan


def _is_data_elsewhere(plan: Plan) -> bool:
    """Returns whether the data is relative to another working folder and missing here."""
    is_relative = not plan.data.startswith("builtin:") and not Path(plan.data).is_absolute()
    return is_relative and plan.working_folder not in ("", os.getcwd()) and not Path(plan.data).exists()


def run_stages(
    folder: Path,
    plan: Plan,
    engine: Engine,
    on_event: OnEvent,
    on_stage: OnStage = lambda stage, jobs: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Executes the remaining jobs; returns False if `should_stop()` ended it before."""

    def run_stage(stage: Stage, jobs: list[Job]) -> bool:
        missing = find_missing_jobs(folder, jobs)
        if missing and not should_stop():
            on_stage(stage, missing)
            engine.run(missing, on_event, should_stop)
            missing = find_missing_jobs(folder, jobs)
        if missing and not should_stop():
            problem = f"{len(missing)} of {len(jobs)} jobs have no result and are not running: {missing[0].name} …"
            raise SeqwiseError(problem, fix=f"Resume with: {get_resume_command(folder)}")
        return not missing

    def make_train_jobs(trials: list[Trial]) -> list[Job]:
        return [Job("train", trial.name) for trial in trials]

    if has_trained(folder) or len(find_missing_jobs(folder, make_train_jobs(plan.list_trials()))) < len(
        plan.list_trials()
    ):
        remove_failures(folder, plan)
    else:
        if not run_stage("speed", [SPEED_JOB]):
            return False
        plan = convert_time_budget(folder, plan)
    while True:
        if not run_stage("learning rates", make_train_jobs(plan.list_lr_trials())):
            return False
        extended = extend_search(folder, plan)
        if extended is None:
            break
        plan = extended
    if not run_stage("training", make_train_jobs(plan.list_training_trials())):
        return False
    if not run_stage(
        "test", [Job("test", trial.name) for trial in find_trained_trials(folder, plan.list_training_trials())]
    ):
        return False
    return run_stage("latency", [LATENCY_JOB])


def convert_time_budget(folder: Path, plan: Plan) -> Plan:
    """Returns the plan with a time budget converted into tokens by the measured speeds, saved.

    Raises an error if the time is too short, and removes the folder for another attempt.
    """
    if not plan.budgets.is_timed:
        return plan
    speeds = load_speeds(folder)
    families = [name for name in plan.families if plan.has_gradients(name)]
    if families and not speeds:
        outcome = SPEED_JOB.load(folder)
        remove(SPEED_JOB.get_file(folder), folder)  # to be repeated
        reason = outcome.reason if outcome is not None and outcome.reason else "no family can be trained."
        raise SeqwiseError(f"the speed cannot be measured: {reason}", fix=f"Resume with: {get_resume_command(folder)}")
    try:
        if plan.strict:
            costs = {name: TrialCost(each.update_seconds, each.validation_seconds) for name, each in speeds.items()}
            plan.budgets.check(costs, "s")
    except UsageError:
        remove_untrained_comparison(folder)
        raise
    budgets = {name: plan.budgets.convert_to_tokens(**asdict(each)) for name, each in speeds.items()}
    # A family without a speed cannot be trained, probably; if it can, it is not trained longer than the others.
    smallest = min(budgets.values(), key=lambda each: each.training, default=None)
    budgets = {name: budgets.get(name, smallest) for name in families if smallest is not None}
    plan = replace(plan, token_budgets=budgets)
    plan.save(folder)
    return plan
