"""Default rules of the masked task choose every setting, for any family and machine."""

from __future__ import annotations

import pytest

from seqwise.config import parse_settings
from seqwise.tasks.defaults import DefaultsContext, resolve

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("tokens", [300, 5_000_000])
@pytest.mark.parametrize("model", FAMILIES)
def test_every_setting_gets_a_default(model: str, tokens: int, cuda: bool):
    settings, names = resolve(
        parse_settings({"task": "masked", "model": model}), DefaultsContext(tokens, 3000, cuda, 2, 3)
    )
    network, training = settings.network, settings.training
    assert {"width", "depth", "embedding", "dropout"} <= network.model_fields_set
    assert {"batch_size", "learning_rate", "weight_decay"} <= training.model_fields_set
    assert "max_tokens" in settings.data.model_fields_set
    assert training.batch_size % 3 == 0
    assert isinstance(settings.data.window, int)
    assert settings.data.window >= 3
    recurrent = model not in ("feedforward", "transformer")
    assert settings.recurrent.bidirectional is recurrent
    assert settings.recurrent.concat_directions is not recurrent
    assert ("recurrent.concat_directions" in names) is recurrent
    if model == "transformer":
        assert network.width % settings.transformer.heads == 0


def test_settings_of_the_user_are_kept():
    settings, names = resolve(
        parse_settings({"task": "masked", "network": {"width": 30}, "data": {"window": 10}}),
        DefaultsContext(10**6, 3000, False, 2),
    )
    assert (settings.network.width, settings.network.embedding, settings.data.window) == (30, 15, 10)
    assert "network.width" not in names
