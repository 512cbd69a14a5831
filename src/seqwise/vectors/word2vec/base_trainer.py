"""What the trainers of word2vec share on CPU and GPU: progress, losses and their check. Nothing here imports numba."""

from __future__ import annotations

import math
import time
from abc import abstractmethod

import numpy as np

from seqwise.errors import NonFiniteError
from seqwise.vectors.corpus import Sentences
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.trainer import VectorStep, VectorTrainer, format_count

FINAL_RATE = 0.004  # share of the learning rate that is left at the end, as 0.0001 of 0.025 in word2vec


class BaseWord2VecTrainer(VectorTrainer):
    """Skip-gram or CBOW; subclasses update the rows and add to `items_done`."""

    def __init__(self, sentences: Sentences, settings: ResolvedVectorSettings, hardware: str):
        super().__init__(sentences, settings)
        self.description = f"{describe(settings)}, {format_count(settings.epochs, 'epoch')}, {hardware}"
        self.items_done = 0
        self.items_planned = settings.epochs * sentences.items

    @abstractmethod
    def sum_losses(self, epochs: slice) -> np.ndarray:
        """Returns (loss, pairs) of each of the epochs."""

    @property
    def losses(self) -> list[float | None]:
        return [float(loss / pairs) if pairs else None for loss, pairs in self.sum_losses(slice(None))]

    @property
    def progress(self) -> float:
        return self.items_done / self.items_planned

    def compute_learning_rate(self, progress: float) -> float:
        """Returns the learning rate after a share of the training: it decays linearly."""
        return self.settings.learning_rate * max(1 - progress, FINAL_RATE)

    def make_step(self, epoch: int, start: float, finished: bool) -> VectorStep:
        """Returns the progress; raises an error at the end of an epoch in which training diverged."""
        words = self.progress * self.settings.epochs * self.sentences.words
        speed = words / max(time.monotonic() - start, 1e-9)
        ((loss_sum, pairs),) = self.sum_losses(slice(epoch, epoch + 1))
        loss = float(loss_sum / pairs) if pairs else None
        if finished:
            check_loss(loss, epoch, self.settings)
        return VectorStep("training", epoch, self.progress, speed, loss, finished)


def check_loss(loss: float | None, epoch: int, settings: ResolvedVectorSettings) -> None:
    """Raises an error if training diverged: the loss is not finite, or far above that of untrained vectors."""
    untrained = (1 + settings.negative) * math.log(2) if settings.loss == "negative" else math.inf
    if loss is not None and not loss < 3 * untrained:
        raise NonFiniteError(
            f"training diverged: the loss is {loss:g} in epoch {epoch + 1}.",
            repair=f"Train with a smaller --learning-rate than {settings.learning_rate:g}.",
        )


def describe(settings: ResolvedVectorSettings) -> str:
    """Returns the method and its settings in words."""
    name = {"skipgram": "skip-gram", "cbow": "CBOW"}[settings.method]
    loss = {
        "negative": f"{settings.negative} negatives",
        "softmax": "full softmax",
        "hierarchical": "hierarchical softmax",
    }[settings.loss]
    ngrams = f", n-grams of {settings.min_n} to {settings.max_n} characters" if settings.subwords else ""
    return (
        f"{name}: {settings.dim} dimensions, window {settings.window}, {loss}{ngrams}, "
        f"learning rate {settings.learning_rate:g}"
    )
