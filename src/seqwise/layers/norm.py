"""Layer normalisation (Ba, Kiros & Hinton 2016). It knows nothing of time or of other sequences."""

from __future__ import annotations

from torch import Tensor, nn

from seqwise.layers.record import record_value


class LayerNorm(nn.LayerNorm):
    """y = weight · (x − mean) / √(variance + ε) + bias, over the last dimension (Ba et al. 2016, eq. 3 and 4)."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.normalise(x)
        record_value(self, "norm", y)
        return y

    def normalise(self, x: Tensor) -> Tensor:
        """Returns y without recording it, for a cell that records its own steps."""
        return super().forward(x)
