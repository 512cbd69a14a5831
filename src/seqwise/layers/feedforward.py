"""The feed-forward part of a Transformer layer: each vector on its own. It knows nothing of its neighbours."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError, nearest
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """y = W₂ · activation(W₁ x + b₁) + b₂ (Vaswani et al. 2017, eq. 2; GELU: Hendrycks & Gimpel 2016, exact form).

    Weights start as Xavier, biases at 0.
    """

    def __init__(self, width: int, hidden: int, activation: str, dropout: float = 0.0):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UsageError(f"unknown activation {activation!r}.", repair=nearest(activation, ACTIVATIONS))
        self.activation, self.dropout = activation, dropout
        self.inward = nn.Linear(width, hidden)
        self.outward = nn.Linear(hidden, width)
        for linear in (self.inward, self.outward):
            xavier_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = ACTIVATIONS[self.activation](self.inward(x))
        record_value(self, "hidden", hidden)
        return self.outward(F.dropout(hidden, self.dropout, self.training))

    def extra_repr(self) -> str:
        return f"activation={self.activation}, dropout={self.dropout}"
