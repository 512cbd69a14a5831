"""Features of words: by hand, in a batch, and saved with a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import seqwise
from seqwise.config import Settings
from seqwise.tasks.tag.features import (
    CAPITALIZED,
    CAPITALS,
    IN_CAPITALS,
    LOWER_CASE,
    FeatureVectors,
    collect_features,
    find_casings,
    get_shape,
    list_features,
)
from seqwise.tasks.tag.model import compute_word_dropout
from seqwise.tasks.tag.reader import read_tagged_data
from seqwise.tasks.tag.spans import Sentence


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "names.conll"
    path.write_text("Ann B-PER\nlives O\nin O\nOslo B-LOC\n\nBob B-PER\nsleeps O\nin O\nRome B-LOC\n\n" * 20)
    return str(path)


def test_rare_words_are_replaced_more_often_than_frequent_ones():
    counts = torch.tensor([0.0, 1.0, 3.0, 99.0])
    assert compute_word_dropout(counts, 0.0).tolist() == [0.5, 0.5, 0.0, 0.0]
    assert compute_word_dropout(counts, 1.0).tolist() == pytest.approx([1, 1 / 2, 1 / 4, 1 / 100])


def test_features_of_a_word_are_its_ngrams_and_its_shape():
    assert list_features("Rio") == ["<r", "o>", "<ri", "rio", "io>", "<rio", "rio>", "shape Xx"]
    assert list_features("7") == ["<0", "0>", "shape 0"]
    shapes = {
        "Paris": "Xx",
        "U.S.": "X.X.",
        "1996-08": "0-0",
        "McDonald": "XxXx",
        "Örebro": "Xx",
        "$": "$",
        "F16": "X0",
    }
    assert {word: get_shape(word) for word in shapes} == shapes
    words = ["baking", "making", "taking", "king", "king"]
    features = collect_features(words)
    assert "king>" in features, "three distinct words end so"
    assert "<kin" not in features, "the repetition of a word does not count"


def test_the_casing_of_a_word_elsewhere_in_its_document_is_a_feature():
    def sentence(text: str, document: int) -> Sentence:
        words = tuple(text.split())
        return Sentence(words, ("O",) * len(words), "file", document=document)

    texts = [("Ann met ANN in Rio", 0), ("RIO WINS", 0), ("ann Wins", 0), ("The Rio", 1), ("Rio Rio", -1), ("a A", -1)]
    casings = find_casings([sentence(*each) for each in texts])
    both = LOWER_CASE + CAPITALS  # "Ann" at the beginning of a sentence is not counted, nor is a word itself
    assert casings[0].tolist() == [both, 0, LOWER_CASE, 0, 0]
    assert casings[1].tolist() == [IN_CAPITALS + CAPITALIZED] * 2, "headlines are read by the text below them"
    assert casings[2].tolist() == [CAPITALS, 0]
    assert casings[3].tolist() == [0, 0], "another document"
    assert casings[4].tolist() == [CAPITALIZED, 0], "without documents, a sentence is one"
    assert casings[5].tolist() == [CAPITALIZED, LOWER_CASE]


def test_the_vector_of_features_is_their_sum():
    module = FeatureVectors(3, 2).eval()
    with torch.no_grad():
        module.vectors.weight.copy_(torch.tensor([[9.0, 9], [1, 0], [0, 2], [4, 4]]))
        module.casings.weight.copy_(torch.arange(16.0)[:, None].expand(-1, 2))
    features = torch.tensor([[1, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
    vectors = module(features, torch.tensor([[0, 1, 2, 0]]), torch.tensor([[0, 0, 0, 5]]))
    expected = [[2**-0.5, 2**0.5], [4, 4], [0, 0], [5 + 2**-0.5, 5 + 2**0.5]]
    assert vectors[0].detach().numpy() == pytest.approx(np.array(expected))


def test_a_tagger_with_features_is_saved_and_predicts_the_same(data: str, tmp_path: Path):
    settings = {"task": "tag", "model": "lstm", "budget": "2-epochs", "device": "cpu", "network": {"width": 8},
                "tag": {"features": 5, "word_dropout_alpha": 0.5}}  # fmt: skip
    run = seqwise.train(data, settings=settings, out=tmp_path / "run")
    assert run.model.features is not None
    text = "Ann lives in Oslo"
    assert seqwise.load(tmp_path / "run").predict(text).values == run.predict(text).values
    without = seqwise.train(data, settings={**settings, "tag": {}}, out=tmp_path / "without")
    assert without.model.features is None
    assert "features" not in without.run.preprocessor.attributes


def test_documents_are_counted_while_reading(tmp_path: Path):
    path = tmp_path / "train.conll"
    path.write_text("a O\n\n-DOCSTART- O\n\nb O\n\nc O\n\n-DOCSTART- O\n\nd B-X\n")
    sentences = read_tagged_data(path, Settings()).all_examples()
    assert {sentence.words[0]: sentence.document for sentence in sentences} == {"a": -1, "b": 0, "c": 0, "d": 1}
