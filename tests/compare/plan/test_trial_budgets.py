"""Budgets that are too small for a comparison."""

from __future__ import annotations

import pytest

from seqwise.budget import Budget
from seqwise.compare.plan.budgets import MIN_UPDATES, TrialBudgets, TrialCost, estimate_token_cost, format_budget_option
from seqwise.config import parse_settings
from seqwise.errors import UsageError
from seqwise.tasks import get_task
from seqwise.tasks.defaults import resolve
from seqwise.training.choices import build_defaults_context, choose_device


@pytest.fixture(scope="module")
def language(book):
    settings = parse_settings(
        {"task": "language", "model": "gru", "training": {"batch_size": 8}, "data": {"window": 16}}
    )
    task = get_task("language").prepare(str(book), settings)
    return task, resolve(settings, build_defaults_context(task, choose_device(settings), 1))[0]


def check(
    costs: dict[str, TrialCost], budget: str, lr_trials: int = 1, unit: str = "tokens", epoch: int | None = None
) -> None:
    TrialBudgets.divide(budget, lr_trials, (0,), epoch or 1).check(costs, unit, epoch)


def test_tokens_of_an_update_are_estimated_from_batches(language):
    task, settings = language
    cost = estimate_token_cost(task, settings)
    assert cost.update == 8 * 16
    assert cost.compute_minimum("train") == MIN_UPDATES["train"] * 8 * 16


def test_batches_of_unequal_length_are_averaged(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{'some word ' * (1 + n % 9)}\t{'ab'[n % 2]}\n" for n in range(200)), encoding="utf-8")
    settings = parse_settings({"task": "classify", "model": "gru"})
    task = get_task("classify").prepare(str(path), settings)
    settings = resolve(settings, build_defaults_context(task, choose_device(settings), 1))[0]
    mean = task.size().num_tokens / task.batches(settings).steps
    assert 0.7 * mean < estimate_token_cost(task, settings).update < 1.4 * mean


def test_a_training_run_has_a_minimum_number_of_updates():
    check({"gru": TrialCost(128)}, "2560-tokens")
    with pytest.raises(UsageError) as excinfo:
        check({"gru": TrialCost(100), "mine": TrialCost(128)}, "2559-tokens")
    assert excinfo.value.problem == "mine: a training run of 2,559 tokens is too short: 20 updates take 2,560 tokens."
    assert excinfo.value.fix == "Give a larger --budget, at least 2.6k-tokens."
    check({}, "1-tokens")


def test_the_smallest_budget_is_named_in_epochs_if_it_was_given_in_epochs():
    with pytest.raises(UsageError) as excinfo:
        check({"gru": TrialCost(128)}, "1-epochs", epoch=1000)
    assert excinfo.value.fix == "Give a larger --budget, at least 2.6-epochs."


def test_a_time_must_hold_the_updates_and_one_validation():
    cost = {"gru": TrialCost(0.1, 3.0)}
    check(cost, "5s", unit="s")
    with pytest.raises(UsageError) as excinfo:
        check(cost, "4.9s", unit="s")
    problem = "gru: a training run of 4.9 s is too short: 20 updates and one validation take 5 s."
    assert excinfo.value.problem == problem
    assert excinfo.value.fix == "Give a larger --budget, at least 6s."  # another measurement may be slower
    with pytest.raises(
        UsageError, match=r"a learning-rate trial of 0\.9 s is too short: 10 updates take 1 s"
    ) as excinfo:
        check(cost, "7.2s", lr_trials=2, unit="s")
    assert excinfo.value.fix == "Give a larger --budget, at least 10s, or fewer --lr-trials."


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (5124.0, "tokens", "5.2k-tokens"), (5200.0, "tokens", "5.2k-tokens"), (999_001.0, "tokens", "1M-tokens"),
        (23.0, "tokens", "23-tokens"), (0.0, "tokens", "1-tokens"), (1_210_000.0, "tokens", "1.3M-tokens"),
        (0.031, "epochs", "0.031-epochs"), (1e-6, "epochs", "0.01-epochs"), (2.0, "epochs", "2-epochs"),
        (12.34, "epochs", "13-epochs"),
        (0.2, "seconds", "1s"), (11.2, "seconds", "12s"), (119.5, "seconds", "120s"), (121.0, "seconds", "3m"),
        (7200.0, "seconds", "120m"), (7201.0, "seconds", "2.5h"),
    ],
)  # fmt: skip
def test_a_minimum_is_rounded_up_to_a_short_option(amount, unit, text):
    assert format_budget_option(Budget(amount, unit)) == text
    parsed = Budget.parse(text)
    assert parsed.unit == unit
    assert parsed.amount >= amount
