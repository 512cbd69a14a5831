"""The input of a recurrent kernel, W x + b, with a gradient of b that needs no extra memory.

PyTorch sums the gradients of all steps with a buffer of its own, of 138 MB on an H200 whatever their number: more than
a layer of 256 units needs besides. In 16 bits a product with ones is as exact as that of the weights' gradients.
Numbers in float32 are summed, since products may be in TF32. This module knows nothing of cells.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seqwise.kernels.recurrence.first_order import first_order


def project_inputs(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (N, D), weight (V, D), bias (V,), all of one type → (N, V)."""
    return _ProjectInputs.apply(x, weight, bias)


class _ProjectInputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            grad_output @ weight if needs_x else None,
            grad_output.mT @ x if needs_weight else None,
            _sum_rows(grad_output) if needs_bias else None,
        )


def _sum_rows(grad_output: Tensor) -> Tensor:
    if grad_output.dtype == torch.float32:
        return grad_output.sum(0)
    return (grad_output.new_ones(1, len(grad_output)) @ grad_output)[0]
