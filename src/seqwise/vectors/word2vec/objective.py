"""What an objective of word2vec offers: rows to learn, and a loop that learns them from blocks of text.

The loop runs in several threads at once, each with a scratch of its own. Nothing here imports numba.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import numpy as np

from seqwise.vectors.rows import aligned, closed_up
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.subwords import Subwords

LONGEST = 10_000  # words of a sentence; a longer line is cut
SPAN = 4096  # rows made at once: random numbers come in arrays of their own


class Objective(ABC):
    """Made for one vocabulary and resolved settings."""

    inputs: np.ndarray  # (V or more, padded D)
    outputs: np.ndarray | None  # None once the vectors were taken
    block = 10_000  # items that are learned from at once: the rate changes as often, and Ctrl-C is heard as often

    def __init__(self, words: list[str], counts: np.ndarray, settings: VectorSettings):
        self.words, self.counts, self.settings = words, counts, settings

    @abstractmethod
    def scratch(self) -> Any:
        """What one thread needs for itself. Two threads never write into the same line of memory."""

    @abstractmethod
    def train(self, block: np.ndarray, state: np.uint64, rate: float, scratch: Any, tally: np.ndarray) -> None:
        """Learn from a block of ids, where -1 ends a sentence. `tally` gains (loss, pairs)."""

    def vectors(self) -> np.ndarray:
        """(V, D) float32: the input row of each word. Ends the training; nothing is copied: memory is full then."""
        if self.outputs is not None:
            self.outputs, self.inputs = None, closed_up(self.inputs, self.settings.dim)
        return self.inputs

    def subwords(self) -> Subwords | None:
        """The vectors of n-grams, where there are any."""
        return None


def objective_of(words: list[str], counts: np.ndarray, settings: VectorSettings) -> Objective:
    """The objective that settings ask for. Imports numba, but for negative sampling without n-grams."""
    module, name = "sampling", "NegativeSampling"
    if settings.subwords:
        module, name = "subword", "SubwordSampling"
    elif settings.loss == "softmax":
        module, name = "softmax", "FullSoftmax"
    elif settings.loss == "hierarchical":
        module, name = "hierarchical", "HierarchicalSoftmax"
    return getattr(import_module(f"seqwise.vectors.word2vec.{module}"), name)(words, counts, settings)


def new_inputs(rows: int, dim: int, seed: int) -> np.ndarray:
    """(rows, padded dim): even between ±1/2 divided by dim, as word2vec begins; padding is zero and stays so."""
    matrix, random = aligned(rows, dim), np.random.default_rng([seed, 0])
    for start in range(0, rows, SPAN):
        part = matrix[start : start + SPAN, :dim]
        part[:] = (random.random(part.shape, dtype=np.float32) - 0.5) / dim
    return matrix
