"""The next-token head: states → scores over the vocabulary. It knows nothing of the backbone."""

from __future__ import annotations

from torch import Tensor, nn


class NextToken(nn.Module):
    """Applies an output layer (`layers/output.py`) at every position."""

    def __init__(self, output: nn.Module):
        super().__init__()
        self.output = output

    def forward(self, vectors: Tensor) -> Tensor:
        """Returns log-probabilities (…, V), always normalised over the whole vocabulary."""
        return self.output.log_probabilities(vectors)  # type: ignore[operator]

    def losses(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """Returns the negative log likelihood of each target (B, T); a sampled softmax estimates it in training."""
        return self.output.loss(vectors, targets)  # type: ignore[operator]
