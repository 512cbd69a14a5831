"""The report gathers the results of the trials; its numbers are those of the runs."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_comparison import finish, finished_comparison, get_data_path, make_plan, write_text

import seqwise
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report import gather as gathering
from seqwise.compare.report.disagreement import select_disagreements
from seqwise.compare.report.fairness import describe_rules
from seqwise.compare.report.gather import gather_report, load_report, write_report
from seqwise.compare.report.schema import Answer, to_json
from seqwise.compare.run.jobs import LATENCY_JOB, Job, LatencyResult, Outcome
from seqwise.compare.run.stages import reopen_plan
from seqwise.config import parse_settings
from seqwise.digests import read_object
from seqwise.errors import RunError, SeqwiseError
from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.training.run import Run

sys.path.append(str(Path(__file__).parents[2] / "contracts"))  # small data of each task
# Odd numbers of tokens, for little more than the minimum number of updates.
MIN_BUDGETS = {
    "masked": "1001-tokens",
    "classify": "1401-tokens",
    "tag": "1001-tokens",
    "translate": "701-tokens",
    "caption": "1351-tokens",
    "forecast": "2001-tokens",
}

BASELINES = {
    "classify": ["bag of words", "most frequent label"],
    "tag": ["most frequent tag of each word"],
    "forecast": ["linear model", "seasonal-naive forecast", "naive forecast"],
    "masked": ["unigram"],
    "translate": ["copy of the source", "most frequent target"],
    "caption": ["most frequent caption"],
}


def gather(folder: Path, plan: Plan) -> dict:
    """The report as plain values."""
    return json.loads(to_json(gather_report(folder, plan)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return finished_comparison(tmp_path / "out")


@pytest.fixture
def report(folder: Path) -> dict:
    return gather(folder, Plan.open(folder))


def family(report: dict, name: str) -> dict:
    return next(each for each in report["families"] if each["name"] == name)


def test_report_values_are_those_of_evaluate(folder: Path, report: dict):
    for name in ("rnn", "gru", "ngram"):
        result = family(report, name)
        each = {
            seed: seqwise.load(folder / "trials" / name / f"seed-{seed}", "cpu").evaluate(get_data_path(folder)).metrics
            for seed in ([0] if name == "ngram" else [0, 1])
        }
        assert result["values"] == [{"seed": seed, "value": metrics["perplexity"]} for seed, metrics in each.items()]
        assert result["mean"] == pytest.approx(np.mean([metrics["perplexity"] for metrics in each.values()]))
        for key in next(iter(each.values())):
            assert result["metrics"][key] == pytest.approx(np.mean([metrics[key] for metrics in each.values()]))
        validations = {
            seed: min(
                row["validation"]["loss"]
                for row in Run.open(folder / "trials" / name / f"seed-{seed}").read_metrics()
                if row["validation"]
            )
            for seed in each
        }
        assert result["run"] == f"trials/{name}/seed-{min(validations, key=lambda seed: validations[seed])}"


def test_costs_and_curves_are_those_of_the_runs(folder: Path, report: dict):
    result = family(report, "gru")
    runs = [Run.open(folder / "trials" / "gru" / f"seed-{seed}") for seed in (0, 1)]
    last = [run.read_metrics()[-1] for run in runs]
    assert result["training"]["tokens"] == 3843
    assert result["training"]["updates"] == 61
    assert result["training"]["seconds"] == pytest.approx(np.mean([row["seconds"] for row in last]))
    assert result["weights"] == (runs[0].folder / "model.safetensors").stat().st_size
    assert result["parameters"] == Plan.open(folder).parameters["gru"]
    seconds = [Job("test", f"gru/seed-{seed}").load(folder).result.seconds for seed in (0, 1)]
    assert result["evaluation_seconds"] == pytest.approx(np.median(seconds))
    for run, curve in zip(runs, result["curves"]):
        validations = [row for row in run.read_metrics() if row["validation"]]
        assert [point["tokens"] for point in curve["points"]] == [row["tokens"] for row in validations]
        assert [point["value"] for point in curve["points"]] == [row["validation"]["perplexity"] for row in validations]
        assert curve["points"][-1]["tokens"] == 3843
    assert result["settings"]["training"]["learning_rate"] == result["learning_rate"]
    objectives = {seed: Job("train", f"gru/seed-{seed}").load(folder).result.objective for seed in (0, 1)}
    assert result["settings"]["seed"] == min(
        objectives, key=objectives.get
    )  # the run that is offered is the best by validation


def test_latencies_are_those_of_the_latency_job(folder: Path):
    LATENCY_JOB.get_file(folder).unlink()
    without_latencies = gather(folder, Plan.open(folder))
    assert {(each["latency"], len(each["latencies"])) for each in without_latencies["families"]} == {(None, 0)}
    assert without_latencies["verdict"]["fastest"] in (None, without_latencies["verdict"]["best"])
    times = {"gru": [0.002, 0.001, 0.004], "rnn": [0.0005, 0.0006]}
    Outcome("done", "", LatencyResult(times)).save(LATENCY_JOB.get_file(folder))
    result = gather(folder, Plan.open(folder))
    assert (family(result, "gru")["latency"], family(result, "gru")["latencies"]) == (0.002, times["gru"])
    assert family(result, "rnn")["latency"] == pytest.approx(0.00055)
    assert family(result, "ngram")["latency"] is None
    assert family(result, "gru")["text"]["latency"] == "2.0 ms"
    assert family(result, "gru")["text"]["latency_range"] == "1.0 to 4.0 ms"


def test_the_time_that_processes_waited_for_cores_is_reported(folder: Path):
    shares = {"rnn/seed-0": 0.2, "rnn/seed-1": 0.4, "gru/seed-0": None, "gru/seed-1": None, "ngram/seed-0": None}
    for name, share in shares.items():
        job = Job("train", name)
        outcome = job.load(folder)
        assert outcome is not None
        assert outcome.result is not None
        replace(outcome, result=replace(outcome.result, waiting_share=share)).save(job.get_file(folder))
    Outcome("done", "", LatencyResult({}, 0.15)).save(LATENCY_JOB.get_file(folder))
    waiting = gather(folder, Plan.open(folder))["waiting"]
    assert (waiting["training"], waiting["latency"]) == (pytest.approx(0.3), 0.15)
    assert waiting["text"].startswith(
        "The machine was busy: waiting for processor cores took 30 % of the training time and 15 %"
    )


def test_memory_is_the_median_of_the_known_values(folder: Path):
    for seed, memory in ((0, 5_000_000), (1, None)):
        path = Job("train", f"gru/seed-{seed}").get_file(folder)
        outcome = read_object(path)
        outcome["result"]["memory"] = memory
        path.write_text(json.dumps(outcome))
        path = Job("train", f"rnn/seed-{seed}").get_file(folder)
        outcome = read_object(path)
        outcome["result"].pop("memory", None)
        path.write_text(json.dumps(outcome))
    result = gather(folder, Plan.open(folder))
    assert (family(result, "gru")["memory"], family(result, "rnn")["memory"]) == (5_000_000, None)
    assert family(result, "rnn")["text"]["memory"] == "–"


def test_every_number_of_a_family_has_a_text(report: dict):
    for each in report["families"]:
        texts = each["text"]
        assert (texts["mean"] == "–") == (each["mean"] is None)
        assert texts["metrics"].keys() == each["metrics"].keys()
        assert all(trial["rate_text"] for trial in each["lr_trials"])
    assert all(pair["text"] for pair in report["pairs"])
    assert all(answer["value_text"] for example in report["examples"] for answer in example["answers"].values())


def test_the_best_family_comes_first_and_failed_ones_last(report: dict):
    names = [each["name"] for each in report["families"]]
    means = [each["mean"] for each in report["families"]]
    assert names[-1] == "too-fast"
    assert means[:-1] == sorted(means[:-1])
    assert means[-1] is None
    assert report["families"][0]["rank"] == "best"
    assert report["verdict"]["best"] == names[0]
    failed = family(report, "too-fast")
    assert (failed["status"], failed["rank"], failed["values"], failed["run"]) == ("failed", "failed", [], None)
    assert failed["reason"].startswith("none of its 2 learning rates worked: ")
    assert [each["status"] for each in failed["lr_trials"]] == ["failed", "failed"]
    assert all(each["reason"] for each in failed["lr_trials"])
    assert family(report, "ngram")["is_baseline"]
    assert family(report, "ngram")["parameters"] is None
    assert family(report, "ngram")["learning_rate"] is None


def test_every_trial_is_in_the_report(folder: Path, report: dict):
    plan = Plan.open(folder)
    assert [each["name"] for each in report["trials"]] == [trial.name for trial in plan.list_trials()]
    tokens = {each["name"]: each["tokens"] for each in report["trials"]}
    assert tokens["gru/lr-2"] == 1281
    assert tokens["rnn/seed-1"] == 3843
    assert tokens["too-fast/seed-0"] is None
    rates = {each["name"]: each["rate"] for each in report["trials"]}
    searched = [trial.name for trial in plan.list_lr_trials() if trial.family == "rnn"]
    assert [rates[name] for name in searched] == plan.list_rates("rnn")
    assert rates["rnn/seed-1"] == family(report, "rnn")["learning_rate"] in plan.list_rates("rnn")


def test_all_pairs_of_finished_families_are_tested(report: dict):
    names = {each["name"] for each in report["families"]} - {"too-fast"}
    assert {frozenset((pair["a"], pair["b"])) for pair in report["pairs"]} == {
        frozenset((a, b)) for a in names for b in names if a != b
    }
    for pair in report["pairs"]:
        expected = family(report, pair["a"])["mean"] - family(report, pair["b"])["mean"]
        assert pair["difference"] == pytest.approx(expected, rel=0.05, abs=1e-3)


def test_the_machine_is_the_one_that_trained(folder: Path):
    path = folder / "trials" / "rnn" / "lr-1" / "env.json"
    result = json.loads(path.read_text())
    result["cpu"] |= {"name": "Abacus", "count": 7}
    path.write_text(json.dumps(result))
    assert "7 cores of Abacus" in gather(folder, Plan.open(folder))["machine"]["in_words"]


def test_a_report_from_a_cluster_describes_the_cluster(folder: Path):
    (folder / "env.json").write_text(json.dumps({"in_words": "3 nodes of 8 cores"}))
    assert gather(folder, Plan.open(folder))["machine"]["in_words"] == "3 nodes of 8 cores"


def test_a_report_is_plain_json(folder: Path, report: dict):
    saved = write_report(folder, Plan.open(folder))
    assert load_report(folder) == saved
    assert json.loads((folder / "report.json").read_text()) == json.loads(to_json(saved)) == report
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert html.lstrip().lower().startswith("<!doctype html")


def test_an_infinite_value_does_not_break_the_report(folder: Path):
    path = Job("test", "rnn/seed-0").get_file(folder)
    values = read_object(path)
    values["result"]["metrics"]["perplexity"] = math.inf
    path.write_text(json.dumps(values))
    report = gather(folder, Plan.open(folder))
    assert family(report, "rnn")["mean"] is None
    assert (family(report, "rnn")["rank"], family(report, "rnn")["status"]) == ("failed", "done")
    assert family(report, "rnn")["reason"] == "its perplexity on the test split is not a finite number with seed 0."
    assert "rnn cannot be ranked (its perplexity on" in " ".join(report["verdict"]["sentences"])
    assert report["verdict"]["best"] in ("gru", "ngram")


@pytest.mark.parametrize("what", ["input", "expected", "fewer"])
def test_scores_of_different_examples_are_an_error(folder: Path, what: str):
    scores = Job("test", "gru/seed-1").get_scores_folder(folder)
    result = ExampleScores.load(scores)
    texts = (
        [replace(result.texts[0], **{what: "something else"}), *result.texts[1:]]
        if what != "fewer"
        else result.texts[1:]
    )
    sums = result.sums if what != "fewer" else result.sums[1:]
    ExampleScores(result.metric, result.unit, sums, tuple(texts)).save(scores)
    words = "number 1 differs" if what != "fewer" else rf"gru/seed-1 on {len(result.sums) - 1}\."
    with pytest.raises(SeqwiseError, match=words):
        gather(folder, Plan.open(folder))


def test_the_minimum_noise_of_a_ratio_is_one_changed_example(tmp_path: Path):
    """Three seeds that agree do not count as without noise if the metric counts correct answers."""
    plan = replace(make_plan(tmp_path / "out", write_text(tmp_path / "small.txt")), metric="accuracy")
    scores = {
        name: {seed: make_scores(*[right] * 30) for seed in (0, 1, 2)} for name, right in (("rnn", 1), ("gru", 0))
    }
    (pair,) = gathering._compare_families(plan, scores)
    assert pair.high - pair.low > 1 / 30
    (bare,) = gathering._compare_families(replace(plan, metric="mse"), scores)
    assert bare.high == bare.low


def test_the_rules_describe_how_the_comparison_was_made_fair(report: dict):
    text = " ".join(report["rules"]["sentences"])
    for words in (
        "the same vocabulary, the same split of the data and the same evaluation",
        "Each family that has a learning rate was trained with 2 learning rates for 1,281 tokens each",
        "Then each family except ngram was trained with 2 seeds, on exactly 3,843 tokens each.",
        "ngram was fitted by counting: the whole training split was read once, whatever the budget.",
        "The model of each training run was evaluated once on the test split, after all training.",
    ):
        assert words in text
    assert report["rules"]["tested"] == report["rules"]["sentences"][-1]
    described = ("parameters_text", "tested", "sentences")
    assert {key: value for key, value in report["rules"].items() if key not in described} == {
        "budget": "5,124 tokens", "match": "parameters", "parameters": None, "seeds": [0, 1], "lr_trials": 2,
        "lr_trial_budget": "1,281 tokens", "training_budget": "3,843 tokens",
    }  # fmt: skip
    assert "no GPU" in report["machine"]["in_words"] or "core" in report["machine"]["in_words"]


def test_trials_repeated_after_a_test_are_reported(folder: Path):
    run = folder / "trials" / "gru" / "seed-1" / "metrics.jsonl"
    later = max(path.stat().st_mtime for path in folder.rglob("scores.safetensors")) + 10
    os.utime(run, (later, later))
    rules = gather(folder, Plan.open(folder))["rules"]
    assert rules["tested"].endswith("Some trials were repeated after others had been tested.")
    assert rules["tested"] in rules["sentences"]
    assert "once, after all" not in " ".join(rules["sentences"])


def test_budgets_are_formatted_in_the_unit_of_the_task(folder: Path):
    plan = replace(Plan.open(folder), unit="values", match="tokens", target_parameters=None)
    rules = gather(folder, plan)["rules"]
    assert (rules["budget"], rules["lr_trial_budget"], rules["training_budget"]) == (
        "5,124 values",
        "1,281 values",
        "3,843 values",
    )
    text = " ".join(rules["sentences"])
    assert "spends equal values." in text
    assert "token" not in text.replace("tokeniser", "")


@pytest.mark.parametrize(
    ("device_workers", "workers", "nodes", "words"),
    [
        (None, None, "a", "18 s each, validation included, one after another on the same machine."),
        (1, 4, "ab", "included, 4 at a time, each with a device of its own, on 2 machines."),
        (3, None, "a", "included, 3 at a time sharing a device on the same machine."),
        (2, 4, "a", "included, 4 at a time, up to 2 of them sharing a device, on the same machine."),
    ],
)
def test_trials_that_ran_at_the_same_time_are_reported(
    folder: Path, device_workers: int, workers: int, nodes: str, words: str
):
    plan = Plan.open(folder)
    for number, trial in enumerate(plan.list_training_trials()):
        path = Job("train", trial.name).get_file(folder)
        outcome = read_object(path)
        if outcome["result"]:
            outcome["result"] |= {
                "device_workers": device_workers,
                "workers": workers,
                "node": nodes[number % len(nodes)],
            }
            for key in ("device_workers", "workers"):
                if outcome["result"][key] is None:
                    del outcome["result"][key]
            path.write_text(json.dumps(outcome))
    for trial in plan.list_lr_trials():
        Job("train", trial.name).get_file(folder).unlink()
    timed = replace(plan, budgets=replace(plan.budgets, total="24s", lr_trial="6s", training="18s"))
    assert words in " ".join(describe_rules(folder, timed, ()).sentences)
    sentences = describe_rules(folder, plan, ()).sentences
    assert any("speeds are not those of a trial by itself" in each for each in sentences) == bool(
        device_workers or workers
    )


def test_a_report_of_an_unfinished_comparison_can_be_gathered(folder: Path):
    plan = Plan.open(folder)
    for name in ("rnn/seed-0", "rnn/seed-1", "gru/seed-1"):
        Job("test", name).get_file(folder).unlink()
    report = gather(folder, plan)
    assert family(report, "gru")["status"] == "partly"
    assert len(family(report, "gru")["values"]) == 1
    assert family(report, "gru")["low"] is None
    assert family(report, "rnn")["status"] == "failed"
    assert family(report, "rnn")["reason"] == "it is not finished."
    assert family(report, "rnn")["training"]["tokens"] == 3843
    for trial in plan.list_trials():
        for kind in ("train", "test"):
            Job(kind, trial.name).get_file(folder).unlink(missing_ok=True)
    empty = gather(folder, plan)
    assert {each["status"] for each in empty["families"]} == {"failed"}
    assert empty["verdict"]["best"] is None
    assert empty["verdict"]["sentences"]
    assert empty["pairs"] == empty["examples"] == []


def test_a_comparison_that_has_only_been_planned_can_be_gathered(tmp_path: Path):
    plan = make_plan(tmp_path / "out", write_text(tmp_path / "small.txt"))
    assert gather(tmp_path / "out", plan)["verdict"]["best"] is None


def test_some_seeds_may_fail(folder: Path):
    job = Job("train", "gru/seed-1")
    Outcome("failed", "memory ran out.").save(job.get_file(folder))
    Job("test", "gru/seed-1").get_file(folder).unlink()
    result = family(gather(folder, Plan.open(folder)), "gru")
    assert (result["status"], result["reason"]) == ("partly", "memory ran out.")
    assert [value["seed"] for value in result["values"]] == [0]
    assert result["mean"] == result["values"][0]["value"]
    assert Job("train", "gru/seed-0").load(folder) is not None


def test_missing_scores_are_an_error(folder: Path):
    (Job("test", "gru/seed-0").get_scores_folder(folder) / "scores.safetensors").unlink()
    with pytest.raises(RunError, match="the scores of examples are missing or damaged"):
        gather(folder, Plan.open(folder))


def test_a_missing_or_damaged_report_is_an_error(tmp_path: Path):
    with pytest.raises(RunError, match="has no report yet") as excinfo:
        load_report(tmp_path)
    assert f"seqwise compare --resume {tmp_path}" in excinfo.value.fix
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(RunError, match="the report is damaged"):
        load_report(tmp_path)


# Comparisons of version 0.1

OLD_RESULT_KEYS = {
    "update_seconds": "update", "update_tokens": "tokens", "validation_seconds": "validation", "objective": "goal",
    "device_workers": "beside", "workers": "at_once", "warnings": "remarks",
}  # fmt: skip
OLD_PLAN_KEYS = {
    "split_rule": "split", "budgets": "spending", "target_parameters": "target", "num_examples": "examples",
    "working_folder": "home",
}  # fmt: skip
OLD_BUDGET_KEYS = {"total": "budget", "lr_trials": "tries", "lr_trial": "a_try"}


def convert_to_old_format(folder: Path) -> None:
    """Renames files and keys as version 0.1 wrote them."""
    (folder / "preprocessor").rename(folder / "learned")
    values = yaml.safe_load((folder / "compare.yaml").read_text())
    del values["lr_prefix"]
    old = {OLD_PLAN_KEYS.get(key, key): value for key, value in values.items()} | {"format": 1}
    old["spending"] = {OLD_BUDGET_KEYS.get(key, key): value for key, value in old["spending"].items()}
    (folder / "compare.yaml").write_text(yaml.safe_dump(old, sort_keys=False))
    for path in (folder / "trials").rglob("*.json"):
        values = json.loads(path.read_text())
        if "result" in values:
            result = {OLD_RESULT_KEYS.get(key, key): value for key, value in (values["result"] or {}).items()}
            old = {"status": values["status"], "reason": values["reason"], "values": result or None}
            path.write_text(json.dumps(old))
    for path in sorted((folder / "trials").glob("*/lr-*")):
        path.rename(path.with_name(path.name.replace("lr-", "try-")))
    for path in (folder / "trials").glob("*/speed.json"):
        path.rename(path.with_name("rehearsal.json"))
    (folder / "trials" / "all.latency.json").rename(folder / "trials" / "all.pace.json")


def test_a_comparison_of_version_0_1_can_be_resumed_and_reported(folder: Path, report: dict):
    convert_to_old_format(folder)
    plan = reopen_plan(folder)
    assert finish(folder, plan).jobs, "only failed trials are repeated"
    result = gather(folder, plan)
    for old, new in zip(result["families"], report["families"]):
        same = ("name", "mean", "low", "high", "values", "learning_rate", "metrics", "curves", "rank")
        assert {key: old[key] for key in same} == {key: new[key] for key in same}
    assert result["pairs"] == report["pairs"]
    assert "rnn/try-1" in {trial["name"] for trial in result["trials"]}


def test_a_report_of_version_0_1_can_be_loaded(folder: Path, report: dict):
    renamed = {
        "tries": "lr_trials", "answer": "latency", "answers": "latencies", "baseline": "is_baseline",
    }  # fmt: skip
    old = json.loads(json.dumps(report)) | {"format": 1, "yardsticks": report["baselines"], "split": "at the end"}
    del old["baselines"], old["split_rule"]
    for each in old["families"]:
        each |= {name: each.pop(new) for name, new in renamed.items()}
        each |= {"evaluation": {"seconds": each.pop("evaluation_seconds")}, "shown": each.pop("text")}
    for pair in old["pairs"]:
        pair |= {"adjusted": pair.pop("adjusted_p"), "larger": pair.pop("larger_noise"), "outcome": "level"}
    old["rules"] |= {"tries": old["rules"].pop("lr_trials"), "try": old["rules"].pop("lr_trial_budget")}
    old["rules"] |= {"training": old["rules"].pop("training_budget"), "disturbed": ""}
    (folder / "report.json").write_text(json.dumps(old))
    loaded = load_report(folder)
    assert json.loads(to_json(loaded))["families"] == report["families"]
    assert (loaded.split_rule, loaded.pairs[0].outcome) == ("at the end", "inconclusive")
    assert [pair.adjusted_p for pair in loaded.pairs] == [pair["adjusted_p"] for pair in report["pairs"]]


# Examples on which families disagree


def test_examples_are_those_on_which_families_differ_most(folder: Path, report: dict):
    assert len(report["examples"]) == 3  # as many as requested
    scores = {
        name: np.mean([_values(folder, name, seed) for seed in seeds], axis=0)
        for name, seeds in (("rnn", (0, 1)), ("gru", (0, 1)), ("ngram", (0,)))
    }
    logs = np.log(np.stack(list(scores.values())))
    ranges = np.ptp(logs, axis=0)
    segments = np.arange(len(ranges)) * 3 // len(ranges)
    widest = sorted((ranges[segments == each].max() for each in range(3)), reverse=True)  # one of each third
    for index, example in enumerate(report["examples"]):
        assert example["answers"].keys() == {"rnn", "gru", "ngram"}
        values = [answer["value"] for answer in example["answers"].values()]
        assert np.ptp(np.log(values)) == pytest.approx(widest[index])
        assert max(values) > min(values)
        assert example["input"]


def _values(folder: Path, name: str, seed: int) -> np.ndarray:
    sums = ExampleScores.load(Job("test", f"{name}/seed-{seed}").get_scores_folder(folder)).sums
    return np.exp(sums[:, 0] / sums[:, 1])


def test_no_examples_are_selected_with_examples_zero(folder: Path):
    plan = replace(Plan.open(folder), num_examples=0)
    assert gather(folder, plan)["examples"] == []
    assert len(gather(folder, replace(plan, num_examples=1000))["examples"]) <= len(_values(folder, "rnn", 0))


def make_scores(*right: int) -> ExampleScores:
    sums = np.stack([np.array(right, dtype=float), np.ones(len(right))], axis=1)
    texts = tuple(ExampleText(f"question {index}", "yes", "yes" if each else "no") for index, each in enumerate(right))
    return ExampleScores("accuracy", "questions", sums, texts)


def test_examples_where_all_agree_are_left_out_and_even_splits_come_first(tmp_path: Path):
    plan = replace(make_plan(tmp_path / "out", write_text(tmp_path / "small.txt")), metric="accuracy", num_examples=9)
    scores = {
        "a": {0: make_scores(1, 1, 0, 1, 1)},
        "b": {0: make_scores(1, 0, 0, 1, 0)},
        "c": {0: make_scores(1, 1, 0, 0, 0)},
        "d": {0: make_scores(1, 1, 0, 1, 1), 1: make_scores(1, 1, 0, 1, 1)},
        "never tested": {},
    }
    num_disagreements, result = select_disagreements(plan, scores)
    assert num_disagreements == 3
    assert [example.input for example in result] == ["question 4", "question 1", "question 3"]
    assert result[0].answers["b"] == Answer("no", 0.0)
    assert "never tested" not in result[0].answers
    assert select_disagreements(plan, {"a": scores["a"]}) == (None, ())
    assert select_disagreements(plan, {"a": scores["a"], "d": scores["d"]}) == (0, ())
    assert select_disagreements(replace(plan, num_examples=0), scores) == (3, ())


def test_examples_of_a_long_text_come_from_different_segments(folder: Path):
    plan = replace(Plan.open(folder), metric="accuracy", num_examples=3)
    scores = {"a": {0: make_scores(*[1] * 9)}, "b": {0: make_scores(0, 0, 0, 0, 1, 1, 1, 1, 0)}}
    spread = [example.input for example in select_disagreements(plan, scores)[1]]
    assert spread == ["question 0", "question 3", "question 8"]  # one of each third
    separate = [example.input for example in select_disagreements(replace(plan, task="classify"), scores)[1]]
    assert separate == ["question 0", "question 1", "question 2"]
    _, some = select_disagreements(replace(plan, num_examples=20), scores)
    assert len(some) == 5  # segments are not shorter than an example


def test_examples_of_a_text_keep_their_line_breaks(report: dict):
    assert any("\n" in example["expected"] for example in report["examples"])


def test_curves_hold_the_mean_training_loss_between_validations(folder: Path, report: dict):
    rows = Run.open(folder / "trials/gru/seed-0").read_metrics()
    validated_rows = [number for number, row in enumerate(rows) if row.get("validation")]
    points = family(report, "gru")["curves"][0]["points"]
    assert len(points) == len(validated_rows) > 1
    expected = np.mean([row["loss"] for row in rows[validated_rows[0] + 1 : validated_rows[1] + 1]])
    assert points[1]["training_loss"] == pytest.approx(expected)


# Every task


@pytest.mark.parametrize(
    "task", [name if name == "classify" else pytest.param(name, marks=pytest.mark.slow) for name in MIN_BUDGETS]
)
def test_every_task_can_be_compared(task: str, tmp_path: Path):
    row = import_module(f"rows_{task}").ROW
    (tmp_path / "data").mkdir()
    data = row.write(tmp_path / "data")
    base = parse_settings({**row.settings, "task": task, "device": "cpu"})
    folder = tmp_path / "out"
    plan = make_plan(folder, data, base, models=["rnn", "transformer"], lr_trials=1, seeds=1, budget=MIN_BUDGETS[task])
    finish(folder, plan)
    report = gather(folder, plan)
    assert {family["status"] for family in report["families"]} == {"done"}, [f["reason"] for f in report["families"]]
    tokens = {trial["tokens"] for trial in report["trials"]}
    assert tokens == {int(MIN_BUDGETS[task].partition("-")[0])}
    assert report["metric"]["key"] == plan.metric
    assert report["metric"]["definition"]
    assert report["verdict"]["best"] in ("rnn", "transformer")
    assert [each["name"] for each in report["baselines"]] == BASELINES.get(task, [])
    assert all(len(family["curves"][0]["points"]) > 1 for family in report["families"])


def test_the_values_of_a_forecast_reach_the_report(folder: Path):
    """History and actual values come from the data, the forecast from the first seed of each family."""
    curves = {"input": [1.0, None], "expected": [2.0, 3.0]}

    def scores(forecast: list[float]) -> ExampleScores:
        text = ExampleText("sunspots before 1947", "2, 3", "…", values={**curves, "answer": forecast})
        errors = sum((a - b) ** 2 for a, b in zip(forecast, [2.0, 3.0]))
        return ExampleScores("mse", "blocks of 2 steps", np.array([[errors, 2.0]]), (text,))

    plan = replace(Plan.open(folder), task="forecast", metric="mse", num_examples=1)
    _, (example,) = select_disagreements(plan, {"a": {0: scores([2.0, 2.5])}, "b": {0: scores([0.0, 1.0])}})
    assert (example.history, example.actual) == ((1.0, None), (2.0, 3.0))
    assert {name: answer.values for name, answer in example.answers.items()} == {"a": (2.0, 2.5), "b": (0.0, 1.0)}
