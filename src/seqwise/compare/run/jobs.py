"""Jobs of a comparison and their outcomes: one small file for each finished job.

    trials/gru/seed-0/            the run            trials/gru/seed-0.json         its outcome
    trials/gru/seed-0.test.json   its test           trials/gru/seed-0.test/        the scores of each test example
    trials/all.speed.json         seconds of an update and of a validation of every family
    trials/all.latency.json       seconds of one prediction of every family
    trials/gru/seed-0.log         output of the processes of a trial with several, if it failed

Files are written atomically, so an outcome is complete whichever process is killed. This module executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter

from seqwise.compare.plan.folder import TRIALS_FOLDER
from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.report.schema import accept_old_key
from seqwise.digests import add_digest, read_object
from seqwise.files import explain_write_errors, remove, write_text
from seqwise.metrics.evaluation import Baseline

JobKind = Literal["speed", "train", "test", "latency"]
# "event" is begin, progress, end, lost or stopped, with "kind" and "name" of the job; or waiting, with a "reason".
# A job reports its progress without these three keys; the worker and the engine add them. Of a training run, "notes"
# are all messages for the user so far.
Event = dict[str, Any]
OnEvent = Callable[[Event], None]
R = TypeVar("R")


@dataclass(frozen=True)
class SpeedResult:
    """How long one update and one validation of a family take, and how many tokens an update processes."""

    update_seconds: float
    update_tokens: float
    validation_seconds: float


@dataclass(frozen=True)
class SpeedResults:
    """Family → its speed, measured before training; n-gram models have none."""

    families: dict[str, SpeedResult]


@dataclass(frozen=True)
class TrainingResult:
    """What a trial reached and spent."""

    rate: float | None
    tokens: int
    seconds: float
    updates: int
    objective: Annotated[float | None, accept_old_key("objective", "goal")]  # lower is better
    validation: float | None  # primary metric at the best objective
    memory: float | None = None  # bytes that training added to the process, or to the GPU; None: not known
    waiting_share: float | None = None  # of its time, in which the process waited for a core; None: not known
    # How many trials shared the device, and how many ran at the same time on all devices.
    device_workers: Annotated[int, accept_old_key("device_workers", "beside")] = 1
    workers: Annotated[int, accept_old_key("workers", "at_once")] = 1
    node: str | None = None


@dataclass(frozen=True)
class EvaluationResult:
    """The metrics of a trained model on the test split."""

    metrics: dict[str, float]
    definitions: dict[str, str]
    on: str  # what was evaluated
    seconds: float | None
    weights: int  # bytes
    warnings: Annotated[tuple[str, ...], accept_old_key("warnings", "remarks")] = ()
    baselines: tuple[Baseline, ...] = ()


@dataclass(frozen=True)
class LatencyResult:
    """Family → seconds of one prediction in each round."""

    families: dict[str, tuple[float, ...]]
    waiting_share: float | None = None  # of its time, in which the process waited for a core; None: not known


# For each kind of job the type of its result, the ending of its file, and the ending that version 0.1 used, if other.
_FILES: dict[JobKind, tuple[TypeAdapter[Any], str, str]] = {
    "speed": (TypeAdapter(SpeedResults), ".speed.json", ".speed.json"),
    "train": (TypeAdapter(TrainingResult), ".json", ".json"),
    "test": (TypeAdapter(EvaluationResult), ".test.json", ".test.json"),
    "latency": (TypeAdapter(LatencyResult), ".latency.json", ".pace.json"),
}


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """How a job ended; a failed one has a reason and no result."""

    status: Literal["done", "failed"]
    reason: str = ""
    result: R | None = None

    def save(self, path: Path) -> None:
        fix = "What was saved before is complete. Fix the cause, then resume the comparison."
        with explain_write_errors(path, fix):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(add_digest(asdict(self)), indent=1) + "\n", fix=fix)


@dataclass(frozen=True)
class Job:
    """Work for one process: execute a trial, test its model, or measure the speed or latency of all families."""

    kind: JobKind
    name: str  # of the trial; "all"

    def get_file(self, folder: Path) -> Path:
        """Returns the file of the outcome; that of version 0.1 where it exists."""
        path, old = (folder / TRIALS_FOLDER / f"{self.name}{ending}" for ending in _FILES[self.kind][1:])
        return old if old.exists() else path

    def get_run_folder(self, folder: Path) -> Path:
        """Returns the run folder of the trial."""
        return folder / TRIALS_FOLDER / self.name

    def get_log_file(self, folder: Path) -> Path:
        """Returns the file for the output of a trial of several processes."""
        return folder / TRIALS_FOLDER / f"{self.name}.log"

    def get_scores_folder(self, folder: Path) -> Path:
        """Returns the folder for the scores of each test example."""
        return folder / TRIALS_FOLDER / f"{self.name}.test"

    def load(self, folder: Path) -> Outcome[Any] | None:
        """Returns the outcome; None where it is missing or damaged, so that the job is executed again."""
        try:
            values = read_object(self.get_file(folder))
            result = values["result"] if "result" in values else values["values"]  # the key of version 0.1
            parsed = None if result is None else _FILES[self.kind][0].validate_python(result)
            return Outcome(values["status"], values["reason"], parsed)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def load_result(self, folder: Path) -> Any:
        """Returns the result; None where there is no outcome, or it has failed."""
        outcome = self.load(folder)
        return None if outcome is None else outcome.result


SPEED_JOB, LATENCY_JOB = Job("speed", "all"), Job("latency", "all")


def load_speeds(folder: Path) -> dict[str, SpeedResult]:
    """Returns the measured speeds by family; none before they are measured."""
    results: SpeedResults | None = SPEED_JOB.load_result(folder)
    return {} if results is None else results.families


def load_training(folder: Path, trial: Trial) -> Outcome[TrainingResult] | None:
    return Job("train", trial.name).load(folder)


def load_test(folder: Path, trial: Trial) -> Outcome[EvaluationResult] | None:
    return Job("test", trial.name).load(folder)


def load_training_results(folder: Path, trials: list[Trial]) -> list[TrainingResult]:
    """Returns the results of the trials that have one."""
    return [result for trial in trials if (result := Job("train", trial.name).load_result(folder)) is not None]


def find_missing_jobs(folder: Path, jobs: list[Job]) -> list[Job]:
    """Returns the jobs without an outcome."""
    return [job for job in jobs if job.load(folder) is None]


def find_trained_trials(folder: Path, trials: list[Trial]) -> list[Trial]:
    """Returns the trials that were trained successfully."""
    outcomes = {trial: load_training(folder, trial) for trial in trials}
    return [trial for trial, outcome in outcomes.items() if outcome is not None and outcome.status == "done"]


def is_unfinished(folder: Path, plan: Plan) -> bool:
    """Returns whether a job is left, or failed and can be repeated."""
    jobs = [Job("train", trial.name) for trial in plan.list_trials()]
    jobs += [
        *(Job("test", trial.name) for trial in find_trained_trials(folder, plan.list_training_trials())),
        LATENCY_JOB,
    ]
    return bool(find_missing_jobs(folder, jobs) or _find_failed(folder, plan))


def remove_failures(folder: Path, plan: Plan) -> None:
    """Removes the outcomes of failed jobs, so that they are repeated; latencies are then measured again for all."""
    failed = _find_failed(folder, plan)
    for job in [*failed, *([LATENCY_JOB] if failed else [])]:
        remove(job.get_file(folder), folder)


def _find_failed(folder: Path, plan: Plan) -> list[Job]:
    """Returns the failed jobs; once a family was trained, its learning-rate search is over and not repeated."""
    trained = {trial.family for trial in find_trained_trials(folder, plan.list_training_trials())}
    trials = [trial for trial in plan.list_trials() if trial.kind == "train" or trial.family not in trained]
    jobs = [*(Job(kind, trial.name) for trial in trials for kind in ("train", "test")), LATENCY_JOB]
    return [job for job in jobs if (outcome := job.load(folder)) and outcome.status != "done"]
