"""`Memory`: an encoder's output that a decoder attends to, and `Decoder`: the interface of all decoders.

A decoder is called as `decoder(vectors, state, memory) → DecoderOutput`. Without a state it begins a sequence over the
memory. With one it continues, and the memory is not needed: `start(memory)` has put what the decoder needs of it into
the state. So a search first calls `start`, then reads one step at a time.

In a search, each row of the memory has k rows of the decoder, its beams: row r belongs to memory row r // k. This
module knows nothing of tokens or of the search itself.
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
    """One vector per encoded position: words of a source, regions of an image."""

    vectors: Tensor  # (B, S, D)
    lengths: Tensor | None = None  # (B,); None: no padding

    def mask(self) -> Tensor | None:
        """(B, 1, S): the positions that are no padding."""
        if self.lengths is None:
            return None
        return padding_mask(self.lengths.to(self.vectors.device), self.vectors.shape[1])

    def summary(self) -> Tensor:
        """(B, 3D): the vector at the first position, at the last valid one, and the mean of all valid ones.

        In a recurrent encoder the last contains the final state of the forward direction, the first that of the
        backward direction.
        """
        vectors, lengths = self.vectors, self.lengths
        if lengths is None:
            return torch.cat([vectors[:, 0], vectors[:, -1], vectors.mean(1)], dim=-1)
        count = lengths.to(vectors.device).clamp(min=1)
        valid = torch.arange(vectors.shape[1], device=vectors.device) < count[:, None]
        mean = vectors.masked_fill(~valid[..., None], 0).sum(1) / count[:, None]
        last = vectors.gather(1, (count - 1)[:, None, None].expand(-1, 1, vectors.shape[2]))[:, 0]
        return torch.cat([vectors[:, 0], last, mean], dim=-1)


def concat_memories(memories: Sequence[Memory]) -> Memory:
    """The rows of several memories as one: encoding is fastest in batches of equal length, searching in large ones."""
    max_length = max(memory.vectors.shape[1] for memory in memories)
    vectors = [F.pad(memory.vectors, (0, 0, 0, max_length - memory.vectors.shape[1])) for memory in memories]
    lengths = [
        torch.full((len(memory.vectors),), memory.vectors.shape[1], device=memory.vectors.device)
        if memory.lengths is None
        else memory.lengths.to(memory.vectors.device)
        for memory in memories
    ]
    return Memory(torch.cat(vectors), torch.cat(lengths))


@dataclass(frozen=True)
class DecoderOutput(States):
    """States and attention weights (R, T, S), each row summing to 1; None unless requested, or without attention."""

    weights: Tensor | None = None


class Decoder(nn.Module, ABC):
    """Vectors of the target so far, over a memory → states from which the next token is predicted.

    The state of recurrent decoders is (shared, own): tensors with a row per memory row, and with a row per decoder
    row. A state is used once: continuing from it may overwrite it.
    """

    width: int

    @abstractmethod
    def start(self, memory: Memory) -> ModelState:
        """The state at the beginning of a sequence, projected keys and values included."""

    @abstractmethod
    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        """vectors (R, T, D) → states (R, T, width) and the state that continues them."""

    def select(self, state: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState:
        """The state with decoder rows in another order or number, and with these memory rows only.

        `rows` (R',) and `sources` (B',) are indices into the rows of `state`; without `sources` all memory rows stay.
        """
        shared, own = state
        if sources is not None:
            shared = map_state(lambda part: part.index_select(0, sources), shared)
        return shared, map_state(lambda part: part.index_select(0, rows), own)


def continue_or_start(state: ModelState, memory: Memory | None, decoder: Any) -> ModelState:
    """The state, or without one the state of `decoder` at the beginning of a sequence over the memory."""
    if state is not None:
        return state
    if memory is None:
        raise ValueError("a decoder needs a state or a memory")
    return decoder.start(memory)
