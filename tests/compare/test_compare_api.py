"""`seqwise.compare(...)` and the `Comparison` that it returns."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_comparison import BUDGET, TINY, InProcessEngine, finished_comparison, make_plan, write_text
from used_settings import keep_used

import seqwise
from seqwise.cli.compare import Compare, make_options
from seqwise.cli.options import parse
from seqwise.compare import api
from seqwise.compare.api import Comparison, create_engine
from seqwise.compare.plan.create import Request
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.gather import load_report
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.config import parse_settings
from seqwise.errors import RunError, SeqwiseError, UsageError


@pytest.fixture
def requested_engines(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Comparisons are executed in this process; the list holds (name, workers) of the requested engines."""
    requests: list[tuple] = []

    def engine(name: str, folder: Path, plan: Plan, workers: int | None = None) -> InProcessEngine:
        requests.append((name, workers))
        return InProcessEngine(folder)

    monkeypatch.setattr(api, "create_engine", engine)
    return requests


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    folder = finished_comparison(tmp_path / "out")
    return Comparison(folder, load_report(folder))


def test_a_comparison_from_data_to_tables(requested_engines, tmp_path: Path):
    text = write_text(tmp_path / "small.txt")
    events: list[dict] = []
    comparison = seqwise.compare(
        text, models="rnn", variants={"wide": {"model": "rnn", "network": {"width": 20}}}, budget=BUDGET, seeds=1,
        lr_trials=1, examples=2, out=tmp_path / "out", settings=TINY, workers=3, on_event=events.append,
        network={"dropout": 0.0},
    )  # fmt: skip
    assert requested_engines == [("local", 3)]
    assert comparison.folder == tmp_path / "out"
    assert {row["name"] for row in comparison.leaderboard} == {"rnn", "wide"}
    assert comparison.leaderboard[0]["rank"] == "best"
    assert len(comparison.pairs) == 1
    assert comparison.curves.keys() == {"rnn", "wide"}
    assert len(comparison.report.examples) <= 2
    assert comparison.report == load_report(tmp_path / "out")
    plan = Plan.open(tmp_path / "out")
    wide = {"wide": {"model": "rnn", "network": {"width": 20}}}
    assert plan.command == (
        f"seqwise.compare({str(text)!r}, models='rnn', variants={wide!r}, "
        f"budget={BUDGET!r}, seeds=1, settings={TINY!r}, lr_trials=1, examples=2, "
        "network={'dropout': 0.0})"
    )
    assert plan.families["wide"].network.width == 20
    assert plan.families["rnn"].network.dropout == 0.0  # keywords override the settings, section by section
    assert plan.families["rnn"].network.depth == 1
    assert plan.budgets.training == BUDGET
    assert {event["event"] for event in events} == {"begin", "progress", "end"}
    resumed = seqwise.compare(resume=tmp_path / "out")
    assert resumed.report.families == comparison.report.families


def test_the_budget_may_come_with_the_settings(requested_engines, tmp_path: Path):
    text = write_text(tmp_path / "small.txt")
    seqwise.compare(
        text, models=["ngram"], seeds=1, lr_trials=1, out=tmp_path / "out",
        settings=keep_used(TINY, model="ngram", budget="7k-tokens"),
    )  # fmt: skip
    assert Plan.open(tmp_path / "out").budgets.total == "7000-tokens"


def test_variants_alone_can_be_compared(requested_engines, tmp_path: Path):
    text = write_text(tmp_path / "small.txt")
    comparison = seqwise.compare(
        text, models="none", variants={"mine": {"model": "rnn"}}, budget=BUDGET, seeds=1, lr_trials=1,
        out=tmp_path / "out", settings=parse_settings(TINY),
    )  # fmt: skip
    assert [row["name"] for row in comparison.leaderboard] == ["mine"]
    assert "settings={'task': 'language', 'device': 'cpu', " in comparison.report.command


def test_command_and_library_have_the_same_defaults():
    arguments = parse(Compare, ["a.txt"], prog="", example="")
    assert make_options(arguments) == replace(ComparisonOptions(), models=list(ComparisonOptions.models))
    defaults = {name: each.default for name, each in inspect.signature(api.compare).parameters.items()}
    assert (defaults["models"], defaults["seeds"]) == (ComparisonOptions.models, ComparisonOptions.seeds)
    for name in set(ComparisonOptions.__dataclass_fields__) - {"models", "seeds", "variants", "budget"}:
        assert defaults[name] is None, f"{name} may not have a second default"
    assert defaults["budget"] is defaults["variants"] is None


def test_the_default_budget_is_that_of_the_options(requested_engines, tmp_path: Path, monkeypatch):
    def check_request(folder: Path, request: Request) -> Any:
        assert request.options == replace(ComparisonOptions(), models=list(ComparisonOptions.models))
        raise SeqwiseError("checked")

    monkeypatch.setattr(api, "create_plan", check_request)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SeqwiseError, match="checked"):
        seqwise.compare("a.txt")
    assert list(tmp_path.iterdir()) == []


def test_tables_are_plain_data(comparison: Comparison):
    assert [row["name"] for row in comparison.leaderboard][-1] == "too-fast"
    assert comparison.leaderboard[-1]["mean"] is None
    assert len(comparison.pairs) == 3
    assert comparison.pairs[0]["p"] == comparison.report.pairs[0].p
    assert [curve["seed"] for curve in comparison.curves["gru"]] == [0, 1]
    assert comparison.verdict == " ".join(comparison.report.verdict.sentences)
    assert comparison.report.verdict.best in comparison.verdict
    assert repr(comparison).startswith(f"<Comparison {comparison.folder}: ")


def test_the_best_model_can_predict(comparison: Comparison):
    best = comparison.best
    assert best.settings.model == comparison.report.verdict.best
    assert len("".join(best.predict("the ", max_length=5))) == 5


def test_there_may_be_no_best_model(comparison: Comparison):
    report = comparison.report
    comparison = Comparison(comparison.folder, replace(report, verdict=replace(report.verdict, best=None)))
    with pytest.raises(SeqwiseError, match="no family was trained successfully"):
        _ = comparison.best


def test_an_interrupted_comparison_raises_keyboard_interrupt(requested_engines, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(api, "run_stages", lambda *args, **options: False)
    with pytest.raises(KeyboardInterrupt):
        seqwise.compare(resume=finished_comparison(tmp_path / "out"))


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ([], {}, UsageError, "name either the data or a comparison to resume"),
        (["a.txt"], {"resume": "out"}, UsageError, "name either the data or a comparison to resume"),
        ([], {"resume": "nowhere"}, RunError, "nowhere is not a comparison"),
        (["a.txt"], {"network": {"widht": 3}}, UsageError, "widht"),
        (["a.txt"], {"modles": "rnn"}, UsageError, "modles"),
        (["a.txt"], {"models": "rnn,lsmt"}, UsageError, "lsmt"),
        ([], {"resume": "out", "models": "rnn"}, UsageError, "is resumed as it was planned"),
        ([], {"resume": "out", "seeds": 5}, UsageError, "is resumed as it was planned"),
        ([], {"resume": "out", "text": {"lowercase": True}}, UsageError, "is resumed as it was planned"),
    ],
    ids=str,
)
def test_invalid_arguments_raise_an_error(tmp_path: Path, monkeypatch, args, options, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        seqwise.compare(*args, **options)
    assert not list(tmp_path.iterdir())


def test_engines_are_created_by_name(tmp_path: Path):
    plan = make_plan(tmp_path / "out", write_text(tmp_path / "small.txt"))
    assert len(create_engine("local", tmp_path / "out", plan).workers) == 1  # type: ignore[attr-defined]
    two = create_engine("local", tmp_path / "out", plan, 2)
    assert isinstance(two, LocalEngine)
    assert len(two.workers) == 2
    assert all(int(variables["OMP_NUM_THREADS"]) >= 1 for variables in two.variables)
    with pytest.raises(UsageError, match="--workers: expected at least 1; received 0"):
        create_engine("local", tmp_path / "out", plan, 0)
    with pytest.raises(UsageError, match="there is no engine 'lokal'") as excinfo:
        create_engine("lokal", tmp_path / "out", plan)
    assert "local" in excinfo.value.fix


@pytest.mark.parametrize(
    "lines",
    [
        "import seqwise.compare.plan.plan",
        "import seqwise; seqwise.compare; import seqwise.compare.plan.plan as plan; from seqwise import compare",
    ],
)
def test_seqwise_compare_can_be_called_in_any_import_order(lines: str, tmp_path: Path):
    code = f"{lines}; seqwise.compare(resume='nowhere')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert process.stderr.rstrip().splitlines()[-2].endswith("nowhere is not a comparison: it has no compare.yaml.")
