"""The bag-of-words baseline computes tf-idf, fits its weights and uses bigrams."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seqwise.tasks.classify.bag_of_words import LogisticRegression, TfidfVectorizer


@pytest.fixture(scope="module")
def script(benchmark_script):
    return benchmark_script("bag_of_words")


def test_texts_become_normalised_tf_idf_vectors():
    vectorizer = TfidfVectorizer.fit([np.array([5, 6]), np.array([5])], 10, bigram_base=10)
    assert vectorizer.features.tolist() == [5, 6, 66]  # the bigram (5, 6) is 10 · (5 + 1) + 6
    rare, common = np.log(3 / 2) + 1, np.log(3 / 3) + 1
    dense = vectorizer.transform([np.array([5, 6, 6]), np.array([9])]) @ torch.eye(3)
    expected = np.array([common, rare, rare]) / np.linalg.norm([common, rare, rare])
    assert dense[0].tolist() == pytest.approx(expected.tolist())
    assert dense[1].tolist() == [0, 0, 0]


def test_the_most_frequent_features_are_kept():
    vectorizer = TfidfVectorizer.fit([np.array([5, 6]), np.array([6]), np.array([6, 7, 7]), np.array([7])], 2)
    assert vectorizer.features.tolist() == [6, 7]


def test_the_gradient_of_the_penalised_loss_is_zero():
    texts = [np.array([1, 2]), np.array([2, 3]), np.array([1])]
    rows, targets = TfidfVectorizer.fit(texts, 10).transform(texts), torch.tensor([0, 1, 0])
    model = LogisticRegression.create(3, 2)
    model.fit(rows, targets, penalty=0.5)
    weight = model.weight.clone().requires_grad_()
    loss = F.cross_entropy(rows @ weight + model.bias, targets, reduction="sum") + 0.25 * weight.square().sum()
    loss.backward()
    assert weight.grad is not None
    assert float(weight.grad.abs().max()) < 1e-3


def test_bigrams_separate_texts_with_the_same_words(script, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lines = [f"not bad {n}\ty\nbad not {n}\tn" for n in range(60)]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    script.main([str(tmp_path / "a.tsv"), "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows["words and bigrams"]["accuracy"] == 1.0
    assert rows["words"]["accuracy"] < 0.9
    script.main([str(tmp_path / "a.tsv")])
    assert "words and bigrams" in capsys.readouterr().out
