"""What beam search and sampling of whole sequences share: the decoder's interface, hypotheses, and rows that finish.

The module knows nothing of text, and of the model only that it continues from a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.backbones.states import ModelState
from seqwise.decoding.constraints import apply_constraints
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
    def step(self, ids: Tensor, state: ModelState, weights: bool = False) -> StepOutput: ...
    def select(self, state: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState: ...


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its begin and end token. The forced prefix is in `ids`, but not in the log-probability."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False: cut at the maximum length


@dataclass(frozen=True)
class Constraints:
    """Which tokens may not come next."""

    end: int
    options: BeamSearchOptions
    banned: Sequence[int] = ()

    def apply(self, scores: Tensor, tokens: Tensor) -> None:
        """Set the scores (B·k, V) of forbidden tokens to -inf, in place, given the sequences so far (B, k, t)."""
        if self.banned:
            scores[:, list(self.banned)] = -torch.inf
        min_length, no_repeat = self.options.min_length, self.options.no_repeat_ngram
        if min_length > tokens.shape[-1] or no_repeat:
            apply_constraints(scores, tokens.flatten(0, 1), self.end, min_length, no_repeat)


class SequenceDecoding:
    """Decodes k sequences for each row of a memory at once; a row that is finished leaves the batch.

    Subclasses say how a step extends the sequences, which rows are finished, and what their hypotheses are. B counts
    the unfinished rows, and k is 1 until the first step. The results are in the order of the memory's rows.
    """

    def __init__(
        self,
        decoder: StepDecoder,
        memory: Memory,
        prompt: Sequence[int],
        constraints: Constraints,
        max_length: int | Tensor,
    ):
        rows, device = len(memory.vectors), memory.vectors.device
        self.decoder, self.constraints = decoder, constraints
        self.options, self.end = constraints.options, constraints.end
        self.prefix = list(prompt[1:])  # the prompt is the begin token and the forced prefix
        self.length = len(self.prefix)  # tokens of each sequence so far
        self.max_length = torch.as_tensor(max_length, device=device).expand(rows).clamp(min=self.length)  # (B,)
        self.row_numbers = torch.arange(rows, device=device)  # (B,): rows of the memory
        self.state = decoder.start(memory)
        self.inputs = torch.tensor(prompt, device=device).expand(rows, -1)  # (B·k, T): tokens not yet read
        capacity = max(1, int(self.max_length.max()) if rows else 1)
        self.tokens = torch.zeros(rows, 1, capacity, dtype=torch.long, device=device)  # (B, k, capacity)
        self.tokens[:, :, : self.length] = self.inputs[:, None, 1:]
        self.log_probs = torch.zeros(rows, 1, device=device)  # (B, k): of whole sequences
        self.results: list[list[Hypothesis]] = [[] for _ in range(rows)]

    def run(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each row of the memory."""
        self._remove_finished_rows()
        while len(self.row_numbers):
            self.extend()
            self._remove_finished_rows()
        return self.results

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
        self.constraints.apply(scores, self.tokens[:, :, : self.length])
        return scores

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these (B',)."""
        beams = self.log_probs.shape[1]
        self.row_numbers, self.max_length = self.row_numbers[rows], self.max_length[rows]
        self.tokens, self.log_probs = self.tokens[rows], self.log_probs[rows]
        self.inputs = self.inputs.unflatten(0, (-1, beams))[rows].flatten(0, 1)
        if len(rows):
            sequences = (rows[:, None] * beams + torch.arange(beams, device=rows.device)).flatten()
            self.state = self.decoder.select(self.state, sequences, rows)

    def _remove_finished_rows(self) -> None:
        finished = self.finished_rows()
        if not finished.any():
            return
        for row in finished.nonzero().flatten().tolist():
            self.results[int(self.row_numbers[row])] = self.hypotheses(row)
        self.keep_rows((~finished).nonzero().flatten())
