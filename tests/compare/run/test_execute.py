"""Single jobs of a comparison: executed once, independent in failure, resumable; the test split is read last."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_comparison import InProcessEngine, finish, finished_comparison, make_plan, run_with, tiny, write_text

from seqwise.compare.plan.folder import has_trained
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.gather import load_report
from seqwise.compare.run import execute as execute_module
from seqwise.compare.run import memory as memory_module
from seqwise.compare.run import shared_data
from seqwise.compare.run.execute import InterruptedJob, LostJobProcess, execute
from seqwise.compare.run.jobs import (
    LATENCY_JOB,
    SPEED_JOB,
    Job,
    Outcome,
    SpeedResult,
    SpeedResults,
    TrainingResult,
    find_missing_jobs,
    find_trained_trials,
    is_unfinished,
    load_speeds,
    remove_failures,
)
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.compare.run.memory import measure_added_memory
from seqwise.compare.run.shared_data import open_shared_task
from seqwise.compare.run.stages import convert_time_budget
from seqwise.digests import read_object
from seqwise.errors import NonFiniteError, SaveError, UsageError
from seqwise.metrics.evaluation import ExampleScores
from seqwise.tasks.language.task import Language
from seqwise.training.checkpoints import get_resume_command, load_newest_checkpoint
from seqwise.training.launcher import LostProcessError
from seqwise.training.run import Run


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "small.txt")


def training_history(folder: Path, name: str) -> tuple[list[tuple], bytes]:
    """Returns the metrics, without times, and the weights of a run."""
    run = folder / "trials" / name
    rows = Run.open(run).read_metrics()
    history = [(row["step"], row["tokens"], row["loss"], row["validation"]) for row in rows]
    return history, (run / "model.safetensors").read_bytes()


# One job


def test_a_finished_job_is_not_executed_again(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    job = Job("train", "rnn/seed-0")
    outcome = execute(folder, job)
    assert outcome.status == "done"
    assert outcome.result is not None
    assert outcome.result.tokens == 5124
    before = job.get_file(folder).stat().st_mtime_ns
    monkeypatch.setattr(execute_module._Execution, "train", lambda self: pytest.fail("executed again"))
    assert execute(folder, job) == outcome
    assert job.get_file(folder).stat().st_mtime_ns == before


def test_a_damaged_outcome_is_written_again_without_training(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    job = Job("train", "rnn/seed-0")
    first = execute(folder, job)
    before = training_history(folder, "rnn/seed-0")
    job.get_file(folder).write_text('{"status": "do')
    assert find_missing_jobs(folder, [job]) == [job]
    again = execute(folder, job)
    assert again.result is not None
    assert first.result is not None
    cleared = {"memory": None, "waiting_share": None}  # not known of a run that was trained before
    assert again.result == replace(again.result, **cleared) == replace(first.result, **cleared)
    assert training_history(folder, "rnn/seed-0") == before


def test_a_stopped_job_has_no_outcome_and_resumes_bit_identically(text: Path, tmp_path: Path):
    folder, whole = tmp_path / "out", tmp_path / "whole"
    for each in (folder, whole):
        make_plan(each, text, lr_trials=1)
    job = Job("train", "gru/seed-1")
    events: list[dict] = []
    with pytest.raises(InterruptedJob):
        execute(folder, job, events.append, lambda: len(events) > 3)
    assert Job("train", "gru/seed-1").load(folder) is None
    snapshot = load_newest_checkpoint(Run.open(job.get_run_folder(folder)).checkpoints, pytest.fail)
    assert snapshot is not None
    assert 0 < snapshot.state["place"]["tokens"] < 5124
    assert not list(folder.rglob("*.lock"))
    execute(folder, job)
    execute(whole, job)
    assert training_history(folder, job.name) == training_history(whole, job.name)


def test_an_incomplete_run_folder_is_created_again(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    incomplete = folder / "trials" / "rnn" / "seed-0"
    incomplete.mkdir(parents=True)
    (incomplete / "tokenizer.json").write_text("{")  # as if it was killed before the last file
    assert execute(folder, Job("train", "rnn/seed-0")).status == "done"
    assert Run.open(incomplete).read_metrics()[-1]["tokens"] == 5124


def test_a_run_with_another_learning_rate_is_started_again(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, lr_trials=1)
    job = Job("train", "rnn/seed-0")
    events: list[dict] = []
    with pytest.raises(InterruptedJob):
        execute(folder, job, events.append, lambda: len(events) > 3)
    plan.families["rnn"].training.learning_rate = 0.001
    plan.save(folder)
    outcome = execute(folder, job)
    assert outcome.result is not None
    assert outcome.result.rate == 0.001
    assert Run.open(job.get_run_folder(folder)).settings.training.learning_rate == 0.001
    assert Run.open(job.get_run_folder(folder)).read_metrics()[0]["step"] == 1


def test_changed_data_fails_training_and_test(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    assert execute(folder, Job("train", "rnn/seed-0")).status == "done"
    text.write_text(text.read_text() + "one more line.\n")
    shared_data._tasks.clear()  # as in a new process
    for job in (Job("train", "gru/seed-0"), Job("test", "rnn/seed-0")):
        outcome = execute(folder, job)
        assert outcome.status == "failed"
        assert "has changed since this comparison was created" in outcome.reason
    assert not (folder / "trials" / "gru" / "seed-0").exists()
    assert not Job("test", "rnn/seed-0").get_scores_folder(folder).exists()


def test_data_that_changes_between_training_and_test_is_never_tested_on(text: Path, tmp_path: Path, monkeypatch):
    """The process that trained has the old data in memory; the test reads the file."""
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    job, content = Job("test", "rnn/seed-0"), text.read_text()
    assert execute(folder, Job("train", "rnn/seed-0")).status == "done"
    splits: list[str | None] = []
    evaluate = Language.evaluate.__func__

    def record_and_evaluate(cls: type, bundle: Any, data: str, split: str | None, options: Any) -> Any:
        splits.append(split)
        return evaluate(cls, bundle, data, split, options)

    monkeypatch.setattr(Language, "evaluate", classmethod(record_and_evaluate))
    for changed in (content + "one more line.\n", "too short"):
        text.write_text(changed)
        outcome = execute(folder, job)
        assert outcome.status == "failed"
        job.get_file(folder).unlink()
    text.write_text(content.replace("model", "mddel"))  # of the same size
    assert "has changed since this comparison was created" in execute(folder, job).reason
    assert not job.get_scores_folder(folder).exists()
    job.get_file(folder).unlink()
    text.write_text(content)
    assert execute(folder, job).result.on == f"{text}, the test split"  # type: ignore[index]
    assert splits == ["test"] * 4


def test_latencies_are_not_measured_on_changed_data(text: Path, tmp_path: Path):
    """The same process has the data of the training in memory; the timing reads the file."""
    folder, content = tmp_path / "out", text.read_text()
    make_plan(folder, text, lr_trials=1, seeds=1, models=["rnn"])
    assert execute(folder, Job("train", "rnn/seed-0")).status == "done"
    for changed in (content + "one more line.\n", "too short", content.replace("model", "mddel")):
        text.write_text(changed)
        outcome = execute(folder, LATENCY_JOB)
        assert outcome.status == "failed"
        assert "has changed since this comparison was created" in outcome.reason or changed == "too short"
        LATENCY_JOB.get_file(folder).unlink()
    text.write_text(content)
    assert execute(folder, LATENCY_JOB).result.families.keys() == {"rnn"}  # type: ignore[index]


def test_only_a_failed_latency_job_is_repeated(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    plan = Plan.open(folder)
    plan.families.pop("too-fast")  # which would be repeated
    plan.save(folder)
    assert finish(folder, Plan.open(folder)).jobs == []
    Outcome("failed", "by chance").save(LATENCY_JOB.get_file(folder))
    assert is_unfinished(folder, plan)
    assert finish(folder, Plan.open(folder)).jobs == [LATENCY_JOB]
    assert Job("latency", "all").load(folder).status == "done"  # type: ignore[union-attr]
    assert all(family.latency for family in load_report(folder).families)


def test_two_workers_never_execute_one_job_at_the_same_time(text: Path, tmp_path: Path, monkeypatch):
    """A worker whose owner was killed may still be saving when the next one starts."""
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    job = Job("train", "rnn/seed-0")
    semaphore = threading.Semaphore(1)
    calls: list[int] = []
    result = TrainingResult(0.1, 1, 1.0, 1, 1.0, 2.0)

    def work(*args: Any) -> TrainingResult:
        assert semaphore.acquire(blocking=False)
        calls.append(1)
        time.sleep(0.3)
        semaphore.release()
        return result

    monkeypatch.setattr(execute_module._Execution, "train", work)
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.append(execute(folder, job))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert outcomes == [Outcome("done", result=result)] * 3
    assert not list(folder.rglob("*.lock"))


def test_a_lock_left_by_a_killed_worker_does_not_block(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    job = SPEED_JOB
    lock_file = folder / "trials" / ".all.speed.json.lock"
    lock_file.parent.mkdir(parents=True)
    child = os.fork()
    if not child:
        fcntl.flock(lock_file.open("w"), fcntl.LOCK_EX)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert lock_file.exists()
    assert execute(folder, job).status == "done"
    assert not lock_file.exists()


def test_a_worker_that_waits_for_a_lock_can_be_stopped(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    lock_file = folder / "trials" / ".all.speed.json.lock"
    lock_file.parent.mkdir(parents=True)
    with lock_file.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InterruptedJob):
            execute(folder, SPEED_JOB, should_stop=lambda: True)


# Failures


def test_an_error_of_any_kind_becomes_a_failed_outcome(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)

    def divide_by_zero(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("of unknown origin")

    monkeypatch.setattr(execute_module, "open_training", divide_by_zero)
    assert execute(folder, Job("train", "rnn/seed-0")) == Outcome("failed", "ZeroDivisionError: of unknown origin")

    def diverge(*args: Any, **options: Any) -> Any:
        raise NonFiniteError("the loss is nan.", fix="Try half the rate.")

    monkeypatch.setattr(execute_module, "open_training", diverge)
    assert execute(folder, Job("train", "gru/seed-0")) == Outcome("failed", "the loss is nan.\nTry half the rate.")

    def fill_disk(run: Run, **options: Any) -> Any:
        raise SaveError("the disk is full.", fix=f"Free some space, then resume with: {get_resume_command(run.folder)}")

    monkeypatch.setattr(execute_module, "open_training", fill_disk)
    outcome = execute(folder, Job("train", "gru/seed-1"))
    assert outcome.reason.endswith(f"then resume with: seqwise compare --resume {folder}")


def test_a_failing_family_does_not_affect_the_others(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    plan = Plan.open(folder)
    for trial in plan.list_trials():
        outcome = Job("train", trial.name).load(folder)
        assert outcome is not None
        assert outcome.status == ("failed" if trial.family == "too-fast" else "done"), trial.name
    lr_trial = Job("train", "too-fast/lr-1").load(folder)
    training = Job("train", "too-fast/seed-0").load(folder)
    assert lr_trial is not None
    assert training is not None
    assert "The update was not made" in lr_trial.reason or "no longer finite" in lr_trial.reason
    assert training.reason.startswith("none of its 2 learning rates worked: ")
    assert choose_rate(folder, plan, "too-fast")[0] is None
    assert {trial.family for trial in find_trained_trials(folder, plan.list_training_trials())} == {
        "rnn",
        "gru",
        "ngram",
    }
    assert Job("test", "too-fast/seed-0").load(folder) is None


def test_every_budget_is_spent_to_the_token(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    tokens = {
        trial.name: outcome.result.tokens
        for trial in Plan.open(folder).list_trials()
        if (outcome := Job("train", trial.name).load(folder)) and outcome.result
    }
    plan = Plan.open(folder)
    num_train_tokens = len(open_shared_task(folder, plan, plan.families["ngram"]).stores["train"])  # type: ignore[attr-defined]
    searched = [trial.name for trial in plan.list_lr_trials() if trial.family in ("rnn", "gru")]
    assert len(searched) > 4, "the best of two learning rates is always at the edge of the search"
    assert tokens == {
        **dict.fromkeys(searched, 1281),
        **dict.fromkeys(["rnn/seed-0", "rnn/seed-1", "gru/seed-0", "gru/seed-1"], 3843),
        "ngram/seed-0": num_train_tokens,  # it reads all of the training split, whatever the budget
    }
    assert num_train_tokens > 3843


def test_the_learning_rate_with_the_best_validation_is_chosen(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    plan = Plan.open(folder)
    objectives = {}
    for number, rate in enumerate(plan.list_rates("gru"), start=1):
        outcome = Job("train", f"gru/lr-{number}").load(folder)
        assert outcome is not None
        assert outcome.result is not None
        objectives[rate] = outcome.result.objective
        assert outcome.result.validation == pytest.approx(math.exp(outcome.result.objective))
    best, second, *_ = sorted(objectives, key=lambda rate: objectives[rate])
    assert choose_rate(folder, plan, "gru") == (best, "")
    settings = Run.open(folder / "trials" / "gru" / "seed-1").settings
    assert settings.training.learning_rate == best
    for seed in plan.budgets.seeds:  # before training
        Job("train", f"gru/seed-{seed}").get_file(folder).unlink()
    file = folder / "trials" / "gru" / f"lr-{plan.list_rates('gru').index(second) + 1}.json"
    values = read_object(file)
    values["result"]["objective"] = objectives[best] - 1
    file.write_text(json.dumps(values))
    assert choose_rate(folder, plan, "gru") == (second, "")
    values["result"]["objective"] = None  # it was never a number
    file.write_text(json.dumps(values))
    assert choose_rate(folder, plan, "gru") == (best, "")


def test_a_validation_that_is_not_a_number_is_never_the_best(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn"])
    validate, values = Language.validate, iter([math.nan, 2.5])
    monkeypatch.setattr(
        Language, "validate", lambda self, *args: {**validate(self, *args), "loss": next(values), "perplexity": 9.0}
    )
    for number in (1, 2):
        assert execute(folder, Job("train", f"rnn/lr-{number}")).status == "done"
    assert choose_rate(folder, plan, "rnn") == (plan.list_rates("rnn")[1], "")
    (folder / "trials/rnn/lr-2.json").unlink()
    assert choose_rate(folder, plan, "rnn") == (None, "none of its 2 learning rates worked: it was not tried.")
    shutil.copy(folder / "trials/rnn/lr-1.json", folder / "trials/rnn/lr-2.json")  # both were no number
    assert choose_rate(folder, plan, "rnn")[1].endswith("its validation is not a number.")


def test_failures_are_repeated_without_changing_a_learning_rate_in_use(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    plan = Plan.open(folder)
    failure = Outcome("failed", "its process was lost")
    for name in ("rnn/lr-2", "rnn/seed-1"):
        failure.save(Job("train", name).get_file(folder))
    failure.save(Job("test", "gru/seed-0").get_file(folder))
    remove_failures(folder, plan)
    removed = [trial.name for trial in plan.list_trials() if Job("train", trial.name).load(folder) is None]
    assert set(removed) == {"too-fast/lr-1", "too-fast/lr-2", "too-fast/seed-0", "too-fast/seed-1", "rnn/seed-1"}
    assert Job("test", "gru/seed-0").load(folder) is None
    assert Job("train", "rnn/lr-2").load(folder) == failure  # rnn/seed-0 is trained with the rate of lr-1


# The test split


def test_the_test_split_is_read_once_per_training_run_and_after_all_of_them(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn", "ngram"], lr_trials=2, seeds=1)
    evaluate = Language.evaluate.__func__
    tested_names: list[str] = []
    engine = InProcessEngine(folder)

    def record_and_evaluate(cls: type, model: Any, settings: Any, *args: Any, **options: Any) -> Any:
        assert engine.jobs[-1].kind == "test"
        assert not find_missing_jobs(folder, [Job("train", trial.name) for trial in plan.list_trials()])
        tested_names.append(engine.jobs[-1].name)
        return evaluate(cls, model, settings, *args, **options)

    monkeypatch.setattr(Language, "evaluate", classmethod(record_and_evaluate))
    stages: list[tuple[str, list[str]]] = []
    run_with(folder, plan, engine, on_stage=lambda name, jobs: stages.append((name, [job.name for job in jobs])))
    assert tested_names == ["rnn/seed-0", "ngram/seed-0"]
    assert stages[:3] == [
        ("speed", ["all"]),
        ("learning rates", ["rnn/lr-1", "rnn/lr-2"]),
        ("learning rates", ["rnn/lr-3"]),  # the best of two is at the edge
    ]
    assert stages[-3:] == [
        ("training", ["rnn/seed-0", "ngram/seed-0"]),
        ("test", ["rnn/seed-0", "ngram/seed-0"]),
        ("latency", ["all"]),
    ]
    assert engine.closed
    for name in tested_names:
        examples = ExampleScores.load(Job("test", name).get_scores_folder(folder))
        assert examples.metric == "perplexity"
        assert len(examples.sums) > 1
    again = finish(folder, plan)
    assert again.jobs == []
    assert tested_names == ["rnn/seed-0", "ngram/seed-0"]


def test_without_a_test_the_models_are_evaluated_on_the_validation_split(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn", "ngram"], lr_trials=1, seeds=1, test=False)
    evaluate, splits = Language.evaluate.__func__, []

    def record_and_evaluate(cls: type, bundle: Any, data: str, split: str | None, options: Any) -> Any:
        splits.append(split)
        return evaluate(cls, bundle, data, split, options)

    monkeypatch.setattr(Language, "evaluate", classmethod(record_and_evaluate))
    finish(folder, plan)
    assert splits == ["valid", "valid"]
    assert Plan.open(folder).evaluated_split == "valid"  # also of a resumed comparison
    report = json.loads((folder / "report.json").read_text())
    assert report["metric"]["split"] == "validation"
    assert report["metric"]["on"] == f"{text}, the valid split"
    assert report["rules"]["tested"].endswith("; the test split was not used (--no-test).")
    assert "test split" not in " ".join(report["verdict"]["sentences"])
    # The n-gram model has no weights to select: its value is the perplexity on the validation split.
    validation = Job("train", "ngram/seed-0").load_result(folder).validation
    (ngram,) = [family for family in report["families"] if family["name"] == "ngram"]
    assert ngram["mean"] == pytest.approx(validation, rel=1e-6)


def test_a_test_can_be_stopped(tmp_path: Path):
    folder = finished_comparison(tmp_path / "out")
    job = Job("test", "rnn/seed-0")
    job.get_file(folder).unlink()
    with pytest.raises(InterruptedJob):
        execute(folder, job, should_stop=lambda: True)
    assert Job("test", "rnn/seed-0").load(folder) is None
    assert execute(folder, job).status == "done"


# Memory


def test_the_memory_of_a_trial_excludes_earlier_work(text: Path, tmp_path: Path):
    """A worker has executed other trials before, and has not released all of their memory."""
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1)
    still_allocated = bytearray(os.urandom(2**20) * 300)
    released = [bytes(1000) + bytes([number % 256]) for number in range(100_000)]  # small pieces stay with the process
    del released
    outcome = execute(folder, Job("train", "rnn/seed-0"))
    assert outcome.result is not None
    assert 0 < outcome.result.memory < 100 * 2**20
    assert len(still_allocated) == 300 * 2**20


def test_a_larger_model_adds_more_memory():
    with measure_added_memory(torch.device("cpu")) as memory:
        temporary = torch.ones(2**24)  # 64 MiB
        del temporary
        torch.ones(2**20)
        assert 60 * 2**20 < memory() < 90 * 2**20  # type: ignore[operator]
    with measure_added_memory(torch.device("cpu")) as memory:
        torch.ones(2**20)
        assert memory() < 30 * 2**20  # type: ignore[operator]


def test_memory_is_unknown_where_its_peak_cannot_be_reset(monkeypatch):
    monkeypatch.setattr(memory_module, "_reset_peak", lambda: False)
    with measure_added_memory(torch.device("cpu")) as memory:
        assert memory() is None


def test_memory_and_waiting_are_unknown_for_ngram_models_and_interrupted_trials(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn", "ngram"], lr_trials=1)
    events: list[dict] = []
    with pytest.raises(InterruptedJob):
        execute(folder, Job("train", "rnn/seed-0"), events.append, lambda: len(events) > 3)
    for name in ("rnn/seed-0", "ngram/seed-0"):
        outcome = execute(folder, Job("train", name))
        assert outcome.status == "done"
        assert outcome.result is not None
        assert outcome.result.memory is outcome.result.waiting_share is None


# Notes, time, processes


def test_notes_of_a_training_run_are_reported_and_those_of_the_search_are_not(text: Path, tmp_path: Path, monkeypatch):
    class AlwaysWrong:
        def __init__(self):
            self.notes = ["training diverges"]

        def add(self, step: Any) -> tuple[str, ...]:
            return (self.notes.pop(),) if self.notes else ()

    monkeypatch.setattr("seqwise.training.training_run.open_monitor", lambda *arguments: AlwaysWrong())
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn"], seeds=1)
    reported: dict[str, list[list[str]]] = {}
    for trial in plan.list_trials():
        events = reported.setdefault(trial.kind, [])
        execute(folder, Job("train", trial.name), lambda event, events=events: events.append(event.get("notes", [])))
    assert not any(reported["lr"])
    assert reported["train"][0] == reported["train"][-1] == ["training diverges"]


def test_an_impossible_time_is_refused_before_the_speed_is_measured(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, lr_trials=3, seeds=1, budget="0.2s", match="time")

    def fail(*arguments: Any) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(execute_module, "measure_speeds", fail)
    monkeypatch.setattr(execute_module.SpeedMeasurement, "estimate", lambda self: SpeedResult(0.1, 64, 1.0))
    assert execute(folder, SPEED_JOB).status == "done"
    with pytest.raises(UsageError, match="20 updates and one validation take 3 s") as error:
        convert_time_budget(folder, plan)
    assert "at least 15s" in str(error.value)  # 10 updates of 0.1 s in a twelfth of it, and a fifth more
    assert not folder.exists()


def test_the_speed_is_estimated_by_the_second_update(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    make_plan(folder, text, lr_trials=1, seeds=1, budget="60s", match="time")
    estimates: list[SpeedResult] = []
    original = execute_module.SpeedMeasurement.estimate

    def estimate(self: Any) -> SpeedResult:
        estimates.append(original(self))
        return estimates[-1]

    monkeypatch.setattr(execute_module.SpeedMeasurement, "estimate", estimate)
    monkeypatch.setattr(execute_module, "measure_speeds", lambda *arguments: {})
    execute(folder, SPEED_JOB)
    assert len(estimates) == 2
    assert all(0 < each.update_seconds < 1 and each.update_tokens == 64 for each in estimates)


def test_a_time_budget_becomes_tokens_by_the_measured_speed(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, lr_trials=1, seeds=1, budget="1.2s", match="time")
    execute(folder, SPEED_JOB)
    speed = load_speeds(folder)["rnn"]
    assert 0 < speed.update_seconds < 1
    assert speed.update_tokens == 64
    tokens = convert_time_budget(folder, plan).token_budgets["rnn"]
    assert tokens.training <= 1.2 * tokens.tokens_per_second
    outcome = execute(folder, Job("train", "rnn/seed-0"))
    assert outcome.result is not None
    assert outcome.result.tokens == tokens.training
    assert Run.open(folder / "trials/rnn/seed-0").read_metrics()[-1]["ended"] == "the budget is spent"


@pytest.mark.slow
def test_a_stopped_trial_of_two_processes_ends_like_one_process(text: Path, tmp_path: Path, monkeypatch):
    """The last update ends inside a row of the first process; the second has no targets."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizers.py").write_text("raise ImportError('a file of the user')\n")
    one, two, tokens = tmp_path / "one", tmp_path / "two", 64 * 250 + 21
    base = tiny(network={"dropout": 0.0}, training={"learning_rate": 0.003})
    for folder, processes in ((one, 1), (two, 2)):
        make_plan(folder, text, base, models=["rnn"], lr_trials=1, seeds=1, nproc=processes, budget=f"{tokens}-tokens")
    job = Job("train", "rnn/seed-0")
    events: list[dict] = []
    run = two / "trials/rnn/seed-0"
    metrics = run / "metrics.jsonl"  # empty until the first update: nothing would be saved before it
    with pytest.raises(InterruptedJob):
        execute(two, job, events.append, should_stop=lambda: metrics.exists() and metrics.stat().st_size > 0)
    assert Job("train", "rnn/seed-0").load(two) is None
    snapshot = load_newest_checkpoint(Run.open(run).checkpoints, pytest.fail)
    assert snapshot is not None
    saved_step = snapshot.state["place"]["step"]
    assert 0 < saved_step < 250
    with pytest.raises(LostJobProcess, match="when process 2 of 2 was ended by SIGKILL"):
        run_and_kill_one(run, saved_step, lambda: execute(two, job))
    assert Job("train", "rnn/seed-0").load(two) is None
    assert job.get_log_file(two).exists()
    outcome, alone = execute(two, job, events.append), execute(one, job)
    assert outcome.status == "done", outcome.reason
    assert outcome.result is not None
    assert alone.result is not None
    assert outcome.result.tokens == alone.result.tokens == tokens
    assert outcome.result.updates == alone.result.updates == 251
    assert outcome.result.objective == pytest.approx(alone.result.objective, rel=1e-3)
    actual, expected = (load_file(folder / "trials/rnn/seed-0/model.safetensors") for folder in (two, one))
    assert all(actual[name].allclose(expected[name], rtol=1e-2, atol=1e-3) for name in actual | expected)
    assert outcome.result.memory is None
    assert not job.get_log_file(two).exists()
    assert execute(two, Job("test", "rnn/seed-0")).status == "done"


def run_and_kill_one(run: Path, step: int, work: Callable[[], Any]) -> None:
    """Calls `work`, which starts processes; kills the last of them once they have passed `step`."""

    def kill() -> None:
        deadline = time.monotonic() + 60
        while Run.open(run).read_metrics()[-1]["step"] <= step and time.monotonic() < deadline:
            time.sleep(0.01)
        tasks = Path("/proc/self/task").glob("*/children")
        os.kill(max(int(pid) for path in tasks for pid in path.read_text().split()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        work()
    finally:
        thread.join()


def test_the_error_of_a_process_is_the_reason_of_the_failure(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=2, nproc=2)

    def launch(processes: int, device: Any, arguments: list[str], run: Path, log: Any, stop: Any) -> int:
        assert arguments == ["train", "--resume", str(run)]
        log.write(
            b"resuming at step 5.\nerror: the loss is nan.\nTry half the rate.\n" if "seed-0" in str(run) else b""
        )
        return 1

    monkeypatch.setattr(execute_module, "launch", launch)
    assert execute(folder, Job("train", "rnn/seed-0")) == Outcome("failed", "the loss is nan.\nTry half the rate.")
    assert execute(folder, Job("train", "rnn/seed-1")) == Outcome("failed", "its processes ended with status 1.")
    assert (folder / "trials/rnn/seed-0.log").read_text().startswith("resuming at step 5.")


def test_a_lost_process_is_not_a_failure_of_the_trial(text: Path, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1, nproc=2)

    def launch(processes: int, device: Any, arguments: list[str], run: Path, log: Any, stop: Any) -> int:
        raise LostProcessError("process 1 of 2 was ended by SIGKILL.", fix=get_resume_command(run))

    monkeypatch.setattr(execute_module, "launch", launch)
    with pytest.raises(LostJobProcess, match=r"^when process 1 of 2 was ended by SIGKILL$"):
        execute(folder, Job("train", "rnn/seed-0"))
    assert Job("train", "rnn/seed-0").load(folder) is None


def test_the_speed_of_several_processes_is_not_measured_for_a_budget_in_tokens(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1, nproc=2)
    assert execute(folder, SPEED_JOB) == Outcome("done", result=SpeedResults({}))


@pytest.mark.slow
def test_the_speed_of_several_processes_is_measured_for_a_budget_in_time(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1, nproc=2, budget="30s")
    speed = execute(folder, SPEED_JOB).result.families["rnn"]
    assert 0 < speed.update_seconds < 30
    assert speed.update_tokens > 1
    assert list(folder.glob(".speed-*")) == []


def test_an_interrupted_measurement_of_several_processes_is_not_taken_for_a_trial(
    text: Path, tmp_path: Path, monkeypatch
):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1, nproc=2, budget="30s")

    def launch(processes: int, device: Any, arguments: list[str], run: Path, log: Any, stop: Any) -> int:
        (run / "checkpoints" / "step-1").mkdir(parents=True)
        return 130

    monkeypatch.setattr(execute_module, "launch", launch)
    with pytest.raises(InterruptedJob):
        execute(folder, SPEED_JOB)
    assert not has_trained(folder)
    assert list(folder.glob(".speed-*")) == []
