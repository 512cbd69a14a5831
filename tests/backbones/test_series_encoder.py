"""The series encoder splits a window into patches and returns one vector per window."""

from __future__ import annotations

import pytest
import torch

from seqwise.backbones.encoder import SeriesEncoder, split_into_patches
from seqwise.resolved_settings import ResolvedSettings

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def build_settings(model: str, patch: int = 4) -> ResolvedSettings:
    return ResolvedSettings.model_validate(
        {
            "model": model,
            "network": {"width": 8, "embedding": 6, "depth": 1, "dropout": 0.0},
            "transformer": {"heads": 2},
            "forecast": {"patch": patch},
        }
    )


def test_patches_equal_a_hand_computed_result():
    x = torch.arange(1.0, 6.0)[None, :, None]
    assert split_into_patches(x, 2).tolist() == [[[0, 1], [2, 3], [4, 5]]]  # zeros before the first step
    assert split_into_patches(x, 5).tolist() == [[[1, 2, 3, 4, 5]]]
    two_features = torch.stack([x, -x], dim=-1).squeeze(2)
    assert split_into_patches(two_features, 2)[0, 1].tolist() == [2, -2, 3, -3]  # the features of a step stay together


@pytest.mark.parametrize("model", FAMILIES)
def test_every_family_encodes_a_window(model: str):
    torch.manual_seed(0)
    num_features, lookback = 3, 10
    encoder = SeriesEncoder(build_settings(model), num_features, lookback)
    x = torch.randn(5, lookback, num_features)
    vectors, _ = encoder(x)
    assert vectors.shape == (5, encoder.width)
    # A Transformer concatenates its states of width 8, one for each of the ⌈10 / 4⌉ patches.
    assert encoder.width == (24 if model == "transformer" else 8)
    assert torch.allclose(vectors[:2], encoder(x[:2])[0], atol=1e-6), "windows of a batch are independent"


@pytest.mark.parametrize("model", FAMILIES)
def test_the_vector_depends_on_every_input_step(model: str):
    torch.manual_seed(0)
    encoder = SeriesEncoder(build_settings(model), 1, 8).double()
    x = torch.randn(1, 8, 1, dtype=torch.float64, requires_grad=True)
    (encoder(x)[0] * torch.randn(1, encoder.width, dtype=torch.float64)).sum().backward()
    assert bool((x.grad != 0).all())


@pytest.mark.parametrize("model", ["feedforward", "gru", "transformer"])
def test_gradients_match_finite_differences(model: str):
    torch.manual_seed(0)
    encoder = SeriesEncoder(build_settings(model, 2), 1, 4).double()
    x = torch.randn(1, 4, 1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: encoder(x)[0], x)
