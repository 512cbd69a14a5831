"""One job of a comparison, carried out in this process: `execute`. A trial is an ordinary run in an ordinary folder.

Whoever calls it, on this machine or on another, finds the result in the folder of the comparison. A job that was
killed is done again from its newest checkpoint.
"""

from __future__ import annotations

import fcntl
import math
import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any

import torch

from seqwise.compare.outcomes import Job, Outcome, chosen_rate
from seqwise.compare.plan import BESIDE, LEARNED, LOG, Plan, Trial
from seqwise.config import Settings
from seqwise.errors import RunError, SeqwiseError
from seqwise.tasks import task_of
from seqwise.tasks.task import Learned, Request, Task, silent
from seqwise.training.api import Loaded
from seqwise.training.budgets import Budget
from seqwise.training.distribution import World
from seqwise.training.fit import begin_run, choose_device, training_of
from seqwise.training.launching import launch
from seqwise.training.loop import Trainer
from seqwise.training.run import CONFIG, WEIGHTS, Run
from seqwise.training.word_vectors import WordVectors

Tell = Callable[[dict[str, Any]], None]
Stop = Callable[[], bool]

OFTEN = 0.2  # seconds between two messages
REHEARSED = 6  # updates, of which the first is not timed


class Interrupted(Exception):
    """The job was asked to stop; what it did is saved."""


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
        except Interrupted:
            raise
        except SeqwiseError as error:
            outcome = Outcome("failed", str(error))
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
            if _locked(file, mark):
                try:
                    yield
                finally:
                    mark.unlink(missing_ok=True)
                return
        if stop():
            raise Interrupted
        time.sleep(OFTEN)


def _locked(file: IO[str], mark: Path) -> bool:
    """Is the lock ours? The kernel gives it back when a process ends, however it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    try:
        return os.path.samestat(os.fstat(file.fileno()), mark.stat())  # not removed by its last owner
    except FileNotFoundError:
        return False


# A trial


def _train(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    trial = plan.trial(job.name)
    rate, why = (None, "") if trial.kind == "try" else chosen_rate(folder, plan, trial.family)
    if why:
        raise SeqwiseError(why)
    settings = plan.settings_of(trial, rate)
    run, task = _open_run(job.run(folder), folder, plan, settings)
    with _measured_memory(settings) as peak:
        if plan.nproc > 1 and not plan.counted(trial.family):
            _train_in_processes(run, plan.nproc, folder, lambda: _tell_row(run, plan, tell), stop)
        else:
            _train_here(run, task, plan, tell, stop)
    rows = run.metrics()
    validated = [row for row in rows if row.get("validation") and math.isfinite(_goal(row["validation"]))]
    best = min(validated, key=lambda row: _goal(row["validation"]), default=None)
    return {
        "rate": settings.training.learning_rate,
        "tokens": rows[-1]["tokens"],
        "seconds": rows[-1]["seconds"],
        "updates": rows[-1]["step"],
        "goal": None if best is None else _goal(best["validation"]),
        "validation": None if best is None else best["validation"].get(plan.metric),
        "memory": None if plan.nproc > 1 else peak(),
        "beside": int(os.environ.get(BESIDE, "1")),
        "node": platform.node(),
    }


def _goal(validation: dict[str, float]) -> float:
    return validation.get("goal", validation["loss"])


def _open_run(where: Path, folder: Path, plan: Plan, settings: Settings) -> tuple[Run, Task]:
    """The run of a trial, begun or gone on with. What was cut off while it was made, or has another rate, is redone."""
    task = open_shared(folder, plan, settings)
    if (where / CONFIG).exists() and (run := Run.open(where)).settings == settings:
        return run, task
    shutil.rmtree(where, ignore_errors=True)
    vectors = WordVectors.read(settings, silent)
    return begin_run(where, plan.data, settings, task, vectors, command=plan.command), task


_opened: dict[str, Task] = {}  # the last tasks this process opened: reading the data takes longer than a short trial


def open_shared(folder: Path, plan: Plan, settings: Settings) -> Task:
    """The task with the one vocabulary of the comparison, on data that must be what it was."""
    sections = {"network", "recurrent", "transformer", "context", "training", "model", "seed", "budget", "device"}
    key = f"{folder.resolve()} {settings.model_dump_json(exclude=sections)}"
    if key not in _opened:
        learned = Learned.load(folder / LEARNED)
        task = task_of(plan.task).prepare(plan.data, settings.model_copy(deep=True), learned)
        if task.fingerprint != plan.fingerprint:
            raise RunError(
                f"{plan.data} is not the data this comparison began with.",
                repair="Put the original file back, or start a new comparison.",
            )
        while len(_opened) > 1:
            del _opened[next(iter(_opened))]
        _opened[key] = task
    return _opened[key]


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


def _train_in_processes(run: Run, processes: int, folder: Path, report: Callable[[], None], stop: Stop) -> None:
    """Data parallel, as `seqwise train --nproc`; what its processes say is kept in a file."""
    over, before = threading.Event(), _said(folder)

    def watch() -> None:
        while not over.wait(1.0):
            report()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with (folder / LOG).open("ab") as log:
            words = ["train", "--resume", str(run.folder)]
            status = launch(processes, choose_device(run.settings), words, run.folder, log, stop)
    except KeyboardInterrupt:
        raise Interrupted from None
    finally:
        over.set()
        watcher.join()
    report()  # the end may have come just after the last look
    if status == 130:
        raise Interrupted
    if status:
        error = _said(folder)[len(before) :].rpartition("error: ")[2].strip()
        raise SeqwiseError(error or f"its processes ended with status {status}.")


def _said(folder: Path) -> str:
    log = folder / LOG
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _tell_row(run: Run, plan: Plan, tell: Tell) -> None:
    rows = run.metrics()
    if rows:
        value = next((r["validation"].get(plan.metric) for r in reversed(rows) if r.get("validation")), None)
        row = rows[-1]
        tell({
            "progress": row["progress"], "tokens": row["tokens"], "seconds": row["seconds"], "value": value,
            "speed": row["tokens_per_second"],
        })  # fmt: skip


@contextmanager
def _measured_memory(settings: Settings):
    """Yields a function that tells the most memory in use since: of the GPU, or of this process. None: unknown."""
    cuda = choose_device(settings).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
    yield torch.cuda.max_memory_allocated if cuda else _most_memory


def _most_memory() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


# Before and after


def _rehearse(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    """Seconds of an update and of a validation, before anything is at stake."""
    if plan.counted(job.name):
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
        "update": min(after - before for before, after in pairwise(times)),  # the others may have been disturbed
        "tokens": trainer.place.tokens / REHEARSED,
        "validation": time.perf_counter() - began,
    }


def _test(folder: Path, plan: Plan, job: Job, tell: Tell, stop: Stop) -> dict[str, Any]:
    """The metrics on the test split, what each example says, and how long an answer takes."""
    run = Run.open(job.run(folder))
    open_shared(folder, plan, run.settings)  # complains about data that has changed
    loaded = Loaded(run, run.settings.device)
    request = Request(search=loaded.task.search, examples=True, headline=plan.metric)

    def progress(at: int, of: int) -> None:
        tell({"progress": at / max(1, of)})
        if stop():
            raise Interrupted

    found = loaded.evaluate(plan.data, request=request, progress=progress)
    if found.examples is None:
        raise SeqwiseError(f"the task {plan.task} does not tell what each example says.")
    scores = job.scores(folder)
    scores.mkdir(exist_ok=True)
    found.examples.save(scores)
    pace = loaded.task.pace(loaded.model, loaded.settings, run.learned, plan.data, trained_on=run.origin.fingerprint)
    return {
        "metrics": found.metrics,
        "definitions": {name: found.definitions.get(name, "") for name in found.metrics},
        "on": found.on,
        "how": found.how,
        "remarks": list(found.remarks),
        "seconds": found.seconds,
        "answer": pace,
        "weights": (run.folder / WEIGHTS).stat().st_size,
    }


_WORK = {"rehearse": _rehearse, "train": _train, "test": _test}
