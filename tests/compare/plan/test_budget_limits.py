"""Budgets that are too small for a comparison."""

from __future__ import annotations

import pytest

from seqwise.budget import Budget
from seqwise.compare.plan.budget_limits import MIN_UPDATES, check_seconds, check_tokens, format_option, suggest_budget
from seqwise.config import parse_settings
from seqwise.tasks import get_task
from seqwise.tasks.defaults import resolve
from seqwise.training.training_run import build_defaults_context, choose_device


@pytest.fixture(scope="module")
def language(book):
    settings = parse_settings(
        {"task": "language", "model": "gru", "training": {"batch_size": 8}, "data": {"window": 16}}
    )
    task = get_task("language").prepare(str(book), settings)
    return task, resolve(settings, build_defaults_context(task, choose_device(settings), 1))[0]


def test_a_budget_of_less_than_an_update_is_explained(language):
    task, settings = language
    assert check_tokens(task, settings, Budget(51, "tokens"), "mine") == (
        "mine: with 51 tokens a training would make 0.4 updates; it needs at least 20, which is 2,560 tokens."
    )


def test_the_minimum_is_a_number_of_updates(language):
    task, settings = language
    minimum = MIN_UPDATES["train"] * 8 * 16
    assert check_tokens(task, settings, Budget(minimum, "tokens")) is None
    assert check_tokens(task, settings, f"{minimum}-tokens") is None
    assert check_tokens(task, settings, Budget(minimum - 1, "tokens")) is not None


def test_time_is_not_judged_without_a_measurement_and_counting_needs_no_updates(language):
    task, settings = language
    assert check_tokens(task, settings, "1s") is None
    assert check_tokens(task, settings.model_copy(update={"model": "ngram"}), "1-tokens") is None


def test_updates_of_unequal_length_are_averaged(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{'some word ' * (1 + n % 9)}\t{'ab'[n % 2]}\n" for n in range(200)), encoding="utf-8")
    settings = parse_settings({"task": "classify", "model": "gru"})
    task = get_task("classify").prepare(str(path), settings)
    settings = resolve(settings, build_defaults_context(task, choose_device(settings), 1))[0]
    each = task.size().tokens / task.batches(settings).steps
    assert check_tokens(task, settings, Budget(1.4 * MIN_UPDATES["train"] * each, "tokens")) is None
    assert check_tokens(task, settings, Budget(0.7 * MIN_UPDATES["train"] * each, "tokens")) is not None


def test_a_time_must_hold_the_updates_and_one_validation():
    assert check_seconds(0.1, 3.0, 5.0, "gru") is None
    assert check_seconds(0.1, 3.0, 4.9, "gru") == (
        "gru: 4.9 s are too short for a training: 20 updates and one validation take 5 s here "
        "(0.1 s an update, 3 s a validation)."
    )
    assert check_seconds(0.0, 1.0, 0.5, "gru") is not None
    assert check_seconds(0.1, 3.0, 0.9, "gru", "lr") == (
        "gru: 0.9 s are too short for a learning-rate trial: 10 updates take 1 s here (0.1 s an update)."
    )


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
    assert format_option(Budget(amount, unit)) == text
    parsed = Budget.parse(text)
    assert parsed.unit == unit
    assert parsed.amount >= amount


def test_the_repair_names_the_smallest_budget_and_the_learning_rate_trials():
    assert suggest_budget(Budget(5124, "tokens"), 1) == "Give a larger --budget, at least 5.2k-tokens."
    assert suggest_budget(Budget(9, "seconds"), 3) == "Give a larger --budget, at least 9s, or fewer --lr-trials."
