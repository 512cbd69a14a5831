"""H13: do dot product, cosine and scaled dot product rank neighbours differently?

    dot = u·v        cosine = u·v / (‖u‖ ‖v‖)        scaled dot = u·v / √D

For a query u, ranking by cosine divides each dot product by the norm of the other vector, so long vectors lose places;
the norms of trained word vectors differ, depending on frequency and on how varied a word's contexts are (Schakel and
Wilson 2015). The scaled dot product divides all of them by one constant, √D. That changes the softmax of attention,
which is why Transformers do it (F6), but never a ranking. If all vectors have the same norm, the three agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.page.figures import BarChart, Figure
from seqwise.vectors import KeyedVectors, train_vectors
from seqwise.vectors.keyed import SimilarityMeasure

PAIRS: tuple[tuple[SimilarityMeasure, SimilarityMeasure], ...] = (
    ("cosine", "dot"),
    ("cosine", "scaled"),
    ("dot", "scaled"),
)


@dataclass(frozen=True, kw_only=True)
class Similarities(Experiment):
    id = "H13"
    claim = "Dot, cosine and scaled dot rank neighbours differently."
    equation = "order of u·v ≠ order of u·v / (‖u‖ ‖v‖) ≠ order of u·v / √D"
    measurement = (
        "The share of a word's ten nearest neighbours that two measures have in common, for skip-gram vectors "
    )
    measurement += "of a built-in text, averaged over frequent words."
    rule = "True of two measures if they share less than 90 % of the neighbours; tested for cosine and dot product, "
    "and "
    rule += "for dot and scaled dot product."
    try_next = "seqwise lab run H13 --epochs 20: after longer training cosine and dot product share more neighbours."
    seconds = 2.0
    quick: ClassVar = {"epochs": 2}

    text: str = "builtin:docs"
    """Text of which vectors are trained."""
    dim: int = 50
    """Dimension of the vectors."""
    epochs: int = 5
    """Passes over the text."""
    queries: int = 200
    """Frequent words whose neighbours are compared."""
    neighbours: int = 10
    """Neighbours of a word."""

    def measure(self) -> Measured:
        vectors = train_vectors(
            self.text, dim=self.dim, epochs=self.epochs, learning_rate=0.05, threads=1, device="cpu", seed=self.seed
        )
        vectors = self.prepare(vectors)
        words = vectors.words[: self.queries]
        lists = {by: [self.find_neighbours(vectors, word, by) for word in words] for by in ("dot", "cosine", "scaled")}
        shared = {
            pair: float(np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(*map(lists.get, pair), strict=True)]))
            for pair in PAIRS
        }
        same_order = np.mean([a == b for a, b in zip(lists["dot"], lists["scaled"], strict=True)])
        norms = vectors.norms
        return {
            "words": len(vectors),
            "largest_norm": float(norms.max()),
            "smallest_norm": float(norms.min()),
            **{f"neighbours_shared_by_{a}_and_{b}": value for (a, b), value in shared.items()},
            "words_that_dot_and_scaled_rank_alike": float(same_order),
            "shared": np.array([shared[pair] for pair in PAIRS]),
        }

    def prepare(self, vectors: KeyedVectors) -> KeyedVectors:
        """Returns the vectors to compare: as they were trained."""
        return vectors

    def find_neighbours(self, vectors: KeyedVectors, word: str, by: SimilarityMeasure) -> list[str]:
        """Returns the nearest words, nearest first."""
        return [neighbour.word for neighbour in vectors.nearest(word, self.neighbours, by)]

    def judge(self, measured: Measured) -> Verdict:
        cosine_dot, dot_scaled = (
            measured["neighbours_shared_by_cosine_and_dot"],
            measured["neighbours_shared_by_dot_and_scaled"],
        )
        return decide_condition(
            cosine_dot < 0.9,
            dot_scaled < 0.9,
            condition="cosine is compared with one of the other two and norms differ; dot and scaled dot rank alike",
            evidence=f"Cosine and dot product share {100 * cosine_dot:.0f} % of the neighbours, dot and scaled dot "
            f"product {100 * dot_scaled:.0f} %; norms are between {measured['smallest_norm']:.2g} and "
            f"{measured['largest_norm']:.2g}.",
            instead="Here all three measures rank neighbours nearly alike, as they do if all norms are equal.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = BarChart(
            title=f"Nearest {self.neighbours} words of {self.queries} frequent words: agreement of three similarities",
            names=["cosine and dot", "cosine and scaled dot", "dot and scaled dot"],
            values=measured["shared"],
            value_label="share of the nearest words that both measures have",
            note="Dividing by √D changes no ranking; dividing by the norm of each word does, unless all norms are "
            "equal.",
        )
        return [chart]
