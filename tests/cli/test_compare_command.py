"""`seqwise compare` as a user sees it: table and verdict, one JSON document, exit statuses, errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import small_comparison as small

from seqwise.cli.compare import Compare, make_options
from seqwise.cli.comparison_display import TrialsDisplay, describe_rates
from seqwise.cli.options import parse
from seqwise.compare import api
from seqwise.compare.plan.budgets import TrialBudgets
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.formatting import format_rate
from seqwise.compare.run.jobs import Job, Outcome
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.config import FAMILIES

SETTINGS = [
    *("--text.tokenizer", "characters", "--data.window", "16", "--network.width", "12", "--network.depth", "1"),
    *("--training.batch-size", "4", "--device", "cpu", "--task", "language"),
]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return small.write_text(tmp_path / "small.txt")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list:
    """Comparisons are executed in this process; the list holds their engines."""
    created: list = []

    def engine(name: str, folder: Path, plan: Plan, workers: int | None = None):
        created.append(small.InProcessEngine(folder))
        return created[-1]

    monkeypatch.setattr(api, "create_engine", engine)
    return created


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small.finished_comparison(tmp_path / "done")


def test_a_comparison_ends_in_a_table_a_verdict_and_a_report(seqwise_command, engines, text, tmp_path):
    out = tmp_path / "with a blank"
    options = ["--models", "rnn,ngram", "--budget", "6k-tokens", "--seeds", "1", "--lr-trials", "2", "--examples", "2"]
    result = seqwise_command("compare", text, *SETTINGS, *options, "--out", out)
    assert result.status == 0, result.err
    lines = result.out.strip().splitlines()
    for column in (
        "family",
        "perplexity",
        "95 % interval",
        "parameters",
        "tokens/s",
        "training",
        "memory",
        "one prediction",
    ):
        assert column in lines[0]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1:3]]
    assert {row[1] if row[0] in ("best", "≈", "?") else row[0] for row in rows} == {"rnn", "ngram"}
    assert "perplexity on the test split, one seed: the interval is over test examples; lower is better" in lines[4]
    report = json.loads((out / "report.json").read_text())
    assert "(unigram)" in lines[3]
    assert lines[7:] == report["verdict"]["sentences"]
    for words in (
        "parameters: rnn ",
        "each of 2 families: 1 × 6,000 tokens: at least 2 learning rates of 750 tokens each, then 1",
        "chosen learning rates:", "  rnn  0.",
        "measuring the speed of all families", "learning-rate search: 2 trials; about 0:", "1/2  rnn/lr-1",
        "2/2  rnn/lr-2      rate 0.", "rnn/seed-0", "750 tokens", "4,500 tokens",
        "evaluating on the test split, once: 2 models",
        "report.html (open it in a browser)", f"seqwise evaluate '{out}",
    ):  # fmt: skip
        assert words in result.err, result.err
    assert report["command"].startswith(f"seqwise compare {text} --text.tokenizer characters")
    assert "--out" not in report["command"]  # that folder exists now
    assert len(report["examples"]) <= 2


def test_the_test_split_is_evaluated_unless_no_test_is_typed():
    for words, expected in (([], True), (["--no-test"], False)):
        arguments = parse(Compare, ["book.txt", *words], prog="seqwise compare", example="", default=Compare())
        assert make_options(arguments).test is expected


def test_json_is_one_document_and_nothing_else(seqwise_command, engines, folder):
    result = seqwise_command("compare", "--resume", folder, "--json")
    assert result.status == 0
    assert json.loads(result.out) == json.loads((folder / "report.json").read_text())


def test_resuming_a_finished_comparison_only_writes_the_report_again(seqwise_command, folder, tmp_path):
    plan = Plan.open(folder)
    for trial in plan.list_trials():  # failed ones would be repeated
        if trial.family == "too-fast":
            Job("train", trial.name).get_file(folder).unlink()
    Outcome("done").save(folder / "trials" / "unrelated.json")
    smaller_plan = Plan.open(folder)
    smaller_plan.families.pop("too-fast")
    smaller_plan.save(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/**/*") if path.is_file()}
    (folder / "report.html").unlink()
    (folder / "report.json").write_text("{")
    result = seqwise_command("compare", "--resume", folder)
    assert result.status == 0, result.err
    assert {path: path.stat().st_mtime_ns for path in folder.glob("trials/**/*") if path.is_file()} == before
    assert (folder / "report.html").stat().st_size > 10_000
    assert json.loads((folder / "report.json").read_text())["verdict"]["best"]
    assert "training:" not in result.err


def test_failed_trials_are_reported_and_repeated(seqwise_command, engines, folder):
    result = seqwise_command("compare", "--resume", folder)
    assert result.status == 0
    assert "warning: too-fast/lr-1 failed: " in result.err
    assert "warning: too-fast: none of its 2 learning rates worked: " in result.err
    last = next(line for line in result.out.splitlines() if "too-fast" in line)
    assert last.startswith("failed  too-fast")
    assert {job.name.partition("/")[0] for job in engines[0].jobs} == {"too-fast", "all"}  # all are timed again


def test_a_comparison_without_its_data_is_not_resumed(seqwise_command, engines, text, tmp_path):
    options = ["--models", "rnn", "--budget", "6k-tokens", "--seeds", "1", "--lr-trials", "1"]
    first = seqwise_command("compare", text, *SETTINGS, *options, "--out", tmp_path / "out")
    assert first.status == 0
    Job("test", "rnn/seed-0").get_file(tmp_path / "out").unlink()
    content = text.read_text()
    for change in (lambda: text.write_text(content * 2), text.unlink):
        change()
        result = seqwise_command("compare", "--resume", tmp_path / "out")
        assert result.status == 2
        assert "has changed since this comparison was created" in result.err or "no such file" in result.err
        assert len(engines) == 1
    text.write_text(content)
    assert seqwise_command("compare", "--resume", tmp_path / "out").status == 0


def test_a_waiting_engine_is_explained(folder, capsys):
    display = TrialsDisplay(folder, Plan.open(folder))
    display.start_stage("training", [])
    display.handle_event({"event": "waiting", "reason": "the cluster is busy."})
    assert "warning: the cluster is busy." in capsys.readouterr().err


def test_what_is_certainly_wrong_in_a_training_run_is_shown_once_with_its_name(folder, capsys):
    display = TrialsDisplay(folder, Plan.open(folder))
    event = {"event": "progress", "kind": "train", "name": "gru/seed-0", "progress": 0.5}
    event["notes"] = ["training diverges"]
    for _ in range(3):
        display.handle_event(event)
    display.handle_event({**event, "name": "gru/seed-1"})
    lines = [line for line in capsys.readouterr().err.splitlines() if "diverges" in line]
    assert lines == ["gru/seed-0: training diverges", "gru/seed-1: training diverges"]


def test_the_chosen_learning_rates_are_listed(folder, capsys):
    plan = Plan.open(folder)
    lowest = min(plan.list_rates("gru"))
    plan = replace(plan, added_rates={"gru": (lowest / 2.5, lowest / 6.25)})
    plan.save(folder)
    lines = describe_rates(folder, plan)
    assert lines[0] == "chosen learning rates:"
    (gru,) = [line for line in lines if "gru" in line]
    rate, _ = choose_rate(folder, plan, "gru")
    assert gru.split()[:2] == ["gru", format_rate(rate)]
    assert "of 4 tried" in gru
    assert gru.endswith("; the search was extended by 2")
    assert not [line for line in lines if "ngram" in line or "too-fast" in line]
    display = TrialsDisplay(folder, plan)
    display.start_stage("training", [])
    assert "\n".join(lines) in capsys.readouterr().err
    display.start_stage("learning rates", [Job("train", "gru/lr-3")])
    assert "learning-rate search, extended because the best rate was the lowest or the highest: 1 trial;" in (
        capsys.readouterr().err
    )


def test_the_exit_status_is_one_if_every_trial_failed(seqwise_command, engines, text, tmp_path):
    variants = tmp_path / "variants.yaml"
    variants.write_text("too-fast: {model: rnn, training: {learning_rate: 1e9}}\n")
    result = seqwise_command(
        "compare", text, *SETTINGS, "--models", "none", "--variants", variants, "--budget", "2k-tokens", "--seeds", "1",
        "--lr-trials", "1", "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.status == 1
    assert "Traceback" not in result.err
    assert "too-fast" in result.out
    assert (tmp_path / "out" / "report.html").exists()


def test_an_interrupted_comparison_explains_how_to_resume(seqwise_command, folder, monkeypatch):
    monkeypatch.setattr(api, "run_stages", lambda *args: False)
    result = seqwise_command("compare", "--resume", folder, "--json")
    assert result.status == 130
    assert result.out == ""
    assert result.err.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: seqwise compare --resume {folder}"


def test_a_second_signal_explains_how_to_resume(seqwise_command, folder, monkeypatch):
    """`timeout` and `make` each pass SIGTERM on, so the command receives two."""

    def stop_at_once(*arguments: object) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the second signal does not interrupt")

    monkeypatch.setattr(api, "run_stages", stop_at_once)
    result = seqwise_command("compare", "--resume", folder)
    assert result.status == 130
    assert result.err.rstrip().splitlines()[-1] == f"interrupted. Resume with: seqwise compare --resume {folder}"


def test_only_a_comparison_with_jobs_left_warns_of_a_busy_machine(seqwise_command, engines, folder, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    monkeypatch.setattr(TrialBudgets, "is_timed", True)
    warning = "warning: this machine is busy: a load of 99.0"
    assert warning in seqwise_command("compare", "--resume", folder).err  # a variant failed, and is repeated
    plan = Plan.open(folder)
    plan.families.pop("too-fast")
    plan.save(folder)
    assert warning not in seqwise_command("compare", "--resume", folder).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name either DATA or --resume FOLDER."),
        (["DATA", "--resume", "somewhere"], "name either DATA or --resume FOLDER."),
        (["DATA", "--model", "gru"], "a comparison has several models; received --model."),
        (["DATA", "--model=gru"], "a comparison has several models; received --model."),
        (["DATA", "--models", "gru,lsmt"], "there is no family 'lsmt'. Perhaps you meant 'lstm'."),
        (["DATA", "--budget", "60k"], "the budget '60k' is not understood. Perhaps you meant 60k-tokens."),
        (["DATA", "--parameters", "many"], "--parameters: expected a number of parameters; received 'many'."),
        (["DATA", "--budget", "soon"], "the budget 'soon' is not understood."),
        (["DATA", "--match", "size"], "--match"),
        (["DATA", "--match", "time", "--budget", "5k-tokens"], "--match time needs a budget in time"),
        (["DATA", "--engine", "cloud"], "--engine"),
        (["DATA", "--init", "run"], "a comparison starts every family from scratch; received --init."),
        (["DATA", "--seeds", "0"], "--seeds: expected at least 1; received 0."),
        (["DATA", "--workers", "0", "--models", "rnn"], "--workers: expected at least 1; received 0."),
        (["DATA", "--variants", "missing.yaml"], "missing.yaml: the variants file does not exist."),
        (["missing.txt"], "missing.txt: there is no such file or folder."),
        (["--resume", "missing"], "missing is not a comparison: it has no compare.yaml."),
        (["--resume", "DONE", "--seeds", "3"], "a comparison is resumed as it was planned; received --seeds."),
        (["--resume", "DONE", "--budget", "1h"], "a comparison is resumed as it was planned; received --budget."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_explained_with_status_two(seqwise_command, text, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "DONE").mkdir()
    words = [str(text) if word == "DATA" else word for word in words]
    result = seqwise_command("compare", *words, *(["--out", "new"] if "--resume" not in words and words else []))
    assert result.status == 2
    assert message in result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "runs").exists()


def test_the_old_name_of_the_learning_rate_search_is_accepted_with_a_note(capsys):
    assert parse(Compare, ["a.txt", "--tries", "2"], prog="", example="").lr_trials == 2
    assert "--tries is now called --lr-trials" in capsys.readouterr().err


def test_help_has_an_example(seqwise_command):
    result = seqwise_command("compare", "--help-all")
    assert result.status == 0
    assert (
        "seqwise compare reviews.csv --models gru,lstm,transformer --budget 2m --seeds 3 --out compared" in result.out
    )
    for option in ("--models", "--variants", "--match", "--parameters", "--seeds", "--lr-trials", "--out", "--resume"):
        assert option in result.out
    for option in ("--engine", "--workers", "--nproc", "--examples", "--budget", "--json"):
        assert option in result.out


def test_help_begins_with_the_options_of_compare_and_omits_unsupported_ones(seqwise_command):
    page = seqwise_command("compare", "--help-all").out
    listed = re.findall(r"^[│ ] (--[a-z][\w.-]*)", page, flags=re.MULTILINE)
    own = [
        f"--{each.name.replace('_', '-')}"
        for each in dataclasses.fields(Compare)
        if each.name not in ("data", "settings")
    ]
    assert listed[: len(own)] == own
    assert "--budget" in own
    assert listed[len(own)] == "--task"
    assert not {"--model", "--init"} & set(listed)
    assert len(set(listed)) == len(listed)
    assert "--text.tokenizer" in listed
    for family in FAMILIES:
        assert family in " ".join(page.split("--variants")[0].split())


def test_a_size_may_be_abbreviated(seqwise_command, text, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "run_stages", lambda *args: False)  # the plan is saved before
    settings = [word for word in SETTINGS if word not in ("--network.width", "12")]
    options = ["--models", "rnn", "--budget", "6k-tokens", "--seeds", "1", "--lr-trials", "1", "--parameters", "2.5k"]
    result = seqwise_command("compare", text, *settings, *options, "--out", tmp_path / "out")
    assert result.status == 130, result.err
    assert Plan.open(tmp_path / "out").target_parameters == 2500


def test_a_settings_file_applies_to_all_families(seqwise_command, text, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "run_stages", lambda *args: False)  # the plan is saved before
    settings = tmp_path / "settings.yaml"
    settings.write_text("network: {width: 9}\nbudget: 3k-tokens\n")
    result = seqwise_command(
        "compare", text, *[word for word in SETTINGS if word not in ("--network.width", "12")], "--config", settings,
        "--models", "rnn", "--lr-trials", "1", "--seeds", "1", "--out", tmp_path / "out",
    )  # fmt: skip
    assert result.status == 130, result.err
    plan = Plan.open(tmp_path / "out")
    assert plan.families["rnn"].network.width == 9
    assert plan.budgets.total == "3000-tokens"


def test_predict_evaluate_and_embed_use_the_best_model_of_a_comparison(seqwise_command, engines, text, tmp_path):
    options = ["--models", "rnn,gru", "--budget", "6k-tokens", "--seeds", "1", "--lr-trials", "1", "--examples", "0"]
    assert seqwise_command("compare", text, *SETTINGS, *options, "--out", tmp_path / "done").status == 0
    report = json.loads((tmp_path / "done" / "report.json").read_text())
    best = report["verdict"]["best"]
    run = tmp_path / "done" / "trials" / best / "seed-0"
    note = f"{tmp_path / 'done'} is a comparison; its best model is used: {best}, {run}\n"
    commands = [
        ("predict", "the", "--max-length", "9", "--seed", "1"),
        ("evaluate", text),
        ("embed", "the old", "--out", tmp_path / "v.npy"),
    ]
    for command, *words in commands:
        from_comparison = seqwise_command(command, tmp_path / "done", *words)
        from_run = seqwise_command(command, run, *words)
        assert from_comparison.status == from_run.status == 0
        assert from_comparison.err == note + from_run.err
        assert from_comparison.out == from_run.out


def test_an_unfinished_comparison_has_no_best_model(seqwise_command, text, tmp_path):
    small.make_plan(tmp_path / "new", text)
    result = seqwise_command("predict", tmp_path / "new", "the")
    assert result.status == 2
    assert "has no report yet" in result.err
    assert f"seqwise compare --resume {tmp_path / 'new'}" in result.err
