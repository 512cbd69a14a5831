"""Settings without an effect are found by a table of conditions."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from seqwise.applicability import USED_WITH, check_effects, find_unused, list_changed, reset_unused
from seqwise.config import FAMILIES, TASKS, Settings, parse_settings
from seqwise.errors import UsageError
from seqwise.vectors.settings import USED_WITH as VECTORS_USED_WITH
from seqwise.vectors.settings import VectorSettings


def list_settings(model: type[BaseModel], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        names.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            names += list_settings(field.annotation, f"{name}.")
    return names


@pytest.mark.parametrize(("table", "model"), [(USED_WITH, Settings), (VECTORS_USED_WITH, VectorSettings)])
def test_the_table_names_settings_that_exist(table, model):
    known = set(list_settings(model))
    assert table.keys() <= known
    assert {name for conditions in table.values() for each in conditions for name in each} <= known


def test_every_setting_has_an_effect_with_some_task_and_model():
    """No condition excludes another: otherwise a setting could never be used."""
    choices = {
        "network": {"output": "sampled"}, "recurrent": {"cell": "rnn", "bidirectional": True},
        "caption": {"encoder": "patches"}, "training": {"schedule": "one-cycle"},
        "classify": {"ngrams": 2},
    }  # fmt: skip
    pairs = [(task, model) for task in TASKS for model in FAMILIES]
    settings = [parse_settings({"task": task, "model": model, **choices}) for task, model in pairs]
    settings += [parse_settings({"task": "language", "network": {"output": "mixture"}})]
    settings += [parse_settings({"task": "caption", "model": "attentive-rnn", "recurrent": {"cell": "gru"}})]
    for name in list_settings(Settings):
        assert any(not find_unused(each, [name]) for each in settings), name


@pytest.mark.parametrize(
    ("values", "unused"),
    [
        ({"model": "gru", "transformer": {"heads": 7}}, ["transformer.heads"]),
        ({"model": "gru", "task": "caption", "transformer": {"heads": 7}}, ["transformer.heads"]),
        ({"model": "gru", "task": "caption", "transformer": {"heads": 7}, "caption": {"encoder": "patches"}}, []),
        ({"model": "gru", "recurrent": {"reset": "before"}}, []),
        ({"model": "attentive-rnn", "recurrent": {"reset": "before"}}, ["recurrent.reset"]),
        ({"model": "attentive-rnn", "recurrent": {"reset": "before", "cell": "gru"}}, []),
        ({"model": "ngram", "network": {"width": 3}, "context": {"length": 3}}, ["network.width"]),
        ({"task": "forecast", "text": {"lowercase": True}, "horizon": 3, "target": "a"}, ["text.lowercase"]),
        ({"task": "classify", "data": {"window": 3, "max_length": 3}}, ["data.window"]),
        ({"task": "classify", "masked": {"rate": 0.2}}, ["masked.rate"]),
        ({"masked": {"rate": 0.2}, "target": "de"}, []),  # the task is not known yet
        ({"init": "runs/a", "transformer": {"heads": 7}}, []),  # the model is that of the other run
        ({"training": {"clip": "none", "clip_threshold": 2.0}}, ["training.clip_threshold"]),
        ({"training": {"optimizer": "sgd", "beta1": 0.5, "epsilon": 1e-6}}, ["training.beta1", "training.epsilon"]),
        ({"training": {"optimizer": "adam", "beta1": 0.0, "ema": 0.9}}, []),
        ({"training": {"peak_beta1": 0.7}}, ["training.peak_beta1"]),
        ({"training": {"average_from": 0.0}}, []),
        ({"training": {"average_from": 0.5, "ema": 0.9}}, ["training.average_from"]),
        ({"training": {"average_from": 0.5, "optimizer": "asgd"}}, ["training.average_from"]),
        ({"task": "language", "model": "gru", "data": {"partial_shuffle": True}}, []),
        ({"task": "language", "model": "transformer", "data": {"partial_shuffle": True}}, ["data.partial_shuffle"]),
        ({"task": "language", "model": "transformer", "data": {"partial_shuffle": True, "order": "streams"}}, []),
        ({"task": "masked", "model": "gru", "data": {"partial_shuffle": True}}, ["data.partial_shuffle"]),
        ({"training": {"peak_beta1": 0.7, "schedule": "one-cycle-flat"}}, []),
        ({"training": {"peak_beta1": 0.7, "schedule": "one-cycle", "optimizer": "sgd"}}, ["training.peak_beta1"]),
    ],
)
def test_settings_without_an_effect_are_found(values, unused):
    settings = parse_settings(values)
    assert list(find_unused(settings, list_changed(settings))) == unused


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"model": "transformer", "recurrent": {"cap_input_gate": True}},
            "has an effect with the models lstm and attentive-rnn only; the model is transformer",
        ),
        (
            {"model": "attentive-rnn", "recurrent": {"cap_input_gate": True, "cell": "gru"}},
            "has an effect with --recurrent.cell lstm only; it is gru",
        ),
        (
            {"task": "language", "model": "transformer", "data": {"partial_shuffle": True}},
            "has an effect with --data.order streams only; it is not set",
        ),
        (
            {"task": "language", "model": "ngram", "data": {"partial_shuffle": True}},
            "has no effect with the model ngram",
        ),
        (
            {"model": "gru", "transformer": {"heads": 7}},
            "has an effect with the model transformer only; the model is gru",
        ),
    ],
)
def test_the_reason_names_what_the_setting_needs(values, reason):
    settings = parse_settings(values)
    assert list(find_unused(settings, list_changed(settings)).values()) == [reason]


def test_a_setting_of_a_comparison_needs_one_family_that_uses_it():
    settings = [parse_settings({"model": model, "transformer": {"heads": 2}}) for model in ("gru", "transformer")]
    check_effects(settings, ["transformer.heads"])
    with pytest.raises(UsageError, match="no compared family"):
        check_effects([settings[0], settings[0]], ["transformer.heads"])


def test_a_registered_task_may_use_any_section():
    settings = parse_settings({"classify": {"pooling": "max"}, "target": "x"})
    settings.__dict__["task"] = "my-task"
    check_effects([settings], list_changed(settings))


def test_settings_without_an_effect_get_their_default():
    settings = parse_settings(
        {"task": "language", "model": "gru", "transformer": {"heads": 4}, "network": {"width": 9}}
    )
    reset_unused(settings, [settings])
    assert settings == parse_settings({"task": "language", "model": "gru", "network": {"width": 9}})
