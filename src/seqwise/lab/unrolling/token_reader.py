"""`TokenReader`: four networks that name one token of a sequence, for the question of B4 what they know of places."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.layers import CharacterCNN, Encoder, GRUCell, LearnedPositions, OneHot, PreNormEncoderLayer, Recurrent


class TokenReader(nn.Module):
    """Names one of V tokens, by one of four networks that read ids 1 … 2V: a token, or a token with a mark."""

    def __init__(self, kind: str, tokens: int, length: int, units: int):
        super().__init__()
        self.kind, self.one_hot = kind, OneHot(2 * tokens + 1)
        self.embed, self.output = nn.Linear(2 * tokens + 1, units), nn.Linear(units, tokens)
        self.network: nn.Module = {
            "convolution": lambda: CharacterCNN(2 * tokens + 1, units, kernel_size=1),
            "gru": lambda: Recurrent(GRUCell(units, units)),
            "positions": lambda: Encoder([PreNormEncoderLayer(units, 2, 2 * units, "gelu")]),
            "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(length * (2 * tokens + 1), units)),
        }[kind]()
        self.positions = LearnedPositions(units, length)

    def forward(self, ids: Tensor) -> Tensor:
        if self.kind in ("convolution", "dense"):
            return self.output(self.network(ids if self.kind == "convolution" else self.one_hot(ids)))
        vectors = self.embed(self.one_hot(ids))
        if self.kind == "gru":
            return self.output(self.network(vectors)[0][:, -1])
        return self.output(self.network(self.positions(vectors), causal=False)[0].mean(1))


def compute_loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(ids), targets, reduction="none")


def compute_accuracy(model: nn.Module, ids: Tensor, targets: Tensor) -> float:
    with torch.no_grad():
        return float((model(ids).argmax(-1) == targets).double().mean())
