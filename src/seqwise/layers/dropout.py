"""Dropout for sequences: of vectors, of recurrent weights and of word types. It knows nothing of cells.

What is not dropped is scaled by 1 / (1 − p), so that expected values are the same in evaluation, where nothing is
dropped.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.errors import UsageError


class VariationalDropout(nn.Module):
    """Drops the same entries at every step of a sequence: noise that repeats cannot be averaged away over time.

    Gal & Ghahramani 2016, section 4.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise UsageError(f"dropout is a probability in [0, 1); received {p}.", fix="0 turns it off.")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.dim() != 3:
            problem = f"variational dropout expects vectors (batch, time, width), received {tuple(x.shape)}."
            raise UsageError(problem, fix="Pass whole sequences, or call eval() first.")
        return x * draw_mask(x, (x.shape[0], 1, x.shape[2]), self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def build_dropout(p: float, variational: bool) -> nn.Module:
    """Returns dropout of vectors (B, T, D) with one mask for all steps, or with another one at each step."""
    return VariationalDropout(p) if variational else nn.Dropout(p)


def drop_weights(weight: Tensor, p: float, training: bool) -> Tensor:
    """Drops single connections of a recurrent matrix, one mask for all steps (Merity et al. 2018, section 2)."""
    return F.dropout(weight, p, training) if training and p > 0 else weight


def drop_rows(matrix: Tensor, p: float, training: bool) -> Tensor:
    """Drops whole rows of an embedding matrix: a dropped word type is missing everywhere in the batch.

    Gal & Ghahramani 2016, section 4.2; Merity et al. 2018, section 4.3.
    """
    return matrix * draw_mask(matrix, (matrix.shape[0], 1), p) if training and p > 0 else matrix


def draw_mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """Returns factors: 0 with probability p, otherwise 1 / (1 − p)."""
    return like.new_empty(shape).bernoulli_(1 - p).div_(1 - p)
