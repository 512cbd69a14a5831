"""The monitor in training: it changes no weight, and reports nothing for any task and family with default settings."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from used_settings import keep_used

import seqwise
from seqwise.training.health_monitor import HealthMonitor
from seqwise.training.health_rules import RunProperties
from seqwise.training.step import Step

TASKS = ("language", "masked", "classify", "tag", "translate", "caption", "forecast")
FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SETTINGS = {
    "task": "language",
    "model": "rnn",
    "device": "cpu",
    "network": {"width": 8, "depth": 1},
    "text": {"tokenizer": "words"},
    "data": {"window": 8},
    "training": {"learning_rate": 5.0, "batch_size": 4, "validate_every": 10_000},
}


class SilentMonitor:
    def add(self, step: Step) -> tuple[str, ...]:
        return ()


def test_weights_are_identical_with_and_without_the_monitor(book: Path, tmp_path: Path, monkeypatch):
    def train(name: str) -> dict[str, torch.Tensor]:
        settings = keep_used({**SETTINGS, "budget": "3k-tokens"})
        return seqwise.train(str(book), settings=settings, out=tmp_path / name).model.state_dict()

    watched = train("watched")
    monkeypatch.setattr("seqwise.training.training_run.open_monitor", lambda *arguments: SilentMonitor())
    unwatched = train("unwatched")
    assert all(torch.equal(watched[name], unwatched[name]) for name in watched)


def test_a_note_is_shown_and_saved(book: Path, tmp_path: Path):
    notes: list[str] = []
    run = seqwise.train(
        str(book),
        settings=keep_used({**SETTINGS, "budget": "6k-tokens"}),
        out=tmp_path / "run",
        on_step=lambda step: notes.extend(step.notes),
    ).run
    assert notes == [note for row in run.read_metrics() for note in row.get("notes", ())]
    assert [note.split(" (")[0] for note in notes] == ["training diverges at the learning rate 5"]


def test_the_checks_of_a_million_updates_take_less_than_ten_seconds():
    """That is 10 µs per update; the fastest updates take 500 µs."""
    monitor = HealthMonitor(RunProperties("language", 1e-3, entropy=6.5, weight_scale=0.05, weight_norm=10.0))
    losses = 4 + np.random.default_rng(0).normal(0, 0.1, 100_000)
    start = time.process_time()
    for number, loss in enumerate(losses.tolist(), start=1):
        assert monitor.add(Step(10 * number, 0, 0, loss, 1.0, 1e-3, 0.0, 0.0, 0.5)) == ()
    assert time.process_time() - start < 10


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_there_is_no_false_alarm_with_default_settings(task: str, book: Path, tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir()
    path = str(book) if task == "language" else import_module(f"rows_{task}").ROW.write(data)
    for family in FAMILIES:
        assert train_with_defaults(path, task, family, "1s", tmp_path / family) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "task", "family"),
    [("book", "language", "gru"), ("builtin:dates", "translate", "gru"), ("builtin:modules", "classify", "rnn")],
)
def test_there_is_no_false_alarm_in_a_longer_training(data: str, task: str, family: str, book: Path, tmp_path: Path):
    path = str(book) if data == "book" else data
    assert train_with_defaults(path, task, family, "6s", tmp_path / "run") == []


def train_with_defaults(data: str, task: str, family: str, budget: str, out: Path) -> list[str]:
    """Returns the notes of a training in which nothing but task, family and budget is set."""
    notes: list[str] = []
    seqwise.train(
        data,
        task=task,
        model=family,
        budget=budget,
        device="cpu",
        out=out,
        on_step=lambda step: notes.extend(step.notes),
    )
    return notes
