"""`RemainingTime`: estimates how long the remaining jobs of a comparison take. It executes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import Event, Job, SpeedResult, load_speeds

OVERHEAD_SECONDS = 1.0  # of a trial, besides training: building and saving the model
TEST_VALIDATIONS = 10.0  # a test takes as long as this many validations: it is longer, and partly predicts one by one
VALIDATIONS_PER_TRAINING = 20
DEFAULT_SECONDS = 5.0  # of a job of unknown duration


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
