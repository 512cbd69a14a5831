"""`--training.watch`: what is recorded of each layer, at which steps, and that training stays the same to the bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from live_runs import SMALL, run
from used_settings import keep_used

from seqwise.config import Settings
from seqwise.layers import LSTM
from seqwise.layers.diagnostics import compute_dead_share, compute_saturation
from seqwise.training import watch
from seqwise.training.checkpoints import load_newest_checkpoint
from seqwise.training.create import create_run
from seqwise.training.probe import Probe, list_probed_values
from seqwise.training.run import Run
from seqwise.training.training_run import TrainingRun, open_training

LANGUAGE = {
    "network": {"width": 16, "depth": 2},
    "text": {"tokenizer": "words"},
    "data": {"window": 16},
    "training": {"batch_size": 4, "save_every": 10, "validate_every": 12},
}
NUM_STEPS = 24


@pytest.fixture
def every_step(monkeypatch):
    """Every step is recorded."""
    monkeypatch.setattr(watch, "MAX_SHARE", 1e9)
    monkeypatch.setattr(watch, "STEPS_PER_ROW", 1)


@pytest.fixture
def open_run(book: Path, tmp_path: Path) -> Callable[..., TrainingRun]:
    """(name, task, family, settings of training) → the training of a new run."""

    def open_one(
        name: str, task: str = "language", family: str = "lstm", device: str = "cpu", **training: Any
    ) -> TrainingRun:
        data, small = str(book), LANGUAGE
        if task != "language":
            (tmp_path / f"{name}-data").mkdir()
            row = import_module(f"rows_{task}").ROW
            data, small = row.write(tmp_path / f"{name}-data"), row.settings
        settings: Settings = keep_used({**small, "task": task, "model": family})
        settings.budget = f"{NUM_STEPS * 64}-tokens"
        settings.device = device
        for key, value in training.items():
            setattr(settings.training, key, value)
        run, prepared_task = create_run(data, settings, tmp_path / name)
        training_run = open_training(run, task=prepared_task)
        assert isinstance(training_run, TrainingRun)
        return training_run

    return open_one


def finish(training: TrainingRun) -> dict[str, torch.Tensor]:
    """Trains to the end; returns all tensors of the last checkpoint: weights, optimiser and recurrent state."""
    list(training.steps())
    training.finish()
    return load_tensors(training.run)


def load_tensors(run: Run) -> dict[str, torch.Tensor]:
    snapshot = load_newest_checkpoint(run.checkpoints, print)
    assert snapshot is not None
    return snapshot.tensors | run.read_weights()


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


# Training stays the same


CASES = [
    ("language", "lstm"),
    ("language", "attentive-rnn"),
    ("language", "transformer"),
    ("language", "feedforward"),
    ("classify", "gru"),
    ("tag", "lstm"),
    ("translate", "gru"),
    ("translate", "transformer"),
    ("caption", "lstm"),
    ("forecast", "rnn"),
    ("masked", "transformer"),
]


@pytest.mark.parametrize(("task", "family"), CASES)
def test_weights_and_optimiser_are_bit_identical_with_and_without(open_run, every_step, task: str, family: str):
    plain = finish(open_run("plain", task, family))
    watched = open_run("watched", task, family, watch=True)
    assert_equal(finish(watched), plain)
    rows = watched.run.read_layers()
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 3
    assert all(layer["gradient_norm"] >= 0 and layer["weight_norm"] > 0 for layer in rows[-1]["layers"].values())
    assert all(math.isfinite(value) for layer in rows[-1]["layers"].values() for value in layer.values())
    assert rows[-1]["dead_units"], "every family has units"
    assert bool(rows[-1]["gates"]) is any(name in family for name in ("lstm", "gru", "attentive"))


def test_a_resumed_run_has_the_same_weights_and_rows_as_one_that_was_not_interrupted(open_run, every_step):
    whole = open_run("whole", watch=True)
    expected = finish(whole)
    parts = open_run("parts", watch=True)
    list(islice(parts.steps(), 17))  # the last checkpoint is that of step 10
    assert parts.run.read_layers()[-1]["step"] == 17
    resumed = open_training(Run.open(parts.run.folder))
    assert isinstance(resumed, TrainingRun)
    assert resumed.run.read_layers()[-1]["step"] == 10, "rows after the checkpoint are dropped"
    assert_equal(finish(resumed), expected)
    assert resumed.run.read_layers() == whole.run.read_layers()


def test_training_continues_without_rows_when_memory_runs_out(open_run, every_step, monkeypatch):
    plain = finish(open_run("plain"))
    watched = open_run("watched", watch=True)

    def fail(self) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(Probe, "measure", fail)
    notes = [note for step in watched.steps() for note in step.notes]
    assert notes == ["out of memory: layers are no longer recorded (--training.watch)."]
    assert_equal(load_tensors(watched.run), plain)
    assert watched.run.read_layers() == []


@pytest.mark.slow
def test_of_two_processes_the_first_records(book: Path, tmp_path: Path):
    arguments = ["train", str(book), "--model", "lstm", *SMALL, "--budget", "3000-tokens", "--training.watch"]
    status, output = run(*arguments, "--nproc", "2", "--out", str(tmp_path / "run"))
    assert status == 0, output
    steps = [row["step"] for row in Run.open(tmp_path / "run").read_layers()]
    assert steps[:2] == [1, 10]
    assert len(set(steps)) == len(steps)


# The numbers


@pytest.mark.parametrize("clip_threshold", [1e-3, 1e3])
def test_the_gradients_of_all_layers_have_the_norm_of_the_step_before_clipping(open_run, every_step, clip_threshold):
    training = open_run("run", watch=True, clip_threshold=clip_threshold)
    steps = {step.number: step.gradient_norm for step in training.steps()}
    for row in training.run.read_layers():
        total = math.hypot(*(layer["gradient_norm"] for layer in row["layers"].values()))
        assert total == pytest.approx(steps[row["step"]], rel=1e-4)


def test_gradients_are_those_of_the_update_also_if_the_next_ones_are_computed_in_advance(open_run, every_step):
    training = open_run("run", watch=True)
    training.trainer.checks_on_device = True  # as on a GPU
    steps = {step.number: step.gradient_norm for step in training.steps()}
    assert len(set(steps.values())) == len(steps)
    for row in training.run.read_layers():
        total = math.hypot(*(layer["gradient_norm"] for layer in row["layers"].values()))
        assert total == pytest.approx(steps[row["step"]], rel=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_gradients_of_replayed_graphs_are_those_of_the_update(open_run, every_step):
    training = open_run("run", device="cuda", watch=True)
    steps = {step.number: step.gradient_norm for step in training.steps()}
    assert training.trainer.replay.graphs, "recording does not prevent CUDA graphs"
    rows = training.run.read_layers()
    assert len(rows) == NUM_STEPS
    for row in rows:
        total = math.hypot(*(layer["gradient_norm"] for layer in row["layers"].values()))
        assert total == pytest.approx(steps[row["step"]], rel=1e-3)


def test_the_update_of_sgd_is_the_learning_rate_times_the_gradient(open_run, every_step):
    training = open_run("run", watch=True, optimizer="sgd", clip="none", weight_decay=0.0, learning_rate=0.5)
    rates = {step.number: step.learning_rate for step in training.steps()}
    row = training.run.read_layers()[4]
    for layer in row["layers"].values():
        update_norm = layer["update_ratio"] * layer["weight_norm"]
        assert update_norm == pytest.approx(rates[row["step"]] * layer["gradient_norm"], rel=1e-2, abs=1e-6)


def test_layers_are_the_modules_that_own_parameters(open_run, every_step):
    training = open_run("run", watch=True)
    next(training.steps())
    (row,) = training.run.read_layers()
    assert list(row) == ["step", "tokens", "layers", "gates", "dead_units"]
    assert list(row["layers"]) == [
        *("embedding", "backbone.stack.layer.0.lstm", "backbone.stack.layer.1.lstm", "head.output"),
    ]
    norm = training.model.backbone.stack.layer[0].lstm.weight_hidden.detach().norm()  # type: ignore[union-attr,index]
    assert row["layers"]["backbone.stack.layer.0.lstm"]["weight_norm"] > float(norm)
    assert list(row["gates"]) == list(row["dead_units"]) == ["layer 1", "layer 2"]
    assert list(row["gates"]["layer 1"]) == ["input", "forget", "output"]


def test_open_gates_and_dead_units_are_counted(open_run):
    training = open_run("run", watch=True)
    cell = training.model.backbone.stack.layer[1].lstm  # type: ignore[union-attr,index]
    units = cell.units
    with torch.no_grad():
        cell.bias[units : 2 * units] = 20.0  # the forget gates of all units
        cell.bias[3] = -20.0  # the input gate of one unit: nothing is written, so its state stays zero
    assert training.layer_watch is not None
    result = training.layer_watch.probe.measure()
    assert result.gates["layer 2"]["forget"] == [0.0, 1.0]
    assert result.gates["layer 2"]["input"][0] == pytest.approx(1 / units)
    assert result.dead_units["layer 2"] == pytest.approx(1 / units)
    assert result.dead_units["layer 1"] == 0.0
    assert training.model.training is True


def test_padding_counts_neither_as_closed_nor_as_a_value():
    gate = torch.tensor([[[0.05, 0.5], [0.95, 0.5], [0.0, 0.0]]])  # the last step is padding
    assert compute_saturation(gate).tolist() == [0.25, 0.25]
    constant = torch.tensor([[[0.7, 0.1], [0.7, 0.2], [0.0, 0.0]]])
    assert compute_dead_share(constant).item() == 0.5
    assert compute_dead_share(torch.zeros(1, 3, 2)).item() == 1.0


def test_two_layers_with_the_same_label_are_told_apart():
    model = torch.nn.ModuleDict({"a": LSTM(3, 4), "b": LSTM(3, 4)})
    labels = {value.label for value in list_probed_values(model).values()}
    assert len(labels) == 2, labels


# The steps


def test_candidates_are_multiples_of_ten_at_first_and_a_hundredth_of_the_steps_apart_later(open_run, monkeypatch):
    monkeypatch.setattr(watch, "MAX_SHARE", 1e9)
    layer_watch = open_run("run", watch=True).layer_watch
    assert layer_watch is not None
    steps = []
    for step in range(1, 20_001):
        if layer_watch.is_due(step):
            steps.append(step)
            layer_watch.last_step, layer_watch.num_rows = step, layer_watch.num_rows + 1
    assert steps[:4] == [1, 10, 20, 30]
    assert all(later - earlier >= later / 100 for earlier, later in pairwise(steps))
    assert 350 < len(steps) < 420


@pytest.mark.parametrize("clock", ["perf_counter", "process_time"])
def test_rows_take_at_most_a_share_of_the_time_by_either_clock(open_run, monkeypatch, clock: str):
    monkeypatch.setattr(watch, "STEPS_PER_ROW", 1)
    monkeypatch.setattr(watch, "MAX_SHARE", 0.5)
    training = open_run("run", watch=True)
    layer_watch = training.layer_watch
    assert layer_watch is not None
    now = {"perf_counter": 0.0, "process_time": 0.0}
    monkeypatch.setattr(watch, "time", SimpleNamespace(**{name: lambda name=name: now[name] for name in now}))
    layer_watch.start = watch.read_clocks()
    measure = layer_watch.probe.measure

    def take_three_seconds() -> Any:
        now[clock] += 3
        return measure()

    monkeypatch.setattr(layer_watch.probe, "measure", take_three_seconds)
    for _ in training.steps():
        for name in now:
            now[name] += 1  # an update
    # Before update 5, 16 s have passed, of which counted rows took 9; before update 7 these are half of 18 s.
    assert [row["step"] for row in training.run.read_layers()][:5] == [1, 2, 3, 4, 7]


def test_runs_without_the_setting_have_no_file(open_run):
    training = open_run("run")
    list(islice(training.steps(), 2))
    assert not training.run.watch_file.exists()
    assert training.layer_watch is None


def test_an_ngram_model_has_no_layers_to_watch(book: Path, tmp_path: Path, capsys):
    from seqwise.cli.main import main

    assert main(["train", str(book), "--model", "ngram", "--training.watch", "--out", str(tmp_path / "run")]) == 2
    assert "--training.watch has no effect with the model ngram" in capsys.readouterr().err


def test_the_file_has_one_json_object_per_line(open_run, every_step):
    training = open_run("run", watch=True)
    list(training.steps())
    lines = training.run.watch_file.read_text().splitlines()
    assert [json.loads(line) for line in lines] == training.run.read_layers()
    assert len(lines) == NUM_STEPS
