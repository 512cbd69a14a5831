"""Copies into another order of the dimensions, fast. PyTorch copies numbers of 16 bits one by one; here eight bytes go
at a time. It knows nothing of what the dimensions mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

WORD = 8  # bytes


def in_order(x: Tensor) -> Tensor:
    """The same values in contiguous memory. No gradient flows through it."""
    if x.is_contiguous():
        return x
    size = x.element_size()
    steps = (*x.stride()[:-1], x.shape[-1], x.storage_offset())
    if x.stride(-1) == 1 and all(step * size % WORD == 0 for step in steps):
        return x.view(torch.int64).contiguous().view(x.dtype)
    return x.contiguous()


class _InOrder(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return in_order(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope


def time_first(x: Tensor) -> Tensor:
    """(B, T, …) → (T, B, …) in contiguous memory."""
    x = x.transpose(0, 1)
    return x if x.is_contiguous() else _InOrder.apply(x)
