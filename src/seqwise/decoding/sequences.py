"""`SequenceDecoding`: the base of beam search and of sampling whole sequences, over the sources of a memory.

A source is one entry of the batch, such as a sentence to translate or an image; each has k sequences, called beams,
also in sampling. The module knows nothing of text, and of the model only that it continues from a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.backbones.states import ModelState
from seqwise.decoding.options import BeamSearchOptions


@dataclass(frozen=True)
class StepOutput:
    """What a decoder returns for the tokens it has read."""

    log_probabilities: Tensor  # (B·k, V) of the next token; the caller may overwrite it
    state: ModelState  # after these tokens
    weights: Tensor | None = None  # (B·k, T, S): attention over the memory, if requested


class StepDecoder(Protocol):
    """A `Decoder` (`backbones/memory.py`) that reads token ids; `tasks/token_decoder.py` implements it."""

    def start(self, memory: Memory) -> ModelState: ...
    def step(self, ids: Tensor, state: ModelState, need_weights: bool = False) -> StepOutput: ...
    def select(self, state: ModelState, beams: Tensor, sources: Tensor | None = None) -> ModelState: ...


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sequence without begin and end token. The forced prefix is in `ids`, but not in the log-probability."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False: cut at the maximum length

    def as_dict(self) -> dict[str, float]:
        """Returns what JSON output has besides the text."""
        return {"score": self.score, "log_probability": self.log_probability, "ended": self.ended}


@dataclass(kw_only=True, eq=False)
class SequenceDecoding:
    """Decodes k sequences for all sources of a memory at once; a source that is finished leaves the batch.

    `max_length` is one number or one per source; longer sequences are cut. Every sequence begins with the tokens of
    `prefix`, and none contains a token of `banned` after them.

    Subclasses define how a step extends the sequences, which sources are finished, and what their hypotheses are. B
    counts the unfinished sources, and k is 1 until the first step. The results are in the order of the memory's
    sources.
    """

    # Names of the tensors whose first dimension is B.
    source_tensors: ClassVar[tuple[str, ...]] = ("source_indices", "max_lengths", "tokens", "log_probs")

    decoder: StepDecoder
    memory: Memory
    begin: int
    end: int
    max_length: int | Tensor
    options: BeamSearchOptions = BeamSearchOptions()
    prefix: Sequence[int] = ()
    banned: Sequence[int] = ()

    def start(self) -> None:
        """Prepares the first step."""
        size, device = len(self.memory.vectors), self.memory.vectors.device
        self.length = len(self.prefix)  # tokens of each sequence so far
        self.max_lengths = torch.as_tensor(self.max_length, device=device).expand(size).clamp(min=self.length)  # (B,)
        self.source_indices = torch.arange(size, device=device)  # (B,): which sources of the memory are unfinished
        self.state = self.decoder.start(self.memory)
        self.inputs = torch.tensor([self.begin, *self.prefix], device=device).expand(size, -1)  # (B·k, T): not yet read
        capacity = max(1, int(self.max_lengths.max()) if size else 1)
        self.tokens = torch.zeros(size, 1, capacity, dtype=torch.long, device=device)  # (B, k, capacity)
        self.tokens[:, :, : self.length] = self.inputs[:, None, 1:]
        self.log_probs = torch.zeros(size, 1, device=device)  # (B, k): of whole sequences

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each source of the memory."""
        self.start()
        results: list[list[Hypothesis]] = [[] for _ in self.source_indices]
        while len(self.source_indices):
            is_finished = self.check_finished()
            if is_finished.any():
                for source in is_finished.nonzero().flatten().tolist():
                    results[int(self.source_indices[source])] = self.get_hypotheses(source)
                self.keep_sources((~is_finished).nonzero().flatten())
            if len(self.source_indices):
                self.extend()
        return results

    def extend(self) -> None:
        """Appends one token to every sequence."""
        raise NotImplementedError

    def check_finished(self) -> Tensor:
        """Returns which sources are finished, (B,) bool."""
        raise NotImplementedError

    def get_hypotheses(self, source: int) -> list[Hypothesis]:
        """Returns the hypotheses of a finished source, an index from 0 to B − 1."""
        raise NotImplementedError

    def compute_next_scores(self, output: StepOutput) -> Tensor:
        """Returns the log-probabilities (B·k, V) of the next token; -inf for forbidden ones."""
        scores = output.log_probabilities.float()
        if self.banned:
            scores[:, list(self.banned)] = -torch.inf
        min_length, no_repeat = self.options.min_length, self.options.no_repeat_ngram
        if min_length > self.length or no_repeat:
            apply_constraints(scores, self.tokens[:, :, : self.length].flatten(0, 1), self.end, min_length, no_repeat)
        return scores

    def keep_sources(self, sources: Tensor) -> None:
        """Drops all sources but these indices (B',)."""
        k = self.log_probs.shape[1]
        for name in self.source_tensors:
            setattr(self, name, getattr(self, name)[sources])
        self.inputs = self.inputs.unflatten(0, (-1, k))[sources].flatten(0, 1)
        if len(sources):
            beams = (sources[:, None] * k + torch.arange(k, device=sources.device)).flatten()
            self.state = self.decoder.select(self.state, beams, sources)


def apply_constraints(scores: Tensor, tokens: Tensor, end: int, min_length: int, no_repeat_ngram: int) -> None:
    """Sets to -inf, in place, the scores (B·k, V) of tokens that may not follow the sequences so far (B·k, t).

    The end token is forbidden before `min_length` tokens, and no n-gram of length `no_repeat_ngram` occurs twice
    (Paulus et al. 2018). If no other token is left, the end token is allowed.
    """
    n, length = no_repeat_ngram, tokens.shape[1]
    end_scores = scores[:, end].clone()
    if length < min_length:
        scores[:, end] = -torch.inf
    if 0 < n <= length:
        ngrams = tokens.unfold(1, n, 1)  # (B·k, t - n + 1, n)
        last_tokens = tokens[:, length - n + 1 :]  # (B·k, n - 1)
        beams, positions = (ngrams[:, :, :-1] == last_tokens[:, None]).all(-1).nonzero(as_tuple=True)
        scores[beams, ngrams[beams, positions, -1]] = -torch.inf
        is_nothing_allowed = scores.amax(-1) == -torch.inf
        scores[:, end] = torch.where(is_nothing_allowed, end_scores, scores[:, end])
