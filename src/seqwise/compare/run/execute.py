"""Executes one job of a comparison in this process: `execute`. A trial is an ordinary training run in its own folder.

The outcome is saved in the folder of the comparison, whichever process or machine executes the job. A job whose
process was killed is executed again, and continues from its newest checkpoint.
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from seqwise.budget import Budget
from seqwise.callbacks import no_log
from seqwise.clock import read_clock
from seqwise.compare.plan.budgets import TrialCost, estimate_token_cost
from seqwise.compare.plan.folder import get_resume_command
from seqwise.compare.plan.plan import DEVICE_WORKERS_VARIABLE, NEVER, WORKERS_VARIABLE, Plan
from seqwise.compare.run.jobs import (
    EvaluationResult,
    Event,
    Job,
    LatencyResult,
    OnEvent,
    Outcome,
    SpeedResult,
    SpeedResults,
    TrainingResult,
    find_trained_trials,
)
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.compare.run.memory import measure_added_memory
from seqwise.compare.run.shared_data import open_shared_task
from seqwise.compare.run.speed import (
    NUM_UPDATES,
    SampledBatches,
    SpeedMeasurement,
    estimate_speeds,
    keep_fastest,
    measure_speeds,
)
from seqwise.compare.run.waiting import measure_waiting
from seqwise.errors import LockedError, SeqwiseError, UsageError
from seqwise.files import explain_write_errors, remove
from seqwise.locks import clear_folder, lock_file, lock_folder
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions, Task
from seqwise.training.api import TrainedModel
from seqwise.training.checkpoints import get_resume_command as resume_training_command
from seqwise.training.choices import choose_device
from seqwise.training.create import create_run_folder
from seqwise.training.distribution import World
from seqwise.training.initialization import compile_layers
from seqwise.training.launcher import LostProcessError, launch
from seqwise.training.loop import Trainer
from seqwise.training.run import CONFIG, WEIGHTS, Run, RunMetadata
from seqwise.training.step import get_objective
from seqwise.training.training_run import open_training
from seqwise.training.validation import choose_minimum_share
from seqwise.training.word_vectors import WordVectors

ShouldStop = Callable[[], bool]

POLL_SECONDS = 0.2  # between two events, and between two attempts to lock
SPEED_SHARE = 0.05  # of the budget of one seed, to measure the speed of a family
MIN_SPEED_SECONDS = 10.0  # to measure the speed of all families
NUM_PROCESS_UPDATES = 30  # to measure the speed of several processes
NUM_LATENCY_ROUNDS = 5


class InterruptedJob(Exception):
    """The job was asked to stop; its state is saved."""


class LostJobProcess(Exception):
    """A process of the job was killed or lost; the job can continue from its newest checkpoint."""


def execute(
    folder: Path, job: Job, report: OnEvent = lambda event: None, should_stop: ShouldStop = lambda: False
) -> Outcome[Any]:
    """Executes the job, unless it has an outcome, and saves its outcome. An error becomes a failed outcome."""
    if (outcome := job.load(folder)) is not None:
        return outcome
    execution = _Execution(folder, Plan.open(folder), job, report, should_stop)
    path = job.get_file(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A worker whose engine was killed needs a moment to exit.
    with lock_file(path.with_name(f".{path.name}.lock"), path, on_wait=partial(_wait, report, should_stop)):
        if (outcome := job.load(folder)) is not None:
            return outcome
        try:
            outcome = Outcome("done", result=execution.run())
        except (InterruptedJob, LostJobProcess):
            raise
        except SeqwiseError as error:  # its advice to resume the run is replaced by resuming the comparison
            commands = resume_training_command(job.get_run_folder(folder)), get_resume_command(folder)
            outcome = Outcome("failed", str(error).replace(*commands))
        except Exception as error:  # one trial that fails must not stop the others
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        outcome.save(path)
    return outcome


def execute_to_event(folder: Path, job: Job, report: OnEvent, should_stop: ShouldStop) -> Event:
    """Executes the job; returns an event: its end with the outcome, "stopped", or "lost" with the reason."""
    try:
        outcome = execute(folder, job, report, should_stop)
    except InterruptedJob:
        return {"event": "stopped"}
    except LostJobProcess as error:
        return {"event": "lost", "reason": str(error)}
    return {"event": "end", "status": outcome.status, "reason": outcome.reason}


def _wait(report: OnEvent, should_stop: ShouldStop, error: LockedError) -> None:
    """Reports that the job waits for a lock; ends the wait when the job is asked to stop."""
    if should_stop():
        raise InterruptedJob
    report({"progress": 0.0, "notes": [f"waiting: {error.problem}"]})


@dataclass(frozen=True)
class _Execution:
    """One job that is executed in this process, with a method for each kind of job."""

    folder: Path
    plan: Plan
    job: Job
    report: OnEvent
    should_stop: ShouldStop

    def run(self) -> Any:
        """Returns the result of the job."""
        methods = {
            "speed": self.measure_speeds,
            "train": self.train,
            "test": self.test,
            "latency": self.measure_latency,
        }
        return methods[self.job.kind]()

    def report_progress(self, share: float) -> None:
        self.report({"progress": share})
        if self.should_stop():
            raise InterruptedJob

    # A trial

    def train(self) -> TrainingResult:
        plan = self.plan
        trial = plan.get_trial(self.job.name)
        rate, problem = (None, "") if trial.kind == "lr" else choose_rate(self.folder, plan, trial.family)
        if problem:
            raise SeqwiseError(problem)
        settings = plan.make_settings(trial, rate)
        has_gradients = plan.has_gradients(trial.family)
        task, run_folder = open_shared_task(self.folder, plan, settings), self.job.get_run_folder(self.folder)
        with explain_write_errors(run_folder):
            run_folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as lock:  # the user may be training it, or a worker whose engine was killed
            wait = partial(_wait, self.report, self.should_stop)
            lock.enter_context(lock_folder(run_folder, command=plan.command, on_wait=wait))
            run = self._open_run(settings, run_folder, task)
            is_new = not any(run.checkpoints.glob("step-*"))
            with measure_added_memory(choose_device(settings)) as get_peak, measure_waiting() as get_waiting_share:
                if plan.nproc > 1 and has_gradients:
                    lock.close()  # the first of the processes locks the folder again
                    self._train_in_processes(run)
                else:
                    self._train_here(run, task)
                peak, waiting_share = get_peak(), get_waiting_share()
        rows = run.read_metrics()
        validations = [row["validation"] for row in rows if row.get("validation")]
        finite = [validation for validation in validations if math.isfinite(get_objective(validation))]
        best = min(finite, key=get_objective, default=None)
        # Of child processes, of the time before a kill and of n-gram models neither is known.
        is_measured = is_new and plan.nproc == 1 and has_gradients
        return TrainingResult(
            rate=settings.training.learning_rate,
            tokens=rows[-1]["tokens"],
            seconds=rows[-1]["seconds"],
            updates=rows[-1]["step"],
            objective=None if best is None else get_objective(best),
            validation=None if best is None else best.get(plan.metric),
            memory=peak if is_measured else None,
            waiting_share=waiting_share if is_measured else None,
            device_workers=int(os.environ.get(DEVICE_WORKERS_VARIABLE, "1")),
            workers=int(os.environ.get(WORKERS_VARIABLE, "1")),
            node=platform.node(),
        )

    def _open_run(self, settings: ResolvedSettings, run_folder: Path, task: Task) -> Run:
        """Opens a run to resume it; recreates it if it is incomplete or has another learning rate."""
        if (run_folder / CONFIG).exists() and (run := Run.open(run_folder)).settings == settings:
            return run
        clear_folder(run_folder)
        metadata = RunMetadata.create(self.plan.data, task, self.plan.command)
        return create_run_folder(run_folder, settings, task, metadata, WordVectors.read(settings, no_log))

    def _train_here(self, run: Run, task: Task) -> None:
        last_report = 0.0
        value = None  # of the last validation
        with run.record_failure():
            training = open_training(run, task=task)
            notes = [note for row in run.read_metrics() for note in row.get("notes", ())]  # of a trial that is resumed
            for step in training.steps(self.should_stop):
                notes += step.notes
                if step.validation:
                    value = step.validation.get(self.plan.metric)
                if step.validation or step.ended or step.notes or time.monotonic() - last_report > POLL_SECONDS:
                    last_report = time.monotonic()
                    self._report_step(step, value, notes)
        if not training.ended:
            raise InterruptedJob

    def _train_in_processes(self, run: Run) -> None:
        """Trains data-parallel, as `seqwise train --nproc`. The output of the processes is kept if they fail."""
        has_ended = threading.Event()
        log = self.job.get_log_file(self.folder)

        def watch() -> None:
            while not has_ended.wait(1.0):
                self._report_last_row(run)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            with log.open("wb") as file:
                arguments = ["train", "--resume", str(run.folder)]
                device = choose_device(run.settings)
                status = launch(self.plan.nproc, device, arguments, run.folder, file, self.should_stop)
        except KeyboardInterrupt:
            raise InterruptedJob from None
        except LostProcessError as error:
            raise LostJobProcess(f"when {error.problem.rstrip('.')}") from None
        finally:
            has_ended.set()
            watcher.join()
        self._report_last_row(run)
        if status == 130:
            raise InterruptedJob
        if status:
            message = log.read_text(encoding="utf-8", errors="replace").rpartition("error: ")[2].strip()
            raise SeqwiseError(message or f"its processes ended with status {status}.")
        remove(log, self.folder)

    def _report_last_row(self, run: Run) -> None:
        if rows := run.read_metrics():
            validation: dict[str, float] = next((r["validation"] for r in reversed(rows) if r.get("validation")), {})
            notes = [note for row in rows for note in row.get("notes", ())]
            self._report_step(SimpleNamespace(**rows[-1]), validation.get(self.plan.metric), notes)

    def _report_step(self, step: Any, value: float | None, notes: Sequence[str]) -> None:
        """Reports a step, or a row of metrics, with the value of the last validation and all notes of the trial.

        The learning-rate search tries rates that are too high or too low on purpose, so its notes are left out.
        """
        keys = {"progress": "progress", "tokens": "tokens", "seconds": "seconds", "speed": "tokens_per_second"}
        progress = {"value": value, **{key: getattr(step, name) for key, name in keys.items()}}
        is_search = self.job.kind != "train" or self.plan.get_trial(self.job.name).kind == "lr"
        self.report(progress if is_search or not notes else {**progress, "notes": list(notes)})

    # The other kinds of jobs

    def measure_speeds(self) -> SpeedResults:
        """Measures the speed of all families; `speed.py` explains how."""
        plan, seed = self.plan, self.plan.budgets.seeds[0]
        families = [name for name in plan.families if plan.has_gradients(name)]
        settings = {name: plan.make_settings(plan.make_training_trial(name, seed), None) for name in families}
        if plan.nproc > 1:
            timed = settings if plan.budgets.is_timed else {}  # too slow to be worth an estimate of the duration
            results = {}
            for name, each in timed.items():
                with suppress(SeqwiseError, RuntimeError):  # its trials report the error
                    results[name] = self._measure_processes(name, each)
            return SpeedResults(results)
        prepare = {name: partial(self._prepare_measurement, each) for name, each in settings.items()}
        if plan.budgets.is_timed and plan.strict:
            estimates = estimate_speeds(prepare)
            if any(plan.budgets.is_too_short(TrialCost(each.update_seconds / 2)) for each in estimates.values()):
                return SpeedResults(estimates)  # the budget is refused, without a measurement of a minute
        seconds = 0.0  # without a time budget the speed is only needed to estimate the duration
        if plan.budgets.is_timed:
            seconds = max(MIN_SPEED_SECONDS, SPEED_SHARE * Budget.parse(plan.budgets.total).amount * len(families))
        speeds = measure_speeds(prepare, seconds, self.report_progress)
        if plan.budgets.is_timed:
            speeds = {name: keep_fastest(each, settings[name], plan.fingerprint) for name, each in speeds.items()}
        return SpeedResults(speeds)

    def _prepare_measurement(self, settings: ResolvedSettings) -> SpeedMeasurement:
        task, device = open_shared_task(self.folder, self.plan, settings), choose_device(settings)
        torch.manual_seed(0)
        model = task.build(settings).to(device)
        if settings.training.compile:
            with suppress(UsageError):  # a model without layers to compile
                compile_layers(model, device)
        batches, endless = SampledBatches(task.batches(settings)), Budget(float("inf"), "seconds")
        trainer = Trainer(model, batches, settings.training, endless)
        num_updates = NUM_UPDATES[device.type if self.plan.budgets.is_timed else "cpu"]
        size = task.valid_size()
        share = choose_minimum_share(size)
        validate = partial(task.validate, model, settings, World(), share)
        return SpeedMeasurement(trainer, validate, num_updates, share * size.num_tokens)

    def _measure_processes(self, family: str, settings: ResolvedSettings) -> SpeedResult:
        """Measures the speed of a family that is trained by several processes, in a short training run."""
        task, settings = open_shared_task(self.folder, self.plan, settings), settings.model_copy(deep=True)
        settings.budget = f"{round(NUM_PROCESS_UPDATES * estimate_token_cost(task, settings).update)}-tokens"
        settings.training.validate_every = NEVER
        with tempfile.TemporaryDirectory(prefix=".speed-", dir=self.folder) as temporary:
            run = self._open_run(settings, Path(temporary) / family, task)
            self._train_in_processes(run)
            rows = run.read_metrics()
        model = task.build(settings).to(choose_device(settings))
        for _ in range(2):  # the first compiles kernels
            start = read_clock()
            task.validate(model, settings, World(), choose_minimum_share(task.valid_size()))
            validation_seconds = read_clock() - start
        tokens = rows[-1]["tokens"] / rows[-1]["step"]
        speed = median(row["tokens_per_second"] for row in rows[1:] or rows)  # the first update compiles kernels
        return SpeedResult(tokens / speed, tokens, validation_seconds)

    def test(self) -> EvaluationResult:
        """Evaluates a trained model on the evaluated split of the plan, and saves the scores of each example."""
        run = Run.open(self.job.get_run_folder(self.folder))
        trained = TrainedModel(run, run.settings.device)
        options = InferenceOptions(beam_search=trained.task.beam_search, examples=True, primary_metric=self.plan.metric)

        def progress(done: int, total: int) -> None:
            self.report_progress(done / max(1, total))

        with self._check_data_after(run.settings):
            evaluation = trained.evaluate(
                self.plan.data, split=self.plan.evaluated_split, options=options, progress=progress
            )
        if evaluation.examples is None:
            raise SeqwiseError(f"the task {self.plan.task} has no scores of single examples.")
        scores = self.job.get_scores_folder(self.folder)
        scores.mkdir(exist_ok=True)
        evaluation.examples.save(scores)
        return EvaluationResult(
            metrics=evaluation.metrics,
            definitions={name: evaluation.definitions.get(name, "") for name in evaluation.metrics},
            on=evaluation.data,
            seconds=evaluation.seconds,
            weights=(run.folder / WEIGHTS).stat().st_size,
            warnings=tuple(evaluation.warnings),
            baselines=evaluation.baselines,
        )

    def measure_latency(self) -> LatencyResult:
        """Measures the latency of a prediction by the first trained model of each family, in several rounds.

        It is one job for all families, executed after all others: a latency that is measured beside other trials
        includes their load. It goes round by round, so that a slow phase of the machine affects all families.
        """
        first_trials = {
            trial.family: trial
            for trial in reversed(find_trained_trials(self.folder, self.plan.list_training_trials()))
        }
        measurements: dict[str, Callable[[], float]] = {}
        latencies: dict[str, tuple[float, ...]] = {name: () for name in self.plan.families if name in first_trials}
        with self._check_data_after(next(iter(self.plan.families.values()))):
            for name in latencies:
                run = Run.open(Job("train", first_trials[name].name).get_run_folder(self.folder))
                trained = TrainedModel(run, run.settings.device)
                measurements[name] = trained.task.measure_latency(trained.bundle, self.plan.data)
            order = [name for _ in range(NUM_LATENCY_ROUNDS) for name in measurements]
            with measure_waiting() as get_waiting_share:
                for number, name in enumerate(order, start=1):
                    latencies[name] += (measurements[name](),)
                    self.report_progress(number / len(order))
                waiting_share = get_waiting_share()
        return LatencyResult(latencies, waiting_share)

    @contextmanager
    def _check_data_after(self, settings: ResolvedSettings) -> Iterator[None]:
        """Raises an error if the data has changed during the block, which also explains errors of the block."""
        try:
            yield
        except InterruptedJob:
            raise
        except Exception:
            open_shared_task(self.folder, self.plan, settings, reread=True)
            raise
        open_shared_task(self.folder, self.plan, settings, reread=True)
