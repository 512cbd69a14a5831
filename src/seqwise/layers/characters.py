"""Word vectors made of characters: what spelling tells of a word that was never seen. It knows nothing of words' ids.

A filter sees a few neighbouring characters at a time; the largest answer anywhere in the word is kept (Santos &
Zadrozny 2014, section 2.1.2; Ma & Hovy 2016, section 2.1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.record import record_value

NONE = 0  # the id of padding


class CharacterFeatures(nn.Module):
    """Ids of characters (W, L), 0 behind a word's last → one vector per word (W, width).

        a[i] = relu(b + Σ_k  W_k · E[c[i + k]])        k from -reach to reach, nothing beyond the word's ends
        feature = max over i of a[i]

    `W_k · E[c]` has as many values as there are characters, so it is a table that is computed once and looked up.
    """

    def __init__(self, alphabet: int, width: int, embedding: int = 32, reach: int = 1, dropout: float = 0.0):
        super().__init__()
        self.alphabet, self.width, self.embedding, self.reach = alphabet, width, embedding, reach
        self.window = 2 * reach + 1
        self.vectors = nn.Parameter(torch.empty(alphabet, embedding))
        self.filters = nn.Parameter(torch.empty(embedding, self.window * width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.vectors)
        nn.init.normal_(self.filters, std=(2 / (self.window * embedding)) ** 0.5)  # variance 2 / inputs before a ReLU

    def forward(self, letters: Tensor) -> Tensor:
        real = letters != NONE
        table = self.dropout(self.vectors) @ self.filters  # (alphabet, window · width)
        answers = F.embedding(letters, table).masked_fill(~real[..., None], 0.0)  # (W, L, window · width)
        padded = F.pad(answers, (0, 0, self.reach, self.reach))
        steps = letters.shape[1]
        total: Tensor = self.bias
        for k in range(self.window):
            total = total + padded[:, k : k + steps, k * self.width : (k + 1) * self.width]
        # After the ReLU nothing is below zero, so zeros in the padding never win against a real position.
        active = F.relu(total).masked_fill(~real[..., None], 0.0)  # (W, L, width)
        features = active.amax(dim=1)
        record_value(self, "features", features)
        return features

    def extra_repr(self) -> str:
        return f"{self.alphabet}, {self.width}, embedding={self.embedding}, reach={self.reach}"
