"""Budgets as users write them."""

from __future__ import annotations

import pytest

from seqwise.budget import Budget, parse_count
from seqwise.errors import UsageError


@pytest.mark.parametrize(
    ("text", "amount", "unit", "formatted"),
    [
        ("90s", 90, "seconds", "90 s"),
        ("5m", 300, "seconds", "5 min"),
        ("1.5h", 5400, "seconds", "90 min"),
        ("500k-tokens", 500_000, "tokens", "500,000 tokens"),
        ("2M-tokens", 2_000_000, "tokens", "2,000,000 tokens"),
        ("1-token", 1, "tokens", "1 tokens"),
        ("3-epochs", 3, "epochs", "3 epochs"),
        ("0.5-epochs", 0.5, "epochs", "0.5 epochs"),
    ],
)
def test_a_budget_is_parsed_and_formatted(text, amount, unit, formatted):
    budget = Budget.parse(text)
    assert (budget.amount, budget.unit, str(budget)) == (amount, unit, formatted)


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-3s", "3-epoch-s", "0s", "0-tokens", "2M tokens"])
def test_the_error_about_an_invalid_budget_has_examples(text):
    with pytest.raises(UsageError, match="3-epochs"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("60k", "Perhaps you meant 60k-tokens."),
        ("1.5M", "Perhaps you meant 1.5M-tokens."),
        ("60", "Perhaps you meant 60s or 60-tokens."),
        ("500000", "Perhaps you meant 500000-tokens."),  # six days would be written otherwise
    ],
)
def test_a_budget_without_a_unit_gets_a_suggestion(text, suggestion):
    with pytest.raises(UsageError) as excinfo:
        Budget.parse(text)
    assert excinfo.value.problem == f"the budget {text!r} is not understood. {suggestion}"
    for word in suggestion.rstrip(".").split():
        if word[0].isdigit():
            assert Budget.parse(word).amount > 0


@pytest.mark.parametrize("text", ["soon", "0", "-5", "k", "60x"])
def test_a_budget_that_is_not_a_number_gets_no_suggestion(text):
    with pytest.raises(UsageError) as excinfo:
        Budget.parse(text)
    assert "Perhaps" not in str(excinfo.value)


def test_numbers_may_be_abbreviated():
    assert [parse_count(text) for text in ("300k", "1.5M", "2000", "2B", "0")] == [
        300_000,
        1_500_000,
        2000,
        2 * 10**9,
        0,
    ]
    assert [parse_count(text) for text in ("", "1m", "-3", "1e6", "3 k", "k", "3kk")] == [None] * 7


def test_progress_is_the_fraction_in_the_unit_of_the_budget():
    assert Budget(100, "tokens").get_progress(seconds=1e9, tokens=25, epochs=9) == 0.25
    assert Budget(2, "epochs").get_progress(seconds=0, tokens=0, epochs=3) == 1


def test_a_maximum_of_epochs_ends_training_before_the_budget_does():
    budget = Budget.parse("100s", max_epochs=4)
    assert budget.get_progress(seconds=10, tokens=0, epochs=1) == 0.25
    assert budget.get_progress(seconds=50, tokens=0, epochs=1) == 0.5
    assert budget.get_progress(seconds=10, tokens=0, epochs=5) == 1
    assert budget.explain_end(seconds=10, tokens=0, epochs=4) == "4 epochs are the maximum (training.max_epochs)"
    assert budget.explain_end(seconds=100, tokens=0, epochs=3.9) == "the budget is spent"
    assert Budget.parse("100s").explain_end(seconds=100, tokens=0, epochs=1e9) == "the budget is spent"
    both = Budget.parse("4-epochs", max_epochs=4)
    assert both.explain_end(seconds=1, tokens=0, epochs=4) == "the budget is spent"  # a larger maximum has no effect
    assert "Name a larger budget." in str(both.build_spent_error(seconds=1, tokens=0, epochs=4))
    assert Budget.parse("100s") == Budget(100, "seconds")


def test_a_run_that_has_spent_a_budget_is_told_what_to_enlarge():
    budget = Budget.parse("100s", max_epochs=4)
    assert "Name a larger budget." in str(budget.build_spent_error(seconds=120, tokens=5, epochs=3))
    problem = str(budget.build_spent_error(seconds=10, tokens=5, epochs=4))
    assert "this run has ended, because 4 epochs are the maximum" in problem
    assert "Start a new run with a larger --training.max-epochs." in problem
