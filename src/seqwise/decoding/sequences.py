"""What beam search and sampling of whole sequences share: the decoder's interface, hypotheses, and rows that finish.

The module knows nothing of text, and of the model only that it continues from a state.
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

    log_probabilities: Tensor  # (R, V) of the next token; the caller may overwrite it
    state: ModelState  # after these tokens
    weights: Tensor | None = None  # (R, T, S): attention over the memory, if requested


class StepDecoder(Protocol):
    """The model that a search needs; `tasks/token_decoder.py` implements it."""

    def start(self, memory: Memory) -> ModelState: ...
    def step(self, ids: Tensor, state: ModelState, need_weights: bool = False) -> StepOutput: ...
    def select(self, state: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState: ...


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its begin and end token. The forced prefix is in `ids`, but not in the log-probability."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False: cut at the maximum length

    def as_dict(self) -> dict[str, float]:
        """Return what JSON output has besides the text."""
        return {"score": self.score, "log_probability": self.log_probability, "ended": self.ended}


@dataclass(kw_only=True, eq=False)
class SequenceDecoding:
    """Decodes k sequences for each row of a memory at once; a row that is finished leaves the batch.

    `max_length` is one number or one per row; longer sequences are cut. Every sequence begins with the tokens of
    `prefix`, and none contains a token of `banned` after them.

    Subclasses define how a step extends the sequences, which rows are finished, and what their hypotheses are. B counts
    the unfinished rows, and k is 1 until the first step. The results are in the order of the memory's rows.
    """

    row_tensors: ClassVar[tuple[str, ...]] = ("row_numbers", "max_lengths", "tokens", "log_probs")

    decoder: StepDecoder
    memory: Memory
    begin: int
    end: int
    max_length: int | Tensor
    options: BeamSearchOptions = BeamSearchOptions()
    prefix: Sequence[int] = ()
    banned: Sequence[int] = ()

    def start(self) -> None:
        """Prepare the first step."""
        rows, device = len(self.memory.vectors), self.memory.vectors.device
        self.length = len(self.prefix)  # tokens of each sequence so far
        self.max_lengths = torch.as_tensor(self.max_length, device=device).expand(rows).clamp(min=self.length)  # (B,)
        self.row_numbers = torch.arange(rows, device=device)  # (B,): rows of the memory
        self.state = self.decoder.start(self.memory)
        self.inputs = torch.tensor([self.begin, *self.prefix], device=device).expand(rows, -1)  # (B·k, T): not yet read
        capacity = max(1, int(self.max_lengths.max()) if rows else 1)
        self.tokens = torch.zeros(rows, 1, capacity, dtype=torch.long, device=device)  # (B, k, capacity)
        self.tokens[:, :, : self.length] = self.inputs[:, None, 1:]
        self.log_probs = torch.zeros(rows, 1, device=device)  # (B, k): of whole sequences

    @torch.inference_mode()
    def run(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each row of the memory."""
        self.start()
        results: list[list[Hypothesis]] = [[] for _ in self.row_numbers]
        while len(self.row_numbers):
            finished = self.finished_rows()
            if finished.any():
                for row in finished.nonzero().flatten().tolist():
                    results[int(self.row_numbers[row])] = self.hypotheses(row)
                self.keep_rows((~finished).nonzero().flatten())
            if len(self.row_numbers):
                self.extend()
        return results

    def extend(self) -> None:
        """Append one token to every sequence."""
        raise NotImplementedError

    def finished_rows(self) -> Tensor:
        """Return which rows are finished, (B,) bool."""
        raise NotImplementedError

    def hypotheses(self, row: int) -> list[Hypothesis]:
        """Return the hypotheses of a finished row."""
        raise NotImplementedError

    def next_scores(self, output: StepOutput) -> Tensor:
        """Return the log-probabilities (B·k, V) of the next token; -inf for forbidden ones."""
        scores = output.log_probabilities.float()
        if self.banned:
            scores[:, list(self.banned)] = -torch.inf
        min_length, no_repeat = self.options.min_length, self.options.no_repeat_ngram
        if min_length > self.length or no_repeat:
            apply_constraints(scores, self.tokens[:, :, : self.length].flatten(0, 1), self.end, min_length, no_repeat)
        return scores

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these (B',)."""
        beams = self.log_probs.shape[1]
        for name in self.row_tensors:
            setattr(self, name, getattr(self, name)[rows])
        self.inputs = self.inputs.unflatten(0, (-1, beams))[rows].flatten(0, 1)
        if len(rows):
            sequences = (rows[:, None] * beams + torch.arange(beams, device=rows.device)).flatten()
            self.state = self.decoder.select(self.state, sequences, rows)


def apply_constraints(scores: Tensor, tokens: Tensor, end: int, min_length: int, no_repeat_ngram: int) -> None:
    """Set to -inf, in place, the scores (R, V) of tokens that may not follow the sequences so far (R, t).

    The end token is forbidden before `min_length` tokens, and no n-gram of length `no_repeat_ngram` occurs twice
    (Paulus et al. 2018). If no other token is left, the end token is allowed.
    """
    n, length = no_repeat_ngram, tokens.shape[1]
    end_scores = scores[:, end].clone()
    if length < min_length:
        scores[:, end] = -torch.inf
    if 0 < n <= length:
        ngrams = tokens.unfold(1, n, 1)  # (R, t - n + 1, n)
        last_tokens = tokens[:, length - n + 1 :]  # (R, n - 1)
        rows, positions = (ngrams[:, :, :-1] == last_tokens[:, None]).all(-1).nonzero(as_tuple=True)
        scores[rows, ngrams[rows, positions, -1]] = -torch.inf
        none_allowed = scores.amax(-1) == -torch.inf
        scores[:, end] = torch.where(none_allowed, end_scores, scores[:, end])
