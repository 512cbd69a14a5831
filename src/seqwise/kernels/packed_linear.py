"""Products with a weight that does not change, from a copy laid out for the processor. It knows nothing of modules.

A library for matrix products first rearranges both factors, at every call. Where one weight is used step after step
with few rows each, that is a large part of the time. Here it is rearranged once, by oneDNN. Measured on one core with a
weight of 8,000 × 256: 320 rows 104 instead of 85 GFLOP/s, 20 rows 106 instead of 52, 5 rows 95 instead of 31. Sums are
taken in another order, so results differ by rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_SEQUENCES = 4  # sequences of usual length from which on a copy pays
ACTIVATIONS = {"none": lambda y: y, "relu": F.relu, "gelu": F.gelu}


class PackedLinear:
    """y = activation(W x + b) for a weight that stays as it is while this object lives.

    Copies exist for float32 on CPUs and have no gradients; elsewhere, where gradients are asked for, or if `copy` is
    False, it is the ordinary product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int, copy: bool = True, activation: str = "none"):
        self.weight, self.bias, self.activation, self.copy = weight, bias, activation, None
        plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
        if copy and plain and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and _available():
            self.copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        if self.copy is None or x.dtype != torch.float32:
            return ACTIVATIONS[self.activation](F.linear(x, self.weight, self.bias))
        return _LINEAR(x, self.copy, self.bias, self.activation, [], "none")


_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # a packed weight, and what follows the product


@cache
def _available() -> bool:
    """Has this build of PyTorch these functions, and do they give the product?"""
    try:
        with torch.inference_mode():
            x, weight = torch.ones(2, 4), torch.arange(12.0).view(3, 4) - 5
            copy = torch.ops.mkldnn._reorder_linear_weight(weight, 2)
            return all(
                torch.allclose(_LINEAR(x, copy, None, name, [], "none"), after(F.linear(x, weight)), atol=1e-5)
                for name, after in ACTIVATIONS.items()
            )
    except (AttributeError, RuntimeError):
        return False
