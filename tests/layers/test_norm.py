"""Layer normalisation equals hand-computed values."""

from __future__ import annotations

import torch

from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import record


def test_layer_norm_equals_a_hand_computed_result() -> None:
    y = LayerNorm(4)(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    root = 3.5**0.5  # the deviations are -2, -1, 0, 3: their squares sum to 14 = 4 · 3.5
    torch.testing.assert_close(y, torch.tensor([-2, -1, 0, 3]) / root, rtol=1e-5, atol=1e-5)


def test_weight_and_bias_are_applied_after_normalising() -> None:
    layer = LayerNorm(2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, 3.0]))
        layer.bias.copy_(torch.tensor([10.0, 20.0]))
    torch.testing.assert_close(layer(torch.tensor([-5.0, 5.0])), torch.tensor([8.0, 23.0]))


def test_a_constant_vector_gives_the_bias_not_nan() -> None:
    assert LayerNorm(3)(torch.full((3,), 7.0)).tolist() == [0.0, 0.0, 0.0]


def test_the_output_is_recorded_as_norm() -> None:
    layer = LayerNorm(3)
    with record(layer) as recording:
        y = layer(torch.randn(2, 3))
    assert torch.equal(recording["norm"], y)
