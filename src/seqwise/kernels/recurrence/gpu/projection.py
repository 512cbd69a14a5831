"""What enters a recurrent kernel: W x + b, with a gradient of b that takes no memory. It knows no cells.

PyTorch adds up the gradients of all steps with a buffer of its own, of 138 MB on an H200 whatever their number: more
than a layer of 256 units needs besides. In 16 bits a product with ones is as exact as that of the weights' gradients.
Numbers in float32 are added up, since products may be of TF32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.gradients import first_order


def projected(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (N, D), weight (V, D), bias (V,), all of one type → (N, V)."""
    return _Projected.apply(x, weight, bias)


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    @first_order
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            slopes @ weight if wanted[0] else None,
            slopes.mT @ x if wanted[1] else None,
            _summed(slopes) if wanted[2] else None,
        )


def _summed(slopes: Tensor) -> Tensor:
    if slopes.dtype == torch.float32:
        return slopes.sum(0)
    return (slopes.new_ones(1, len(slopes)) @ slopes)[0]
