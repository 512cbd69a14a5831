"""Embedding and one-hot."""

from __future__ import annotations

import pytest
import torch

from seqwise.layers.embedding import Embedding, OneHot
from seqwise.layers.record import record


def test_one_hot_times_the_matrix_is_the_lookup_to_the_bit():
    embedding, ids = Embedding(7, 3), torch.tensor([[0, 6, 3], [3, 3, 1]])
    assert torch.equal(OneHot(7)(ids) @ embedding.weight, embedding(ids))


def test_one_hot_of_two_among_four():
    assert OneHot(4)(torch.tensor(2)).tolist() == [0.0, 0.0, 1.0, 0.0]


def test_one_hot_follows_the_dtype_of_the_model():
    assert OneHot(4).to(torch.float64)(torch.tensor([1])).dtype == torch.float64


@pytest.mark.parametrize("width", [16, 400])
def test_a_new_vector_has_length_one_whatever_the_width(width):
    torch.manual_seed(0)
    lengths = Embedding(2000, width).weight.norm(dim=-1)
    assert lengths.mean().item() == pytest.approx(1.0, abs=0.02)


def test_dropout_drops_all_occurrences_of_a_word_together_and_scales_the_others():
    torch.manual_seed(0)
    embedding = Embedding(200, 4, dropout=0.4)
    ids = torch.arange(200).repeat(2, 1)
    vectors = embedding(ids)
    assert torch.equal(vectors[0], vectors[1])
    dropped = (vectors[0] == 0).all(-1)
    assert 50 < dropped.sum() < 110
    torch.testing.assert_close(vectors[0][~dropped], embedding.weight[~dropped] / 0.6)


def test_dropout_does_nothing_in_evaluation():
    embedding = Embedding(20, 4, dropout=0.4).eval()
    ids = torch.arange(20)
    assert torch.equal(embedding(ids), embedding.weight)


def test_dropped_words_get_no_gradient():
    torch.manual_seed(0)
    embedding = Embedding(50, 4, dropout=0.5)
    vectors = embedding(torch.arange(50))
    vectors.sum().backward()
    assert torch.equal((embedding.weight.grad == 0).all(-1), (vectors == 0).all(-1))


def test_the_vectors_can_be_recorded():
    embedding = Embedding(5, 2)
    with record(embedding) as seen:
        vectors = embedding(torch.tensor([[1, 4]]))
    assert torch.equal(seen["vectors"], vectors)
