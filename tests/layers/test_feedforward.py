"""The feed-forward part."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.feedforward import FeedForward
from seqwise.layers.record import record


def by_hand(activation: str) -> FeedForward:
    layer = FeedForward(1, 2, activation)
    with torch.no_grad():
        layer.inward.weight.copy_(torch.tensor([[1.0], [-2.0]]))
        layer.inward.bias.copy_(torch.tensor([0.5, 0.0]))
        layer.outward.weight.copy_(torch.tensor([[3.0, 1.0]]))
        layer.outward.bias.fill_(0.25)
    return layer


def test_relu_by_hand():
    assert by_hand("relu")(torch.tensor([[1.0]])).item() == pytest.approx(3 * 1.5 + 0.25)


def test_gelu_by_hand_is_x_times_the_normal_distribution():
    def gelu(x):
        return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))

    assert by_hand("gelu")(torch.tensor([[1.0]])).item() == pytest.approx(3 * gelu(1.5) + gelu(-2.0) + 0.25, abs=1e-6)


def test_equals_two_linear_layers():
    layer = FeedForward(4, 8, "gelu")
    peer = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    peer.load_state_dict(
        {f"{i}.{n}": v for i, p in ((0, layer.inward), (2, layer.outward)) for n, v in p.named_parameters()}
    )
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(layer(x), peer(x))


def test_hidden_is_recorded_before_dropout_and_changes_nothing():
    torch.manual_seed(0)
    layer, x = FeedForward(4, 8, "relu", dropout=0.5), torch.randn(2, 3, 4)
    torch.manual_seed(1)
    plain = layer(x)
    torch.manual_seed(1)
    with record(layer) as seen:
        assert torch.equal(layer(x), plain)
    assert torch.equal(seen["hidden"], layer.inward(x).relu())


def test_an_unknown_activation_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="Perhaps you meant 'gelu'"):
        FeedForward(4, 8, "glu")
