"""The next-token head: states → scores over the vocabulary. It knows nothing of what made the states."""

from __future__ import annotations

from torch import Tensor, nn


class NextToken(nn.Module):
    """An output layer (`layers/output.py`) read position by position."""

    def __init__(self, output: nn.Module):
        super().__init__()
        self.output = output

    def forward(self, vectors: Tensor) -> Tensor:
        """Log-probabilities (…, V), always of the full softmax."""
        return self.output.log_probabilities(vectors)  # type: ignore[operator]

    def losses(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of each target (B, T); in training possibly that of a sampled softmax."""
        return self.output.loss(vectors.flatten(0, 1), targets.flatten()).view_as(targets)  # type: ignore[operator]
