"""Sinusoidal, learned and rotary positions."""

from __future__ import annotations

import math

import pytest
import torch

from seqwise.errors import UsageError
from seqwise.layers.positions import LearnedPositions, Rotary, SinusoidalPositions, rotary


def test_sinusoidal_positions_equal_the_published_formula():
    positions = SinusoidalPositions(6)(torch.zeros(1, 40, 6))[0]
    for position in (0, 1, 39):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert positions[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert positions[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoidal_positions_allow_an_odd_width():
    assert SinusoidalPositions(5)(torch.zeros(2, 3, 5)).shape == (2, 3, 5)


def test_rotary_rotates_each_pair_by_its_own_angle():
    x = torch.tensor([[1.0, 0.0, 0.0, 2.0]] * 3)  # angles per position: 1 and 1/100
    expected = [[math.cos(t), math.sin(t), -2 * math.sin(t / 100), 2 * math.cos(t / 100)] for t in range(3)]
    torch.testing.assert_close(rotary(x), torch.tensor(expected))


def test_dot_products_of_rotated_vectors_depend_on_relative_position_only():
    q, k = torch.randn(2, 1, 8, dtype=torch.float64).unbind(0)
    near = (rotary(q, 7) * rotary(k, 3)).sum()
    far = (rotary(q, 10_007) * rotary(k, 10_003)).sum()
    assert near.item() == pytest.approx(far.item(), abs=1e-9)


def test_rotation_keeps_the_norm_of_vectors():
    x = torch.randn(2, 3, 50, 8)
    torch.testing.assert_close(rotary(x, 900).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize(
    "layer", [SinusoidalPositions(4), LearnedPositions(4, 600), Rotary()], ids=["sinusoidal", "learned", "rotary"]
)
def test_positions_from_a_start_equal_the_end_of_the_whole_sequence(layer):
    x = torch.randn(2, 600, 4)  # beyond the first table of 256
    torch.testing.assert_close(layer(x)[:, 250:], layer(x[:, 250:], start=250))


def test_a_sequence_longer_than_the_learned_positions_is_rejected():
    layer = LearnedPositions(4, 10)
    layer(torch.zeros(1, 4, 4), start=6)
    with pytest.raises(UsageError, match="up to 10 tokens; received position 10"):
        layer(torch.zeros(1, 4, 4), start=7)


def test_rotary_rejects_heads_of_odd_width():
    with pytest.raises(UsageError, match="a head is 5 wide"):
        rotary(torch.zeros(1, 2, 5))


def test_tables_created_in_inference_mode_can_be_used_in_training():
    x = torch.randn(1, 5, 22, requires_grad=True)  # a width no other test uses: its tables are new
    with torch.inference_mode():
        SinusoidalPositions(22)(x), rotary(x)
    (rotary(x).square().sum() + SinusoidalPositions(22)(x).square().sum()).backward()
    assert x.grad is not None


def test_rotary_in_half_precision_rounds_once():
    x = torch.randn(1, 300, 8).to(torch.float16)
    rotated = rotary(x)
    assert rotated.dtype == torch.float16
    assert torch.equal(rotated, rotary(x.float()).to(torch.float16))


def test_compiled_rotary_equals_eager_rotary():
    compiled, x = torch.compile(rotary, backend="aot_eager", fullgraph=True), torch.randn(2, 3, 9, 8)
    torch.testing.assert_close(compiled(x), rotary(x))
    torch.testing.assert_close(compiled(x, 5), rotary(x, 5))
