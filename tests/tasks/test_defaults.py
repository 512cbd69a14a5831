"""The rules for what is not set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqwise.config import FAMILIES, parse_settings
from seqwise.tasks.defaults import DefaultsContext, choose_num_heads, estimate_epochs, resolve

PTB = DefaultsContext(tokens=929_589, vocabulary=10_000, cuda=False, cores=2)


@pytest.mark.parametrize("model", [family for family in FAMILIES if family != "ngram"])
@pytest.mark.parametrize("tokens", [300, 5_000, 929_589, 10**9])
@pytest.mark.parametrize("cuda", [False, True])
def test_no_gap_is_left_and_every_choice_is_named(model, tokens, cuda):
    settings, names = resolve(parse_settings({"model": model}), DefaultsContext(tokens, 100, cuda, 2))
    for path in (
        "network.width",
        "network.depth",
        "network.dropout",
        "data.window",
        "data.order",
        "training.batch_size",
    ):
        section, key = path.split(".")
        assert key in getattr(settings, section).model_fields_set
        assert path in names
    assert settings.training.learning_rate
    assert settings.budget == "10m"
    if model == "transformer":
        assert settings.network.width % settings.transformer.heads == 0


def test_what_the_user_set_is_kept():
    asked = parse_settings({"network": {"width": 100, "dropout": 0.0}, "budget": "3-epochs"})
    settings, names = resolve(asked, PTB)
    assert (settings.network.width, settings.network.dropout, settings.budget) == (100, 0.0, "3-epochs")
    assert not {"network.width", "network.dropout", "budget"} & set(names)
    assert settings.network.embedding == 100


def test_the_asked_settings_are_not_changed():
    asked = parse_settings({})
    resolve(asked, PTB)
    assert asked.network.width is None


@pytest.mark.parametrize(
    ("budget", "dropout"), [("2-epochs", 0.1), ("10-epochs", 0.2), ("30-epochs", 0.35), ("100-epochs", 0.5)]
)
def test_more_epochs_drop_more(budget, dropout):
    assert resolve(parse_settings({"budget": budget}), PTB)[0].network.dropout == dropout


def test_estimated_epochs_follow_the_budget():
    settings, _ = resolve(parse_settings({"budget": "929589-tokens"}), PTB)
    assert estimate_epochs(settings, PTB) == 1
    settings, _ = resolve(parse_settings({"budget": "10m"}), PTB)
    assert 1 < estimate_epochs(settings, PTB) < 6  # 2.9 were measured on two cores


def test_a_wider_network_takes_smaller_steps():
    narrow, _ = resolve(parse_settings({"network": {"width": 384}}), PTB)
    wide, _ = resolve(parse_settings({"network": {"width": 1536}}), PTB)
    assert wide.training.learning_rate == pytest.approx(narrow.training.learning_rate / 2)


def test_sgd_has_a_rate_of_its_own():
    assert resolve(parse_settings({"training": {"optimizer": "sgd"}}), PTB)[0].training.learning_rate == 10


@pytest.mark.parametrize(("processes", "rows"), [(1, 16), (3, 18), (16, 16), (20, 20)])
def test_the_rows_of_a_batch_can_be_divided_among_the_processes(processes, rows):
    facts = replace(PTB, processes=processes)
    assert resolve(parse_settings({}), facts)[0].training.batch_size == rows


def test_patience_is_chosen_for_as_many_validations_as_the_rule_makes():
    assert resolve(parse_settings({}), PTB)[0].training.patience == 8
    often, names = resolve(parse_settings({"training": {"validate_every": 5}}), PTB)
    assert often.training.patience == 0
    assert "training.patience" not in names


@pytest.mark.parametrize(
    ("cuda", "bfloat16", "precision"),
    [(False, False, "float32"), (True, False, "float32"), (True, True, "bfloat16")],
)
def test_bfloat16_is_for_gpus_that_compute_in_it(cuda, bfloat16, precision):
    facts = replace(PTB, cuda=cuda, bfloat16=bfloat16)
    assert resolve(parse_settings({}), facts)[0].training.precision == precision


def test_an_n_gram_model_needs_no_settings():
    assert resolve(parse_settings({"model": "ngram"}), PTB)[1] == []


@pytest.mark.parametrize("width", [8, 12, 16, 36, 64, 100, 128, 200, 256, 300, 384, 650])
@pytest.mark.parametrize("each", [16, 32, 64])
def test_heads_are_of_even_width_where_the_width_is_even(width, each):
    heads = choose_num_heads(width, each)
    assert width % heads == 0
    assert width // heads % 2 == 0
