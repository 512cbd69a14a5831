"""`CharacterCNN`: word vectors from characters, also for words that training does not have.

A convolution over neighbouring characters, and the maximum over the word (Santos & Zadrozny 2014, section 2.1.2; Ma &
Hovy 2016, section 2.1). It knows nothing of word ids.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.record import record_value

PADDING = 0  # the id after a word's last character


class CharacterCNN(nn.Module):
    """Character ids (W, L), padded with 0 → one vector per word (W, width).

        a[i] = relu(b + Σ_k  W_k · E[c[i + k]])        k from -⌊K/2⌋ to ⌊K/2⌋, zeros beyond the word's ends
        feature = max over i of a[i]

    `W_k · E[c]` has only as many values as there are characters, so they are computed once as a table and looked up.
    """

    def __init__(self, num_characters: int, width: int, embedding_size: int = 32, kernel_size: int = 3):
        super().__init__()
        self.num_characters, self.width = num_characters, width
        self.embedding_size, self.kernel_size = embedding_size, kernel_size
        self.vectors = nn.Parameter(torch.empty(num_characters, embedding_size))
        self.filters = nn.Parameter(torch.empty(embedding_size, kernel_size * width))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.normal_(self.vectors)
        nn.init.normal_(self.filters, std=(2 / (kernel_size * embedding_size)) ** 0.5)  # He et al. 2015, before a ReLU

    def forward(self, characters: Tensor) -> Tensor:
        mask = (characters != PADDING)[..., None]
        table = self.vectors @ self.filters  # (num_characters, kernel_size · width)
        products = F.embedding(characters, table).masked_fill(~mask, 0.0)  # (W, L, kernel_size · width)
        margin = self.kernel_size // 2
        products = F.pad(products, (0, 0, margin, margin))
        steps = characters.shape[1]
        total: Tensor = self.bias
        for k in range(self.kernel_size):
            total = total + products[:, k : k + steps, k * self.width : (k + 1) * self.width]
        # After the ReLU nothing is negative, so a zero in the padding never exceeds a real position.
        active = F.relu(total).masked_fill(~mask, 0.0)  # (W, L, width)
        features = active.amax(dim=1)
        record_value(self, "features", features)
        return features

    def extra_repr(self) -> str:
        sizes = f"embedding_size={self.embedding_size}, kernel_size={self.kernel_size}"
        return f"{self.num_characters}, {self.width}, {sizes}"
