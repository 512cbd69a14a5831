"""What experiments about the senses of "bank" share: parameters, small models whose states are contextual vectors, and
how well such vectors separate the senses.

    MaskedModel          a masked word is predicted from the words on both sides, by LSTMs or by self-attention (BERT)
    TwoDirectionModel    two LSTM language models, one per reading direction (ELMo: Peters et al. 2018, section 3.1)

None of them is trained on senses: only on words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.lab.experiment import Experiment
from seqwise.lab.fitting import fit, make_generator
from seqwise.lab.words.grammar import SenseLanguage
from seqwise.layers import Bidirectional, Embedding, FullSoftmax, LSTMCell, PreNormEncoderLayer, Recurrent

MASK_SHARE = 0.2  # of the words that are masked in training


@dataclass(frozen=True, kw_only=True)
class SenseExperiment(Experiment):
    """Trains models on sentences with "bank" and compares their vectors of it."""

    minimums: ClassVar = {"width": 2, "topic_share": 0.0, "occurrences": 20}
    maximums: ClassVar = {"topic_share": 1.0}

    steps: int = 150
    """Training steps of each model, of 32 sentences each."""
    width: int = 32
    """Width of the vectors, both directions of LSTMs together."""
    topic_share: float = 0.6
    """Share of the words around "bank" that reveal its sense."""
    occurrences: int = 400
    """Occurrences of "bank", half of them for the prototypes."""

    @property
    def language(self) -> SenseLanguage:
        return SenseLanguage(topic_share=self.topic_share)

    def draw_occurrences(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sentences (B, T), the position of "bank" in each (B,), and its sense (B,)."""
        return self.language.draw(self.occurrences, make_generator(self.seed, 1))


class BidirectionalLSTM(nn.Module):
    """Embedding and a bidirectional LSTM: ids (B, T) → states (B, T, 2U)."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.embedding = Embedding(vocabulary, width)
        self.layer = Bidirectional(*(Recurrent(LSTMCell(width, width // 2)) for _ in range(2)))

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embedding(ids))[0]


class SelfAttention(nn.Module):
    """Embedding and Transformer layers without positions: ids (B, T) → states (B, T, D).

    With `is_isolated` each position attends to itself alone.
    """

    def __init__(self, vocabulary: int, width: int, layers: int = 2, is_isolated: bool = False):
        super().__init__()
        self.embedding, self.is_isolated = Embedding(vocabulary, width), is_isolated
        self.layers = nn.ModuleList(PreNormEncoderLayer(width, 2, 2 * width, "relu") for _ in range(layers))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.embedding.width**0.5
        mask = torch.eye(ids.shape[1], dtype=torch.bool) if self.is_isolated else None
        for layer in self.layers:
            x, _ = layer(x, mask)
        return x


class MaskedModel(nn.Module):
    """Predicts masked words from the states of an encoder."""

    def __init__(self, encoder: nn.Module, vocabulary: int, width: int):
        super().__init__()
        self.encoder, self.output = encoder, FullSoftmax(width, vocabulary)

    def compute_loss(self, ids: Tensor, is_masked: Tensor) -> Tensor:
        states = self.encoder(ids.masked_fill(is_masked, SenseLanguage.MASK))
        return self.output.loss(states[is_masked], ids[is_masked])

    def encode(self, ids: Tensor) -> Tensor:
        """Returns the states (B, T, D) of whole sentences."""
        return self.encoder(ids)


class TwoDirectionModel(nn.Module):
    """Two language models: one predicts the next word, one the previous. They share the embedding and the softmax."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.embedding, self.output = Embedding(vocabulary, width), FullSoftmax(width // 2, vocabulary)
        self.layers = nn.ModuleList(Recurrent(LSTMCell(width, width // 2)) for _ in range(2))

    def compute_loss(self, ids: Tensor, is_masked: Tensor) -> Tensor:
        losses = []
        for layer, sentence in zip(self.layers, (ids, ids.flip(1)), strict=True):
            states, _ = layer(self.embedding(sentence[:, :-1]))
            losses.append(self.output.loss(states.flatten(0, 1), sentence[:, 1:].flatten()))
        return torch.cat(losses)

    def encode(self, ids: Tensor) -> Tensor:
        """Returns the states of both directions side by side, (B, T, D)."""
        vectors = self.embedding(ids)
        return torch.cat([self.layers[0](vectors)[0], self.layers[1](vectors.flip(1))[0].flip(1)], dim=-1)


def train(model: MaskedModel | TwoDirectionModel, language: SenseLanguage, steps: int, seed: int) -> list[float]:
    """Trains a model on sentences of the language; returns the loss of each step."""

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        ids, _, _ = language.draw(32, generator)
        return ids, torch.rand(ids.shape, generator=generator) < MASK_SHARE

    return fit(model, draw, lambda _, ids, is_masked: model.compute_loss(ids, is_masked), steps=steps, seed=seed)


def measure_separation(vectors: Tensor, senses: Tensor) -> float:
    """Returns the accuracy of assigning vectors (N, D) to the nearest of two senses by cosine; ties count one half.

    A sense is represented by the mean of its unit vectors in the first half of the examples; the second half is
    assigned.
    """
    units, half = F.normalize(vectors.double(), dim=-1), len(vectors) // 2
    means = torch.stack([units[:half][senses[:half] == sense].mean(dim=0) for sense in (0, 1)])
    cosines = units[half:] @ F.normalize(means, dim=-1).T  # (N/2, 2)
    margins = cosines.gather(1, senses[half:, None]) - cosines.gather(1, 1 - senses[half:, None])
    is_tie = margins.abs() < 1e-9
    return float(torch.where(is_tie, 0.5, (margins > 0).double()).mean())
