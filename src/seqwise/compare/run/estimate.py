"""When a comparison will be over, from what the rehearsal measured and what has happened since. It is an estimate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.engine import Event
from seqwise.compare.run.jobs import Job, outcome_of

AROUND = 1.0  # seconds that a trial takes besides training: making the model, saving it
TEST = 10.0  # a test takes about as long as so many validations: it is longer, and some answers are given one by one
UNKNOWN = 5.0  # seconds of a job nothing is known of


class Estimate:
    """Expected seconds of every job that is left; it learns from those that end."""

    def __init__(self, folder: Path, plan: Plan, places: Callable[[], int] = lambda: 1):
        self.folder, self.plan, self.places = folder, plan, places
        self.left: dict[Job, float] = {}
        self.begun: dict[Job, float] = {}
        self.measure_latency = 1.0  # seconds that passed for each that was expected
        self.expected = self.passed = 0.0

    def begin(self) -> None:
        """Look at the folder again: which trials have no outcome, and what the rehearsal says of them."""
        jobs = [Job("train", trial.name) for trial in self.plan.trials()]
        jobs += [Job("test", trial.name) for trial in self.plan.trainings()]
        self.left = {job: self._seconds(job) for job in jobs if outcome_of(self.folder, job.kind, job.name) is None}

    def _seconds(self, job: Job) -> float:
        trial = self.plan.trial(job.name)
        outcome = outcome_of(self.folder, "rehearse", trial.family)
        known = (outcome.values if outcome else None) or {}
        budget = Budget.parse(self.plan.spending.a_try if trial.kind == "try" else self.plan.spending.training)
        if known.get("update") is None:
            timed = job.kind == "train" and budget.unit == "seconds" and not self.plan.counted(trial.family)
            return AROUND + budget.amount if timed else UNKNOWN
        if job.kind == "test":
            return AROUND + TEST * known["validation"]
        seconds = budget.amount
        if budget.unit == "tokens":
            seconds = budget.amount / max(1.0, known["tokens"]) * known["update"]
            seconds += known["validation"] * (1 if trial.kind == "try" else 20)
        return AROUND + seconds + known["validation"]

    def listen(self, event: Event) -> None:
        """Learn from what happens."""
        if "name" not in event:
            return  # it is about no job
        job = Job(event["kind"], event["name"])
        if event["event"] == "begin":
            self.begun[job] = time.monotonic()
        if event["event"] == "end" and job in self.left and job in self.begun:
            self.expected += self.left.pop(job)
            self.passed += time.monotonic() - self.begun.pop(job)
            self.measure_latency = (self.passed + 1) / (self.expected + 1)

    def seconds(self) -> float:
        """Seconds until the end."""
        now = time.monotonic()
        running = sum(min(now - self.begun[job], self.left[job]) for job in self.begun if job in self.left)
        return max(0.0, sum(self.left.values()) * self.measure_latency - running) / self.places()
