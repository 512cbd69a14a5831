"""Ids of words or characters → vectors. It knows nothing of what an id stands for.

A one-hot row times a matrix picks one row of that matrix, so `OneHot(V)(ids) @ embedding.weight` equals
`embedding(ids)`. The lookup is the same map without the multiplications by zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.dropout import drop_rows
from seqwise.layers.record import record_value


class Embedding(nn.Module):
    """One row of `weight` per word type.

    Initial entries are normal with standard deviation 1/√D (tensor2tensor, fairseq): a vector then has norm 1 whatever
    the width. Used as a tied output matrix it gives logits of variance 1 for states whose entries have variance 1, and
    times √D it gives inputs of variance 1 (Vaswani et al. 2017, §3.4).

    `dropout` drops whole word types: all occurrences of a word in the batch together (Gal & Ghahramani 2016, §4.2;
    Merity et al. 2018, §4.3). With `keep_first`, the first position of each sequence keeps its vector.

    Frozen rows get no gradient. An optimizer must not decay the weights of this matrix if `frozen` is not None.
    """

    frozen: Tensor | None  # (V,) bool: the rows that are not trained

    def __init__(self, vocabulary: int, width: int, dropout: float = 0.0, keep_first: bool = False):
        super().__init__()
        self.vocabulary, self.width, self.dropout, self.keep_first = vocabulary, width, dropout, keep_first
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.register_buffer("frozen", None, persistent=False)

    def freeze(self, ids: Tensor) -> None:
        """Excludes the rows of these ids from training, also if the matrix is the tied output."""
        frozen = torch.zeros(self.vocabulary, dtype=torch.bool, device=self.weight.device)
        frozen[ids.to(frozen.device)] = True
        self.frozen = frozen

        def zero_frozen(gradient: Tensor) -> Tensor:
            return gradient.masked_fill(frozen[:, None], 0.0)

        zero_frozen.repeatable = True  # type: ignore[attr-defined] # it has no side effects: see training/replay.py
        self.weight.register_hook(zero_frozen)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns the vectors (…, D) of ids (…)."""
        vectors = F.embedding(ids, self.weight)
        if self.training and self.dropout > 0.0:
            # One factor per word type, applied after the lookup: a batch holds far fewer entries than the matrix.
            factor = drop_rows(self.weight.new_ones(self.vocabulary, 1), self.dropout, self.training)[ids]
            if self.keep_first:
                factor[:, 0] = 1.0
            vectors = vectors * factor
        record_value(self, "vectors", vectors)
        return vectors

    def extra_repr(self) -> str:
        return f"{self.vocabulary}, {self.width}, dropout={self.dropout}"


class OneHot(nn.Module):
    """Turns ids into vectors of zeros with a single one. It has no weights."""

    dtype_of_result: Tensor

    def __init__(self, vocabulary: int):
        super().__init__()
        self.vocabulary = vocabulary
        # An empty buffer follows `.to(dtype)`, so that the result has the dtype of the layers around it.
        self.register_buffer("dtype_of_result", torch.empty(0), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return F.one_hot(ids, self.vocabulary).to(self.dtype_of_result.dtype)  # (…, V)

    def extra_repr(self) -> str:
        return f"{self.vocabulary}"


class CharacterCNN(nn.Module):
    """Computes the vectors of words, also of unknown ones, from their characters.

    A convolution over neighbouring characters, and the maximum over the word (Santos & Zadrozny 2014, section 2.1.2;
    Ma & Hovy 2016, section 2.1):

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
        """Returns the vectors (W, width) of W words, given the ids of their characters (W, L), padded with 0."""
        mask = (characters != 0)[..., None]
        table = self.vectors @ self.filters  # (num_characters, kernel_size · width)
        products = F.embedding(characters, table).masked_fill(~mask, 0.0)  # (W, L, kernel_size · width)
        margin = self.kernel_size // 2
        products = F.pad(products, (0, 0, margin, margin))
        steps = characters.shape[1]
        total: Tensor = self.bias
        for k in range(self.kernel_size):
            total = total + products[:, k : k + steps, k * self.width : (k + 1) * self.width]
        # After the ReLU nothing is negative, so a zero in the padding never exceeds a real position.
        activations = F.relu(total).masked_fill(~mask, 0.0)  # (W, L, width)
        features = activations.amax(dim=1)
        record_value(self, "features", features)
        return features

    def extra_repr(self) -> str:
        sizes = self.num_characters, self.width, self.embedding_size, self.kernel_size
        return ", ".join(map(str, sizes))
