"""One job of a comparison, carried out in this process: `execute`. A trial is an ordinary run in an ordinary folder.

Whoever calls it, on this machine or on another, finds the result in the folder of the comparison. A job that was
killed is done again from its newest checkpoint.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from seqwise.budget import Budget
from seqwise.compare.plan.plan import AT_ONCE, BESIDE, LEARNED, Plan, Trial, resume_command
from seqwise.compare.run.jobs import Job, Outcome, chosen_rate
from seqwise.compare.run.latency import pace_all
from seqwise.compare.run.locks import locked
from seqwise.compare.run.memory import added
from seqwise.errors import RunError, SeqwiseError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.task import InferenceOptions, Preprocessor, ProgressCallback, Task, no_log
from seqwise.training.api import TrainedModel
from seqwise.training.checkpoints import resume_command as train_command
from seqwise.training.distribution import World
from seqwise.training.launching import LostProcessError, launch
from seqwise.training.loop import Trainer
from seqwise.training.run import CONFIG, WEIGHTS, Run
from seqwise.training.training_run import choose_device, create_run_folder, training_of
from seqwise.training.word_vectors import WordVectors

Tell = Callable[[dict[str, Any]], None]
Stop = Callable[[], bool]

OFTEN = 0.2  # seconds between two messages
REHEARSED = 6  # updates, of which the first is not timed
# What reading the data does not depend on: families and trials that differ in nothing else share what was read.
NOT_READ = {"network", "recurrent", "transformer", "context", "training", "model", "seed", "budget", "device"}


class Interrupted(Exception):
    """The job was asked to stop; what it did is saved."""


class Lost(Exception):
    """A process of the job ended by no fault of the job; it can go on from its newest checkpoint."""


def execute(folder: Path, job: Job, tell: Tell = lambda event: None, stop: Stop = lambda: False) -> Outcome:
    """Do the job, unless it is done, and leave its outcome in the folder. What goes wrong is an outcome too."""
    path = job.file(folder)
    if (found := Outcome.load(path)) is not None:
        return found
    plan = Plan.open(folder)
    with _alone(path, stop):
        if (found := Outcome.load(path)) is not None:
            return found
        try:
            outcome = Outcome("done", values=_WORK[job.kind](folder, plan, job, tell, stop))
        except (Interrupted, Lost):
            raise
        except SeqwiseError as error:  # what it says about a run is to be done with the whole comparison
            advice = train_command(job.run(folder)), resume_command(folder)
            outcome = Outcome("failed", str(error).replace(*advice))
        except Exception as error:  # one trial that fails must not lose the others
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        outcome.save(path)
    return outcome


@contextmanager
def _alone(path: Path, stop: Stop) -> Iterator[None]:
    """Nobody else does this job meanwhile: a worker whose owner was killed takes a moment to notice and leave."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = path.with_name(f".{path.name}.lock")
    while True:
        with mark.open("w") as file:
            if locked(file, mark) is not False:
                try:
                    yield
                finally:
                    mark.unlink(missing_ok=True)
                return
        if stop():
            raise Interrupted
        time.sleep(OFTEN)


# A trial


def _train(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    trial = plan.trial(job.name)
    rate, why = (None, "") if trial.kind == "try" else chosen_rate(folder, plan, trial.family)
    if why:
        raise SeqwiseError(why)
    settings = plan.settings_of(trial, rate)
    run, task = _open_run(job.run(folder), folder, plan, settings)
    fresh = not any(run.checkpoints.glob("step-*"))
    with added(choose_device(settings)) as memory:
        if plan.nproc > 1 and not plan.counted(trial.family):
            _train_in_processes(run, plan, job.log(folder), tell, stop)
        else:
            _train_here(run, task, plan, tell, stop)
        peak = memory()
    rows = run.metrics()
    validated = [row for row in rows if row.get("validation") and math.isfinite(_goal(row["validation"]))]
    best = min(validated, key=lambda row: _goal(row["validation"]), default=None)
    # Of other processes, of what was before a kill, and of counting, which is no training, the memory is not known.
    measured = fresh and plan.nproc == 1 and not plan.counted(trial.family)
    return {
        "rate": settings.training.learning_rate,
        "tokens": rows[-1]["tokens"],
        "seconds": rows[-1]["seconds"],
        "updates": rows[-1]["step"],
        "goal": None if best is None else _goal(best["validation"]),
        "validation": None if best is None else best["validation"].get(plan.metric),
        "counted": plan.counted(trial.family),  # all of the training split, whatever the budget
        "memory": peak if measured else None,  # bytes that training this model added to the process, or to the GPU
        "beside": int(os.environ.get(BESIDE, "1")),
        "at_once": int(os.environ.get(AT_ONCE, "1")),
        "node": platform.node(),
    }


def _goal(validation: dict[str, float]) -> float:
    return validation.get("goal", validation["loss"])


def _open_run(where: Path, folder: Path, plan: Plan, settings: ResolvedSettings) -> tuple[Run, Task]:
    """The run of a trial, begun or gone on with. What was cut off while it was made, or has another rate, is redone."""
    task = open_shared(folder, plan, settings)
    if (where / CONFIG).exists() and (run := Run.open(where)).settings == settings:
        return run, task
    shutil.rmtree(where, ignore_errors=True)
    vectors = WordVectors.read(settings, no_log)
    return create_run_folder(where, plan.data, settings, task, vectors, command=plan.command), task


_opened: dict[str, Task] = {}  # the last tasks this process opened: reading the data takes longer than a short trial


def open_shared(folder: Path, plan: Plan, settings: ResolvedSettings, anew: bool = False) -> Task:
    """The task with the one vocabulary of the comparison; `anew`: read once more what this process has read before."""
    key = f"{folder.resolve()} {settings.model_dump_json(exclude=NOT_READ)}"
    if anew:
        _opened.pop(key, None)
    if key not in _opened:
        task = read_data(folder, plan, settings)
        while len(_opened) > 1:
            del _opened[next(iter(_opened))]
        _opened[key] = task
    return _opened[key]


def read_data(folder: Path, plan: Plan, settings: ResolvedSettings, progress: ProgressCallback | None = None) -> Task:
    """The data, which must be what it was."""
    preprocessor = Preprocessor.load(folder / LEARNED)
    task = get_task(plan.task).prepare(plan.data, settings.model_copy(deep=True), preprocessor, progress=progress)
    if task.fingerprint != plan.fingerprint:
        raise RunError(
            f"{plan.data} is not the data this comparison began with.",
            repair="Put the original file back, or start a new comparison.",
        )
    return task


def _train_here(run: Run, task: Task, plan: Plan, tell: Tell, stop: Stop) -> None:
    training, told = training_of(run, task=task), 0.0
    value = None
    for step in training.steps(stop):
        if step.validation:
            value = step.validation.get(plan.metric)
        if step.validation or step.ended or time.monotonic() - told > OFTEN:
            told = time.monotonic()
            tell({
                "progress": step.progress, "tokens": step.tokens, "seconds": step.seconds, "value": value,
                "speed": step.tokens_per_second,
            })  # fmt: skip
    if not training.ended:
        raise Interrupted


def _train_in_processes(run: Run, plan: Plan, log: Path, tell: Tell, stop: Stop) -> None:
    """Data parallel, as `seqwise train --nproc`. What the processes say is kept until they end well."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            _tell_row(run, plan, tell)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with log.open("wb") as file:
            words = ["train", "--resume", str(run.folder)]
            status = launch(plan.nproc, choose_device(run.settings), words, run.folder, file, stop)
    except KeyboardInterrupt:
        raise Interrupted from None
    except LostProcessError as error:
        raise Lost(f"when {error.problem.rstrip('.')}") from None
    finally:
        over.set()
        watcher.join()
    _tell_row(run, plan, tell)  # the end may have come just after the last look
    if status == 130:
        raise Interrupted
    if status:
        said = log.read_text(encoding="utf-8", errors="replace").rpartition("error: ")[2].strip()
        raise SeqwiseError(said or f"its processes ended with status {status}.")
    log.unlink()


def _tell_row(run: Run, plan: Plan, tell: Tell) -> None:
    rows = run.metrics()
    if rows:
        value = next((r["validation"].get(plan.metric) for r in reversed(rows) if r.get("validation")), None)
        row = rows[-1]
        tell({
            "progress": row["progress"], "tokens": row["tokens"], "seconds": row["seconds"], "value": value,
            "speed": row["tokens_per_second"],
        })  # fmt: skip


# Before and after


def _rehearse(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    """Seconds of an update and of a validation, before anything is at stake; of one process, if there is but one."""
    if plan.counted(job.name) or plan.nproc > 1:
        return {"update": None, "validation": None}
    settings = plan.settings_of(Trial(job.name, "train", 0, plan.spending.seeds[0]), None)
    task = open_shared(folder, plan, settings)
    torch.manual_seed(0)
    model = task.build(settings).to(choose_device(settings))
    trainer = Trainer(model, task.batches(settings), settings.training, Budget(float("inf"), "seconds"))
    times = [step.seconds for step in islice(trainer.steps(), REHEARSED)]
    began = time.perf_counter()
    task.validate(model, settings, World())
    return {
        "update": median(after - before for before, after in pairwise(times)),  # some may have been disturbed
        "tokens": trainer.state.tokens / REHEARSED,
        "validation": time.perf_counter() - began,
    }


def _test(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    """The metrics on the test split, and what each example says."""
    run = Run.open(job.run(folder))
    loaded = TrainedModel(run, run.settings.device)
    options = InferenceOptions(beam_search=loaded.task.beam_search, examples=True, primary_metric=plan.metric)

    def progress(at: int, of: int) -> None:
        tell({"progress": at / max(1, of)})
        if stop():
            raise Interrupted

    with _unchanged(folder, plan, run.settings):
        found = loaded.evaluate(plan.data, split="test", options=options, progress=progress)
    if found.examples is None:
        raise SeqwiseError(f"the task {plan.task} does not tell what each example says.")
    scores = job.scores(folder)
    scores.mkdir(exist_ok=True)
    found.examples.save(scores)
    return {
        "metrics": found.metrics,
        "definitions": {name: found.definitions.get(name, "") for name in found.metrics},
        "on": found.on,
        "how": found.how,
        "remarks": list(found.warnings),
        "seconds": found.seconds,
        "weights": (run.folder / WEIGHTS).stat().st_size,
        "baselines": [asdict(each) for each in open_shared(folder, plan, run.settings).baselines("test")],
    }


@contextmanager
def _unchanged(folder: Path, plan: Plan, settings: ResolvedSettings) -> Iterator[None]:
    """What is read from the data in this block counts only if the data still is what it was."""
    try:
        yield
    except Interrupted:
        raise
    except Exception:
        open_shared(folder, plan, settings, anew=True)  # which may know a better reason
        raise
    open_shared(folder, plan, settings, anew=True)


def _pace(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    """How long an answer takes, for all families in this one job."""

    def between(share: float) -> None:
        tell({"progress": share})
        if stop():
            raise Interrupted

    with _unchanged(folder, plan, next(iter(plan.families.values()))):
        return pace_all(folder, plan, between)


_WORK = {"rehearse": _rehearse, "train": _train, "test": _test, "pace": _pace}
