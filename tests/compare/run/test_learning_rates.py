"""The learning-rate search: which rate is chosen, and when the search is extended."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from small_comparison import make_plan, write_text

from seqwise.compare.plan.plan import MAX_ADDED_RATES, Plan
from seqwise.compare.run.jobs import Job, Outcome, TrainingResult
from seqwise.compare.run.learning_rates import choose_rate, extend_search


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = write_text(tmp_path / "small.txt")
    make_plan(tmp_path / "out", text, models=["rnn", "ngram"], seeds=2, lr_trials=3, budget="20k-tokens")
    return tmp_path / "out"


def save_search(
    folder: Path, plan: Plan, objectives: dict[float, float], metrics: dict[float, float] | None = None
) -> None:
    """Saves the outcomes of learning-rate trials; `metrics` are the perplexities unless set."""
    for trial in plan.list_lr_trials():
        rate = plan.get_rate(trial)
        metric = math.exp(objectives[rate]) if metrics is None else metrics[rate]
        result = TrainingResult(rate, 64, 1.0, 1, objectives[rate], metric)
        Outcome("done", result=result).save(Job("train", trial.name).get_file(folder))


def test_the_search_is_extended_while_the_best_rate_is_at_the_edge(folder: Path):
    plan = Plan.open(folder)
    default, low, high = plan.list_rates("rnn")
    save_search(folder, plan, {default: 2.0, low: 3.0, high: 1.0})
    extended = extend_search(folder, plan)
    assert extended is not None
    assert extended == Plan.open(folder)
    assert extended.list_rates("rnn")[3:] == [pytest.approx(2.5 * high, rel=0.01)]
    new = extended.list_lr_trials()[-1]
    assert (new.name, new.number) == ("rnn/lr-4", 4)
    save_search(folder, extended, {default: 2.0, low: 3.0, high: 1.0, extended.get_rate(new): 1.5})
    assert choose_rate(folder, extended, "rnn") == (high, "")
    assert extend_search(folder, extended) is None, "the best one now has a neighbour on both sides"


def test_the_search_ends_after_two_more_rates_or_when_training_has_started(folder: Path):
    plan = Plan.open(folder)
    for _ in range(MAX_ADDED_RATES):
        save_search(folder, plan, {rate: rate for rate in plan.list_rates("rnn")})  # the lowest is best
        plan = extend_search(folder, plan) or pytest.fail("not extended")
    save_search(folder, plan, {rate: rate for rate in plan.list_rates("rnn")})
    assert extend_search(folder, plan) is None
    assert len(plan.list_rates("rnn")) == 3 + MAX_ADDED_RATES
    without_added_rates = replace(plan, added_rates={})
    Outcome("failed", "out of memory").save(Job("train", "rnn/seed-0").get_file(folder))
    assert extend_search(folder, without_added_rates) is None, "its run folder may have been deleted to save space"
    Job("train", "rnn/seed-0").get_file(folder).unlink()
    assert extend_search(folder, without_added_rates) is not None
    (folder / "trials/rnn/seed-0").mkdir(parents=True)
    assert extend_search(folder, without_added_rates) is None


def test_of_equally_good_rates_the_nearest_to_the_default_is_chosen(folder: Path):
    plan = Plan.open(folder)
    default, low, high = plan.list_rates("rnn")
    save_search(folder, plan, {default: 2.0, low: 2.0, high: 2.0})
    assert choose_rate(folder, plan, "rnn") == (default, "")
    assert extend_search(folder, plan) is None
    save_search(folder, plan, {default: 2.0, low: 3.0, high: 2.0})
    assert choose_rate(folder, plan, "rnn") == (default, "")
    save_search(folder, plan, {default: 2.0, low: 1.0, high: 1.0})
    extended = extend_search(folder, plan)
    assert extended is not None, "both edges are better than the default"


def test_a_search_in_which_all_rates_are_equally_good_is_not_extended(tmp_path: Path):
    """Of two rates one is the highest, also if it is the default."""
    text = write_text(tmp_path / "small.txt")
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn"], lr_trials=2)
    default, low = plan.list_rates("rnn")
    save_search(folder, plan, {default: 2.0, low: 2.0})
    assert choose_rate(folder, plan, "rnn") == (default, "")
    assert extend_search(folder, plan) is None
    save_search(folder, plan, {default: 2.0, low: 2.1})
    assert extend_search(folder, plan) is not None


def test_rates_at_which_the_metric_is_perfect_are_equally_good(folder: Path):
    """All texts are labelled correctly at every rate; that the loss still falls with the rate does not matter."""
    plan = replace(Plan.open(folder), metric="accuracy")
    plan.save(folder)
    default, low, high = plan.list_rates("rnn")
    losses = {default: 0.02, low: 0.05, high: 0.01}
    save_search(folder, plan, losses, {default: 1.0, low: 1.0, high: 1.0})
    assert choose_rate(folder, plan, "rnn") == (default, "")
    assert extend_search(folder, plan) is None
    save_search(folder, plan, losses, {default: 0.99, low: 0.99, high: 1.0})
    assert choose_rate(folder, plan, "rnn") == (high, "")
    assert extend_search(folder, plan) is None, "no rate can be better"
    save_search(folder, plan, losses, {default: 0.5, low: 0.5, high: 0.5})
    assert choose_rate(folder, plan, "rnn") == (high, ""), "the loss decides if no metric is perfect"
    assert extend_search(folder, plan) is not None


def test_the_rate_of_a_finished_training_run_is_kept(folder: Path):
    """Another version may have chosen another one."""
    plan = Plan.open(folder)
    default, low, high = plan.list_rates("rnn")
    save_search(folder, plan, {default: 2.0, low: 2.0, high: 2.0})
    Outcome("done", result=TrainingResult(high, 64, 1.0, 1, 2.0, 2.0)).save(Job("train", "rnn/seed-1").get_file(folder))
    assert choose_rate(folder, plan, "rnn") == (high, "")
