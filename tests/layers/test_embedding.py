"""Embeddings, one-hot vectors and word vectors from characters."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqwise.layers.embedding import CharacterCNN, Embedding, OneHot
from seqwise.layers.record import record


def test_one_hot_times_the_matrix_equals_the_lookup_exactly():
    embedding, ids = Embedding(7, 3), torch.tensor([[0, 6, 3], [3, 3, 1]])
    assert torch.equal(OneHot(7)(ids) @ embedding.weight, embedding(ids))


def test_one_hot_of_id_two_equals_a_hand_written_vector():
    assert OneHot(4)(torch.tensor(2)).tolist() == [0.0, 0.0, 1.0, 0.0]


def test_one_hot_follows_the_dtype_of_the_model():
    assert OneHot(4).to(torch.float64)(torch.tensor([1])).dtype == torch.float64


@pytest.mark.parametrize("width", [16, 400])
def test_initial_vectors_have_norm_one_at_any_width(width):
    torch.manual_seed(0)
    norms = Embedding(2000, width).weight.norm(dim=-1)
    assert norms.mean().item() == pytest.approx(1.0, abs=0.02)


def test_dropout_drops_all_occurrences_of_a_word_together_and_scales_the_others():
    torch.manual_seed(0)
    embedding = Embedding(200, 4, dropout=0.4)
    ids = torch.arange(200).repeat(2, 1)
    vectors = embedding(ids)
    assert torch.equal(vectors[0], vectors[1])
    dropped = (vectors[0] == 0).all(-1)
    assert 50 < dropped.sum() < 110
    torch.testing.assert_close(vectors[0][~dropped], embedding.weight[~dropped] / 0.6)


def test_dropout_keeps_the_first_position_if_asked_to():
    torch.manual_seed(0)
    embedding = Embedding(200, 4, dropout=0.4, keep_first=True)
    ids = torch.arange(200)[None]
    vectors = embedding(torch.cat((ids, ids)).T)  # each word at the first position, and at the second
    assert torch.equal(vectors[:, 0], embedding.weight)
    assert 50 < (vectors[:, 1] == 0).all(-1).sum() < 110


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


def test_embedding_vectors_can_be_recorded():
    embedding = Embedding(5, 2)
    with record(embedding) as recording:
        vectors = embedding(torch.tensor([[1, 4]]))
    assert torch.equal(recording["vectors"], vectors)


def test_character_features_equal_a_hand_computed_result():
    layer = CharacterCNN(3, 1, embedding_size=1)
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[9.0], [1.0], [2.0]]))
        layer.filters.copy_(torch.tensor([[10.0, 100.0, 1000.0]]))  # of the previous character, itself, the next
        layer.bias.fill_(-5.0)
    # the word 1 2: at its first character 100 + 2000 - 5, at its second 10 + 200 - 5; the word 2: 200 - 5
    assert layer(torch.tensor([[1, 2], [2, 0]])).tolist() == [[2095.0], [195.0]]


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_character_features_equal_pytorchs_convolution(kernel_size: int):
    torch.manual_seed(0)
    layer = CharacterCNN(20, 6, embedding_size=5, kernel_size=kernel_size).double()
    torch.nn.init.normal_(layer.bias)
    characters = torch.randint(1, 20, (7, 9))
    weight = layer.filters.view(5, kernel_size, 6).permute(2, 0, 1)  # (width, embedding, kernel)
    convolved = F.conv1d(layer.vectors[characters].transpose(1, 2), weight, layer.bias, padding=kernel_size // 2)
    torch.testing.assert_close(layer(characters), F.relu(convolved).amax(dim=2))


def test_padding_after_a_word_changes_nothing():
    torch.manual_seed(0)
    layer = CharacterCNN(20, 6).double()
    word = torch.randint(1, 20, (1, 4))
    torch.testing.assert_close(layer(word), layer(F.pad(word, (0, 5))), rtol=0, atol=0)


def test_gradients_match_finite_differences():
    torch.manual_seed(0)
    layer = CharacterCNN(6, 3, embedding_size=2).double()
    characters = torch.tensor([[1, 2, 3], [5, 4, 0]])

    def features(vectors, filters, bias):
        return torch.func.functional_call(layer, {"vectors": vectors, "filters": filters, "bias": bias}, (characters,))

    assert torch.autograd.gradcheck(features, tuple(p.detach().requires_grad_() for p in layer.parameters()))


def test_character_features_can_be_recorded():
    layer = CharacterCNN(6, 3)
    with record(layer) as activations:
        features = layer(torch.tensor([[1, 2]]))
    assert torch.equal(activations["features"], features)
