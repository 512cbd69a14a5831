"""`Memory`: an encoder's output that a decoder attends to, and `Decoder`: the interface of all decoders.

A decoder is called as `decoder(vectors, state, memory) → DecoderOutput`. Without a state it begins a sequence over the
memory. With one it continues, and the memory is not needed: `start(memory)` has put what the decoder needs of it into
the state. So a search first calls `start`, then reads one step at a time.

In a search, each of the B sources of the memory has k beams: the decoder reads R = B·k sequences, and beam r belongs to
source r // k. In training k is 1. This module knows nothing of tokens or of the search itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.states import BackboneOutput, ModelState, map_state
from seqwise.layers.attention import padding_mask


@dataclass(frozen=True)
class Memory:
    """One vector per encoded position, such as the tokens of a text or the regions of an image, for B sources."""

    vectors: Tensor  # (B, S, D)
    lengths: Tensor | None = None  # (B,); None: no padding

    def build_mask(self) -> Tensor | None:
        """Returns the mask (B, 1, S) of positions that are no padding, or None if there is no padding."""
        if self.lengths is None:
            return None
        return padding_mask(self.lengths.to(self.vectors.device), self.vectors.shape[1])

    def compute_summary(self) -> Tensor:
        """Returns (B, 3D): the vectors at the first and at the last valid position, and the mean of all valid ones.

        In a recurrent encoder the last one contains the final state of the forward direction, the first one the final
        state of the backward direction.
        """
        vectors, lengths = self.vectors, self.lengths
        if lengths is None:
            return torch.cat([vectors[:, 0], vectors[:, -1], vectors.mean(1)], dim=-1)
        num_valid = lengths.to(vectors.device).clamp(min=1)
        is_valid = torch.arange(vectors.shape[1], device=vectors.device) < num_valid[:, None]
        mean = vectors.masked_fill(~is_valid[..., None], 0).sum(1) / num_valid[:, None]
        last_vector = vectors.gather(1, (num_valid - 1)[:, None, None].expand(-1, 1, vectors.shape[2]))[:, 0]
        return torch.cat([vectors[:, 0], last_vector, mean], dim=-1)


def concat_memories(memories: Sequence[Memory]) -> Memory:
    """Concatenates memories: encoding is fastest in batches of equal length, a search in large batches."""
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
class DecoderOutput(BackboneOutput):
    """What decoders return."""

    weights: Tensor | None = None  # (R, T, S): attention over the memory, if requested and if the decoder has attention


class Decoder(nn.Module, ABC):
    """Reads the vectors of a target over a memory; the next token is predicted from its output.

    The state of recurrent decoders is (source_state, beam_state): tensors with one entry per source, which its beams
    share, and tensors with one entry per beam. A state is used once: continuing from it may overwrite it.
    """

    width: int

    @abstractmethod
    def start(self, memory: Memory) -> ModelState:
        """Returns the state at the beginning of a sequence, with one beam per source and all it needs of the memory."""

    @abstractmethod
    def forward(
        self, vectors: Tensor, state: ModelState = None, memory: Memory | None = None, need_weights: bool = False
    ) -> DecoderOutput:
        """Returns an output (R, T, width) for vectors (R, T, D), and the state from which a later call continues."""

    def select(self, state: ModelState, beams: Tensor, sources: Tensor | None = None) -> ModelState:
        """Returns the state of other beams: `beams` (R',) are indices of the beams of `state`, in any order and number.

        `sources` (B',) are indices of the sources to keep; without them all sources stay.
        """
        source_state, beam_state = state
        if sources is not None:
            source_state = map_state(lambda tensor: tensor.index_select(0, sources), source_state)
        return source_state, map_state(lambda tensor: tensor.index_select(0, beams), beam_state)


def continue_or_start(state: ModelState, memory: Memory | None, decoder: Any) -> ModelState:
    """Returns the state, or if it is None the state of `decoder` at the beginning of a sequence over the memory."""
    if state is not None:
        return state
    if memory is None:
        raise ValueError("a decoder needs a state or a memory")
    return decoder.start(memory)
