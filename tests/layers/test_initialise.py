"""Initial weights: Xavier, He and orthogonal, for each gate of a stacked matrix."""

from __future__ import annotations

import torch

from seqwise.layers.initialise import forget_bias_, he_, orthogonal_, xavier_


def test_xavier_uses_the_size_of_one_gate_not_of_the_stacked_matrix() -> None:
    torch.manual_seed(0)
    weight = xavier_(torch.empty(4 * 100, 50), blocks=4)
    bound = 0.2  # √(6 / (50 + 100)); over the whole stack it would be √(6 / 450) = 0.115
    assert 0.199 < weight.abs().max() <= bound
    assert abs(weight.std().item() - bound / 3**0.5) < 1e-3


def test_he_has_variance_two_over_inputs() -> None:
    torch.manual_seed(0)
    assert abs(he_(torch.empty(400, 50)).var().item() - 0.04) < 1e-3


def test_every_block_of_a_stacked_matrix_is_orthogonal() -> None:
    torch.manual_seed(0)
    weight = orthogonal_(torch.empty(3 * 6, 6), blocks=3)
    blocks = weight.chunk(3)
    for block in blocks:
        torch.testing.assert_close(block.T @ block, torch.eye(6), rtol=1e-5, atol=1e-5)
    assert not torch.equal(blocks[0], blocks[1])


def test_an_orthogonal_matrix_may_be_wide_or_tall() -> None:
    torch.manual_seed(0)
    wide, tall = orthogonal_(torch.empty(3, 7)), orthogonal_(torch.empty(7, 3))
    torch.testing.assert_close(wide @ wide.T, torch.eye(3), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tall.T @ tall, torch.eye(3), rtol=1e-5, atol=1e-5)


def test_orthogonal_matrices_have_both_signs_of_the_determinant() -> None:
    torch.manual_seed(0)
    signs = [torch.linalg.det(orthogonal_(torch.empty(3, 3))).item() for _ in range(200)]
    assert 60 < sum(sign > 0 for sign in signs) < 140  # binomial(200, ½): 5.6 standard deviations either side


def test_only_the_forget_gate_has_an_initial_bias() -> None:
    assert forget_bias_(torch.full((8,), 9.0)).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert forget_bias_(torch.empty(4), 2.5).tolist() == [0, 2.5, 0, 0]
