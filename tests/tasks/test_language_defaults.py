"""Default rules of language models."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import seqwise
from seqwise.config import Settings
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext, resolve


def choose(
    cuda: bool = True,
    num_tokens: int = 2_000_000,
    vocabulary_size: int = 30_000,
    is_comparison: bool = False,
    **values: object,
) -> ResolvedSettings:
    context = DefaultsContext(num_tokens, vocabulary_size, cuda, 2, bfloat16=cuda, is_comparison=is_comparison)
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
        {"recurrent": {"sum_layers": True}},
        {"is_comparison": True},
    ],
)
def test_otherwise_it_has_one_width_and_no_penalties(values: dict) -> None:
    settings = choose(**values)
    assert settings.network.embedding == settings.network.width
    assert settings.recurrent.last_width == settings.recurrent.activation_regularization == 0
    assert settings.network.input_dropout == settings.network.dropout


@pytest.mark.parametrize(
    ("model", "width", "vocabulary_size", "epochs", "dropout"),
    [
        ("lstm", 64, 63, 60, (0.1, 0.0)),  # 0.2 weights per token
        ("lstm", 128, 63, 60, (0.2, 0.0)),  # 0.8
        ("lstm", 128, 63, 3, (0.1, 0.0)),
        ("lstm", 170, 63, 60, (0.2, 0.0)),  # 1.3
        ("lstm", 190, 63, 60, (0.35, 0.2)),  # 1.7
        ("lstm", 330, 63, 60, (0.35, 0.2)),  # 4.95
        ("lstm", 340, 63, 60, (0.5, 0.4)),  # 5.3
        ("lstm", 128, 8_000, 60, (0.5, 0.4)),  # 6.4
        ("lstm", 128, 8_000, 30, (0.35, 0.2)),
        ("gru", 200, 63, 60, (0.2, 0.0)),  # 1.4
        ("gru", 240, 63, 60, (0.35, 0.2)),  # 2.0
        ("gru", 128, 16_000, 3, (0.1, 0.0)),  # 12
        ("gru", 128, 16_000, 4, (0.2, 0.0)),
        ("gru", 128, 16_000, 10, (0.35, 0.2)),
        ("gru", 128, 16_000, 20, (0.5, 0.4)),
        ("gru", 128, 16_000, 60, (0.5, 0.4)),
        ("gru", 128, 10_000, 10, (0.2, 0.0)),  # 7.7
        ("rnn", 128, 63, 60, (0.1, 0.0)),  # 0.2
        ("transformer", 64, 63, 60, (0.1, 0.0)),  # 0.6
        ("transformer", 128, 63, 60, (0.1, 0.0)),  # 2.2
        ("transformer", 160, 63, 60, (0.2, 0.0)),  # 3.5
        ("transformer", 256, 63, 60, (0.3, 0.0)),  # 8.8
        ("transformer", 128, 16_000, 10, (0.1, 0.0)),  # 14
    ],
)
@pytest.mark.parametrize("cuda", [True, False])
def test_more_epochs_need_more_dropout_but_less_in_a_network_that_is_small_for_its_text(
    cuda: bool, model: str, width: int, vocabulary_size: int, epochs: int, dropout: tuple[float, float]
) -> None:
    network = {"width": width, "depth": 2 if model == "transformer" else 1}
    values = {"model": model, "budget": f"{epochs}-epochs", "network": network}
    settings = choose(cuda, num_tokens=180_000, vocabulary_size=vocabulary_size, **values)
    assert (settings.network.dropout, settings.recurrent.weight_dropout) == dropout


def test_in_a_comparison_no_family_has_more_dropout_than_its_epochs_need() -> None:
    values = {"model": "gru", "budget": "10-epochs", "network": {"width": 128, "depth": 1}}
    for is_comparison, dropout in ((False, 0.35), (True, 0.2)):
        settings = choose(False, 180_000, 16_000, is_comparison, **values)
        assert settings.network.dropout == dropout


def test_the_weight_decay_is_that_of_the_optimizer() -> None:
    assert choose().training.weight_decay == 1e-3
    assert choose(training={"optimizer": "sgd"}).training.weight_decay == 1e-6


def test_several_layers_with_weight_dropout_begin_with_half_open_forget_gates() -> None:
    def get_bias(depth: int, weight_dropout: float) -> float:
        sections = {"network": {"depth": depth}, "recurrent": {"weight_dropout": weight_dropout}}
        return choose(cuda=False, **sections).recurrent.forget_bias

    assert [get_bias(1, 0.0), get_bias(1, 0.5), get_bias(2, 0.0), get_bias(2, 0.5), get_bias(3, 0.1)] == [1, 1, 1, 0, 0]


def write_chain(path: Path, num_words: int = 600, num_tokens: int = 60_000) -> None:
    """Writes a text in which each word has two successors: a perplexity of 2, of word frequencies alone about 340."""
    generator = random.Random(0)
    successors = [[generator.randrange(num_words) for _ in range(2)] for _ in range(num_words)]
    word, words = 0, []
    for _ in range(num_tokens):
        word = generator.choice(successors[word])
        words.append(f"w{word}")
    path.write_text("\n".join(" ".join(words[start : start + 20]) for start in range(0, num_tokens, 20)))


@pytest.mark.slow
@pytest.mark.parametrize(("forget_bias", "is_learned"), [(None, True), (1.0, False)])
def test_three_layers_with_weight_dropout_learn(tmp_path: Path, forget_bias: float | None, is_learned: bool) -> None:
    """With a forget bias of 1 they stay at the word frequencies for hundreds of updates."""
    write_chain(tmp_path / "text.txt")
    perplexities: list[float] = []
    seqwise.train(
        tmp_path / "text.txt",
        task="language",
        budget="58k-tokens",
        out=tmp_path / "run",
        settings={"text.tokenizer": "spaces", "data.window": 20},
        network={"width": 128, "depth": 3, "dropout": 0.1},
        recurrent={"weight_dropout": 0.5, "forget_bias": forget_bias},
        training={"learning_rate": 6e-3, "batch_size": 32},
        on_step=lambda step: perplexities.append(step.validation["perplexity"]) if step.validation else None,
    )
    assert (min(perplexities) < 120) == is_learned
    assert (min(perplexities) > 300) != is_learned
