"""Default rules of language models."""

from __future__ import annotations

import pytest

from seqwise.config import Settings
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, resolve


def choose(cuda: bool = True, num_tokens: int = 2_000_000, **values: object) -> ResolvedSettings:
    context = DefaultsContext(num_tokens, 30_000, cuda, 2, bfloat16=cuda)
    return resolve(Settings.model_validate({"task": "language", "model": "lstm", "budget": "5m"} | values), context)[0]


def test_an_lstm_that_reads_a_text_many_times_on_a_gpu_is_regularised() -> None:
    settings = choose()
    network, recurrent = settings.network, settings.recurrent
    assert (network.width, network.depth, network.embedding, recurrent.last_width) == (1024, 3, 400, 400)
    assert (network.input_dropout, network.dropout, network.output_dropout) == (0.5, 0.2, 0.4)
    assert (network.embedding_dropout, recurrent.weight_dropout, recurrent.forget_bias) == (0.1, 0.5, 0.0)
    assert (recurrent.activation_regularization, recurrent.temporal_regularization) == (2.0, 1.0)


@pytest.mark.parametrize(
    "values",
    [
        {"cuda": False},
        {"model": "gru"},
        {"budget": "10-epochs"},
        {"num_tokens": 100_000},
        {"network": {"width": 64}},
    ],
)
def test_otherwise_it_has_one_width_and_no_penalties(values: dict) -> None:
    settings = choose(**values)
    assert settings.network.embedding == settings.network.width
    assert settings.recurrent.last_width == settings.recurrent.activation_regularization == 0
    assert settings.network.input_dropout == settings.network.dropout


def test_several_layers_with_weight_dropout_begin_with_half_open_forget_gates() -> None:
    def get_bias(depth: int, weight_dropout: float) -> float:
        sections = {"network": {"depth": depth}, "recurrent": {"weight_dropout": weight_dropout}}
        return choose(cuda=False, **sections).recurrent.forget_bias

    assert [get_bias(1, 0.0), get_bias(1, 0.5), get_bias(2, 0.0), get_bias(2, 0.5), get_bias(3, 0.1)] == [1, 1, 1, 0, 0]
