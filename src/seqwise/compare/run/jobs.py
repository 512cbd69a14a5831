"""What has happened in the folder of a comparison: a small file for everything that is finished.

    trials/gru/seed-0/            the run          trials/gru/seed-0.json         its outcome
    trials/gru/seed-0.test.json   its test         trials/gru/seed-0.test/        what each test example says
    trials/gru/rehearsal.json     seconds of an update and of a validation
    trials/all.pace.json          seconds of an answer, of every family
    trials/gru/seed-0.log         what its processes said, where it has several of them and did not end well

A file is written whole or not at all, so what is there is true, whoever was killed. Nothing here trains.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from seqwise.compare.plan.plan import TRIALS, Plan, Trial
from seqwise.files import explain_write_errors, write_text

Status = Literal["done", "failed"]
JobKind = Literal["rehearse", "train", "test", "pace"]


@dataclass(frozen=True)
class Job:
    """Something to be done by one worker: rehearse a family, carry out a trial, test what it has trained, time all."""

    kind: JobKind
    name: str  # of the family, or of the trial; "all"

    def file(self, folder: Path) -> Path:
        """Where its result will be."""
        endings = {"rehearse": "/rehearsal.json", "train": ".json", "test": ".test.json", "pace": ".pace.json"}
        return folder / TRIALS / f"{self.name}{endings[self.kind]}"

    def run(self, folder: Path) -> Path:
        """The run folder of the trial."""
        return folder / TRIALS / self.name

    def log(self, folder: Path) -> Path:
        """What the processes of the trial say, where it has several."""
        return folder / TRIALS / f"{self.name}.log"

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
        repair = "What was saved before is complete. Fix the cause, then resume the comparison."
        with explain_write_errors(path, repair):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(asdict(self), indent=1) + "\n", repair=repair)

    @classmethod
    def load(cls, path: Path) -> Outcome | None:
        """What the file says; None where it is missing or damaged, so that the job is done again."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


PACE = Job("pace", "all")


def outcome_of(folder: Path, kind: JobKind, name: str) -> Outcome | None:
    return Outcome.load(Job(kind, name).file(folder))


def forget_failures(folder: Path, plan: Plan) -> None:
    """Remove the outcomes of jobs that failed, so that they are done again."""
    failed = _failed(folder, plan)
    for job in [*failed, *([PACE] if failed else [])]:  # what comes to an end now is timed too
        job.file(folder).unlink(missing_ok=True)


def _failed(folder: Path, plan: Plan) -> list[Job]:
    """Jobs that failed. Where a training is done, the rate is chosen: failed tries of that family stay as they are."""
    chosen = {trial.family for trial in done(folder, plan.trainings())}
    again = [trial for trial in plan.trials() if trial.kind == "train" or trial.family not in chosen]
    jobs = [*(Job(kind, trial.name) for trial in again for kind in ("train", "test")), PACE]
    return [job for job in jobs if (found := Outcome.load(job.file(folder))) and found.status != "done"]


def unfinished(folder: Path, plan: Plan) -> bool:
    """Is there something to do, if only again?"""
    jobs = [Job("train", trial.name) for trial in plan.trials()]
    jobs += [*(Job("test", trial.name) for trial in done(folder, plan.trainings())), PACE]
    return bool(missing(folder, jobs) or _failed(folder, plan))


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
