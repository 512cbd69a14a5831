"""Point and quantile heads against their equations."""

from __future__ import annotations

import pytest
import torch

from seqwise.heads.forecast import PointHead, QuantileHead, pinball_loss


def test_points_start_at_zero_and_follow_the_equation():
    head = PointHead(3, 2)
    h = torch.tensor([[1.0, 2.0, 3.0]])
    assert head(h).tolist() == [[0, 0]]
    with torch.no_grad():
        head.output.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 2, 1]]))
        head.output.bias.copy_(torch.tensor([0.5, 0]))
    assert head(h).tolist() == [[1.5, 7.0]]


def test_quantiles_start_at_half_a_normal_distribution_around_the_point():
    head = QuantileHead(3, 2, (0.1, 0.5, 0.9))
    quantiles = head(torch.zeros(1, 3), torch.tensor([[10.0, 20.0]]))
    assert quantiles[0, 0].tolist() == pytest.approx([10 - 0.6408, 10, 10 + 0.6408], abs=1e-3)
    assert quantiles[0, 1].tolist() == pytest.approx([20 - 0.6408, 20, 20 + 0.6408], abs=1e-3)


def test_quantiles_never_cross():
    torch.manual_seed(0)
    head = QuantileHead(4, 5, (0.1, 0.3, 0.5, 0.9))
    torch.nn.init.normal_(head.output.weight, std=5)
    quantiles = head(torch.randn(7, 4), torch.randn(7, 5))
    assert bool((quantiles.diff(dim=-1) >= 0).all())


def test_the_point_does_not_learn_from_the_quantiles():
    head = QuantileHead(2, 1, (0.5,))
    point = torch.ones(1, 1, requires_grad=True)
    head(torch.ones(1, 2), point).sum().backward()
    assert point.grad is None


def test_the_pinball_loss_equals_a_hand_computed_value():
    """The truth 3 lies 2 above a forecast of 1 and 1 below one of 4."""
    losses = pinball_loss(torch.tensor([[[1.0, 4.0]]]), torch.tensor([[3.0]]), torch.tensor([0.1, 0.9]))
    assert losses[0, 0].tolist() == pytest.approx([0.1 * 2, 0.1 * 1])


def test_the_pinball_loss_is_smallest_at_the_quantile():
    values = torch.arange(101.0)
    losses = [
        float(pinball_loss(torch.full((101, 1, 1), float(q)), values[:, None], torch.tensor([0.9])).sum())
        for q in range(101)
    ]
    assert losses.index(min(losses)) == 90


def test_gradients_equal_finite_differences():
    torch.manual_seed(0)
    head = QuantileHead(3, 2, (0.2, 0.8)).double()
    torch.nn.init.normal_(head.output.weight)
    h, point = torch.randn(2, 3, dtype=torch.float64, requires_grad=True), torch.randn(2, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: head(x, point), h)
    point_head = PointHead(3, 2).double()
    torch.nn.init.normal_(point_head.output.weight)
    assert torch.autograd.gradcheck(point_head, h)
