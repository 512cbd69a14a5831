"""Default rules of the language task, and the parts that all tasks share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seqwise.config import FAMILIES, parse_settings
from seqwise.tasks.defaults import DefaultsContext, choose_num_heads, estimate_epochs, resolve

PTB = DefaultsContext(num_tokens=929_589, vocabulary_size=10_000, cuda=False, cores=2)


@pytest.mark.parametrize("model", [family for family in FAMILIES if family != "ngram"])
@pytest.mark.parametrize("tokens", [300, 5_000, 929_589, 10**9])
@pytest.mark.parametrize("cuda", [False, True])
def test_every_setting_gets_a_default_and_is_listed(model, tokens, cuda):
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


def test_settings_of_the_user_are_kept():
    user_settings = parse_settings({"network": {"width": 100, "dropout": 0.0}, "budget": "3-epochs"})
    settings, names = resolve(user_settings, PTB)
    assert (settings.network.width, settings.network.dropout, settings.budget) == (100, 0.0, "3-epochs")
    assert not {"network.width", "network.dropout", "budget"} & set(names)
    assert settings.network.embedding == 100


def test_the_settings_passed_in_are_not_modified():
    user_settings = parse_settings({})
    resolve(user_settings, PTB)
    assert user_settings.network.width is None


@pytest.mark.parametrize(
    ("budget", "dropout"), [("2-epochs", 0.1), ("10-epochs", 0.2), ("30-epochs", 0.35), ("100-epochs", 0.5)]
)
def test_more_epochs_get_more_dropout(budget, dropout):
    assert resolve(parse_settings({"budget": budget}), PTB)[0].network.dropout == dropout


def test_little_data_limits_the_epochs_of_a_budget_in_time():
    """Four epochs of classify, unless those are less than 700 updates; a budget in another unit is kept."""
    texts = DefaultsContext(100_000, 10_000, cuda=False, cores=2, num_examples=6_400, max_length=30, num_labels=2)

    def get_max_epochs(context=texts, **values):
        settings, _ = resolve(parse_settings({"task": "classify", "model": "gru"} | values), context)
        return settings.training.max_epochs

    assert get_max_epochs() == get_max_epochs(budget="1h") == 4
    assert get_max_epochs(replace(texts, num_examples=1_600)) == 14
    assert get_max_epochs(budget="1h", training={"max_epochs": 30}) == 30
    assert get_max_epochs(budget="1h", training={"max_epochs": 0}) == 0
    assert get_max_epochs(budget="100-epochs") == get_max_epochs(budget="100M-tokens") == 0
    assert get_max_epochs(replace(texts, is_comparison=True)) == 0
    assert get_max_epochs(replace(texts, num_examples=1_000_000)) == 0


def test_estimated_epochs_follow_the_budget():
    settings, _ = resolve(parse_settings({"budget": "929589-tokens"}), PTB)
    assert estimate_epochs(settings, PTB) == 1
    for budget in ("100-epochs", "100M-tokens", "10h"):
        settings, _ = resolve(parse_settings({"budget": budget, "training": {"max_epochs": 3}}), PTB)
        assert estimate_epochs(settings, PTB) == 3
    settings, _ = resolve(parse_settings({"budget": "10m"}), PTB)
    assert 1 < estimate_epochs(settings, PTB) < 6  # measured on two cores: 2.9


def test_a_wider_network_gets_a_smaller_learning_rate():
    narrow, _ = resolve(parse_settings({"network": {"width": 384}}), PTB)
    wide, _ = resolve(parse_settings({"network": {"width": 1536}}), PTB)
    assert wide.training.learning_rate == pytest.approx(narrow.training.learning_rate / 2)


def test_sgd_has_its_own_learning_rate():
    assert resolve(parse_settings({"training": {"optimizer": "sgd"}}), PTB)[0].training.learning_rate == 10


def test_adam_has_the_learning_rate_of_adamw_and_little_weight_decay():
    adam, adamw = (resolve(parse_settings({"training": {"optimizer": name}}), PTB)[0] for name in ("adam", "adamw"))
    assert adam.training.learning_rate == adamw.training.learning_rate
    assert (adam.training.weight_decay, adamw.training.weight_decay) == (1e-6, 0.01)


def test_beta1_at_the_peak_is_beta1_unless_set_and_is_then_saved_as_null():
    settings = resolve(parse_settings({"training": {"beta1": 0.5}}), PTB)[0]
    assert settings.training.peak_beta1 == 0.5
    assert settings.model_dump()["training"]["peak_beta1"] is None
    settings = resolve(parse_settings({"training": {"beta1": 0.5, "peak_beta1": 0.25}}), PTB)[0]
    assert settings.model_dump()["training"]["peak_beta1"] == 0.25


def test_there_is_no_moving_average_besides_another_kind_of_averaging():
    few_texts = DefaultsContext(20_000, 1000, cuda=False, cores=2, num_examples=500, max_length=20)
    for values, ema in (({}, 0.995), ({"average_from": 0.5}, 0.0)):
        settings = resolve(parse_settings({"task": "classify", "model": "gru", "training": values}), few_texts)[0]
        assert settings.training.ema == ema


@pytest.mark.parametrize(("processes", "batch_size"), [(1, 16), (3, 18), (16, 16), (20, 20)])
def test_the_batch_size_is_divisible_by_the_number_of_processes(processes, batch_size):
    context = replace(PTB, processes=processes)
    assert resolve(parse_settings({}), context)[0].training.batch_size == batch_size


def test_patience_is_chosen_only_with_the_default_validation_interval():
    assert resolve(parse_settings({}), PTB)[0].training.patience == 8
    settings, names = resolve(parse_settings({"training": {"validate_every": 5}}), PTB)
    assert settings.training.patience == 0
    assert "training.patience" not in names


def test_a_limit_of_epochs_turns_early_stopping_off():
    """The schedule ends with the epochs, and its last validations are the best ones."""
    texts = DefaultsContext(100_000, 10_000, cuda=False, cores=2, num_examples=6_400, max_length=30, num_labels=2)
    for training, patience in (({}, 0), ({"max_epochs": 9}, 0), ({"max_epochs": 0}, 8), ({"patience": 5}, 5)):
        values = {"task": "classify", "model": "gru", "budget": "1h", "training": training}
        assert resolve(parse_settings(values), texts)[0].training.patience == patience


@pytest.mark.parametrize(
    ("cuda", "bfloat16", "precision"),
    [(False, False, "float32"), (True, False, "float32"), (True, True, "bfloat16")],
)
def test_bfloat16_is_used_on_gpus_that_support_it(cuda, bfloat16, precision):
    context = replace(PTB, cuda=cuda, bfloat16=bfloat16)
    assert resolve(parse_settings({}), context)[0].training.precision == precision


def test_an_ngram_model_gets_no_defaults():
    assert resolve(parse_settings({"model": "ngram"}), PTB)[1] == {}


@pytest.mark.parametrize("width", [8, 12, 16, 36, 64, 100, 128, 200, 256, 300, 384, 650])
@pytest.mark.parametrize("head_width", [16, 32, 64])
def test_heads_have_even_width(width, head_width):
    heads = choose_num_heads(width, head_width)
    assert width % heads == 0
    assert width // heads % 2 == 0
