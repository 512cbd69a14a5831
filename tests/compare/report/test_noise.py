"""Signs of a noisy machine in timed trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqwise.compare.plan.budgets import TrialBudgets
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.fairness import _list_edge_rates, describe_noise
from seqwise.compare.report.schema import Family, LearningRateTrial
from seqwise.compare.run.jobs import Job, Outcome, TrainingResult
from seqwise.resolved_settings import ResolvedSettings


@pytest.fixture
def plan() -> Plan:
    settings = ResolvedSettings(task="language", model="gru")
    return Plan(
        data="builtin:docs", task="language", fingerprint="", split_rule="", about=(), command="", seqwise="",
        budgets=TrialBudgets("10s", 1, (0, 1, 2), "0s", "10s"), match="parameters", target_parameters=None,
        parameters={"gru": 1, "ngram": 0}, notes=(), metric="perplexity", unit="tokens", nproc=1, num_examples=0,
        strict=True, families={"gru": settings, "ngram": settings.model_copy(update={"model": "ngram"})},
    )  # fmt: skip


def save_training(folder: Path, seed: int, tokens: int = 5000, seconds: float = 10.1, updates: int = 50) -> None:
    result = TrainingResult(0.01, tokens, seconds, updates, 1.0, 3.0)
    Outcome("done", result=result).save(Job("train", f"gru/seed-{seed}").file(folder))


def test_equal_training_runs_give_no_noise_warning(plan: Plan, tmp_path: Path):
    save_training(tmp_path, 0)
    save_training(tmp_path, 1, tokens=7400)
    assert describe_noise(tmp_path, plan) == ""


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"tokens": 7600}, "gru was trained on 5,000 tokens once and on 7,600 another time"),
        ({"updates": 2}, "made only 2 updates"),
        ({"updates": 1}, "made only 1 update."),
        ({"seconds": 13.0}, "took 13.0 s instead of 10 s"),
    ],
)
def test_unequal_training_runs_give_a_noise_warning(plan: Plan, tmp_path: Path, second: dict, words: str):
    save_training(tmp_path, 0)
    save_training(tmp_path, 1, **second)
    assert words in describe_noise(tmp_path, plan)
    assert "budget in tokens" in describe_noise(tmp_path, plan)


def test_budgets_in_tokens_and_ngram_models_are_not_affected(plan: Plan, tmp_path: Path):
    save_training(tmp_path, 0)
    save_training(tmp_path, 1, tokens=50_000)
    tokens = replace(plan, budgets=TrialBudgets("9-tokens", 1, (0, 1, 2), "0-tokens", "9-tokens"))
    assert describe_noise(tmp_path, tokens) == ""
    result = TrainingResult(None, 9, 99.0, 1, 1.0, 3.0)
    Outcome("done", result=result).save(Job("train", "ngram/seed-0").file(tmp_path))
    save_training(tmp_path, 1)
    assert describe_noise(tmp_path, plan) == ""


def test_a_learning_rate_at_the_edge_of_the_search_is_named():
    lr_trials = tuple(LearningRateTrial(rate, 3.0, "done", "") for rate in (0.01, 0.004, 0.025))
    families = tuple(
        Family(name, name, "done", "", 3.0, 2.9, 3.1, learning_rate=rate, lr_trials=lr_trials if rate else ())
        for name, rate in (("gru", 0.01), ("lstm", 0.025), ("rnn", 0.004), ("ngram", None))
    )
    (sentence,) = _list_edge_rates(families)
    assert "lstm (highest) and rnn (lowest)" in sentence
    assert _list_edge_rates(families[:1]) == []
