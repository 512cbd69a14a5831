"""The catalogue finds runs and comparisons, notices changes, and trusts no file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from run_folders import make_rows, write_comparison, write_rows, write_run

from seqwise.config import TASKS
from seqwise.errors import UsageError
from seqwise.locks import lock_folder
from seqwise.studio.catalogue import Catalogue
from seqwise.tasks import get_task


def open_catalogue(*folders: Path) -> Catalogue:
    catalogue = Catalogue(folders)
    catalogue.refresh()
    return catalogue


def test_a_finished_run_has_the_metric_of_its_summary(tmp_path):
    write_run(tmp_path / "runs" / "book")
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert (row["state"], row["metric"], row["value"], row["higher_is_better"]) == (
        "finished",
        "perplexity",
        4.0,
        False,
    )
    assert (row["task"], row["model"], row["data"], row["seed"]) == ("language", "lstm", "b.txt", 0)
    assert (row["step"], row["tokens"], row["seconds"]) == (20, 2000, 1.0)
    assert row["bytes"] == sum(each.stat().st_size for each in (tmp_path / "runs" / "book").iterdir())


@pytest.mark.parametrize("task", TASKS)
def test_a_row_counts_what_the_task_counts(task, tmp_path):
    write_run(tmp_path / "runs" / "a", task=task)
    assert open_catalogue(tmp_path / "runs").get("runs/a").describe()["unit"] == get_task(task).unit


def test_a_run_without_an_end_is_stopped_and_has_its_best_validation(tmp_path):
    folder = write_run(tmp_path / "runs" / "book", is_finished=False)
    rows = make_rows([3.0, 2.0, 2.1, 2.5])
    rows[-1]["best"] = False
    write_rows(folder / "metrics.jsonl", rows)
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert (row["state"], row["value"], row["step"]) == ("stopped", 4.0, 40)


def test_a_finished_run_that_was_resumed_and_stopped_is_not_finished(tmp_path):
    folder = write_run(tmp_path / "runs" / "book")
    write_rows(folder / "metrics.jsonl", make_rows([3.0, 2.0, 1.5, 1.25]))
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert (row["state"], row["value"]) == ("stopped", 2.5)


def test_a_locked_run_is_running(tmp_path):
    folder = write_run(tmp_path / "runs" / "book", is_finished=False)
    catalogue = open_catalogue(tmp_path / "runs")
    with lock_folder(folder):
        assert catalogue.refresh() == {"runs/book"}
        row = catalogue.get("runs/book").describe()
        assert (row["state"], row["process"]["pid"]) == ("running", os.getpid())
    assert catalogue.refresh() == {"runs/book"}
    assert catalogue.get("runs/book").state == "stopped"


def test_a_lock_file_that_was_left_behind_is_not_a_process(tmp_path):
    folder = write_run(tmp_path / "runs" / "book", is_finished=False)
    with lock_folder(folder):
        content = (folder / ".lock").read_text()
    (folder / ".lock").write_text(content)
    assert open_catalogue(tmp_path / "runs").get("runs/book").state == "stopped"


def test_a_failed_run_says_why(tmp_path):
    folder = write_run(tmp_path / "runs" / "book", is_finished=False)
    (folder / "failure.json").write_text(json.dumps({"problem": "the disk is full."}))
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert (row["state"], row["problem"]) == ("failed", "the disk is full.")


def test_settings_that_cannot_be_read_are_a_problem(tmp_path):
    folder = write_run(tmp_path / "runs" / "book")
    (folder / "config.yaml").write_text("a: [")
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert row["state"] == "failed"
    assert row["problem"].startswith("config.yaml cannot be read")


def test_a_comparison_has_its_trials_and_its_best_family(tmp_path):
    write_comparison(tmp_path / "runs" / "demo")
    catalogue = open_catalogue(tmp_path / "runs")
    row = catalogue.get("runs/demo").describe()
    assert (row["kind"], row["state"], row["model"]) == ("comparison", "finished", "gru, lstm")
    assert (row["metric"], row["value"]) == ("perplexity", 10.0)
    counts = {"done": 4, "failed": 0, "total": 4}
    assert row["trials"] == {**counts, "best": "gru", "seeds": 2, "is_test": True}
    assert (row["progress"], row["step"], row["tokens"], row["seconds"]) == (1.0, 20, 400, 10.0)
    trial = catalogue.get("runs/demo/trials/lstm/seed-1").describe()
    assert (trial["parent"], trial["name"], trial["state"]) == ("runs/demo", "lstm/seed-1", "finished")


def test_a_failed_trial_says_why_and_the_comparison_is_not_complete(tmp_path):
    folder = write_comparison(tmp_path / "runs" / "demo")
    outcome = {"status": "failed", "reason": "not enough memory.", "result": None}
    (folder / "trials/gru/seed-0.json").write_text(json.dumps(outcome))
    (folder / "trials/gru/seed-1.json").unlink()
    catalogue = open_catalogue(tmp_path / "runs")
    trial = catalogue.get("runs/demo/trials/gru/seed-0").describe()
    assert (trial["state"], trial["problem"]) == ("failed", "not enough memory.")
    row = catalogue.get("runs/demo").describe()
    assert (row["state"], row["trials"]["done"], row["trials"]["failed"]) == ("stopped", 2, 1)


def test_only_what_has_changed_is_reported(tmp_path):
    first, second = (write_run(tmp_path / "runs" / name) for name in ("a", "b"))
    catalogue = open_catalogue(tmp_path / "runs")
    assert catalogue.refresh() == set()
    write_rows(first / "metrics.jsonl", make_rows([1.0]), "a")
    assert catalogue.refresh() == {"runs/a"}
    (second / "notes.json").write_text('{"tags": ["x"]}')
    assert catalogue.refresh() == {"runs/b"}
    second.rename(tmp_path / "elsewhere")
    assert catalogue.refresh() == {"runs/b"}
    with pytest.raises(UsageError, match="there is no run"):
        catalogue.get("runs/b")


def test_changed_settings_are_read_again(tmp_path):
    folder = write_run(tmp_path / "runs" / "book")
    catalogue = open_catalogue(tmp_path / "runs")
    (folder / "config.yaml").write_text("task: tag\nmodel: gru\n")
    catalogue.refresh()
    assert catalogue.get("runs/book").describe()["task"] == "tag"


def test_links_do_not_lead_out_of_the_folders(tmp_path):
    outside = write_run(tmp_path / "outside")
    folder = write_run(tmp_path / "runs" / "book")
    (tmp_path / "runs" / "linked").symlink_to(outside)
    (folder / "notes.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "secret.json").write_text('{"note": "secret"}')
    catalogue = open_catalogue(tmp_path / "runs")
    assert list(catalogue.entries) == ["runs/book"]
    assert catalogue.get("runs/book").describe()["note"] == ""


def test_a_run_with_a_link_to_elsewhere_is_not_loaded(tmp_path):
    for name in ("runs/a", "runs/b"):
        write_run(tmp_path / name)
    (tmp_path / "weights").touch()
    (tmp_path / "runs/a/own").symlink_to(tmp_path / "runs/b/config.yaml")
    catalogue = Catalogue([tmp_path / "runs"])
    catalogue.refresh()
    assert catalogue.get_folder("runs/a") == tmp_path / "runs/a"
    (tmp_path / "runs/a/checkpoints").mkdir()
    (tmp_path / "runs/a/checkpoints/model.safetensors").symlink_to(tmp_path / "weights")
    with pytest.raises(UsageError, match="leads out"):
        catalogue.get_folder("runs/a")
    assert catalogue.get_folder("runs/b") == tmp_path / "runs/b"


def test_a_curve_that_is_a_link_to_elsewhere_is_refused(tmp_path):
    folder = write_run(tmp_path / "runs" / "book")
    (folder / "metrics.jsonl").rename(tmp_path / "metrics.jsonl")
    (folder / "metrics.jsonl").symlink_to(tmp_path / "metrics.jsonl")
    catalogue = open_catalogue(tmp_path / "runs")
    assert catalogue.get("runs/book").describe()["step"] is None
    with pytest.raises(UsageError, match="link"):
        catalogue.get_curve("runs/book")


@pytest.mark.parametrize(
    "content",
    ['{"tags": "x", "note": 3}', '{"tags": [1, {}, null], "note": null}', "[]", "{", "", '{"tags": ' + "[" * 100_000],
)
def test_notes_that_are_not_notes_are_ignored(tmp_path, content):
    folder = write_run(tmp_path / "runs" / "book")
    (folder / "notes.json").write_text(content)
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert (row["tags"], row["note"]) == ([], "")


def test_hostile_settings_and_metrics_still_give_a_row(tmp_path):
    folder = write_run(tmp_path / "runs" / "book")
    (folder / "config.yaml").write_text("task: [1]\nmodel: {a: 1}\nseed: x\nrun: 7\nfamilies: 3\n")
    (folder / "summary.json").write_text('{"validation": {"perplexity": NaN, "loss": 1' + "0" * 400 + "}}")
    (folder / "metrics.jsonl").write_text('{"step": 1e999, "tokens": "x", "validation": {"loss": true}}\n[1]\n\n{"a"')
    row = open_catalogue(tmp_path / "runs").get("runs/book").describe()
    assert json.dumps(row, allow_nan=False)
    assert (row["task"], row["model"], row["seed"], row["value"], row["step"]) == ("", "", None, None, None)


def test_two_folders_with_one_name_have_different_ids(tmp_path):
    write_run(tmp_path / "a" / "runs" / "book")
    write_run(tmp_path / "b" / "runs" / "book")
    catalogue = open_catalogue(tmp_path / "a" / "runs", tmp_path / "b" / "runs")
    assert list(catalogue.entries) == ["runs-1/book", "runs-2/book"]
    assert catalogue.get_root(catalogue.get("runs-2/book")) == tmp_path / "b" / "runs"
