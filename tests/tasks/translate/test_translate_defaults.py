"""Default rules of the translate task choose every setting, for any family, machine and size of the data."""

from __future__ import annotations

import pytest

from seqwise.config import Settings
from seqwise.tasks.defaults import DefaultsContext, resolve

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def create_context(cuda: bool, tokens: int = 500_000, vocabulary: int = 8_192, max_length: int = 40) -> DefaultsContext:
    return DefaultsContext(tokens, vocabulary, cuda, 2, bfloat16=cuda, num_examples=tokens // 15, max_length=max_length)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cuda", [False, True])
def test_every_setting_gets_a_default(family: str, cuda: bool):
    settings, _ = resolve(Settings(task="translate", model=family), create_context(cuda))
    network, training, data = settings.network, settings.training, settings.data
    values = [network.width, network.depth, network.embedding, network.dropout, training.batch_size, data.max_tokens]
    values += [data.max_length, training.learning_rate, training.weight_decay, settings.translate.label_smoothing]
    if family == "transformer":
        values += [settings.transformer.heads, settings.transformer.hidden]
        assert network.width % settings.transformer.heads == 0
    elif family != "feedforward":
        values += [settings.recurrent.weight_dropout, settings.recurrent.bidirectional]
    assert None not in values


def test_character_vocabularies_get_a_small_model_without_label_smoothing():
    settings, _ = resolve(Settings(task="translate", model="transformer"), create_context(False, vocabulary=40))
    assert (settings.network.width, settings.translate.label_smoothing) == (128, 0.0)


def test_many_epochs_get_more_regularisation():
    settings, _ = resolve(Settings(task="translate", model="transformer", budget="30-epochs"), create_context(True))
    assert (settings.network.dropout, settings.translate.label_smoothing) == (0.3, 0.1)
    settings, _ = resolve(Settings(task="translate", model="transformer", budget="2-epochs"), create_context(True))
    assert settings.network.dropout == 0.1


def test_small_data_gets_small_batches():
    settings, _ = resolve(Settings(task="translate", model="gru"), create_context(True, tokens=3_000))
    assert settings.training.batch_size == 10


def test_the_longest_text_fits_into_a_batch():
    settings, _ = resolve(
        Settings(task="translate", model="gru", data={"max_length": 9_000}), create_context(False, max_length=9_000)
    )
    assert settings.data.max_tokens > 9_000
