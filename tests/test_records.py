"""`benchmarks/records.py` continues from the files that are there, tests each seed once, and stops its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from tiny_data import write_language_data

from seqwise.cli import train as train_command
from seqwise.cli.main import main
from seqwise.config import Settings, combine_settings
from seqwise.recipe_files import REQUIRED_SETTINGS, list_recipe_names, read_recipe
from seqwise.recipe_results import RecipeResults, judge, read_results
from seqwise.tasks.defaults import DefaultsContext, resolve

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SEARCHES, DEFAULTS = (sorted((BENCHMARKS / name).glob("*.yaml")) for name in ("searches", "defaults"))

RECIPE = """\
description: A small language model.
data: text
settings:
  task: language
  model: gru
  budget: 400-tokens
  device: cpu
  text: {tokenizer: characters}
  data: {window: 8}
  network: {width: 8, depth: 1}
  training: {batch_size: 2, learning_rate: 0.002}
metric: perplexity
scale: 2
unit: twice the perplexity
lower_is_better: true
selection: none
evaluations:
  static:
    published: {value: 100, source: nowhere}
    required: 1000
    goal: 90
    tolerance: 0.5
  slow:
    options: {dynamic: true, dynamic_search: true}
    published: {value: 100, source: nowhere}
    required: 1000
    goal: 90
    tolerance: 0.5
"""


@pytest.fixture(scope="module")
def records(benchmark_script):
    script = benchmark_script("records")
    script.POLL_SECONDS = 0.01
    return script


@pytest.fixture(scope="module")
def record_jobs(benchmark_script):
    return benchmark_script("record_jobs")


@pytest.fixture(scope="module")
def record_trials(benchmark_script):
    return benchmark_script("record_trials")


@pytest.fixture
def recipe_file(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "data" / "text").mkdir(parents=True)
    write_language_data(tmp_path / "data" / "text")
    monkeypatch.setenv("SEQWISE_DATA", str(tmp_path / "data"))
    path = tmp_path / "own.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def make_job(record_jobs, recipe_file, tmp_path):
    def make(seed: int = 0, overrides: dict | None = None, reads_test: bool = True):
        recipe, data = read_recipe(str(recipe_file)), tmp_path / "data" / "text"
        return record_jobs.Job(str(recipe_file), recipe, seed, tmp_path / "out", data, overrides or {}, reads_test)

    return make


def write_file(path: Path, text: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def finish_training(job) -> None:
    write_file(job.run / "config.yaml")
    write_file(job.run / "summary.json", json.dumps({"seconds": {"training": 90.0, "validation": 30.0}}))
    write_file(job.run / "env.json", json.dumps({"gpu": {"name": "H1"}, "cpu": {"name": "C"}, "seqwise": "0.2.0"}))


def test_the_next_command_follows_from_the_files(make_job, recipe_file, tmp_path):
    job = make_job()
    run, data = str(tmp_path / "out" / "own" / "seed-0"), str(tmp_path / "data" / "text")
    new = ("train", "--recipe", str(recipe_file), data, "--seed", "0", "--out", run)
    assert job.find_next().words == new
    write_file(job.run / "config.yaml")
    assert job.find_next().words == ("train", "--resume", run)
    finish_training(job)
    titles = []
    while (command := job.find_next()) is not None:
        titles.append(command.title)
        assert command.words[:5] == ("evaluate", run, data, "--split", command.title.split()[2])
        assert ("--dynamic-search" in command.words) == ("slow" in command.title)
        write_file(command.output, json.dumps({"perplexity": 30.0 + len(titles)}))
    expected = ["valid split, static", "valid split, slow", "test split, static", "test split, slow"]
    assert titles == [f"evaluating the {each}" for each in expected]
    result = job.read_result(2)
    assert (result.validation, result.test) == ({"static": 62, "slow": 64}, {"static": 66, "slow": 68})  # × scale
    assert (result.minutes, result.device, result.jobs, result.version) == (2.0, "H1", 2, "0.2.0")


def test_a_search_never_evaluates_the_test_split(records, make_job, recipe_file, tmp_path):
    job = make_job(reads_test=False)
    assert job.splits == ("valid",)
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    change = ["--set", "training.learning-rate=0.003", "--set", "text.lowercase=true"]
    for more in (["--validation-only"], change):
        (job,) = records.build_jobs(records.parse_arguments([*words, *more]))
        assert job.splits == ("valid",)
    assert job.overrides == {"training.learning_rate": 0.003, "text.lowercase": True}
    assert job.folder.name == "text.lowercase=True_training.learning_rate=0.003"
    job.prepare()
    assert job.find_next().words[-2:] == ("--config", str(job.folder / "overrides.yaml"))
    assert "learning_rate: 0.003" in (job.folder / "overrides.yaml").read_text()
    (job,) = records.build_jobs(records.parse_arguments(words))
    assert job.splits == ("valid", "test")


def write_search(recipe_file: Path, *trials: dict) -> list[str]:
    path = recipe_file.parent / "search.yaml"
    path.write_text(yaml.safe_dump({str(recipe_file): list(trials)}))
    return ["--search", str(path), "--seeds", "0,1", "--out", str(recipe_file.parent / "out")]


def test_the_trials_of_a_search_file_never_evaluate_the_test_split(records, recipe_file, tmp_path):
    words = write_search(recipe_file, {}, {"network.width": 9, "training": {"ema": 0.9}})
    jobs = records.build_jobs(records.parse_arguments(words))
    assert [(job.seed, job.overrides.get("network.width")) for job in jobs] == [(0, None), (1, None), (0, 9), (1, 9)]
    assert {job.splits for job in jobs} == {("valid",)}
    assert len({job.run for job in jobs}) == 4
    for job in jobs:
        job.prepare()
    assert (jobs[2].folder / "overrides.yaml").read_text() == "network:\n  width: 9\ntraining:\n  ema: 0.9\n"
    changed = records.build_jobs(records.parse_arguments([*words, "--set", "network.width=10"]))
    assert [job.overrides["network.width"] for job in changed] == [10] * 4


def test_trials_of_many_settings_have_folders_of_their_own_with_short_names(records, recipe_file):
    names = [f"training.{name}" for name in ("learning_rate", "weight_decay", "ema", "clip_threshold", "warmup")]
    names += [f"network.{name}_dropout" for name in ("input", "output", "embedding")]
    trials = [dict.fromkeys(names, 0.125) | {"recurrent.weight_dropout": value} for value in (0.1, 0.2)]
    jobs = records.build_jobs(records.parse_arguments(write_search(recipe_file, *trials)))
    assert len({job.folder for job in jobs}) == 2
    assert all(len(job.folder.name) < 200 for job in jobs)


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_the_settings_of_a_search_exist_and_have_an_effect(record_trials, path):
    for name, trials in record_trials.read_search(path, None).items():
        assert len(record_trials.build_trials(name, read_recipe(name), trials, {}, path)) == len(trials)


def test_equal_trials_are_run_once_and_different_ones_have_different_folders(records, recipe_file):
    trials = [{"network.width": 3}, {"network": {"width": 3}}, {"network.width": 4}, {"vectors": "a,b"},
              {"vectors": "a;b"}]  # fmt: skip
    words = [*write_search(recipe_file, *trials), "--seeds", "0"]
    jobs = records.build_jobs(records.parse_arguments(words))
    assert [job.overrides for job in jobs] == [
        {"network.width": 3}, {"network.width": 4}, {"vectors": "a,b"}, {"vectors": "a;b"},
    ]  # fmt: skip
    assert len({job.folder for job in jobs}) == 4
    jobs = records.build_jobs(records.parse_arguments([*words, "--set", "network.width=9"]))
    assert [job.overrides["network.width"] for job in jobs] == [9, 9, 9]


def test_other_spellings_of_a_trial_are_the_same_trial(records, recipe_file):
    trials = [
        {"budget": "1-epoch"}, {"budget": "1-epochs"}, {"budget": "1.0-epochs"}, {"budget": "60s"}, {"budget": "1m"},
        {"training.learning_rate": "1e-3"}, {"training.learning_rate": 0.001},
        {"network.width": 8}, {}, {"budget": "0.4k-tokens"},  # as in the recipe
    ]  # fmt: skip
    words = [*write_search(recipe_file, *trials), "--seeds", "0"]
    assert [job.overrides for job in records.build_jobs(records.parse_arguments(words))] == [
        {"budget": "1-epoch"}, {"budget": "60s"}, {"training.learning_rate": 0.001}, {"network.width": 8},
    ]  # fmt: skip


def test_a_trial_that_writes_defaults_out_is_the_recipe(record_trials):
    trials = [{}, {"training.compile": False}, {"text.lowercase": False}, {"device": "auto"}, {"text.lowercase": True}]
    different = record_trials.build_trials("sst2", read_recipe("sst2"), trials, {}, None)
    assert different == [{}, {"text.lowercase": True}]


def test_null_replaces_a_setting_of_the_recipe_by_its_default(records, recipe_file):
    recipe_file.write_text(RECIPE.replace("{tokenizer: characters}", "{tokenizer: characters, lowercase: true}"))
    nulls = {"training.learning_rate": None, "network": {"depth": None}}
    trials = [
        {**nulls, "text.lowercase": None}, {**nulls, "network.width": 4}, {"text.tokenizer": None},
        {"text": {"tokenizer": None}}, {}, {"network.dropout": None, "text.min_count": None},  # as in the recipe
    ]  # fmt: skip
    words = [*write_search(recipe_file, *trials), "--seeds", "0"]
    jobs = records.build_jobs(records.parse_arguments(words))
    defaults = {"training.learning_rate": None, "network.depth": None}
    assert [job.overrides for job in jobs] == [
        {**defaults, "text.lowercase": False}, {**defaults, "network.width": 4}, {"text.tokenizer": None}, {},
    ]  # fmt: skip
    assert jobs[1].folder.name == "network.depth=null_network.width=4_training.learning_rate=null"
    assert jobs[2].title == "own, seed 0, text.tokenizer null"
    for job in jobs:
        job.prepare()
    assert yaml.safe_load((jobs[0].folder / "overrides.yaml").read_text()) == {
        "training": {"learning_rate": None}, "network": {"depth": None}, "text": {"lowercase": False},
    }  # fmt: skip
    words = jobs[0].find_next().words
    assert words[1:3] == ("--recipe", str(recipe_file))  # not a copy: the run names the recipe that it belongs to
    assert words[-2:] == ("--config", str(jobs[0].folder / "overrides.yaml"))
    write_file(jobs[0].run / "config.yaml")
    assert jobs[0].find_next().words == ("train", "--resume", str(jobs[0].run))


def test_a_setting_that_is_null_on_the_command_line_has_its_default(records, recipe_file, tmp_path):
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    words += ["--set", "training.learning-rate=null"]
    (job,) = records.build_jobs(records.parse_arguments(words))
    assert job.overrides == {"training.learning_rate": None}


@pytest.mark.parametrize("value", ["", " "])
def test_a_value_that_is_empty_is_an_error_not_null(records, recipe_file, value, capsys):
    assert records.main(["--recipes", str(recipe_file), "--set", f"training.learning_rate={value}"]) == 2
    error = capsys.readouterr().err
    assert f"--set: expected SETTING=VALUE; received 'training.learning_rate={value}'." in error
    assert "Write null for the default of a setting: --set training.learning_rate=null" in error


def test_a_value_that_is_not_yaml_is_an_error(records, recipe_file, capsys):
    assert records.main(["--recipes", str(recipe_file), "--set", "network.width=[3"]) == 2
    assert "--set: '[3' is not valid YAML; received 'network.width=[3'." in capsys.readouterr().err


@pytest.mark.parametrize("name", list_recipe_names())
@pytest.mark.parametrize("step", [1, 2], ids=["all settings null", "every second one"])
def test_a_trial_with_nulls_trains_like_the_recipe_without_these_settings(
    record_jobs, record_trials, tmp_path, monkeypatch, name, step
):
    recipe = read_recipe(name)
    settings = record_trials.flatten(recipe.get_setting_values())
    nulls = [each for each in settings if each not in REQUIRED_SETTINGS][::step]
    assert nulls
    overrides = record_trials.parse_trial(dict.fromkeys(nulls))
    job = record_jobs.Job(name, recipe, 0, tmp_path, tmp_path, overrides)
    job.prepare()
    received = read_training_settings(job, monkeypatch)
    others = combine_settings(None, {each: value for each, value in settings.items() if each not in nulls})
    assert received == others
    assert received != recipe.settings
    context = DefaultsContext(num_tokens=10**6, vocabulary_size=10**4, cuda=True, cores=8, num_examples=10**4)
    assert resolve(received, context) == resolve(others, context)


def read_training_settings(job, monkeypatch) -> Settings:
    """Returns the settings that the training of a job receives from its command line."""
    received = []
    monkeypatch.setattr(train_command, "_train", lambda args, argv: received.append(args.settings) or 0)
    assert main(job.find_next().words) == 0
    return received[0]


def test_a_setting_that_is_null_in_a_trial_is_chosen_by_rule(records, recipe_file):
    text = RECIPE.replace("{tokenizer: characters}", "{tokenizer: characters, lowercase: true}")
    recipe_file.write_text(text.partition("  slow:")[0])
    trial = {"training.learning_rate": None, "text.lowercase": None, "network.width": 4}
    words = write_search(recipe_file, trial)
    (job, _) = records.build_jobs(records.parse_arguments(words))
    job.prepare()
    assert main(job.find_next().words) == 0
    values = yaml.safe_load((job.run / "config.yaml").read_text())
    assert values["training"]["learning_rate"] not in (None, 0.002)
    assert (values["text"]["lowercase"], values["network"]["width"], values["network"]["depth"]) == (False, 4, 1)
    assert values["run"]["recipe"] == str(recipe_file)


def test_null_is_the_default_of_every_setting_that_may_be_null():
    """So that null in a trial is the default of each setting, and never one of its other values."""

    def list_fields(model, prefix=""):
        for name, field in model.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from list_fields(field.annotation, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", field

    nullable = {
        name: field.default for name, field in list_fields(Settings) if type(None) in get_args(field.annotation)
    }
    assert len(nullable) > 20
    assert {name: default for name, default in nullable.items() if default is not None} == {}


def test_a_search_ends_with_its_trials_the_best_one_first(records, recipe_file, monkeypatch, capsys):
    train = TRAIN + "(folder / 'width').write_text(open(sys.argv[sys.argv.index('--config') + 1]).read().split()[-1])"
    evaluate = "import sys; print('{\"perplexity\": %s}' % open(sys.argv[2] + '/width').read())"
    use_programs(records, monkeypatch, train, evaluate)
    words = [*write_search(recipe_file, {"network.width": 6}, {"network.width": 5}), "--jobs", "2"]
    assert records.main(words) == 0
    title = f"{recipe_file}: twice the perplexity of the validation split, mean over seeds"
    table = capsys.readouterr().out.partition(f"\n{title}\n")[2].splitlines()
    assert [line.split() for line in table] == [
        ["10", "(2)", "network.width", "5"], ["12", "(2)", "network.width", "6"],
    ]  # fmt: skip


FAIL = """
import json, pathlib, sys
config = open(sys.argv[sys.argv.index("--config") + 1]).read()
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
for line in ("reading", "error: an earlier line", "error: no luck", "errors.txt:2: wrong", "Try again.", "And again."):
    print(line, file=sys.stderr)
folder.mkdir()
if "width: 3" in config:
    (folder / "failure.json").write_text(json.dumps({"problem": "the loss is nan", "fix": "Less.", "time": ""}))
sys.exit(1)
"""


def test_failed_trials_are_listed_with_their_reason(records, recipe_file, monkeypatch, capsys):
    use_programs(records, monkeypatch, FAIL)
    words = [*write_search(recipe_file, {"network.width": 3}, {"network.width": 4}), "--seeds", "0"]
    assert records.main(words) == 1
    out, err = capsys.readouterr()
    assert ("):\n  the loss is nan\n  Less.\n") in err
    assert ("):\n  no luck\n  errors.txt:2: wrong\n  Try again.\n  And again.\n") in err
    title = f"{recipe_file}: twice the perplexity of the validation split, mean over seeds"
    assert out.partition(f"\n{title}\n")[2].splitlines() == [
        "  failed         network.width 3, seed 0: training: the loss is nan",
        "  failed         network.width 4, seed 0: training: no luck",
    ]


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ('{"perplexity": null}', "the perplexity of the valid split is not a finite number."),  # a diverged training
        ('{"loss": 3}', "the recipe has the metric 'perplexity'; there are loss."),
    ],
)
def test_a_result_that_is_no_number_does_not_end_the_other_trials(
    records, recipe_file, monkeypatch, capsys, metrics, problem
):
    evaluate = f"import sys; print('{metrics}' if 'width=3' in sys.argv[2] else '{{\"perplexity\": 30}}')"
    use_programs(records, monkeypatch, TRAIN, evaluate)
    words = [*write_search(recipe_file, {"network.width": 3}, {"network.width": 4}), "--seeds", "0"]
    assert records.main(words) == 1
    out, err = capsys.readouterr()
    assert problem in err
    assert out.splitlines()[-2:] == [
        "         60 (1)  network.width 4",
        f"  failed         network.width 3, seed 0: result: {problem}",
    ]


def test_the_error_of_an_earlier_command_is_not_that_of_this_one(records, make_job, monkeypatch):
    job, messages = make_job(), []
    job.prepare()
    write_file(job.log, "error: of yesterday\n")
    write_file(job.run / "failure.json", json.dumps({"problem": "of yesterday", "fix": "", "time": ""}))
    use_programs(records, monkeypatch, "import sys; print('now', file=sys.stderr); sys.exit(3)")
    scheduler = records.Scheduler([job], 1, None, messages.append)
    scheduler.run(lambda job: None)
    assert [each.error for each in scheduler.failed] == ["ended with status 3 and no error message\nnow"]
    use_programs(records, monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    scheduler = records.Scheduler([job], 1, None, messages.append)
    scheduler.run(lambda job: None)
    assert [each.error for each in scheduler.failed] == ["ended by SIGKILL and no error message"]


@pytest.mark.parametrize("text", ["", "[1]", "3", "null", '"problem"', "{", '{"fix": "Less."}', "\udcff"])
def test_a_damaged_failure_file_does_not_hide_the_error_in_the_log(records, make_job, monkeypatch, text):
    job = make_job()
    job.prepare()
    program = f"""
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir()
(folder / "failure.json").write_bytes({text.encode("utf-8", "surrogateescape")!r})
sys.exit("error: no luck")
"""
    use_programs(records, monkeypatch, program)
    scheduler = records.Scheduler([job], 1, None, lambda message: None)
    scheduler.run(lambda job: None)
    assert [each.error for each in scheduler.failed] == ["no luck"]


def test_a_signal_without_a_name_is_a_number(record_jobs):
    assert record_jobs.describe_ending(-9) == "ended by SIGKILL"
    number = signal.SIGRTMIN + 1
    assert record_jobs.describe_ending(-number) == f"ended by signal {number}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a list of trials for each recipe"),
        ("sst2: {network.width: 3}", "expected a list of trials for each recipe"),
        ("sst2: [network.width]", "expected a list of trials for each recipe"),
        ("sst2: [", "not valid YAML"),
        ("conll2003: [{}]", "no trials for sst2; there are conll2003."),
        ("sst2: []", "expected a list of trials for each recipe"),
        ("sst2: [{}, {network.widht: 3}]", "sst2, trial 2: network.widht: no such setting"),
        ("sst2: [{transformer.heads: 3}]", "sst2, trial 1: --transformer.heads"),
        ("sst2: [{classify.ngrams: 1}]", "sst2, trial 1: --classify.ngram-buckets has an effect with"),
        ("sst2: [{budget: 3 epochs}]", "sst2, trial 1: the budget '3 epochs' is not understood."),
        ("sst2: [{network.widht: null}]", "sst2, trial 1: network.widht: no such setting"),
        ("sst2: [{network: null}]", "sst2, trial 1: network: input should be"),
        ("sst2: [{budget: null}]", "sst2, trial 1: budget: a recipe must have this setting, so it cannot be null."),
        ("sst2: [{classify.ngrams: null}]", "sst2, trial 1: --classify.ngram-buckets has an effect with"),
        ("sst2: [{seed: 3}]", "sst2, trial 1: seed: seeds are chosen by --seeds."),
    ],
)
def test_a_wrong_search_file_is_an_error(records, recipe_file, tmp_path, text, message, capsys):
    (tmp_path / "data" / "sst2").mkdir()
    write_file(tmp_path / "search.yaml", text)
    words = ["--recipes", "sst2", "--search", str(tmp_path / "search.yaml"), "--out", str(tmp_path / "out")]
    assert records.main(words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_runs_of_another_version_of_a_recipe_are_not_continued(make_job, recipe_file, records, tmp_path, capsys):
    make_job().prepare()
    recipe_file.write_text(RECIPE.replace("width: 8", "width: 9"))
    assert records.main(["--recipes", str(recipe_file), "--out", str(tmp_path / "out")]) == 2
    assert "has changed since the runs in" in capsys.readouterr().err


def test_missing_data_and_wrong_options_are_errors(records, recipe_file, tmp_path, monkeypatch, capsys):
    words = ["--recipes", str(recipe_file), "--out", str(tmp_path / "out")]
    assert records.main([*words, "--set", "network.width"]) == 2
    assert "expected SETTING=VALUE; received 'network.width'" in capsys.readouterr().err
    assert records.main([*words, "--set", "network.widht=3"]) == 2
    assert "network.widht: no such setting" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    recipe_file.write_text(RECIPE.replace("data: text", "data: texts"))
    assert records.main(words) == 2
    assert "texts, which the recipe" in capsys.readouterr().err
    monkeypatch.delenv("SEQWISE_DATA")
    assert records.main(words) == 2
    assert "SEQWISE_DATA is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "--jobs: expected at least 1; received 0"),
        (["--jobs", "two"], "--jobs: expected at least 1; received two"),
        (["--slots", "2"], "--slots: expected RECIPE=N; received 2"),
        (["--slots", "sst2=0"], "--slots: expected at least 1; received 0"),
        (["--seeds", "0,x"], "--seeds: expected numbers such as 0,1,2; received '0,x'"),
        (["--seeds=-1"], "--seeds: expected numbers such as 0,1,2; received '-1'"),
        (["--seeds", ","], "--seeds: expected a list separated by commas; received none"),
    ],
)
def test_wrong_counts_and_seeds_are_errors(records, words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        records.parse_arguments(words)
    assert message in capsys.readouterr().err


def test_a_seed_that_is_given_twice_is_run_once(records, recipe_file, tmp_path):
    words = ["--recipes", str(recipe_file), "--seeds", "1,1,0", "--out", str(tmp_path / "out")]
    assert [job.seed for job in records.build_jobs(records.parse_arguments(words))] == [1, 0]


def test_only_missing_results_are_measured(records, record_jobs, recipe_file, tmp_path, capsys):
    out = str(tmp_path / "out")
    words = ["--recipes", str(recipe_file), "--seeds", "0,1,2,3", "--missing", "--out", out]

    def list_missing():
        return [job.seed for job in records.build_jobs(records.parse_arguments(words))]

    assert list_missing() == [0, 1, 2, 3]
    complete = {"static": 80.0, "slow": 80.0}
    seed = {"minutes": 1.0, "device": "", "jobs": 1, "date": "", "version": ""}
    seeds = {
        0: seed | {"validation": complete, "test": complete},
        1: seed | {"validation": complete, "test": {"static": 80.0}},
        2: seed | {"validation": {}, "test": complete},
    }
    file, recipe = record_jobs.get_results_file(str(recipe_file)), read_recipe(str(recipe_file))
    results = {"recipe": "own", "digest": recipe.compute_digest(), "seeds": seeds}
    write_file(file, json.dumps(results))
    assert list_missing() == [1, 2, 3]
    words[3] = "0"
    assert list_missing() == []
    assert records.main(words) == 0
    assert "no result is missing" in capsys.readouterr().err
    assert not Path(out).exists()
    write_file(file, json.dumps(results | {"digest": "of earlier settings"}))
    assert list_missing() == [0]
    assert records.main([*words, "--set", "network.width=9"]) == 2
    assert "--missing is about results with the settings of the recipes" in capsys.readouterr().err


def test_data_is_prepared_once(records, recipe_file, tmp_path):
    prepare = 'prepare: |\n  mkdir made\n  sort "$SEQWISE_DATA/text/train.txt" > made/train.txt\n'
    recipe_file.write_text(RECIPE.replace("data: text\n", f"data: made\n{prepare}"))
    recipe = read_recipe(str(recipe_file))
    path = records.find_data("own", recipe, tmp_path / "out")
    lines = (tmp_path / "data" / "text" / "train.txt").read_text().splitlines()
    assert sorted((path / "train.txt").read_text().splitlines()) == sorted(lines)
    (path / "train.txt").write_text("kept")
    assert records.find_data("own", recipe, tmp_path / "out") == path
    assert (path / "train.txt").read_text() == "kept"


# ---- the scheduler, with programs instead of trainings


def use_programs(records, monkeypatch, *programs: str) -> list[str]:
    """Replaces the commands of a job: the first one that trains, and all others, by Python programs; returns titles."""
    started: list[str] = []

    def build(command):
        started.append(command.title)
        program = programs[0] if command.title == "training" else programs[-1]
        return [sys.executable, "-c", program, *command.words]

    monkeypatch.setattr(records, "build_command_line", build)
    return started


TRAIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir(parents=True)
(folder / "config.yaml").write_text("")
(folder / "env.json").write_text(json.dumps({"gpu": None, "cpu": {"name": "C"}, "seqwise": "0"}))
(folder / "summary.json").write_text(json.dumps({"seconds": {"training": 60.0}}))
"""
EVALUATE = "print('{\"perplexity\": 40}')"


def test_all_jobs_run_and_finished_ones_are_not_repeated(records, recipe_file, tmp_path, monkeypatch, capsys):
    started = use_programs(records, monkeypatch, TRAIN, EVALUATE)
    words = ["--recipes", str(recipe_file), "--seeds", "0,1", "--jobs", "2", "--out", str(tmp_path / "out")]
    assert records.main(words) == 0
    evaluations = [f"{split} split, {key}" for split in ("valid", "test") for key in ("static", "slow")]
    assert sorted(started) == sorted(["training", *(f"evaluating the {each}" for each in evaluations)] * 2)
    results = read_results(tmp_path / "out" / "results" / "own.json")
    assert results is not None
    assert [results.seeds[seed].test for seed in (0, 1)] == [{"static": 80, "slow": 80}] * 2
    assert (
        "own, seed 1: twice the perplexity: valid static 80, slow 80; test static 80, slow 80"
        in capsys.readouterr().out
    )
    del started[:]
    assert records.main(words) == 0
    assert started == []
    assert read_results(tmp_path / "out" / "results" / "own.json") == results


def test_runs_with_mps_have_an_equal_part_of_the_gpu(records, recipe_file, tmp_path, monkeypatch):
    log = tmp_path / "control.log"
    control = tmp_path / "bin" / "nvidia-cuda-mps-control"
    control.parent.mkdir()
    control.write_text(f'#!/bin/sh\n{{ echo "$1"; [ -n "$1" ] || cat; echo "$CUDA_MPS_PIPE_DIRECTORY"; }} >> {log}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{control.parent}{os.pathsep}{os.environ['PATH']}")
    train = TRAIN + "import os; (folder / 'environment').write_text(json.dumps({**os.environ}))"
    use_programs(records, monkeypatch, train, EVALUATE)
    words = ["--recipes", str(recipe_file), "--seeds", "0,1,2", "--jobs", "3", "--mps", "--out", str(tmp_path / "out")]
    assert records.main(words) == 0
    start, folder, nothing, quit_command, same_folder = log.read_text().splitlines()
    assert (start, nothing, quit_command, same_folder) == ("-d", "", "quit -t 5", folder)
    assert not Path(folder).exists()
    results = read_results(tmp_path / "out" / "results" / "own.json")
    assert results is not None
    assert results.describe_device() == "C, 3 runs at a time with MPS"
    for seed in range(3):
        variables = json.loads((tmp_path / "out" / "own" / f"seed-{seed}" / "environment").read_text())
        assert variables["CUDA_MPS_PIPE_DIRECTORY"] == folder
        assert variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "33"


def test_a_run_can_take_several_slots(records, make_job, monkeypatch):
    """Of four slots, a job of three is started first and leaves one; a job of two waits, the one behind it does not."""
    train = TRAIN + "import os; (folder / 'environment').write_text(json.dumps({**os.environ}))"
    use_programs(records, monkeypatch, train, EVALUATE)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(records, "count_cpus", lambda: 8)
    jobs = [replace(make_job(seed), slots=slots) for seed, slots in enumerate((1, 2, 3, 1))]
    for job in jobs:
        job.prepare()
    scheduler, started = records.Scheduler(jobs, 4, None, lambda message: None, {"PIPES": "here"}), []
    start = records.JobProcess.start

    def record_start(job, command, variables):
        started.append((job.seed, sum(each.job.slots for each in scheduler.running)))
        return start(job, command, variables)

    monkeypatch.setattr(records.JobProcess, "start", record_start)
    scheduler.run(lambda job: None)
    assert started[:2] == [(2, 0), (0, 3)]
    assert all(before + jobs[seed].slots <= 4 for seed, before in started)
    assert sorted(job.seed for job in scheduler.done) == [0, 1, 2, 3]
    for job, percentage, threads in zip(jobs, ("25", "50", "75", "25"), ("2", "4", "6", "2"), strict=True):
        variables = json.loads((job.run / "environment").read_text())
        assert (variables["PIPES"], variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) == ("here", percentage)
        assert variables["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(("mps", "jobs"), [(True, 3), (False, 5)])
def test_a_result_has_the_number_of_runs_that_shared_the_gpu(record_jobs, make_job, mps, jobs):
    """Two of five slots are more than a third of the GPU; without MPS, all runs take turns."""
    job = replace(make_job(), slots=2)
    finish_training(job)
    record_jobs.save_result(job, 5, mps)
    results = read_results(record_jobs.get_output_file(job.out, job.name))
    assert results is not None
    assert (results.seeds[0].jobs, results.seeds[0].mps) == (jobs, mps)


def test_wrong_slots_are_errors(records, recipe_file, tmp_path, capsys):
    words = ["--recipes", str(recipe_file), "--jobs", "5", "--out", str(tmp_path / "out")]
    problems = {f"{recipe_file}=6": "cannot have 6: there are as many as --jobs, 5", "sst2=2": "sst2 is not among the"}
    for value, problem in problems.items():
        assert records.main([*words, "--slots", value]) == 2
        assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_devices_of_seeds_that_ran_differently_are_summarised(make_job, record_jobs):
    job = make_job()
    finish_training(job)
    file = record_jobs.get_output_file(job.out, job.name)
    record_jobs.save_result(job, 1)
    results = read_results(file)
    assert results is not None
    alone = results.seeds[0]

    def describe(*seeds):
        return results.model_copy(update={"seeds": dict(enumerate(seeds))}).describe_device()

    two, three = (alone.model_copy(update={"jobs": jobs, "mps": jobs == 3}) for jobs in (2, 3))
    assert describe(alone) == "H1"
    assert describe(two, two) == "H1, 2 runs at a time"
    assert describe(three) == "H1, 3 runs at a time with MPS"
    assert describe(alone, three) == "H1, 1 to 3 runs at a time, some with MPS"


def test_there_are_searches_and_defaults():
    assert SEARCHES
    assert DEFAULTS


@pytest.mark.parametrize("path", DEFAULTS, ids=lambda path: path.stem)
def test_the_recipes_of_defaults_set_only_task_model_and_budget(path):
    assert read_recipe(str(path)).get_setting_values().keys() == {"task", "model", "budget"}
    assert path.stem not in list_recipe_names()  # their runs are in folders of this name


def test_mps_that_is_missing_or_does_not_start_is_an_error(records, recipe_file, tmp_path, monkeypatch, capsys):
    words = ["--recipes", str(recipe_file), "--mps", "--out", str(tmp_path / "out")]
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys.modules["gpu_sharing"], "FOLDERS", (str(tmp_path),))
    assert records.main(words) == 2
    assert "--mps needs nvidia-cuda-mps-control, which is neither on the path nor in" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
    control.chmod(0o755)
    assert records.main(words) == 2
    assert "the Multi-Process Service did not start: no device" in capsys.readouterr().err


def test_a_missed_requirement_and_a_failed_run_give_status_1(records, recipe_file, tmp_path, monkeypatch, capsys):
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    use_programs(records, monkeypatch, "import sys; sys.exit('out of luck')")
    assert records.main(words) == 1
    out, err = capsys.readouterr()
    assert "own, seed 0: training failed with status 1" in err
    assert "out of luck" in err
    assert "  failed         own, seed 0: training: ended with status 1 and no error message\n" in out
    use_programs(records, monkeypatch, TRAIN, "print('{\"perplexity\": 600}')")
    assert records.main(words) == 1
    row = capsys.readouterr().out.splitlines()[-1].split("  ")
    assert [cell.strip() for cell in row if cell][-3:] == ["1200 (1)", "1000", "1 of 3 seeds, misses required"]


def test_recipe_files_end_with_a_table_of_their_results(
    records, record_jobs, recipe_file, tmp_path, monkeypatch, capsys
):
    other = recipe_file.with_name("other.yaml")
    other.write_text(RECIPE.partition("  slow:")[0].replace("selection", "split: valid\nselection"))
    evaluate = "import sys; print('{\"perplexity\": %d}' % (40 + 20 * ('other' in sys.argv[2]) + int(sys.argv[2][-1])))"
    started = use_programs(records, monkeypatch, TRAIN, evaluate)
    words = ["--recipes", f"{recipe_file},{other}", "--seeds", "0,1,2", "--out", str(tmp_path / "out")]
    assert records.main(words) == 0
    table = [
        "recipe  evaluation  metric                        validation        test  required           verdict",
        "own     static      twice the perplexity          82 ± 2 (3)  82 ± 2 (3)      1000      goal reached",
        "own     slow        twice the perplexity  82 ± 2 (3), fitted  82 ± 2 (3)      1000      goal reached",
        "other   static      twice the perplexity         122 ± 2 (3)           –      1000  required reached",
    ]
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[-4:]] == [line.split() for line in table]
    assert "Write them into the repository" not in err
    del started[:]
    assert records.main([*words, "--missing"]) == 0  # the repository has none, but OUT has all
    assert started == []
    assert capsys.readouterr().out.splitlines()[-4:] == out.splitlines()[-4:]


def build_results(recipe, *values: float):
    """Returns results whose seeds have these values in all evaluations of the test split."""
    shared = {"validation": {}, "minutes": 1.0, "device": "", "jobs": 1, "date": "", "version": ""}
    seeds = {seed: {**shared, "test": dict.fromkeys(recipe.evaluations, value)} for seed, value in enumerate(values)}
    return RecipeResults.model_validate({"recipe": "own", "digest": recipe.compute_digest(), "seeds": seeds})


@pytest.mark.parametrize(
    ("values", "published", "expected"),
    [
        ((80, 82, 84), (), ("goal reached", True)),
        ((80, 82, 84), (81.8, 81.8, 81.8), ("goal reached", True)),
        ((80, 82, 84), (81, 81, 81), ("goal reached, not reproduced: 81 ± 0.5", False)),
        ((500, 502, 504), (501.8, 501.8, 501.8), ("required reached", True)),
        ((1500, 1500, 1500), (), ("not reached", False)),
        ((80, 82, 84), (70, 70, 70, 70), ("goal reached", True)),  # a mean of fewer seeds is not compared
        ((80, 82, 84), (70, 70), ("goal reached", True)),  # nor with a mean of too few
        ((80,), (81, 81, 81), ("1 of 3 seeds, meets required", True)),
        ((80, 85), (), ("2 of 3 seeds, meets required", True)),
        ((1500,), (), ("1 of 3 seeds, misses required", False)),
    ],
)
def test_the_verdict_is_that_of_the_page_and_whether_our_result_is_reproduced(
    benchmark_script, recipe_file, values, published, expected
):
    recipe = read_recipe(str(recipe_file))
    results = build_results(recipe, *values)
    earlier = build_results(recipe, *published) if published else None
    assert benchmark_script("record_tables").judge_result(recipe, "static", results, earlier) == expected
    assert expected[0].startswith(judge(recipe, "static", results))


def test_a_result_that_is_not_reproduced_gives_status_1(
    records, record_jobs, recipe_file, tmp_path, monkeypatch, capsys
):
    use_programs(records, monkeypatch, TRAIN, EVALUATE)
    words = ["--recipes", str(recipe_file), "--seeds", "0,1,2", "--out", str(tmp_path / "out")]
    earlier = build_results(read_recipe(str(recipe_file)), 81, 81, 81)
    write_file(record_jobs.get_results_file(str(recipe_file)), earlier.to_json())
    assert records.main(words) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("goal reached, not reproduced: 81 ± 0.5")
    write_file(record_jobs.get_results_file(str(recipe_file)), earlier.model_copy(update={"digest": ""}).to_json())
    assert records.main(words) == 0  # of another version of the recipe


def test_validation_alone_ends_with_a_table_too(records, recipe_file, tmp_path, monkeypatch, capsys):
    use_programs(records, monkeypatch, TRAIN, EVALUATE)
    words = ["--recipes", str(recipe_file), "--seeds", "0,1", "--validation-only", "--out", str(tmp_path / "out")]
    assert records.main(words) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "         80 (2)  as in the recipe"


WAIT = """
import pathlib, signal, sys, time
path = pathlib.Path(sys.argv[sys.argv.index("--out") + 1] + ".saved")
signal.signal(signal.SIGTERM, lambda *_: (path.write_text("saved"), sys.exit(130)))
pathlib.Path(f"{path}.ready").touch()
time.sleep(60)
"""


def wait_for(path: Path, seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < limit, path
        time.sleep(0.02)


def test_the_time_limit_lets_trainings_save_and_stops(records, make_job, tmp_path, monkeypatch):
    use_programs(records, monkeypatch, WAIT)
    job, messages = make_job(), []
    job.prepare()
    scheduler = records.Scheduler([job, make_job(seed=1)], 1, None, messages.append)
    saved = Path(f"{job.run}.saved")
    start = records.JobProcess.start

    def start_and_wait(*arguments):
        running = start(*arguments)
        wait_for(Path(f"{saved}.ready"))
        scheduler.deadline = time.monotonic() - 1  # the time is over as soon as the process runs
        return running

    monkeypatch.setattr(records.JobProcess, "start", start_and_wait)
    scheduler.run(lambda job: None)
    assert saved.read_text() == "saved"
    assert scheduler.is_stopped
    assert [each.seed for each in scheduler.waiting] == [1]
    assert messages[-2:] == ["the time is over.", "own, seed 0: stopped (reading); the same command continues it."]


FAIL_AT_STOP = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: there is no space left"))
pathlib.Path(sys.argv[sys.argv.index("--out") + 1] + ".saved.ready").touch()
time.sleep(60)
"""
FINISH_AT_STOP = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('{"perplexity": 40}'), sys.exit(0)))
pathlib.Path(sys.argv[2] + ".saved.ready").touch()
time.sleep(60)
"""


def stop_when_ready(records, monkeypatch, job) -> None:
    """Stops the scheduler as soon as a process of the job has written its file `.saved.ready`."""
    start = records.JobProcess.start

    def start_and_wait(*arguments):
        ready = Path(f"{job.run}.saved.ready")
        ready.unlink(missing_ok=True)
        running = start(*arguments)
        wait_for(ready)
        os.kill(os.getpid(), signal.SIGTERM)
        return running

    monkeypatch.setattr(records.JobProcess, "start", start_and_wait)


def test_a_training_that_fails_at_a_stop_has_failed(records, make_job, recipe_file, tmp_path, monkeypatch, capsys):
    use_programs(records, monkeypatch, FAIL_AT_STOP)
    stop_when_ready(records, monkeypatch, make_job())
    words = ["--recipes", str(recipe_file), "--seeds", "0,1", "--out", str(tmp_path / "out")]
    assert records.main(words) == 130
    out, err = capsys.readouterr()
    assert "own, seed 0: training failed with status 1" in err
    assert "stopped" not in err
    assert out.splitlines()[-2:] == [
        "  unfinished     own, seed 1: not started",
        "  failed         own, seed 0: training: there is no space left",
    ]
    assert records.main([*words, "--seeds", "0"]) == 1  # nothing is unfinished


def test_an_evaluation_that_is_complete_at_a_stop_is_used(
    records, make_job, recipe_file, tmp_path, monkeypatch, capsys
):
    job = make_job()
    finish_training(job)
    for _ in range(3):
        write_file(job.find_next().output, '{"perplexity": 40}')
    assert job.find_next().title == "evaluating the test split, slow"
    use_programs(records, monkeypatch, FINISH_AT_STOP)
    stop_when_ready(records, monkeypatch, job)
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    assert records.main(words) == 0
    out, err = capsys.readouterr()
    assert "own, seed 0: twice the perplexity: valid static 80, slow 80; test static 80, slow 80" in out
    assert "unfinished" not in out
    assert "stopped" not in err
    assert read_results(tmp_path / "out" / "results" / "own.json").seeds[0].test == {"static": 80, "slow": 80}


def test_an_earlier_evaluation_that_is_complete_at_a_stop_leaves_the_job_unfinished(
    records, make_job, recipe_file, tmp_path, monkeypatch, capsys
):
    job = make_job()
    finish_training(job)
    use_programs(records, monkeypatch, FINISH_AT_STOP)
    stop_when_ready(records, monkeypatch, job)
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    assert records.main(words) == 130
    assert capsys.readouterr().out.splitlines() == ["  unfinished     own, seed 0: reading"]
    assert job.read_values("valid") == {"static": 80}


def test_an_interrupt_lets_trainings_save(records, recipe_file, make_job, tmp_path, monkeypatch):
    use_programs(records, monkeypatch, WAIT)
    saved = Path(f"{make_job().run}.saved")

    def interrupt() -> None:
        wait_for(Path(f"{saved}.ready"))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    status = records.main(["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")])
    thread.join()
    assert (status, saved.read_text()) == (130, "saved")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_search_lists_what_is_finished_and_the_newest_validation_of_the_rest(
    records, recipe_file, monkeypatch, capsys
):
    use_programs(records, monkeypatch, "import time; time.sleep(60)")
    trials = [{"network.width": width} for width in (3, 4, 5)]
    words = [*write_search(recipe_file, *trials), "--seeds", "0", "--minutes", "0.0001"]
    running, finished, waiting = records.build_jobs(records.parse_arguments(words))
    write_file(running.run / "config.yaml")
    row = dict.fromkeys(("loss", "gradient_norm", "learning_rate", "seconds"), 1.0) | {"tokens": 10, "step": 20}
    row |= {"progress": 0.2, "tokens_per_second": 2000.0, "validation": {"loss": 2.0, "perplexity": 7.389}}
    write_file(running.run / "metrics.jsonl", json.dumps(row) + "\n")
    finish_training(finished)
    while (command := finished.find_next()) is not None:
        write_file(command.output, '{"perplexity": 30}')
    assert records.main(words) == 130
    title = f"{recipe_file}: twice the perplexity of the validation split, mean over seeds"
    assert capsys.readouterr().out.partition(f"\n{title}\n")[2].splitlines() == [
        "         60 (1)  network.width 4",
        "  unfinished     network.width 3, seed 0: 20%, step 20, 2,000 tokens/s; validation: loss 2, perplexity 7.389",
        "  unfinished     network.width 5, seed 0: not started",
    ]
    assert waiting.describe_state() == "not started"


def test_progress_has_the_newest_step_and_validation(make_job):
    job = make_job()
    assert job.describe_progress() == "reading"
    row = dict.fromkeys(("loss", "gradient_norm", "learning_rate", "seconds"), 1.0) | {"tokens": 10}
    rows = [
        {
            **row,
            "step": 10,
            "progress": 0.1,
            "tokens_per_second": 1000.0,
            "validation": {"loss": 2.0, "perplexity": 7.389},
        },
        {**row, "step": 20, "progress": 0.2, "tokens_per_second": 2000.0, "validation": None},
    ]
    write_file(job.run / "metrics.jsonl", "".join(json.dumps(each) + "\n" for each in rows))
    assert job.describe_progress() == "20%, step 20, 2,000 tokens/s; validation: loss 2, perplexity 7.389"


def test_results_of_unknown_recipes_are_not_published(records, tmp_path, capsys):
    assert records.main(["--publish", str(tmp_path)]) == 2
    assert "there are no results" in capsys.readouterr().err
    seed = {"validation": {}, "test": {}, "minutes": 1.0, "device": "", "jobs": 1, "date": "", "version": ""}
    for seeds, problem in (({}, "not the results of a recipe"), ({0: seed}, "of recipes in the repository")):
        results = {"recipe": "own", "digest": "", "seeds": seeds}
        write_file(tmp_path / "results" / "own.json", json.dumps(results))
        assert records.main(["--publish", str(tmp_path)]) == 2
        assert problem in capsys.readouterr().err


def test_results_are_published_beside_the_recipes(records, tmp_path, monkeypatch, capsys):
    seed = {"validation": {"test": 82.0}, "test": {"test": 83.0}, "minutes": 1.0, "device": "H1", "jobs": 1}
    results = {"recipe": "sst2", "digest": "d", "seeds": {"1": {**seed, "date": "2026-01-01", "version": "0"}}}
    file = tmp_path / "out" / "results" / "sst2.json"
    write_file(file, json.dumps(results))
    assert records.main(["--publish", str(tmp_path / "out")]) == 2
    assert "another version of sst2" in capsys.readouterr().err
    file.write_text(json.dumps(results | {"digest": read_recipe("sst2").compute_digest()}))
    write_file(file.with_name("own.json"), json.dumps(results | {"recipe": "own"}))
    commands: list[list[str]] = []
    monkeypatch.setattr(records, "get_results_file", lambda name: tmp_path / "repository" / f"{name}.json")
    monkeypatch.setattr(
        records.subprocess, "run", lambda words, **_: commands.append(words) or subprocess.CompletedProcess(words, 0)
    )
    assert records.main(["--publish", str(tmp_path / "out")]) == 0
    assert read_results(tmp_path / "repository" / "sst2.json").seeds[1].test == {"test": 83.0}  # type: ignore[union-attr]
    assert [Path(words[1]).name for words in commands] == ["generate.py"]
    assert "own is not a recipe of the repository, and is left out." in capsys.readouterr().err
    assert not (tmp_path / "repository" / "own.json").exists()


def test_the_page_has_every_recipe_and_its_results(benchmark_script, make_job, record_jobs):
    page = benchmark_script("records_page")
    text = page.build_records()
    assert all(f"\n## {name}\n" in text for name in list_recipe_names())
    job = make_job()
    finish_training(job)
    while (command := job.find_next()) is not None:
        write_file(command.output, json.dumps({"perplexity": 30.0}))
    record_jobs.save_result(job, 1)
    results = read_results(record_jobs.get_output_file(job.out, job.name))
    rows = page.build_rows("own", job.recipe, results)
    assert rows[0].startswith(
        "| [own](#own) | twice the perplexity, static | 100 | 1000 | 90 | 60 (1) | 60 (1) | 2.0 | H1 |"
    )
    assert rows[0].endswith("| 1 of 3 seeds |")
    assert rows[1].startswith("|  | twice the perplexity, slow | 100 | 1000 | 90 | 60 (1) | 60 (1), fitted |")
    section = page.build_section(job.name, job.recipe, results)
    assert "| seed | validation, static | validation, slow (fitted) | test, static | test, slow |" in section
    assert "| 0 | 60 | 60 | 60 | 60 | 2.0 |" in section


def test_a_saved_result_without_all_evaluations_is_completed(record_jobs, make_job):
    job = make_job()
    job.prepare()
    finish_training(job)
    write_file(job.find_next().output, json.dumps({"perplexity": 30.0}))
    file = record_jobs.get_output_file(job.out, job.name)
    record_jobs.save_result(job, 1)
    assert read_results(file).seeds[0].validation == {"static": 60.0}
    while (command := job.find_next()) is not None:
        write_file(command.output, json.dumps({"perplexity": 30.0}))
    record_jobs.save_result(job, 1)
    assert read_results(file).seeds[0].validation == {"static": 60.0, "slow": 60.0}
    record_jobs.save_result(job, 4)  # nothing is new: the number of jobs stays that of the training
    assert read_results(file).seeds[0].jobs == 1


@pytest.mark.slow
def test_a_recipe_is_stopped_continued_and_tested(records, recipe_file, tmp_path):
    recipe_file.write_text(RECIPE.partition("  slow:")[0])
    words = ["--recipes", str(recipe_file), "--seeds", "0", "--out", str(tmp_path / "out")]
    assert records.main([*words, "--minutes", "0.001"]) == 130
    assert records.main(words) == 0
    results = read_results(tmp_path / "out" / "results" / "own.json")
    assert results is not None
    assert results.seeds[0].validation["static"] > 2
    assert results.seeds[0].test["static"] > 2
