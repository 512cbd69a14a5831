"""How the benchmarks measure, print and save, and what the page makes of it."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import pytest
import torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def measuring(benchmark_script):
    return benchmark_script("measuring")


def test_peers_take_turns(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "TURN", 0.0)
    monkeypatch.setattr(measuring, "SPENT", 0.0)
    calls: list[str] = []
    times = measuring.in_turn({name: lambda name=name: calls.append(name) for name in "ab"}, CPU, repeats=3, warm=1)
    # The first call of each, a warm round, one call each to see how long it takes, then the turns.
    assert "".join(calls) == "ab" + "ab" + "ab" + "ababab"
    assert len(times["a"].turns) == len(times["b"].turns) == 3
    assert measuring.Times([3.0, 1.0, 2.5]).median == 2.5
    assert measuring.Times([3.0, 1.0, 2.5]).least == 1.0


def test_short_calls_are_repeated_within_a_turn(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "TURN", 0.005)
    calls: list[int] = []
    times = measuring.in_turn({"a": lambda: calls.append(1)}, CPU, repeats=2)["a"]
    assert len(calls) > 100
    assert len(times.turns) == 2 * measuring.MORE  # turns that are short are taken more often
    assert all(seconds < 0.001 for seconds in times.turns)


def test_memory_is_counted_at_its_peak_beyond_what_was_there(measuring):
    before = torch.zeros(1_000_000)

    def run() -> torch.Tensor:
        a = before + 1  # 4 MB
        b = a + 1  # 8
        del a  # 4
        return b + 1  # 8

    assert measuring.peak(run, CPU) == pytest.approx(8e6, rel=0.01)


@pytest.fixture
def report(measuring, tmp_path):
    def make(quick: bool = False, judge=None, planned=()):
        options = argparse.Namespace(quick=quick, json=str(tmp_path / "made" / "rows.json"))
        columns = (measuring.Column("name", "", width=-6), measuring.Column("ratio", "ratio", ".2f"))
        return measuring.Report("area", options, CPU, columns, ["--device", "cpu"], planned=planned, judge=judge)

    return make


def test_a_row_that_fails_is_noted_and_the_others_are_saved_as_they_come(report, tmp_path, capsys):
    made, file = report(), tmp_path / "made" / "rows.json"
    made.measured({"name": "good"}, lambda: {"ratio": 1.5})
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["good"]
    made.measured({"name": "bad"}, lambda: {"ratio": 1 / 0})
    made.measured({"name": "last"}, lambda: {"ratio": 2})
    assert made.finish() == 1
    saved = json.loads(file.read_text())
    assert [row.get("failed") for row in saved["rows"]] == [None, "ZeroDivisionError: division by zero", None]
    assert saved["command"] == "python benchmarks/area.py --device cpu"
    assert saved["machine"]["cpu"]["count"] > 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "          ratio",
        "good       1.50",
        "bad  failed: ZeroDivisionError: division by zero",
        "last       2.00",
    ]


@pytest.mark.parametrize(("quick", "missed", "status"), [(False, [], 0), (False, ["x: 1, not 2"], 1), (True, ["x"], 0)])
def test_what_is_missed_decides_the_status_but_not_of_a_short_run(report, tmp_path, quick, missed, status):
    assert report(quick, judge=lambda rows: missed).finish() == status
    assert json.loads((tmp_path / "made" / "rows.json").read_text())["missed"] == ([] if quick else missed)


def test_a_run_that_is_cut_off_says_so_and_what_it_missed_until_then(report, tmp_path):
    made = report(
        judge=lambda rows: [row["name"] for row in rows if row["ratio"] < 1], planned=["good", "bad", "never"]
    )
    made.measured({"name": "good"}, lambda: {"ratio": 1.5})
    made.measured({"name": "bad"}, lambda: {"ratio": 0.5})
    saved = json.loads((tmp_path / "made" / "rows.json").read_text())
    assert (saved["finished"], saved["missed"], saved["planned"]) == (False, ["bad"], ["good", "bad", "never"])
    made.finish()
    assert json.loads((tmp_path / "made" / "rows.json").read_text())["finished"] is True


def test_rows_may_be_measured_once_more(report, tmp_path):
    made = report()
    made.measured({"name": "a"}, lambda: {"ratio": 1.5})
    made.measured({"name": "b"}, lambda: {"ratio": 1.5})
    made.revised(made.rows[:1], lambda: {"ratio": 1.2})
    made.revised(made.rows[1:], lambda: {"ratio": 1 / 0})
    rows = json.loads((tmp_path / "made" / "rows.json").read_text())["rows"]
    assert rows[0] == {"name": "a", "ratio": 1.2}
    assert rows[1]["failed"].startswith("ZeroDivisionError")
    assert made.finish() == 1


def test_a_file_that_is_no_json_is_not_written_over(measuring, tmp_path, capsys):
    (tmp_path / "thesis.md").write_text("years of work")
    with pytest.raises(SystemExit):
        measuring.parser(None).parse_args(["--json", str(tmp_path / "thesis.md")])
    assert "does not end in .json" in capsys.readouterr().err
    (tmp_path / "old.json").write_text("{}")
    for name in (str(tmp_path / "old.json"), str(tmp_path / "new.txt"), "-"):
        assert measuring.parser(None).parse_args(["--json", name]).json == name
    assert measuring.parser(None).parse_args(["--json"]).json == "-"


def test_a_missing_gpu_is_one_clear_line(measuring, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^PyTorch finds no CUDA device here"):
        measuring.settle(measuring.parser(None).parse_args(["--device", "cuda"]))


def test_words_choose_rows_and_words_that_choose_none_are_refused(measuring):
    rows = ["lstm 32×20×128 fp32", "gru 32×20×128 fp32"]
    assert measuring.chosen(rows, [], lambda row: set(row.split())) == rows
    assert measuring.chosen(rows, ["lstm", "32x20x128"], lambda row: set(row.split())) == rows[:1]
    with pytest.raises(SystemExit, match=r"no row has all of these words: lstm 64x1x1. The rows are:\n  lstm 32"):
        measuring.chosen(rows, ["lstm", "64x1x1"], lambda row: set(row.split()))


# ---- the page


@pytest.fixture(scope="module")
def generate():
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_for_performance", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_page_says_what_a_run_that_was_cut_off_does_not_have(generate, tmp_path, monkeypatch):
    run = {
        "command": "python benchmarks/x.py", "where": "here", "machine": {"packages": {"torch": "2"}, "cpu": {}},
        "date": "today", "load": [None, None], "device": "cpu", "quick": False, "columns": [],
        "missed": ["a: 1, not 2"],
        "rows": [{"name": "a"}, {"name": "b", "failed": "no"}], "planned": ["a", "b", "c", "d"], "finished": False,
    }  # fmt: skip
    monkeypatch.setattr(generate, "performance_file", lambda area, machine: tmp_path / "x.json")
    (tmp_path / "x.json").write_text(json.dumps(run))
    page = generate.measured("x", "cpu")
    assert "Cut off after 2 rows. Not measured: c; d." in page
    assert "Missed:\n\n- a: 1, not 2" in page
    assert "Failed: b: no" in page
    (tmp_path / "x.json").write_text(json.dumps({**run, "finished": True}))
    assert "Cut off" not in generate.measured("x", "cpu")
    (tmp_path / "x.json").write_text(json.dumps({key: run[key] for key in run if key not in ("finished", "planned")}))
    assert "Cut off" not in generate.measured("x", "cpu"), "saved before runs said so"


def test_the_page_shows_columns_as_the_script_prints_them_and_ratios_by_group(generate):
    columns = [
        {"key": "name", "heading": "T×B×H", "format": "", "scale": 1.0},
        {"key": "memory", "heading": "MB", "format": ",.0f", "scale": 1e-6},
        {"key": "nobody", "heading": "left out", "format": "", "scale": 1.0},
    ]
    rows = [{"name": "a", "memory": 2_500_000_000}, {"name": "b", "failed": "no"}]
    assert generate.rows_table(columns, rows) == "| T×B×H | MB |\n|---|---|\n| a | 2,500 |\n| b |  |"
    ratios = [{"group": "gru", "peer": "pytorch", "ratio": ratio} for ratio in (2.0, 1.0, 4.0)]
    ratios += [{"group": "gru", "peer": "loop", "ratio": 90.0}, {"group": "gru", "peer": "pytorch", "failed": "no"}]
    assert generate.groups_table(ratios).splitlines()[2:] == ["| gru | 3 | 1.00 | 2.00 | 4.00 |"]
