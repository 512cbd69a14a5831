"""Signs of a busy machine: what is said of timed trials that did not come equally far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqwise.compare.plan.plan import Plan, Spending
from seqwise.compare.report.fairness import _edges
from seqwise.compare.report.noise import disturbance
from seqwise.compare.run.jobs import Job, Outcome
from seqwise.resolved_settings import ResolvedSettings


@pytest.fixture
def plan() -> Plan:
    settings = ResolvedSettings(task="language", model="gru")
    return Plan(
        data="builtin:docs", task="language", fingerprint="", split="", about=(), command="", seqwise="", home="",
        spending=Spending("10s", 1, (0, 1, 2), "0s", "10s"), match="parameters", target=None,
        parameters={"gru": 1, "ngram": 0}, notes=(), metric="perplexity", unit="tokens", nproc=1, examples=0,
        strict=True, families={"gru": settings, "ngram": settings.model_copy(update={"model": "ngram"})},
    )  # fmt: skip


def trained(folder: Path, seed: int, tokens: int = 5000, seconds: float = 10.1, updates: int = 50) -> None:
    values = {"tokens": tokens, "seconds": seconds, "updates": updates}
    Outcome("done", values=values).save(Job("train", f"gru/seed-{seed}").file(folder))


def test_equal_trainings_are_no_sign(plan: Plan, tmp_path: Path):
    trained(tmp_path, 0)
    trained(tmp_path, 1, tokens=7400)
    assert disturbance(tmp_path, plan) == ""


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"tokens": 7600}, "gru learned from 5,000 tokens once and from 7,600 another time"),
        ({"updates": 2}, "came no further than 2 updates"),
        ({"updates": 1}, "came no further than 1 update."),
        ({"seconds": 13.0}, "took 13.0 s instead of 10 s"),
    ],
)
def test_what_shows_a_busy_machine_is_said(plan: Plan, tmp_path: Path, second: dict, words: str):
    trained(tmp_path, 0)
    trained(tmp_path, 1, **second)
    assert words in disturbance(tmp_path, plan)
    assert "budget in tokens" in disturbance(tmp_path, plan)


def test_budgets_in_tokens_and_counted_models_cannot_be_disturbed(plan: Plan, tmp_path: Path):
    trained(tmp_path, 0)
    trained(tmp_path, 1, tokens=50_000)
    tokens = replace(plan, spending=Spending("9-tokens", 1, (0, 1, 2), "0-tokens", "9-tokens"))
    assert disturbance(tmp_path, tokens) == ""
    Outcome("done", values={"tokens": 9, "seconds": 99.0, "updates": 1}).save(
        Job("train", "ngram/seed-0").file(tmp_path)
    )
    trained(tmp_path, 1)
    assert disturbance(tmp_path, plan) == ""


def test_a_rate_at_the_edge_of_those_tried_is_named():
    tries = [{"rate": 0.01}, {"rate": 0.004}, {"rate": 0.025}]
    families = [
        {"name": "gru", "learning_rate": 0.01, "tries": tries},
        {"name": "lstm", "learning_rate": 0.025, "tries": tries},
        {"name": "rnn", "learning_rate": 0.004, "tries": tries},
        {"name": "ngram", "learning_rate": None, "tries": []},
    ]
    (sentence,) = _edges(families)
    assert "lstm (highest) and rnn (lowest)" in sentence
    assert _edges(families[:1]) == []
