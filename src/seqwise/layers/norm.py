"""Layer normalisation (Ba, Kiros & Hinton 2016). It knows nothing of time or of other rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.layers.record import record_value

EPSILON = 1e-5  # keeps the root away from zero; PyTorch's value, so that weights can be shared


class LayerNorm(nn.Module):
    """y = weight · (x − mean) / √(variance + ε) + bias, over the last dimension (Ba et al. 2016, eq. 3 and 4)."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.normalise(x)
        record_value(self, "norm", y)
        return y

    def normalise(self, x: Tensor) -> Tensor:
        """The equation alone, for a cell that records its own steps."""
        return F.layer_norm(x, (self.width,), self.weight, self.bias, EPSILON)

    def extra_repr(self) -> str:
        return str(self.width)
