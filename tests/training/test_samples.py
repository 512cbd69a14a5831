"""Samples during training: predictions for fixed validation examples, which change nothing and take no time."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from used_settings import keep_used

import seqwise
from seqwise.config import merge_settings
from seqwise.training import samples
from seqwise.training.run import Run
from seqwise.training.samples import SampleLog, find_line, open_samples
from seqwise.training.training_run import open_training

sys.path.append(str(Path(__file__).parents[1] / "contracts"))  # small data of each task

FAMILIES = {
    "language": "transformer",
    "masked": "lstm",
    "classify": "gru",
    "tag": "lstm",
    "translate": "attentive-rnn",
    "caption": "lstm",
    "forecast": "gru",
}
LANGUAGE = {"network": {"width": 16, "depth": 1}, "text": {"tokenizer": "words"}, "data": {"window": 16}}
TIMES = ("seconds", "tokens_per_second")


@pytest.fixture
def always_due(monkeypatch):
    for name, value in (("MAX_SHARE", float("inf")), ("MIN_SECONDS", 0.0), ("MIN_GAP", 0.0)):
        monkeypatch.setattr(samples, name, value)


def train(task: str, book: Path, folder: Path, out: str, device: str = "cpu") -> Run:
    data, small = str(book), LANGUAGE
    if task != "language":
        row = import_module(f"rows_{task}").ROW
        (folder / f"data-{out}").mkdir()
        data, small = row.write(folder / f"data-{out}"), row.settings
    values = {"task": task, "model": FAMILIES[task], "budget": "400-tokens", "device": device}
    training = {"training": {"validate_every": 1, "batch_size": 4}, "network": {"dropout": 0.3}}
    settings = keep_used(merge_settings(merge_settings(small, values), training))
    return seqwise.train(data, settings=settings, out=folder / out).run


def read_curve(run: Run) -> list[dict]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in run.read_metrics()]


@pytest.mark.parametrize("task", FAMILIES)
def test_samples_show_predictions_and_change_neither_weights_nor_metrics(task, book, tmp_path, always_due, monkeypatch):
    run = train(task, book, tmp_path, "with")
    monkeypatch.setattr(samples, "SAMPLERS", {})
    without = train(task, book, tmp_path, "without")
    rows = run.read_samples()
    assert [row["step"] for row in rows] == [row["step"] for row in run.read_metrics() if row.get("validation")]
    assert len(rows) > 1
    for row in rows:
        assert row["samples"]
        assert all(sample["input"] and sample["expected"] for sample in row["samples"])
    assert all(sample["output"] for sample in rows[-1]["samples"]) or task in ("translate", "caption")  # may be empty
    inputs = [[sample["input"] for sample in row["samples"]] for row in rows]
    assert all(each == inputs[0] for each in inputs), "the inputs are fixed"
    assert without.read_samples() == []
    assert read_curve(run) == read_curve(without)
    weights, others = run.read_weights(), without.read_weights()
    assert all(torch.equal(tensor, others[name]) for name, tensor in weights.items())


@pytest.mark.gpu
@pytest.mark.parametrize("task", FAMILIES)
def test_on_a_gpu_samples_change_nothing_either(task, book, tmp_path, always_due, monkeypatch):
    run = train(task, book, tmp_path, "with", "cuda")
    monkeypatch.setattr(samples, "SAMPLERS", {})
    without = train(task, book, tmp_path, "without", "cuda")
    assert len(run.read_samples()) > 1
    assert read_curve(run) == read_curve(without)
    others = without.read_weights()
    assert all(torch.equal(tensor, others[name]) for name, tensor in run.read_weights().items())


def test_a_resumed_run_continues_its_samples(book, tmp_path, always_due):
    run = train("language", book, tmp_path, "run")
    rows = run.read_samples()
    run.log_samples({**rows[-1], "step": rows[-1]["step"] + 1})
    run.samples_file.open("a").write('{"step": 3, "sam')
    training = open_training(Run.open(run.folder))
    assert training.run.read_samples() == rows, "what a killed process wrote after its checkpoint is dropped"
    assert training.samples.cost == pytest.approx(sum(row["cost"] for row in rows))
    assert training.samples.last_seconds == rows[-1]["seconds"]


def create_log(*rows: tuple[float, float]) -> SampleLog:
    saved = [{"seconds": seconds, "cost": cost} for seconds, cost in rows]
    return SampleLog(SimpleNamespace(read_samples=lambda: saved), None, None)  # type: ignore[arg-type]


def create_step(seconds: float, validation: dict | None = {"loss": 1.0}, ended: str = "") -> SimpleNamespace:  # noqa: B006
    return SimpleNamespace(seconds=seconds, validation=validation, ended=ended)


def test_samples_are_rare_and_take_at_most_a_hundredth_of_the_time():
    assert not create_log().is_due(create_step(9.9))
    assert create_log().is_due(create_step(10.1)), "the first one"
    is_due = create_log((100.0, 0.5)).is_due
    assert not is_due(create_step(101.9)), "2 s after the last one at the earliest"
    assert is_due(create_step(102.2))
    assert not is_due(create_step(102.2, validation=None)), "only at validations"
    assert not create_log((1000.0, 0.5)).is_due(create_step(1010.0)), "and 2 % of the training later"
    assert create_log((1000.0, 0.5)).is_due(create_step(1021.0))
    expensive = create_log((100.0, 2.0)).is_due
    assert not expensive(create_step(399.0)), "2 s so far, and 2 s for the next one"
    assert expensive(create_step(400.0))
    assert expensive(create_step(120.0, ended="the budget is spent")), "the last one shows the result"


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (torch.OutOfMemoryError("out of memory"), "out of memory: samples are no longer written."),
        (IndexError("no line"), "samples are no longer written (IndexError: no line)."),
    ],
)
def test_what_fails_in_a_sample_does_not_end_the_training(book, tmp_path, always_due, monkeypatch, error, note):
    def fail(*_):
        raise error

    monkeypatch.setitem(samples.SAMPLERS, "language", fail)
    run = train("language", book, tmp_path, "run")
    notes = [note for row in run.read_metrics() for note in row.get("notes", ())]
    assert notes.count(note) == 1
    assert run.load_summary() is not None
    assert run.read_samples() == []


def test_runs_of_a_comparison_and_of_user_tasks_have_no_samples(tmp_path):
    run = SimpleNamespace(folder=tmp_path / "trials/lstm/seed-0", settings=SimpleNamespace(task="language"))
    run.read_samples = list
    assert open_samples(run, None, None) is not None  # type: ignore[arg-type]
    (tmp_path / "compare.yaml").write_text("")
    assert open_samples(run, None, None) is None  # type: ignore[arg-type]
    run.folder, run.settings.task = tmp_path.parent / "run", "my-task"
    assert open_samples(run, None, None) is None  # type: ignore[arg-type]


def test_a_prompt_begins_a_line_that_is_long_enough():
    ids = np.array([1, 0, 2, 3, 0, 4, 5, 6, 7, 0, 8])

    class Store:
        def __len__(self) -> int:
            return len(ids)

        def read(self, start: int, count: int) -> np.ndarray:
            return ids[start : start + count]

    tokenizer: Any = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=[0]))
    assert find_line(Store(), tokenizer, 3).tolist() == [4, 5, 6]
    assert find_line(Store(), tokenizer, 6).tolist() == [1, 0, 2, 3, 0, 4], "no line has so many tokens"
