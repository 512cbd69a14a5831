"""The demo is a comparison like any other: it must end in a table, a verdict and a report, whatever the machine."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from small_comparison import finished_comparison

from seqwise.cli import demo
from seqwise.cli.main import main
from seqwise.compare import api
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import Plan
from seqwise.config import TASKS, Settings

FEWER_SEEDS = 2  # the fewest with an interval and a verdict
FEWER_EXAMPLES = {"valid_fraction": 0.01, "test_fraction": 0.01}  # to evaluate on


def run_demo(task: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["demo", "--task", task, "--budget", "1s", "--out", str(folder)]) == 0
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert [family["status"] for family in report["families"]] == ["done"] * 5
    assert (folder / "report.html").stat().st_size > 50_000
    captured = capsys.readouterr()
    best = report["verdict"]["best"]
    assert f"best  {best}" in captured.out
    assert report["verdict"]["sentences"][0] in captured.out
    run = next(family["run"] for family in report["families"] if family["name"] == best)
    assert run.startswith(f"trials/{best}/seed-")
    assert run in captured.err
    assert report["command"].startswith(f"seqwise compare {demo.EXAMPLES[task].data} --task {task} ")
    return captured.out + captured.err


@pytest.mark.slow
def test_the_demo_ends_with_a_table_a_verdict_and_a_report(tmp_path, capsys):
    output = run_demo("forecast", tmp_path / "demo", capsys)
    assert "seqwise compare YOUR-DATA --task forecast" in output
    counts = Plan.open(tmp_path / "demo").parameters.values()
    assert max(counts) / min(counts) < 1.03
    assert not Plan.open(tmp_path / "demo").strict  # also when it is resumed


@pytest.mark.slow
@pytest.mark.parametrize("task", [task for task in TASKS if task != "forecast"])
def test_every_task_has_a_demo(task, tmp_path, monkeypatch, capsys):
    """The test above searches learning rates, trains all seeds and evaluates on all examples.

    What differs by task does not depend on these.
    """
    monkeypatch.setattr(demo, "SEEDS", FEWER_SEEDS)
    monkeypatch.setattr(demo, "ComparisonOptions", partial(ComparisonOptions, lr_trials=1))
    monkeypatch.setattr(demo, "Settings", partial(Settings, data=FEWER_EXAMPLES))
    output = run_demo(task, tmp_path / "demo", capsys)
    assert ("The best model continues a text:" in output) is (task == "language")


def test_an_interrupted_demo_explains_how_to_resume(tmp_path, monkeypatch, capsys):
    folder = finished_comparison(tmp_path / "demo")
    monkeypatch.setattr(demo, "create_plan", lambda *arguments, **options: nullcontext((folder, Plan.open(folder))))

    def receive_signals(count: int) -> bool:
        for _ in range(count):
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    for count, state in ((1, "stopped and saved."), (2, "interrupted.")):
        monkeypatch.setattr(api, "run_stages", lambda *arguments, count=count: receive_signals(count))
        assert main(["demo"]) == 130
        last_line = capsys.readouterr().err.rstrip().splitlines()[-1]
        assert last_line == f"{state} Resume with: seqwise compare --resume {folder}"


def test_every_task_has_built_in_data_and_example_inputs():
    assert set(demo.EXAMPLES) == set(TASKS)
    assert all(example.data.startswith("builtin:") for example in demo.EXAMPLES.values())


def test_an_unknown_task_is_an_error(capsys):
    assert main(["demo", "--task", "juggle"]) == 2
    assert "--task: expected one of" in capsys.readouterr().err
