"""`lens.training`: the course of runs over their updates, from files that may still be written."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import seqwise
from seqwise.errors import RunError, UsageError
from seqwise.lens import live, training
from seqwise.lens.training_figures import MAX_POINTS, draw_layers, draw_metrics, merge_layers
from seqwise.locks import LOCK_FILE, lock_folder
from seqwise.page.figures import Heatmap, LineChart
from seqwise.training.api import TrainedModel
from seqwise.training.run import Run

ROWS = [
    {
        "step": step,
        "tokens": step * 100,
        "layers": {
            "embedding": {"gradient_norm": 3.0, "weight_norm": 10.0, "update_ratio": 0.001},
            "backbone.layer.0.inward": {"gradient_norm": 3.0, "weight_norm": 3.0, "update_ratio": 0.1},
            "backbone.layer.0.outward": {"gradient_norm": 4.0, "weight_norm": 4.0, "update_ratio": 0.1},
        },
        "gates": {"layer 1": {"forget": [0.25, 0.5]}},
        "dead_units": {"layer 1": 0.125},
    }
    for step in (1, 10, 20)
]


@pytest.fixture
def copy_run(small_run, tmp_path: Path):
    """(family, watch rows) → a copy of a run whose files the test may change."""

    def copy(family: str = "lstm", rows: list[dict] = [], name: str = "run") -> TrainedModel:  # noqa: B006 - not changed
        folder = tmp_path / name
        shutil.copytree(small_run("language", family).run.folder, folder)
        if rows:
            (folder / "watch.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return seqwise.load(folder)

    return copy


def test_the_curves_are_those_of_the_metrics(copy_run):
    model = copy_run()
    rows = model.run.read_metrics()
    view = training(model)
    (data,) = view.data.values()
    assert data["step"].tolist() == [row["step"] for row in rows]
    assert data["loss"].tolist() == [row["loss"] for row in rows]
    assert data["gradient_norm"].tolist() == [row["gradient_norm"] for row in rows]
    assert data["learning_rate"].tolist() == [row["learning_rate"] for row in rows]
    validated = [row for row in rows if row["validation"]]
    assert data["validation_loss"].tolist() == [row["validation"]["loss"] for row in validated]
    assert [figure.title for figure in view.figures] == ["Loss", "Gradient norm", "Learning rate"]
    best = min(row["validation"]["loss"] for row in validated)
    assert f"lowest validation loss {best:.4g} at update" in view.summary[0]
    assert "It has ended: the budget is spent." in view.summary[0]


def test_without_recorded_layers_it_says_how_to_record_them(copy_run):
    assert "--training.watch" in training(copy_run()).summary[-1]
    assert "--training.watch" not in " ".join(training(copy_run(rows=ROWS, name="watched")).summary)


def test_recorded_layers_are_arrays_over_the_updates(copy_run):
    view = training(copy_run(rows=ROWS))
    (data,) = view.data.values()
    assert data["watch_step"].tolist() == [1, 10, 20]
    assert data["layers"]["embedding"]["update_ratio"].tolist() == [0.001] * 3
    assert data["gates"]["layer 1"]["forget"].tolist() == [[0.25, 0.5]] * 3
    assert data["dead_units"]["layer 1"].tolist() == [0.125] * 3
    assert [figure.title for figure in view.figures[3:]] == [
        *("Update-to-weight ratio per layer", "Gradient norm per layer", "Saturated gates", "Dead units"),
    ]
    assert view.summary[1] == (
        "Update-to-weight ratio at update 20: from 0.001 (embedding) to 0.1 (layer 1); about 0.001 is usual."
    )
    assert view.summary[2:] == (
        "Most saturated gate: forget of layer 1, closed at 25% and open at 50% of all values.",
        "Dead units, whose value hardly varies over tokens: 12% in layer 1.",
    )


def test_modules_of_a_layer_are_merged_by_their_norms():
    layers = {
        name: {key: np.array([value]) for key, value in values.items()} for name, values in ROWS[0]["layers"].items()
    }
    merged = merge_layers(layers)
    assert list(merged) == ["embedding", "layer 1"]
    assert merged["layer 1"]["gradient_norm"].tolist() == [5.0]  # √(3² + 4²)
    assert merged["layer 1"]["update_ratio"] == pytest.approx(0.1)  # √(0.3² + 0.4²) / √(3² + 4²)


def test_a_layer_that_a_row_lacks_has_no_value_there(copy_run):
    rows = [{**ROWS[0], "gates": {}, "dead_units": {}}, ROWS[1]]
    (data,) = training(copy_run(rows=rows)).data.values()
    assert np.isnan(data["gates"]["layer 1"]["forget"][0]).all()
    assert data["gates"]["layer 1"]["forget"][1].tolist() == [0.25, 0.5]


def test_several_runs_are_on_one_chart(copy_run):
    view = training([copy_run("lstm", name="a"), copy_run("gru", ROWS, name="b")])
    assert list(view.data) == ["a (lstm)", "b (gru)"]
    loss = view.figures[0]
    assert isinstance(loss, LineChart)
    assert [series.name.split(": ")[0] for series in loss.series] == ["training", "validation"] * 2
    assert all(figure.title.endswith("b (gru)") for figure in view.figures[3:]), "figures of layers name their run"
    assert "The layers of a (lstm) were not recorded" in view.summary[-1]


def test_many_layers_are_a_heatmap():
    values = {"gradient_norm": np.array([0.1, 0.01]), "weight_norm": np.ones(2), "update_ratio": np.array([0.1, 0.01])}
    layers = {f"encoder.layer.{index}.linear": values for index in range(12)}
    data = {"watch_step": np.array([1.0, 10.0]), "layers": layers, "gates": {}, "dead_units": {}}
    (ratio, gradient) = draw_layers(data, "", 1e-3)
    assert isinstance(ratio, Heatmap)
    assert ratio.values.shape == (12, 2)
    assert ratio.values[3] == pytest.approx([-1, -2])
    assert ratio.rows[11] == "encoder, layer 12"
    assert isinstance(gradient, Heatmap)


def test_long_curves_are_means_of_neighbours_with_an_interval():
    steps = np.arange(1, 10 * MAX_POINTS + 1, dtype=float)
    data = dict.fromkeys(("step", "learning_rate", "gradient_norm"), steps)
    data |= {"validation_step": np.array([]), "validation_loss": np.array([])}
    loss = draw_metrics({"a": {**data, "loss": np.tile([1.0, 3.0], len(steps) // 2)}}, None)[0]
    assert isinstance(loss, LineChart)
    (series,) = loss.series
    assert series.y == pytest.approx(np.full(MAX_POINTS, 2.0))
    assert series.low is not None
    assert series.low[0] == 1.0
    assert series.x[0] == 5.5


def test_neither_weights_nor_data_are_needed(copy_run):
    model = copy_run(rows=ROWS)
    (model.run.folder / "model.safetensors").unlink()
    assert training(seqwise.load(model.run.folder)).data
    with pytest.raises(RunError, match="has no weights yet"):
        _ = seqwise.load(model.run.folder).model


def test_an_ngram_model_has_no_updates_to_show(small_run):
    with pytest.raises(UsageError, match="is fitted in one pass over the data"):
        training(small_run("language", "ngram"))
    with pytest.raises(UsageError, match="expected a trained model"):
        training("runs/a")
    with pytest.raises(UsageError, match="received none"):
        training([])


# Runs that are being trained


def test_a_line_that_is_being_written_is_left_out(copy_run):
    model = copy_run()
    count = len(model.run.read_metrics())
    with model.run.metrics_file.open("a") as file:
        file.write('{"step": 99, "tok')
    (data,) = training(model).data.values()
    assert len(data["step"]) == count


def test_before_the_first_update_it_says_that_there_is_none(copy_run):
    model = copy_run()
    model.run.metrics_file.write_text("")
    with pytest.raises(RunError, match="has no metrics yet"):
        training(model)


def reopen(run: Run) -> list[dict]:
    """Removes the last row of a run, so that it looks like one that is being trained; returns all rows."""
    rows = run.read_metrics()
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    return rows


def test_watching_ends_with_the_run(copy_run, monkeypatch, capsys):
    model = copy_run()
    rows = reopen(model.run)
    monkeypatch.setattr(live, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(live, "SECONDS_PER_LINE", 0.0)

    def finish() -> None:
        time.sleep(0.3)
        with model.run.metrics_file.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")

    writer = threading.Thread(target=finish)
    writer.start()
    with lock_folder(model.run.folder):
        view = training(model, watch=True)
    writer.join()
    (data,) = view.data.values()
    assert data["ended"] == "the budget is spent"
    err = capsys.readouterr().err
    assert f"after {rows[-2]['step']:,} updates" in err, "the view before the last row"
    assert f"{model.run.folder} has ended: the budget is spent." in err


def test_watching_ends_with_ctrl_c(copy_run, monkeypatch, capsys):
    model = copy_run()
    rows = reopen(model.run)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(live.time, "sleep", interrupt)
    with lock_folder(model.run.folder):
        (data,) = training(model, watch=True).data.values()
    assert data["step"][-1] == rows[-2]["step"]
    assert "stopped watching; the run is not affected." in capsys.readouterr().err


def test_watching_waits_for_the_first_update(copy_run, monkeypatch, capsys):
    model = copy_run()
    text = model.run.metrics_file.read_text()
    model.run.metrics_file.write_text("")
    monkeypatch.setattr(live.time, "sleep", lambda seconds: model.run.metrics_file.write_text(text))
    with lock_folder(model.run.folder):
        assert training(model, watch=True).data
    assert "has no metrics yet" in capsys.readouterr().err


def test_watching_waits_for_the_processes_of_a_new_run(copy_run, monkeypatch, capsys):
    model = copy_run()
    text = model.run.metrics_file.read_text()
    model.run.metrics_file.write_text("")
    monkeypatch.setattr(live.time, "sleep", lambda seconds: model.run.metrics_file.write_text(text))
    assert training(model, watch=True).data
    assert "no process is training it" not in capsys.readouterr().err


def test_watching_ends_at_once_if_no_process_trains_the_run(copy_run, monkeypatch, capsys):
    model = copy_run()
    rows = reopen(model.run)
    monkeypatch.setattr(live.time, "sleep", lambda seconds: pytest.fail("it waits"))
    (data,) = training(model, watch=True).data.values()
    assert data["step"][-1] == rows[-2]["step"]
    folder = model.run.folder
    reason = f"{folder} has not ended, and no process is training it. Resume: seqwise train --resume {folder}\n"
    assert capsys.readouterr().err == reason
    comparison = folder.parent / "compare.yaml"
    comparison.touch()
    training(model, watch=True)
    assert f"Resume: seqwise compare --resume {folder.parent}\n" in capsys.readouterr().err
    comparison.unlink()
    # The lock file of a process that was killed
    killed = {"pid": os.getpid(), "host": platform.node(), "command": "seqwise train", "started": "yesterday"}
    (folder / LOCK_FILE).write_text(json.dumps(killed))
    training(model, watch=True)
    assert capsys.readouterr().err == reason


def test_watching_ends_when_the_process_that_trains_the_run_is_gone(copy_run, monkeypatch, capsys):
    model = copy_run()
    reopen(model.run)
    lock = ExitStack()
    lock.enter_context(lock_folder(model.run.folder))
    monkeypatch.setattr(live.time, "sleep", lambda seconds: lock.close())
    training(model, watch=True)
    assert "no process is training it" in capsys.readouterr().err


def test_a_run_on_another_host_without_updates_for_long_is_not_watched(copy_run, capsys):
    model = copy_run()
    reopen(model.run)
    owner = {"pid": 1, "host": f"not-{platform.node()}", "command": "seqwise train", "started": "yesterday"}
    (model.run.folder / LOCK_FILE).write_text(json.dumps(owner))
    for path in model.run.folder.iterdir():
        os.utime(path, (0, 0))
    training(model, watch=True)
    assert "it is not being trained" in capsys.readouterr().err


def test_lines_are_printed_at_most_every_few_seconds(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 1.0, 20.0, 20.0])
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    display = live.LineDisplay(Console(stderr=True))
    display.last_time = -100.0
    for number in range(3):
        display.show(live.View("training", "", (f"update {number}",), ()))
    assert capsys.readouterr().err.split("\n") == ["update 0", "update 2", ""]


def test_a_terminal_shows_as_many_figures_as_fit(copy_run):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=36)
    display = live.LiveDisplay(console)
    display.show(training(copy_run(rows=ROWS)))
    display.close()
    assert "Loss" in stream.getvalue()
    assert "Gradient norm" not in stream.getvalue()
