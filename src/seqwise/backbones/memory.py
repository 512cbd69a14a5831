"""What an encoder hands to a decoder, and what every decoder promises. It knows nothing of tokens or of searching.

A decoder is called as `decoder(vectors, carry, memory) → Decoded`. Without a carry it begins a sequence over the
memory. With one it reads on, and the memory is not looked at again: `start(memory)` has put into the carry what is
needed of it. So a search first calls `start`, then reads one step at a time.

While a search runs, each row of the memory has k rows of the decoder, its beams: row r belongs to memory row r // k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.states import ModelState, States, map_state
from seqwise.layers.attention import padding_mask


@dataclass(frozen=True)
class Memory:
    """One vector per position of what was read: words of a source, regions of a picture."""

    vectors: Tensor  # (B, S, D)
    lengths: Tensor | None = None  # (B,); None: all rows are full

    def mask(self) -> Tensor | None:
        """(B, 1, S): the positions that are there."""
        if self.lengths is None:
            return None
        return padding_mask(self.lengths.to(self.vectors.device), self.vectors.shape[1])

    def summary(self) -> Tensor:
        """(B, 3D): the vector at the first position, at the last real one, and the mean of all real ones.

        Of a recurrent encoder the last holds the state of the forward direction, the first that of the backward one.
        """
        vectors, lengths = self.vectors, self.lengths
        if lengths is None:
            return torch.cat([vectors[:, 0], vectors[:, -1], vectors.mean(1)], dim=-1)
        count = lengths.to(vectors.device).clamp(min=1)
        real = torch.arange(vectors.shape[1], device=vectors.device) < count[:, None]
        mean = vectors.masked_fill(~real[..., None], 0).sum(1) / count[:, None]
        last = vectors.gather(1, (count - 1)[:, None, None].expand(-1, 1, vectors.shape[2]))[:, 0]
        return torch.cat([vectors[:, 0], last, mean], dim=-1)


def join_memories(memories: Sequence[Memory]) -> Memory:
    """The rows of several memories as one: encoding is cheapest in batches of like length, searching in large ones."""
    longest = max(memory.vectors.shape[1] for memory in memories)
    vectors = [F.pad(memory.vectors, (0, 0, 0, longest - memory.vectors.shape[1])) for memory in memories]
    lengths = [
        torch.full((len(memory.vectors),), memory.vectors.shape[1], device=memory.vectors.device)
        if memory.lengths is None
        else memory.lengths.to(memory.vectors.device)
        for memory in memories
    ]
    return Memory(torch.cat(vectors), torch.cat(lengths))


@dataclass(frozen=True)
class Decoded(States):
    """States, and where the decoder looked: (R, T, S), each row summing to 1. None unless asked for, or without any."""

    weights: Tensor | None = None


class Decoder(nn.Module, ABC):
    """Vectors of what was written so far, over a memory → states from which the next token follows.

    The carry of the recurrent ones is (shared, own): tensors with a row per memory row, and with a row per decoder
    row. A carry is used once: reading on from it may overwrite it.
    """

    width: int

    @abstractmethod
    def start(self, memory: Memory) -> ModelState:
        """What a sequence begins with, projected keys and values included."""

    @abstractmethod
    def forward(
        self, vectors: Tensor, carry: ModelState = None, memory: Memory | None = None, weights: bool = False
    ) -> Decoded:
        """vectors (R, T, D) → states (R, T, width) and the carry that continues them."""

    def select(self, carry: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState:
        """The carry with decoder rows in another order or number, and with these memory rows only.

        `rows` (R',) and `sources` (B',) count the rows of the carry that is given; without `sources` all stay.
        """
        shared, own = carry
        if sources is not None:
            shared = map_state(lambda part: part.index_select(0, sources), shared)
        return shared, map_state(lambda part: part.index_select(0, rows), own)


def begun(carry: ModelState, memory: Memory | None, decoder: Any) -> ModelState:
    """The carry, or a new one over the memory."""
    if carry is not None:
        return carry
    if memory is None:
        raise ValueError("a decoder begins over a memory")
    return decoder.start(memory)
