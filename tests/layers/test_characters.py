"""Word vectors from characters: by hand, against PyTorch's convolution, against padding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqwise.layers.characters import CharacterCNN
from seqwise.layers.record import record


def test_features_by_hand():
    layer = CharacterCNN(3, 1, embedding_size=1)
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[9.0], [1.0], [2.0]]))
        layer.filters.copy_(torch.tensor([[10.0, 100.0, 1000.0]]))  # of the previous character, itself, the next
        layer.bias.fill_(-5.0)
    # the word 1 2: at its first place 100 + 2000 - 5, at its second 10 + 200 - 5; the word 2: 200 - 5
    assert layer(torch.tensor([[1, 2], [2, 0]])).tolist() == [[2095.0], [195.0]]


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_features_match_pytorchs_convolution(kernel_size: int):
    torch.manual_seed(0)
    layer = CharacterCNN(20, 6, embedding_size=5, kernel_size=kernel_size).double()
    torch.nn.init.normal_(layer.bias)
    characters = torch.randint(1, 20, (7, 9))
    weight = layer.filters.view(5, kernel_size, 6).permute(2, 0, 1)  # (width, embedding, kernel)
    plain = F.conv1d(layer.vectors[characters].transpose(1, 2), weight, layer.bias, padding=kernel_size // 2)
    torch.testing.assert_close(layer(characters), F.relu(plain).amax(dim=2))


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


def test_features_can_be_recorded():
    layer = CharacterCNN(6, 3)
    with record(layer) as activations:
        features = layer(torch.tensor([[1, 2]]))
    assert torch.equal(activations["features"], features)
