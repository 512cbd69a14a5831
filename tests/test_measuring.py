"""Timing, reporting and saving of the benchmarks, and the tables of `docs/performance.md`."""

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


def test_timed_calls_are_interleaved(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "MIN_SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(measuring, "MIN_TOTAL_SECONDS", 0.0)
    calls: list[str] = []
    times = measuring.time_interleaved(
        {name: lambda name=name: calls.append(name) for name in "ab"}, CPU, repeats=3, num_warmup=1
    )
    # The first call of each, a warm-up round, one call each to estimate its duration, then the samples.
    assert "".join(calls) == "ab" + "ab" + "ab" + "ababab"
    assert len(times["a"].samples) == len(times["b"].samples) == 3
    assert measuring.Times([3.0, 1.0, 2.5]).median == 2.5
    assert measuring.Times([3.0, 1.0, 2.5]).minimum == 1.0


def test_a_sample_of_a_short_call_averages_many_calls(measuring, monkeypatch):
    monkeypatch.setattr(measuring, "MIN_SAMPLE_SECONDS", 0.005)
    calls: list[int] = []
    times = measuring.time_interleaved({"a": lambda: calls.append(1)}, CPU, repeats=2)["a"]
    assert len(calls) > 100
    assert len(times.samples) == 2 * measuring.MAX_REPEATS_FACTOR  # short samples are taken more often
    assert all(seconds < 0.001 for seconds in times.samples)


def test_peak_memory_excludes_what_was_allocated_before(measuring):
    existing = torch.zeros(1_000_000)

    def run() -> torch.Tensor:
        a = existing + 1  # 4 MB in addition
        b = a + 1  # 8 MB
        del a  # 4 MB
        return b + 1  # 8 MB

    assert measuring.measure_peak_memory(run, CPU) == pytest.approx(8e6, rel=0.01)


@pytest.fixture
def make_report(measuring, tmp_path):
    def make(quick: bool = False, check=None, row_names=()):
        options = argparse.Namespace(quick=quick, json=str(tmp_path / "new" / "rows.json"))
        columns = (measuring.Column("name", "", width=-6), measuring.Column("ratio", "ratio", ".2f"))
        return measuring.Report("area", options, CPU, columns, ["--device", "cpu"], row_names=row_names, check=check)

    return make


def test_a_failed_row_is_recorded_and_every_row_is_saved_at_once(make_report, tmp_path, capsys):
    report, file = make_report(), tmp_path / "new" / "rows.json"
    report.add_measurement({"name": "good"}, lambda: {"ratio": 1.5})
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["good"]
    report.add_measurement({"name": "bad"}, lambda: {"ratio": 1 / 0})
    report.add_measurement({"name": "last"}, lambda: {"ratio": 2})
    assert report.finish() == 1
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
def test_missed_requirements_set_the_exit_status_except_in_a_quick_run(make_report, tmp_path, quick, missed, status):
    assert make_report(quick, check=lambda rows: missed).finish() == status
    assert json.loads((tmp_path / "new" / "rows.json").read_text())["missed"] == ([] if quick else missed)


def test_an_interrupted_run_is_saved_as_unfinished_with_its_missed_requirements(make_report, tmp_path):
    report = make_report(
        check=lambda rows: [row["name"] for row in rows if row["ratio"] < 1], row_names=["good", "bad", "never"]
    )
    report.add_measurement({"name": "good"}, lambda: {"ratio": 1.5})
    report.add_measurement({"name": "bad"}, lambda: {"ratio": 0.5})
    saved = json.loads((tmp_path / "new" / "rows.json").read_text())
    assert (saved["finished"], saved["missed"], saved["planned"]) == (False, ["bad"], ["good", "bad", "never"])
    report.finish()
    assert json.loads((tmp_path / "new" / "rows.json").read_text())["finished"] is True


def test_rows_can_be_measured_again(make_report, tmp_path):
    report = make_report()
    report.add_measurement({"name": "a"}, lambda: {"ratio": 1.5})
    report.add_measurement({"name": "b"}, lambda: {"ratio": 1.5})
    report.update_rows(report.rows[:1], lambda: {"ratio": 1.2})
    report.update_rows(report.rows[1:], lambda: {"ratio": 1 / 0})
    rows = json.loads((tmp_path / "new" / "rows.json").read_text())["rows"]
    assert rows[0] == {"name": "a", "ratio": 1.2}
    assert rows[1]["failed"].startswith("ZeroDivisionError")
    assert report.finish() == 1


def test_an_existing_file_that_is_not_json_is_not_overwritten(measuring, tmp_path, capsys):
    (tmp_path / "thesis.md").write_text("years of work")
    with pytest.raises(SystemExit):
        measuring.build_parser(None).parse_args(["--json", str(tmp_path / "thesis.md")])
    assert "exists and does not end in .json" in capsys.readouterr().err
    (tmp_path / "old.json").write_text("{}")
    for name in (str(tmp_path / "old.json"), str(tmp_path / "new.txt"), "-"):
        assert measuring.build_parser(None).parse_args(["--json", name]).json == name
    assert measuring.build_parser(None).parse_args(["--json"]).json == "-"


def test_a_missing_gpu_is_reported_in_one_line(measuring, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^PyTorch finds no CUDA device here"):
        measuring.set_up_device(measuring.build_parser(None).parse_args(["--device", "cuda"]))


def test_rows_are_selected_by_words_and_an_empty_selection_is_an_error(measuring):
    rows = ["lstm 32×20×128 fp32", "gru 32×20×128 fp32"]
    assert measuring.select_rows(rows, [], lambda row: set(row.split())) == rows
    assert measuring.select_rows(rows, ["lstm", "32x20x128"], lambda row: set(row.split())) == rows[:1]
    with pytest.raises(SystemExit, match=r"no row has all of these words: lstm 64x1x1. The rows are:\n  lstm 32"):
        measuring.select_rows(rows, ["lstm", "64x1x1"], lambda row: set(row.split()))


# ---- docs/performance.md


@pytest.fixture(scope="module")
def generate():
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_for_performance", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_performance_page_lists_the_rows_that_an_interrupted_run_lacks(generate, tmp_path, monkeypatch):
    run = {
        "command": "python benchmarks/x.py", "where": "here", "machine": {"packages": {"torch": "2"}, "cpu": {}},
        "date": "today", "load": [None, None], "device": "cpu", "quick": False, "columns": [],
        "missed": ["a: 1, not 2"],
        "rows": [{"name": "a"}, {"name": "b", "failed": "no"}], "planned": ["a", "b", "c", "d"], "finished": False,
    }  # fmt: skip
    monkeypatch.setattr(generate, "get_performance_file", lambda area, machine: tmp_path / "x.json")
    (tmp_path / "x.json").write_text(json.dumps(run))
    page = generate.build_performance_section("x", "cpu")
    assert "Interrupted after 2 rows. Not measured: c; d." in page
    assert "Requirements not met:\n\n- a: 1, not 2" in page
    assert "Failed: b: no" in page
    (tmp_path / "x.json").write_text(json.dumps({**run, "finished": True}))
    assert "Interrupted" not in generate.build_performance_section("x", "cpu")
    (tmp_path / "x.json").write_text(json.dumps({key: run[key] for key in run if key not in ("finished", "planned")}))
    assert "Interrupted" not in generate.build_performance_section("x", "cpu"), "a file of an older version"


def test_the_performance_page_has_the_columns_of_the_script_and_ratios_by_group(generate):
    columns = [
        {"key": "name", "heading": "T×B×H", "format": "", "scale": 1.0},
        {"key": "memory", "heading": "MB", "format": ",.0f", "scale": 1e-6},
        {"key": "absent", "heading": "omitted", "format": "", "scale": 1.0},
    ]
    rows = [{"name": "a", "memory": 2_500_000_000}, {"name": "b", "failed": "no"}]
    assert generate.build_rows_table(columns, rows) == "| T×B×H | MB |\n|---|---|\n| a | 2,500 |\n| b |  |"
    ratios = [{"group": "gru", "baseline": "pytorch", "ratio": ratio} for ratio in (2.0, 1.0, 4.0)]
    ratios += [
        {"group": "gru", "baseline": "loop", "ratio": 90.0},
        {"group": "gru", "baseline": "pytorch", "failed": "no"},
    ]
    assert generate.build_groups_table(ratios).splitlines()[2:] == ["| gru | 3 | 1.00 | 2.00 | 4.00 |"]
