"""A small recurrent language model, which can read the true tokens or its own predictions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwise.layers import Embedding, FullSoftmax, GRUCell, Recurrent

PROMPT = 2  # true tokens with which free running starts


class NextTokenModel(nn.Module):
    """Embedding, a GRU and a softmax over the vocabulary."""

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.embedding, self.layer = Embedding(vocabulary, width), Recurrent(GRUCell(width, width))
        self.output = FullSoftmax(width, vocabulary)

    def force(self, ids: Tensor) -> Tensor:
        """Returns the logits (B, T − 1, V) of tokens 2 … T, with the true tokens as inputs."""
        return self.output.logits(self.layer(self.embedding(ids[:, :-1]))[0])

    def run_free(self, ids: Tensor) -> Tensor:
        """Returns the same logits with the likeliest token of each step as the next input, after the prompt."""
        cell, logits = self.layer.cell, list[Tensor]()
        state, weight_hidden = cell.start(len(ids), self.embedding.weight), self.layer.get_weight_hidden()
        for step in range(ids.shape[1] - 1):
            token = ids[:, step] if step < PROMPT else logits[-1].detach().argmax(dim=-1)
            state = cell.step(cell.project(self.embedding(token)), state, weight_hidden)
            logits.append(self.output.logits(state[0]))
        return torch.stack(logits, dim=1)
