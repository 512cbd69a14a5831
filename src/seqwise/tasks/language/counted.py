"""The n-gram model behind the door of the neural ones: it reads ids, carries a history and gives scores."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqwise.backbones.states import ModelState
from seqwise.ngram import NGram


class CountedModel:
    """Counts that predict the next token. They are scored as a whole (`scoring.py`), not batch by batch."""

    def __init__(self, counts: NGram):
        self.counts = counts

    def next(self, ids: Tensor, carry: ModelState = None) -> tuple[Tensor, ModelState]:
        """The carry is the history: as many tokens as the longest n-gram looks back."""
        history = ids if carry is None else torch.cat([carry, ids], dim=1)
        history = history[:, -max(1, self.counts.order - 1) :]
        scores = np.stack([np.log(self.counts.distribution(row.numpy())) for row in history])
        return torch.from_numpy(scores), history
