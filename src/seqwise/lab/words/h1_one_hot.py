"""H1: what is a one-hot vector?

    e_wᵀ e_v = 1 if w = v, else 0        e_w ∈ {0, 1}^V

Word number w becomes a vector of V numbers, all zero but the one at place w. Any two words are then orthogonal and at
the same distance √2: "hotel" is as far from "motel" as from "the", so a model learns nothing about one from the other.
This is why the next layer is an embedding (H2), whose vectors are narrower than the vocabulary and may be similar (H3).
A binary code, the digits of the word's number, would need only log₂ V places, but its vectors are not orthogonal: words
with neighbouring numbers would look alike for no reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import OneHot
from seqwise.page.figures import Figure, Heatmap

WORDS = ("the", "hotel", "motel", "is", "near", "a", "river", "bank")


@dataclass(frozen=True, kw_only=True)
class OneHotVectors(Experiment):
    id = "H1"
    claim = "One-hot vectors are orthogonal, sparse, as wide as the vocabulary."
    equation = "e_wᵀ e_v = 1 if w = v, else 0;  e_w ∈ {0, 1}^V"
    measurement = "All inner products of the one-hot vectors of a vocabulary, their non-zero entries and their width."
    rule = "Holds if the matrix of inner products is the identity, each vector has one non-zero entry, and width is V."
    try_next = "seqwise lab run H1 --vocabulary 2000: the share of non-zero entries is 1/V, the memory grows as V²."
    seconds = 0.1

    vocabulary: int = 500
    """Number of words."""

    def measure(self) -> Measured:
        vectors = self.encode(torch.arange(self.vocabulary), self.vocabulary)  # (V, width)
        products = vectors @ vectors.T
        identity = torch.eye(self.vocabulary, dtype=torch.float64)
        words = self.encode(torch.arange(len(WORDS)), len(WORDS))
        return {
            "vocabulary": self.vocabulary,
            "width": vectors.shape[1],
            "non_zero_entries_per_vector": float((vectors != 0).sum(dim=1).double().max()),
            "share_of_non_zero_entries": float((vectors != 0).double().mean()),
            "largest_product_of_two_words": float((products - torch.diag(products.diagonal())).abs().max()),
            "largest_deviation_from_identity": float((products - identity).abs().max()),
            "distance_of_two_words": float(torch.dist(vectors[0], vectors[-1])),
            "products_of_words": (words @ words.T).numpy(),
        }

    def encode(self, ids: Tensor, vocabulary: int) -> Tensor:
        """Returns the vectors (words, V) of ids."""
        return OneHot(vocabulary).double()(ids)

    def judge(self, measured: Measured) -> Verdict:
        deviation, non_zero = measured["largest_deviation_from_identity"], measured["non_zero_entries_per_vector"]
        width, vocabulary = measured["width"], measured["vocabulary"]
        return decide(
            deviation == 0 and non_zero == 1 and width == vocabulary,
            evidence=f"For {vocabulary:,} words the vectors have {width:,} entries, at most {non_zero:g} of them not "
            f"zero; their inner products deviate from the identity matrix by {deviation:g}.",
            instead="These vectors are not one-hot: some overlap, have several non-zero entries or another width.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = Heatmap(
            title="Inner products of the one-hot vectors of eight words",
            values=np.asarray(measured["products_of_words"]),
            rows=WORDS,
            columns=WORDS,
            row_label="word",
            column_label="word",
            value_label="inner product of the two vectors",
            low=0.0,
            high=1.0,
            note="Only a word and itself have something in common: hotel is no nearer to motel than to any other word.",
        )
        return [chart]
