"""Linear layers with a constant weight, from a copy that is laid out for the processor. It knows nothing of modules.

A library for matrix products first rearranges both factors, at every call. Where one weight is used step after step
with few rows each, that is a large part of the time. Here it is rearranged once, by oneDNN. Measured on one core with a
weight of 8,000 × 256: 320 rows 104 instead of 85 GFLOP/s, 20 rows 106 instead of 52, 5 rows 95 instead of 31. Sums are
computed in another order, so results differ by rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_SEQUENCES = 4  # minimum number of sequences for which a packed copy is worth its cost
ACTIVATIONS = {"none": lambda y: y, "relu": F.relu, "gelu": F.gelu}


class PackedLinear:
    """y = activation(W x + b) for a weight that does not change while this object exists.

    Packed copies exist for float32 on CPUs and have no gradients; elsewhere, where gradients are enabled, or if `copy`
    is False, it is the ordinary product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int, copy: bool = True, activation: str = "none"):
        self.weight, self.bias, self.activation, self.packed_weight = weight, bias, activation, None
        is_plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
        is_constant = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
        if copy and is_plain and is_constant and _is_available():
            self.packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        if self.packed_weight is None or x.dtype != torch.float32:
            return ACTIVATIONS[self.activation](F.linear(x, self.weight, self.bias))
        return _LINEAR(x, self.packed_weight, self.bias, self.activation, [], "none")


_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # of a packed weight, with an activation


@cache
def _is_available() -> bool:
    """Whether this build of PyTorch has these functions, and they compute the product."""
    try:
        with torch.inference_mode():
            x, weight = torch.ones(2, 4), torch.arange(12.0).view(3, 4) - 5
            packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, 2)
            return all(
                torch.allclose(
                    _LINEAR(x, packed_weight, None, name, [], "none"), activate(F.linear(x, weight)), atol=1e-5
                )
                for name, activate in ACTIVATIONS.items()
            )
    except (AttributeError, RuntimeError):
        return False
