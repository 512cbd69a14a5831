"""Packed products equal those of `F.linear`, which is used where packing is not possible."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from seqwise.kernels import packed_linear
from seqwise.kernels.packed_linear import ACTIVATIONS, PackedLinear


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (3, 5, 40)])
def test_the_product_is_that_of_linear(activation, shape):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(70, 40), torch.randn(70), torch.randn(shape)
    with torch.inference_mode():
        outputs = PackedLinear(weight, bias, rows=7, activation=activation)(x)
    torch.testing.assert_close(outputs, ACTIVATIONS[activation](F.linear(x, weight, bias)), atol=1e-5, rtol=1e-5)


def test_float64_weights_and_copy_false_use_the_ordinary_product():
    weight = torch.randn(4, 3, dtype=torch.float64)
    assert PackedLinear(weight, None, rows=8).packed_weight is None
    assert PackedLinear(weight.float(), None, rows=8, copy=False).packed_weight is None
    x = torch.randn(2, 3, dtype=torch.float64)
    assert torch.equal(PackedLinear(weight, None, rows=8)(x), F.linear(x, weight))


def test_with_gradients_enabled_the_ordinary_product_is_used():
    weight, x = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3)
    layer = PackedLinear(weight, None, rows=8)
    assert layer.packed_weight is None
    layer(x).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(4, 3))


def test_without_onednn_the_ordinary_product_is_used(monkeypatch):
    monkeypatch.setattr(packed_linear, "_is_available", lambda: False)
    weight, x = torch.randn(4, 3), torch.randn(2, 3)
    with torch.inference_mode():
        layer = PackedLinear(weight, None, rows=8)
    assert layer.packed_weight is None
    assert torch.equal(layer(x), F.linear(x, weight))
