"""Executes a plan in stages: measure speed, learning-rate search, training, test, latency; estimates their time.

Each stage starts when the one before is complete. Jobs with an outcome in the folder are skipped, so a comparison that
was interrupted or killed continues where it stopped.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from seqwise.budget import Budget
from seqwise.callbacks import ProgressCallback
from seqwise.compare.plan.budgets import TrialCost
from seqwise.compare.plan.folder import get_resume_command, has_trained, remove_untrained_comparison
from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.run.engine import Engine
from seqwise.compare.run.jobs import (
    LATENCY_JOB,
    SPEED_JOB,
    Event,
    Job,
    OnEvent,
    SpeedResult,
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

# For the estimate of the remaining time
OVERHEAD_SECONDS = 1.0  # of a trial, besides training: building and saving the model
TEST_VALIDATIONS = 10.0  # a test takes as long as this many validations: it is longer, and partly predicts one by one
VALIDATIONS_PER_TRAINING = 20
DEFAULT_SECONDS = 5.0  # of a job of unknown duration


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


class RemainingTime:
    """Expected seconds of every remaining job; corrected by those that finish."""

    def __init__(self, folder: Path, plan: Plan, count_workers: Callable[[], int] = lambda: 1):
        self.folder, self.plan, self.count_workers = folder, plan, count_workers
        self.speeds: dict[str, SpeedResult] = {}
        self.remaining: dict[Job, float] = {}
        self.start_times: dict[Job, float] = {}
        self.slowdown = 1.0  # actual seconds per expected second
        self.expected = self.elapsed = 0.0

    def refresh(self, plan: Plan) -> None:
        """Finds the jobs without an outcome and the measured speeds in the folder."""
        self.plan, self.speeds = plan, load_speeds(self.folder)
        jobs = [Job("train", trial.name) for trial in self.plan.list_trials()]
        jobs += [Job("test", trial.name) for trial in self.plan.list_training_trials()]
        self.remaining = {job: self._estimate_job(job) for job in jobs if job.load(self.folder) is None}

    def _estimate_job(self, job: Job) -> float:
        trial = self.plan.get_trial(job.name)
        is_search = trial.kind == "lr"
        speed = self.speeds.get(trial.family)
        budget = Budget.parse(self.plan.budgets.lr_trial if is_search else self.plan.budgets.training)
        if speed is None:
            is_timed = job.kind == "train" and budget.unit == "seconds" and self.plan.has_gradients(trial.family)
            return OVERHEAD_SECONDS + budget.amount if is_timed else DEFAULT_SECONDS
        if job.kind == "test":
            return OVERHEAD_SECONDS + TEST_VALIDATIONS * speed.validation_seconds
        seconds = budget.amount
        if budget.unit == "tokens":
            seconds = budget.amount / max(1.0, speed.update_tokens) * speed.update_seconds
            seconds += speed.validation_seconds * (1 if is_search else VALIDATIONS_PER_TRAINING)
        return OVERHEAD_SECONDS + seconds + speed.validation_seconds

    def update(self, event: Event) -> None:
        """Corrects the estimate by an event of a job."""
        if "name" not in event:
            return  # it is about no job
        job = Job(event["kind"], event["name"])
        if event["event"] == "begin":
            self.start_times[job] = time.monotonic()
        if event["event"] == "end" and job in self.remaining and job in self.start_times:
            self.expected += self.remaining.pop(job)
            self.elapsed += time.monotonic() - self.start_times.pop(job)
            self.slowdown = (self.elapsed + 1) / (self.expected + 1)

    def estimate_seconds(self) -> float:
        """Returns the seconds until the end."""
        now = time.monotonic()
        running = sum(
            min(now - start, self.remaining[job]) for job, start in self.start_times.items() if job in self.remaining
        )
        return max(0.0, sum(self.remaining.values()) * self.slowdown - running) / self.count_workers()
