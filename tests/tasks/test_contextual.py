"""Contextual vectors equal the states of the model, for every task that has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import seqwise
from seqwise.errors import UsageError
from seqwise.training.api import TrainedModel

SMALL = {
    "budget": "1k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 2},
    "training": {"batch_size": 4, "validate_every": 1000},
}
TEXTS = ["the old model reads", "", "every small word", "a gate of the state and a vector in the state."]


@pytest.fixture(scope="module")
def get_trained_model(book: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "rows.csv").write_text("text,label\n" + "the old model reads,a\nevery small word,b\n" * 30)
    (folder / "rows.conll").write_text("the O\nold B-X\nmodel O\n\nevery O\nsmall B-X\n\n" * 20)
    data = {"classify": folder / "rows.csv", "tag": folder / "rows.conll"}
    runs: dict[tuple[str, str], TrainedModel] = {}

    def get(task: str, model: str) -> TrainedModel:
        if (task, model) not in runs:
            out = folder / f"{task}-{model}"
            window = {"data": {"window": 16}} if task in ("masked", "language") else {}
            runs[task, model] = seqwise.train(
                data.get(task, book),
                out=out,
                settings=SMALL | window,
                task=task,
                model=model,
                text={"tokenizer": "words"} if task != "tag" else {},
            )
        return runs[task, model]

    return get


PAIRS = [("masked", "transformer"), ("masked", "lstm"), ("language", "gru"), ("classify", "gru"), ("tag", "lstm")]


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_there_is_a_vector_per_token_and_layer(task: str, model: str, get_trained_model):
    run = get_trained_model(task, model)
    for layer in (None, 0, 1, 2):
        embeddings = run.embed(TEXTS, layer)
        assert [len(vectors) for vectors in embeddings] == [4, 0, 3, 12]
        assert {vectors.shape[1] for vectors in embeddings} == {run.contextual.get_width(2 if layer is None else layer)}
    assert np.array_equal(run.embed(TEXTS[0]), run.embed(TEXTS[0], 2))


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_vectors_do_not_depend_on_the_batch(task: str, model: str, get_trained_model):
    run = get_trained_model(task, model)
    for text, vectors in zip(TEXTS, run.embed(TEXTS)):
        assert np.allclose(run.embed(text), vectors, atol=1e-5)


def test_vectors_of_a_masked_model_are_its_states_without_those_of_the_added_line_breaks(get_trained_model):
    run = get_trained_model("masked", "transformer")
    tokenizer = run.run.tokenizer
    line_break = tokenizer.encode("\n").ids
    ids = np.concatenate([line_break, tokenizer.encode(TEXTS[0]).ids, line_break])
    with torch.no_grad():
        states = run.model.states(torch.from_numpy(ids)[None])[0, 1:-1]
    assert np.allclose(run.embed(TEXTS[0]), states.numpy(), atol=1e-5)


def test_vectors_of_a_tagger_are_its_states(get_trained_model):
    run = get_trained_model("tag", "lstm")
    states: list[torch.Tensor] = []
    hook = run.model.encoder.register_forward_hook(lambda module, inputs, output: states.append(output.vectors))
    run.predict("every small word")
    hook.remove()
    assert np.allclose(run.embed("every small word"), states[0][0].numpy(), atol=1e-5)


def test_offsets_locate_the_tokens_in_the_text(get_trained_model):
    encoded = get_trained_model("masked", "transformer").contextual.tokenize("The old model, 日本 reads.")
    assert encoded.tokens == ["The", "old", "model", ",", "日本", "reads", "."]
    assert [encoded.text[start:stop] for start, stop in encoded.offsets] == encoded.tokens


def test_a_word_has_different_vectors_in_different_contexts(get_trained_model):
    run = get_trained_model("masked", "lstm")
    first, second = run.embed("the old model reads"), run.embed("a small model writes")
    assert not np.allclose(first[2], second[2])
    assert np.array_equal(run.embed("the old model reads", 0)[2], run.embed("a small model writes", 0)[2])


def test_a_transformer_reads_a_long_text_in_segments(get_trained_model):
    run = get_trained_model("masked", "transformer")
    assert run.contextual.max_length == 14  # a window of 16, less two line breaks
    text = " ".join(["old", "model"] * 20)
    vectors = run.embed(text)
    assert len(vectors) == 40
    assert np.allclose(vectors[:14], run.embed(" ".join(["old", "model"] * 7)), atol=1e-5)


def test_a_layer_that_does_not_exist_is_rejected(get_trained_model):
    with pytest.raises(UsageError, match="there is no layer 3: expected a number from 0"):
        get_trained_model("masked", "lstm").embed("the", 3)


def test_an_ngram_model_has_no_vectors(book: Path, tmp_path: Path):
    run = seqwise.train(book, out=tmp_path / "ngram", model="ngram", task="language", device="cpu")
    with pytest.raises(UsageError, match="ngram of the task language has no contextual vectors"):
        run.embed("the")
