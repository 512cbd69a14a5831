"""Variational dropout, and dropout of single weights and of whole rows."""

from __future__ import annotations

import pytest
import torch

from seqwise.errors import UsageError
from seqwise.layers.dropout import VariationalDropout, drop_rows, drop_weights


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_variational_dropout_has_one_mask_per_row_for_all_steps() -> None:
    dropped = VariationalDropout(0.5)(torch.ones(6, 9, 40))
    assert (dropped == dropped[:, :1]).all()
    assert not torch.equal(dropped[0], dropped[1])
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_variational_dropout_keeps_the_mean() -> None:
    assert abs(VariationalDropout(0.3)(torch.ones(200, 1, 500)).mean().item() - 1) < 0.01


def test_variational_dropout_is_off_at_evaluation_and_at_zero() -> None:
    x = torch.randn(2, 3, 4)
    assert VariationalDropout(0.5).eval()(x) is x
    assert VariationalDropout(0.0)(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 3])
def test_a_dropout_probability_outside_zero_to_one_is_rejected(p: float) -> None:
    with pytest.raises(UsageError, match=r"\[0, 1\)"):
        VariationalDropout(p)


def test_single_weights_are_dropped_in_training_only() -> None:
    weight = torch.ones(100, 100)
    dropped = drop_weights(weight, 0.2, training=True)
    assert abs((dropped == 0).float().mean().item() - 0.2) < 0.02
    torch.testing.assert_close(dropped.max().item(), 1.25)
    assert drop_weights(weight, 0.2, training=False) is weight


def test_whole_rows_are_dropped() -> None:
    matrix = torch.ones(2000, 5)
    dropped = drop_rows(matrix, 0.1, training=True)
    assert (dropped == dropped[:, :1]).all()
    assert abs((dropped[:, 0] == 0).float().mean().item() - 0.1) < 0.02
    torch.testing.assert_close(dropped.max().item(), 1 / 0.9)
    assert drop_rows(matrix, 0.1, training=False) is matrix


def test_a_dropped_row_gets_no_gradient() -> None:
    matrix = torch.ones(50, 2, requires_grad=True)
    dropped = drop_rows(matrix, 0.5, training=True)
    dropped.sum().backward()
    assert matrix.grad is not None
    assert torch.equal(matrix.grad == 0, dropped == 0)
