"""The plan: how a budget is divided, which trials there are and with which settings, and the file that says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from seqwise.budget import Budget
from seqwise.compare.plan.plan import NEVER, PLAN, Plan, Spending, Trial, names_of, requested, seeds_of, withdraw
from seqwise.config import Settings
from seqwise.errors import RunError, UsageError
from seqwise.resolved_settings import ResolvedSettings


def make(budget: str = "12k-tokens", tries: int = 3, seeds: int = 3, models: str = "rnn gru ngram") -> Plan:
    spending = Spending.of(budget, tries, tuple(range(seeds)), 5_000)
    families = {
        name: ResolvedSettings(task="language", model=name, training={"learning_rate": 0.006})
        for name in models.split()
    }
    return Plan(
        data="some text.txt", task="language", fingerprint="abc", split="the end is held out", about=("1", "2: 3"),
        command="seqwise compare", seqwise="0.1.0", spending=spending, match="parameters", target=4_000,
        parameters=dict.fromkeys(families, 4_000), notes=("a note",), metric="perplexity", unit="tokens", nproc=1,
        examples=12, families=families,
    )  # fmt: skip


# Spending


@pytest.mark.parametrize(
    ("budget", "tries", "seeds", "a_try", "training"),
    [
        ("12k-tokens", 3, 3, "3000-tokens", "9000-tokens"),  # a quarter for the tries, of all seeds together
        ("12k-tokens", 1, 3, "0-tokens", "12000-tokens"),  # no search: all for the trainings
        ("12k-tokens", 3, 1, "1000-tokens", "9000-tokens"),
        ("12k-tokens", 2, 5, "4000-tokens", "10400-tokens"),  # a try has at most a third of the budget of a seed
        ("1001-tokens", 3, 1, "83-tokens", "750-tokens"),  # whole tokens, rounded down
        ("2m", 3, 3, "30s", "90s"),
        ("10s", 3, 1, "0.83s", "7.5s"),
        ("90s", 1, 1, "0s", "90s"),
        ("2-epochs", 2, 2, "2500-tokens", "7500-tokens"),  # an epoch is 5,000 tokens here
        ("0.5-epochs", 1, 1, "0-tokens", "2500-tokens"),
    ],
)
def test_how_a_budget_is_divided(budget, tries, seeds, a_try, training):
    spending = Spending.of(budget, tries, tuple(range(seeds)), 5_000)
    assert (spending.a_try, spending.training) == (a_try, training)
    assert (spending.tries, spending.seeds) == (tries, tuple(range(seeds)))


@given(
    st.one_of(
        st.integers(1, 10**10).map(lambda number: f"{number}-tokens"),
        st.integers(1, 10**6).map(lambda number: f"{number / 100:.2f}s"),
        st.integers(1, 1000).map(lambda number: f"{number / 10}-epochs"),
    ),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_the_parts_never_exceed_the_whole_and_hardly_anything_is_lost(budget, tries, seeds):
    asked = Budget.parse(budget)
    amount = asked.amount * 12_345 if asked.unit == "epochs" else asked.amount
    least = 0.01 if asked.unit == "seconds" else 1.0
    assume(abs(amount * min(0.25 * seeds / tries, 1 / 3) - least) > 1e-6)  # rounding decides there
    if tries > 1 and amount * min(0.25 * seeds / tries, 1 / 3) < least:
        with pytest.raises(UsageError, match="too small to be divided"):
            Spending.of(budget, tries, tuple(range(seeds)), 12_345)
        return
    spending = Spending.of(budget, tries, tuple(range(seeds)), 12_345)
    whole, training = Budget.parse(spending.budget), Budget.parse(spending.training)
    assert whole.unit == training.unit != "epochs"
    searched = tries * Budget.parse(spending.a_try).amount if tries > 1 else 0.0
    smallest = 1.0 if whole.unit == "tokens" else 0.01
    spent = searched + seeds * training.amount
    assert spent <= seeds * whole.amount + 1e-4
    assert spent > seeds * whole.amount - smallest * (tries + seeds) - 1e-4
    if whole.unit == "tokens":
        assert training.amount == int(training.amount)
        assert spent <= seeds * whole.amount


@pytest.mark.parametrize(("budget", "tries"), [("3-tokens", 3), ("0.02s", 5), ("0.001s", 1), ("0.0001-epochs", 1)])
def test_a_budget_that_leaves_nothing_is_refused(budget, tries):
    with pytest.raises(UsageError, match="is too small to be divided") as caught:
        Spending.of(budget, tries, (0,), 5_000)
    assert "larger --budget" in caught.value.repair


def test_all_of_the_budget_is_asked_for():
    settings = Settings(budget="1h")
    asked = requested(settings, Spending.of("12k-tokens", 3, (0, 1, 2), 1))
    assert asked.budget == "9000-tokens"
    assert asked.training.patience == NEVER
    assert settings.budget == "1h"
    assert settings.training.patience is None


# Trials


def test_tries_go_round_by_round_and_trainings_seed_by_seed():
    plan = make(tries=2, seeds=2)
    assert [trial.name for trial in plan.tries()] == ["rnn/try-1", "gru/try-1", "rnn/try-2", "gru/try-2"]
    assert [trial.name for trial in plan.trainings()] == [
        *("rnn/seed-0", "gru/seed-0", "ngram/seed-0", "rnn/seed-1", "gru/seed-1")
    ]
    assert plan.trials() == [*plan.tries(), *plan.trainings()]
    assert plan.trial("gru/try-2") == Trial("gru", "try", 2, 0)
    assert plan.trial("gru/seed-1") == Trial("gru", "train", 1, 1)


def test_a_trial_that_is_not_in_the_plan_is_named():
    with pytest.raises(RunError, match="the plan has no trial 'lstm/seed-0'"):
        make().trial("lstm/seed-0")


def test_an_ngram_model_has_one_training_and_no_tries():
    plan = make(models="ngram", seeds=3)
    assert plan.tries() == []
    assert [trial.name for trial in plan.trainings()] == ["ngram/seed-0"]
    assert plan.counted("ngram")


def test_without_a_search_there_are_no_tries():
    assert make(tries=1).tries() == []


def test_seeds_need_not_begin_at_nought():
    spending = Spending.of("9k-tokens", 2, seeds_of(2, 40), 1)
    plan = replace(make(), spending=spending)
    assert {trial.seed for trial in plan.tries()} == {40}
    assert [trial.name for trial in plan.trainings()][-1] == "gru/seed-41"
    with pytest.raises(UsageError, match="--seeds: expected at least 1; received 0"):
        seeds_of(0, 0)


@pytest.mark.parametrize(
    ("tries", "rates"),
    [
        (1, [0.006]),
        (2, [0.006, 0.0024]),
        (3, [0.006, 0.0024, 0.015]),
        (5, [0.006, 0.0024, 0.015, 0.00096, 0.0375]),
    ],
)
def test_the_rates_are_the_rules_own_and_its_neighbours(tries, rates):
    assert make(tries=tries).rates("rnn") == rates


def test_the_settings_of_a_try_and_of_a_training():
    plan = make()
    a_try = plan.settings_of(Trial("gru", "try", 3, 0), None)
    assert (a_try.seed, a_try.budget, a_try.training.learning_rate) == (0, "3000-tokens", 0.015)
    assert a_try.training.validate_every == NEVER  # once, at its end
    training = plan.settings_of(Trial("gru", "train", 2, 2), 0.0024)
    assert (training.seed, training.budget, training.training.learning_rate) == (2, "9000-tokens", 0.0024)
    assert training.training.validate_every == 0
    assert training.model == "gru"
    counted = plan.settings_of(Trial("ngram", "train", 0, 0), 0.0024)
    assert counted.training.learning_rate == 0.006  # not its business
    assert plan.families["gru"].seed == 0  # the plan itself stays what it is
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
def test_names(text, names):
    assert names_of(text) == names


# The file


def test_the_plan_comes_back_from_its_file(tmp_path: Path):
    plan = make()
    plan.save(tmp_path)
    assert Plan.open(tmp_path) == plan
    assert Plan.open(str(tmp_path)).spending.seeds == (0, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == [PLAN]
    assert list(Plan.open(tmp_path).families) == ["rnn", "gru", "ngram"]


def test_a_plan_without_what_was_added_later_can_be_read(tmp_path: Path):
    found = Plan.open(changed(tmp_path, strict=None, home=None))
    assert (found.strict, found.home) == (True, "")


def test_a_comparison_that_has_learned_something_is_never_removed(tmp_path: Path):
    for kept in ("trials/rnn/seed-0/checkpoints/step-3/state.json", "trials/ngram/seed-0/model.safetensors"):
        path = tmp_path / kept[7:10] / kept
        path.parent.mkdir(parents=True)
        path.touch()
        make().save(tmp_path / kept[7:10])
        withdraw(tmp_path / kept[7:10])
        assert Plan.open(tmp_path / kept[7:10])
        assert path.exists()
    (tmp_path / "new" / "trials" / "rnn" / "seed-0" / "checkpoints").mkdir(parents=True)
    make().save(tmp_path / "new")
    withdraw(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_plan_is_no_comparison(tmp_path: Path):
    with pytest.raises(RunError, match=r"is not a comparison: it has no compare\.yaml"):
        Plan.open(tmp_path)


def changed(folder: Path, **values: object) -> Path:
    """A plan with some values replaced, or removed where they are None."""
    make().save(folder)
    found = yaml.safe_load((folder / PLAN).read_text())
    kept = {key: value for key, value in (found | values).items() if value is not None}
    (folder / PLAN).write_text(yaml.safe_dump(kept))
    return folder


def test_a_newer_plan_is_not_guessed_at(tmp_path: Path):
    with pytest.raises(
        RunError, match=r"written by Seqwise 9\.0 in format 2; this version reads formats up to 1"
    ) as caught:
        Plan.open(changed(tmp_path, format=2, seqwise="9.0", something="new"))
    assert "pip install --upgrade" in caught.value.repair


@pytest.mark.parametrize(
    "values",
    [
        {"spending": None},
        {"families": None},
        {"data": None},
        {"format": "one"},
        {"spending": {"seeds": [0]}},
        {"unheard": "of"},
        {"families": ["rnn"]},
    ],
    ids=str,
)
def test_a_damaged_plan_is_named(tmp_path: Path, values):
    with pytest.raises(RunError, match="not the plan of a comparison") as caught:
        Plan.open(changed(tmp_path, **values))
    assert caught.value.file == tmp_path / PLAN
    assert caught.value.repair


@pytest.mark.parametrize("content", [b"", b"[1, 2", b"\xff\xfe\x00", b"just words"])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, content: bytes):
    (tmp_path / PLAN).write_bytes(content)
    with pytest.raises(RunError, match="not the plan of a comparison"):
        Plan.open(tmp_path)


def test_wrong_settings_in_the_file_are_named(tmp_path: Path):
    with pytest.raises(UsageError, match="network"):
        Plan.open(changed(tmp_path, families={"rnn": {"network": {"width": "wide"}}}))
