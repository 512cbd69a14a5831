"""What has happened in the folder of a comparison: a small file for everything that is finished.

    trials/gru/seed-0/            the run          trials/gru/seed-0.json         its outcome
    trials/gru/seed-0.test.json   its test         trials/gru/seed-0.test/        what each test example says
    trials/gru/rehearsal.json     seconds of an update and of a validation

A file is written whole or not at all, so what is there is true, whoever was killed. Nothing here trains.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from seqwise.compare.plan import TRIALS, Plan, Trial
from seqwise.training.checkpoints import write_text

Status = Literal["done", "failed"]
JobKind = Literal["rehearse", "train", "test"]


@dataclass(frozen=True)
class Job:
    """Something to be done by one worker: rehearse a family, carry out a trial, test what it has trained."""

    kind: JobKind
    name: str  # of the family, or of the trial

    def file(self, folder: Path) -> Path:
        """Where its result will be."""
        ending = {"rehearse": "/rehearsal.json", "train": ".json", "test": ".test.json"}[self.kind]
        return folder / TRIALS / f"{self.name}{ending}"

    def run(self, folder: Path) -> Path:
        """The run folder of the trial."""
        return folder / TRIALS / self.name

    def scores(self, folder: Path) -> Path:
        """Where the test leaves what each example says."""
        return folder / TRIALS / f"{self.name}.test"


@dataclass(frozen=True)
class Outcome:
    """The result of a job. What does not concern it stays None."""

    status: Status
    reason: str = ""  # of a failure
    values: dict[str, Any] | None = None

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Outcome | None:
        """What the file says; None where it is missing or damaged, so that the job is done again."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def outcome_of(folder: Path, kind: JobKind, name: str) -> Outcome | None:
    return Outcome.load(Job(kind, name).file(folder))


def forget_failures(folder: Path, plan: Plan) -> int:
    """Remove the outcomes of trials that failed, so that they are tried again; returns how many there were.

    Where a training is done, its rate is chosen: failed tries of that family stay what they are.
    """
    chosen = {trial.family for trial in done(folder, plan.trainings())}
    again = [trial for trial in plan.trials() if trial.kind == "train" or trial.family not in chosen]
    jobs = [Job(kind, trial.name) for trial in again for kind in ("train", "test")]
    failed = [job.file(folder) for job in jobs if (found := Outcome.load(job.file(folder))) and found.status != "done"]
    for path in failed:
        path.unlink()
    return len(failed)


def chosen_rate(folder: Path, plan: Plan, family: str) -> tuple[float | None, str]:
    """The rate of the try with the best validation; the rule's where there was no search; or None, and why."""
    if plan.counted(family) or plan.spending.tries == 1:
        return plan.families[family].training.learning_rate, ""
    found: list[tuple[float, int]] = []
    reasons = []
    for trial in (trial for trial in plan.tries() if trial.family == family):
        outcome = outcome_of(folder, "train", trial.name)
        if outcome is not None and outcome.status == "done" and outcome.values and outcome.values["goal"] is not None:
            found.append((outcome.values["goal"], trial.number))
        else:
            reason = "it was not tried." if outcome is None else outcome.reason
            reasons.append(reason or "its validation is not a number.")
    if not found:
        return None, f"none of its {plan.spending.tries} learning rates worked: {reasons[-1]}"
    return plan.rates(family)[min(found)[1] - 1], ""


def missing(folder: Path, jobs: list[Job]) -> list[Job]:
    """The jobs without a result."""
    return [job for job in jobs if Outcome.load(job.file(folder)) is None]


def done(folder: Path, trials: list[Trial]) -> list[Trial]:
    """The trials that ended well."""
    found = {trial: outcome_of(folder, "train", trial.name) for trial in trials}
    return [trial for trial, outcome in found.items() if outcome is not None and outcome.status == "done"]
