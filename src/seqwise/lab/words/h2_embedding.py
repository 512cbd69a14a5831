"""H2: an embedding layer is a linear layer on one-hot vectors, without the multiplications by zero.

    E[w] = e_wᵀ E            e_w: one-hot vector of word w,  E: matrix (V, D)
    ∂L/∂E = Σ_t e_{w_t} gₜᵀ    gₜ: gradient of the loss with respect to the vector at step t

A one-hot row times a matrix picks one of its rows, so a lookup computes the same numbers. The same holds for training:
the gradient of the lookup adds gₜ to the row of the word at step t, which is what the transposed product does; rows of
words that do not occur in the batch get no gradient. Only the cost differs: the product takes V · D multiplications per
word and needs the one-hot vectors in memory, the lookup copies D numbers. Both results are compared to the last bit,
because adding zeros rounds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Embedding, OneHot
from seqwise.page.figures import Figure, LineChart, Series

REPEATS = 5  # of a timing, of which the fastest counts


@dataclass(frozen=True, kw_only=True)
class EmbeddingIsProduct(Experiment):
    id = "H2"
    claim = "An embedding is a one-hot vector times a matrix."
    equation = "E[w] = e_wᵀ E"
    measurement = "The vectors and the gradients of the matrix, by lookup and by product; the time of both against V."
    rule = "Holds if vectors are equal to the bit and gradients to 1e-12, for the largest vocabulary."
    try_next = "seqwise lab run H2 --vocabulary 16000: the lookup takes as long as before, the product in proportion."
    seconds = 1.0
    quick: ClassVar = {"vocabulary": 2000}

    vocabulary: int = 8000
    """Size of the largest vocabulary; the times are also measured at 1/2, 1/4, … of it."""
    width: int = 64
    """Dimension of the vectors."""
    words: int = 200
    """Words that are looked up at once."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        ids = torch.randint(self.vocabulary, (self.words,), generator=generator)
        weights = torch.randn(self.words, self.width, dtype=torch.float64, generator=generator)  # loss = Σ weights · E
        embedding = Embedding(self.vocabulary, self.width).double()
        looked_up, multiplied = embedding(ids), self.multiply(embedding, ids)
        (gradient,) = torch.autograd.grad((looked_up * weights).sum(), embedding.weight)
        (product_gradient,) = torch.autograd.grad((multiplied * weights).sum(), embedding.weight)
        sizes = np.array([self.vocabulary // 2**k for k in (5, 4, 3, 2, 1, 0) if self.vocabulary >= 2**k])
        times = np.array([self.measure_times(int(size)) for size in sizes])
        return {
            "largest_difference": float((looked_up - multiplied).detach().abs().max()),
            "largest_difference_of_gradients": float((gradient - product_gradient).abs().max()),
            "rows_with_gradient": int((gradient != 0).any(dim=1).sum()),
            "distinct_words": int(ids.unique().numel()),
            "multiplications_per_word_by_product": self.vocabulary * self.width,
            "multiplications_per_word_by_lookup": 0,
            "microseconds_per_word_by_product": float(times[-1, 1]),
            "microseconds_per_word_by_lookup": float(times[-1, 0]),
            "sizes": sizes,
            "times": times,
        }

    def multiply(self, embedding: Embedding, ids: Tensor) -> Tensor:
        """Returns the one-hot vectors times the matrix, (words, D)."""
        return OneHot(embedding.vocabulary).double()(ids) @ embedding.weight

    def measure_times(self, vocabulary: int) -> tuple[float, float]:
        """Returns the microseconds per word of a lookup and of a product in a vocabulary of this size."""
        embedding, ids = Embedding(vocabulary, self.width).double(), torch.arange(self.words) % vocabulary
        with torch.no_grad():
            times = [
                self.measure_time(lambda: embedding(ids)),
                self.measure_time(lambda: self.multiply(embedding, ids)),
            ]
        return 1e6 * times[0] / self.words, 1e6 * times[1] / self.words

    def measure_time(self, compute: Callable[[], Tensor]) -> float:
        """Returns the seconds of the fastest of some calls."""
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            compute()
            times.append(time.perf_counter() - start)
        return min(times)

    def judge(self, measured: Measured) -> Verdict:
        difference, gradients = measured["largest_difference"], measured["largest_difference_of_gradients"]
        ratio = measured["microseconds_per_word_by_product"] / measured["microseconds_per_word_by_lookup"]
        return decide(
            difference == 0 and gradients < 1e-12,
            evidence=f"Vectors differ by {difference:g} and gradients by {gradients:.2g}; "
            f"the product took {ratio:,.0f} times as long as the lookup.",
            instead="The lookup and the product compute different vectors or gradients.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = ("lookup", "one-hot product")
        chart = LineChart(
            title="Time of an embedding by lookup and as a product with one-hot vectors",
            series=[
                Series(name=name, x=measured["sizes"], y=measured["times"][:, column])
                for column, name in enumerate(names)
            ],
            x_label="vocabulary size V (words)",
            y_label="time per word (µs)",
            x_log=True,
            y_log=True,
            note="Both compute the same vectors; the product multiplies by V − 1 zeros for each number that it picks.",
        )
        return [chart]
