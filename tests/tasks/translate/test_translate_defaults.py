"""The rules of translate leave no gap, whatever the family, the machine and the size of the data."""

from __future__ import annotations

import pytest

from seqwise.config import Settings
from seqwise.tasks.defaults import DefaultsContext, resolve

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def facts(cuda: bool, tokens: int = 500_000, vocabulary: int = 8_192, longest: int = 40) -> DefaultsContext:
    return DefaultsContext(
        tokens, vocabulary, cuda, 2, bfloat16=cuda, examples=tokens // 15, max_length=longest, outputs=1
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cuda", [False, True])
def test_nothing_is_left_open(family: str, cuda: bool):
    chosen, _ = resolve(Settings(task="translate", model=family), facts(cuda))
    network, training, data = chosen.network, chosen.training, chosen.data
    filled = [network.width, network.depth, network.embedding, network.dropout, training.batch_size, data.max_tokens]
    filled += [data.max_length, training.learning_rate, training.weight_decay, chosen.translate.label_smoothing]
    if family == "transformer":
        filled += [chosen.transformer.heads, chosen.transformer.hidden]
        assert network.width % chosen.transformer.heads == 0
    elif family != "feedforward":
        filled += [chosen.recurrent.weight_dropout, chosen.recurrent.bidirectional]
    assert None not in filled


def test_spelled_texts_get_a_small_model_without_smoothing():
    chosen, _ = resolve(Settings(task="translate", model="transformer"), facts(False, vocabulary=40))
    assert (chosen.network.width, chosen.translate.label_smoothing) == (128, 0.0)


def test_sentences_that_are_read_often_are_regularised():
    chosen, _ = resolve(Settings(task="translate", model="transformer", budget="30-epochs"), facts(True))
    assert (chosen.network.dropout, chosen.translate.label_smoothing) == (0.3, 0.1)
    chosen, _ = resolve(Settings(task="translate", model="transformer", budget="2-epochs"), facts(True))
    assert chosen.network.dropout == 0.1


def test_a_small_set_still_has_some_updates_per_epoch():
    chosen, _ = resolve(Settings(task="translate", model="gru"), facts(True, tokens=3_000))
    assert chosen.training.batch_size == 10


def test_the_longest_text_fits_into_a_batch():
    chosen, _ = resolve(
        Settings(task="translate", model="gru", data={"max_length": 9_000}), facts(False, longest=9_000)
    )
    assert chosen.data.max_tokens > 9_000
