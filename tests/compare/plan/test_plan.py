"""The plan: how a budget is divided, the trials and their settings, and the file of the plan."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from seqwise.budget import Budget
from seqwise.compare.plan.budgets import TrialBudgets
from seqwise.compare.plan.folder import PLAN_FILE, remove_untrained_comparison
from seqwise.compare.plan.plan import NEVER, Plan, Trial, parse_names, prepare_settings
from seqwise.config import Settings
from seqwise.errors import RunError, UsageError
from seqwise.resolved_settings import ResolvedSettings


def make_plan(budget: str = "12k-tokens", lr_trials: int = 3, seeds: int = 3, models: str = "rnn gru ngram") -> Plan:
    budgets = TrialBudgets.divide(budget, lr_trials, tuple(range(seeds)), 5_000)
    families = {
        name: ResolvedSettings(task="language", model=name, training={"learning_rate": 0.006})
        for name in models.split()
    }
    return Plan(
        data="some text.txt", task="language", fingerprint="abc", split_rule="the end is held out", about=("1", "2: 3"),
        command="seqwise compare", seqwise="0.1.0", budgets=budgets, match="parameters", target_parameters=4_000,
        parameters=dict.fromkeys(families, 4_000), notes=("a note",), metric="perplexity", unit="tokens", nproc=1,
        num_examples=12, families=families,
    )  # fmt: skip


# Budgets


@pytest.mark.parametrize(
    ("budget", "lr_trials", "seeds", "lr_trial", "training"),
    [
        ("12k-tokens", 3, 3, "3000-tokens", "9000-tokens"),  # a quarter for the learning rates, of all seeds together
        ("12k-tokens", 1, 3, "0-tokens", "12000-tokens"),  # no search: all for the training runs
        ("12k-tokens", 3, 1, "1000-tokens", "9000-tokens"),
        (
            "12k-tokens",
            2,
            5,
            "4000-tokens",
            "10400-tokens",
        ),  # a learning-rate trial has at most a third of the budget of a seed
        ("1001-tokens", 3, 1, "83-tokens", "750-tokens"),  # whole tokens, rounded down
        ("2m", 3, 3, "30s", "90s"),
        ("10s", 3, 1, "0.83s", "7.5s"),
        ("90s", 1, 1, "0s", "90s"),
        ("2-epochs", 2, 2, "2500-tokens", "7500-tokens"),  # an epoch is 5,000 tokens here
        ("0.5-epochs", 1, 1, "0-tokens", "2500-tokens"),
    ],
)
def test_a_budget_is_divided_among_trials(budget, lr_trials, seeds, lr_trial, training):
    budgets = TrialBudgets.divide(budget, lr_trials, tuple(range(seeds)), 5_000)
    assert (budgets.lr_trial, budgets.training) == (lr_trial, training)
    assert (budgets.lr_trials, budgets.seeds) == (lr_trials, tuple(range(seeds)))


@given(
    st.one_of(
        st.integers(1, 10**10).map(lambda number: f"{number}-tokens"),
        st.integers(1, 10**6).map(lambda number: f"{number / 100:.2f}s"),
        st.integers(1, 1000).map(lambda number: f"{number / 10}-epochs"),
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_budgets_of_trials_add_up_to_the_total(budget, lr_trials, seeds):
    parsed = Budget.parse(budget)
    amount = parsed.amount * 12_345 if parsed.unit == "epochs" else parsed.amount
    smallest = amount * min(0.25 * seeds / lr_trials, 1 / 3)
    is_timed = parsed.unit == "seconds"
    assume(abs(smallest - (0.01 if is_timed else 1.0)) > 1e-6)  # rounding decides there
    if lr_trials > 1 and smallest < (0.01 if is_timed else 1.0):
        assume(is_timed)  # `check` rejects too few tokens
        with pytest.raises(UsageError, match="too small to be divided"):
            TrialBudgets.divide(budget, lr_trials, tuple(range(seeds)), 12_345)
        return
    budgets = TrialBudgets.divide(budget, lr_trials, tuple(range(seeds)), 12_345)
    total, training = Budget.parse(budgets.total), Budget.parse(budgets.training)
    assert total.unit == training.unit != "epochs"
    search_amount = lr_trials * Budget.parse(budgets.lr_trial).amount if lr_trials > 1 else 0.0
    smallest = 1.0 if total.unit == "tokens" else 0.01
    total_amount = search_amount + seeds * training.amount
    assert total_amount <= seeds * total.amount + 1e-4
    assert total_amount > seeds * total.amount - smallest * (lr_trials + seeds) - 1e-4
    if total.unit == "tokens":
        assert training.amount == int(training.amount)
        assert total_amount <= seeds * total.amount


@pytest.mark.parametrize(("budget", "lr_trials"), [("0.02s", 5), ("0.001s", 1)])
def test_a_time_that_leaves_nothing_for_a_trial_raises_an_error(budget, lr_trials):
    with pytest.raises(UsageError, match="is too small to be divided") as excinfo:
        TrialBudgets.divide(budget, lr_trials, (0,), 5_000)
    assert "larger --budget" in excinfo.value.fix


def test_prepared_settings_spend_the_whole_budget():
    settings = Settings(budget="1h")
    prepared = prepare_settings(settings, TrialBudgets.divide("12k-tokens", 3, (0, 1, 2), 1))
    assert prepared.budget == "9000-tokens"
    assert prepared.training.patience == NEVER
    assert settings.budget == "1h"
    assert settings.training.patience is None


# Trials


def test_trials_are_ordered_by_learning_rate_and_by_seed():
    plan = make_plan(lr_trials=2, seeds=2)
    assert [trial.name for trial in plan.list_lr_trials()] == ["rnn/lr-1", "gru/lr-1", "rnn/lr-2", "gru/lr-2"]
    assert [trial.name for trial in plan.list_training_trials()] == [
        *("rnn/seed-0", "gru/seed-0", "ngram/seed-0", "rnn/seed-1", "gru/seed-1")
    ]
    assert plan.list_trials() == [*plan.list_lr_trials(), *plan.list_training_trials()]
    assert plan.get_trial("gru/lr-2") == Trial("gru/lr-2", "gru", "lr", 2, 0)
    assert plan.get_trial("gru/seed-1") == Trial("gru/seed-1", "gru", "train", 1, 1)


def test_a_trial_that_is_not_in_the_plan_raises_an_error():
    with pytest.raises(RunError, match="the plan has no trial 'lstm/seed-0'"):
        make_plan().get_trial("lstm/seed-0")


def test_an_ngram_model_has_one_training_run_and_no_learning_rate_search():
    plan = make_plan(models="ngram", seeds=3)
    assert plan.list_lr_trials() == []
    assert [trial.name for trial in plan.list_training_trials()] == ["ngram/seed-0"]
    assert not plan.has_gradients("ngram")


def test_without_a_search_there_are_no_learning_rate_trials():
    assert make_plan(lr_trials=1).list_lr_trials() == []


def test_seeds_start_at_the_seed_of_the_settings():
    budgets = TrialBudgets.divide("9k-tokens", 2, (40, 41), 1)
    plan = replace(make_plan(), budgets=budgets)
    assert {trial.seed for trial in plan.list_lr_trials()} == {40}
    assert [trial.name for trial in plan.list_training_trials()][-1] == "gru/seed-41"


@pytest.mark.parametrize(
    ("lr_trials", "rates"),
    [
        (1, [0.006]),
        (2, [0.006, 0.0024]),
        (3, [0.006, 0.0024, 0.015]),
        (5, [0.006, 0.0024, 0.015, 0.00096, 0.0375]),
    ],
)
def test_the_learning_rates_are_the_default_and_its_neighbours(lr_trials, rates):
    assert make_plan(lr_trials=lr_trials).list_rates("rnn") == rates


def test_the_settings_of_a_learning_rate_trial_and_of_a_training_run():
    plan = make_plan()
    lr_trial = plan.make_settings(plan.get_trial("gru/lr-3"), None)
    assert (lr_trial.seed, lr_trial.budget, lr_trial.training.learning_rate) == (0, "3000-tokens", 0.015)
    assert lr_trial.training.validate_every == NEVER  # once, at its end
    training = plan.make_settings(plan.make_training_trial("gru", 2), 0.0024)
    assert (training.seed, training.budget, training.training.learning_rate) == (2, "9000-tokens", 0.0024)
    assert training.training.validate_every == 0
    assert training.model == "gru"
    ngram = plan.make_settings(plan.make_training_trial("ngram", 0), 0.0024)
    assert ngram.training.learning_rate == 0.006  # it has none to search
    assert plan.families["gru"].seed == 0  # the plan itself is not changed
    assert plan.families["gru"].budget == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rnn,gru", ["rnn", "gru"]),
        (" rnn, gru\n", ["rnn", "gru"]),
        ("rnn gru,", ["rnn", "gru"]),
        ("", []),
        ("none", []),
    ],
)
def test_family_names_are_parsed(text, names):
    assert parse_names(text) == names


# The file


def test_a_saved_plan_is_loaded_unchanged(tmp_path: Path):
    plan = make_plan()
    plan.save(tmp_path)
    assert Plan.open(tmp_path) == plan
    assert Plan.open(str(tmp_path)).budgets.seeds == (0, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == [PLAN_FILE]
    assert list(Plan.open(tmp_path).families) == ["rnn", "gru", "ngram"]


def test_a_plan_without_later_fields_can_be_read(tmp_path: Path):
    opened_plan = Plan.open(save_changed(tmp_path, strict=None, working_folder=None))
    assert (opened_plan.strict, opened_plan.working_folder) == (True, "")


def test_a_plan_of_format_1_can_be_read_and_keeps_the_names_of_its_trials(tmp_path: Path):
    plan = make_plan()
    plan.save(tmp_path)
    values = yaml.safe_load((tmp_path / PLAN_FILE).read_text()) | {"format": 1}
    del values["lr_prefix"]
    for new, old in (
        ("split_rule", "split"), ("budgets", "spending"), ("target_parameters", "target"),
        ("num_examples", "examples"), ("working_folder", "home"),
    ):  # fmt: skip
        values[old] = values.pop(new)
    for new, old in (("total", "budget"), ("lr_trials", "tries"), ("lr_trial", "a_try")):
        values["spending"][old] = values["spending"].pop(new)
    for family in values["families"].values():
        family["training"]["batch"] = family["training"].pop("batch_size")
    (tmp_path / PLAN_FILE).write_text(yaml.safe_dump(values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a reader of an old folder cannot rename its settings
        opened_plan = Plan.open(tmp_path)
    assert opened_plan == replace(plan, lr_prefix="try")
    assert opened_plan.get_trial("rnn/try-1").kind == "lr"
    opened_plan.save(tmp_path)
    assert Plan.open(tmp_path) == opened_plan


def test_a_comparison_with_a_trained_model_is_never_removed(tmp_path: Path):
    for name in ("trials/rnn/seed-0/checkpoints/step-3/state.json", "trials/ngram/seed-0/model.safetensors"):
        path = tmp_path / name[7:10] / name
        path.parent.mkdir(parents=True)
        path.touch()
        make_plan().save(tmp_path / name[7:10])
        remove_untrained_comparison(tmp_path / name[7:10])
        assert Plan.open(tmp_path / name[7:10])
        assert path.exists()
    (tmp_path / "new" / "trials" / "rnn" / "seed-0" / "checkpoints").mkdir(parents=True)
    make_plan().save(tmp_path / "new")
    remove_untrained_comparison(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_plan_is_no_comparison(tmp_path: Path):
    with pytest.raises(RunError, match=r"is not a comparison: it has no compare\.yaml"):
        Plan.open(tmp_path)


def save_changed(folder: Path, **values: object) -> Path:
    """Saves a plan with some values replaced, or removed where they are None; returns its folder."""
    make_plan().save(folder)
    saved = yaml.safe_load((folder / PLAN_FILE).read_text())
    changed = {key: value for key, value in (saved | values).items() if value is not None}
    (folder / PLAN_FILE).write_text(yaml.safe_dump(changed))
    return folder


def test_a_plan_of_a_newer_format_raises_an_error(tmp_path: Path):
    with pytest.raises(
        RunError, match=r"written by Seqwise 9\.0 in format 3; this version reads formats up to 2"
    ) as excinfo:
        Plan.open(save_changed(tmp_path, format=3, seqwise="9.0", something="new"))
    assert "pip install --upgrade" in excinfo.value.fix


@pytest.mark.parametrize(
    "values",
    [
        {"budgets": None},
        {"families": None},
        {"data": None},
        {"format": "one"},
        {"budgets": {"seeds": [0]}},
        {"unheard": "of"},
        {"families": ["rnn"]},
    ],
    ids=str,
)
def test_the_error_about_a_damaged_plan_names_its_file(tmp_path: Path, values):
    with pytest.raises(RunError, match="not the plan of a comparison") as excinfo:
        Plan.open(save_changed(tmp_path, **values))
    assert excinfo.value.file == tmp_path / PLAN_FILE
    assert excinfo.value.fix


@pytest.mark.parametrize("content", [b"", b"[1, 2", b"\xff\xfe\x00", b"just words"])
def test_a_plan_file_with_other_content_raises_an_error(tmp_path: Path, content: bytes):
    (tmp_path / PLAN_FILE).write_bytes(content)
    with pytest.raises(RunError, match="not the plan of a comparison"):
        Plan.open(tmp_path)


def test_invalid_settings_in_the_file_are_named(tmp_path: Path):
    with pytest.raises(UsageError, match="network"):
        Plan.open(save_changed(tmp_path, families={"rnn": {"network": {"width": "wide"}}}))
