"""Beam search over the rows of a memory, all rows at once; a beam of 1 is greedy search.

Each row has k beams. One step of the search:

1. The decoder predicts the next token of every beam.
2. The 2k most likely continuations of each row are its candidates. At most k of them end.
3. Candidates among the first k that end become finished hypotheses; the k best of these are kept.
4. The k best candidates that do not end become the beams of the next step.

Beams have equal length and are compared by log-probability. Finished hypotheses are compared by their score

    log P(Y) / lp(Y) + cp(Y)        lp(Y) = ((5 + |Y|) / 6)^α        cp(Y) = β Σ_i log min(Σ_j p_ij, 1)

where |Y| counts the end token and p_ij is the attention to source position i at step j (Wu et al. 2016, eq. 14). α is
the length penalty, β the coverage penalty. A sequence cut at the maximum length ranks behind all that ended.

The search of a row stops when k hypotheses are finished and its best beam, if it ended now, would not be among the n
best (greedy search stops at its first end); when no beam can still reach the n best; or at the maximum length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.backbones.states import ModelState
from seqwise.decoding.sequences import Hypothesis, SequenceDecoding
from seqwise.errors import UsageError

IMPOSSIBLE = -torch.inf
BLOCK_SIZE = 64  # scores whose maximum `topk` compares first


@dataclass(kw_only=True, eq=False)
class BeamSearch(SequenceDecoding):
    """Finds the n best sequences for each row of the memory, best first."""

    def start(self) -> None:
        super().start()
        self.k = self.options.beam
        self.finished = _FinishedHypotheses(len(self.row_numbers), self.k, self.tokens.shape[2], self.tokens.device)
        # (B, k, S): 1 - Σ_j p_ij, the attention that each source position has not received yet; 0 for padding
        self.uncovered: Tensor | None = None
        if self.options.coverage_penalty:
            mask = self.memory.mask()
            rows, size, _ = self.memory.vectors.shape
            self.uncovered = torch.ones(rows, 1, size, device=self.tokens.device) if mask is None else mask.float()

    def extend(self) -> None:
        rows, beams = self.log_probs.shape
        output = self.decoder.step(self.inputs, self.state, need_weights=self.uncovered is not None)
        # Of each beam at most k + 1 tokens can be candidates: the end and k others.
        values, tokens = topk(self.next_scores(output), self.k + 1)
        totals = values.view(rows, beams, -1) + self.log_probs[..., None]
        log_probs, index = _topk_padded(totals.flatten(1), 2 * self.k)
        parents = index // tokens.shape[1]
        tokens = tokens.view(rows, -1).gather(1, index)
        if self.uncovered is not None:
            if output.weights is None:
                raise UsageError(
                    "the coverage penalty needs attention weights, but this model has no attention.",
                    repair="Leave --coverage-penalty out, or train with attention.",
                )
            # A forced prefix is read in one step, so the weights of several tokens may have to be added.
            self.uncovered = self.uncovered - output.weights.sum(1).view(rows, beams, -1)
        self._collect_finished(log_probs[:, : self.k], parents[:, : self.k], tokens[:, : self.k])
        self._select_beams(log_probs, parents, tokens, output.state)

    def _collect_finished(self, log_probs: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Add the candidates that end to the finished hypotheses. All arguments are (B, k)."""
        ended = (tokens == self.end) & (log_probs > IMPOSSIBLE)
        if not ended.any():
            return
        uncovered = None if self.uncovered is None else _gather_beams(self.uncovered, parents)
        scores = self._score(log_probs, self.length + 1, uncovered).masked_fill(~ended, IMPOSSIBLE)
        self.finished.add(_gather_beams(self.tokens, parents), self.length, log_probs, scores)

    def _select_beams(self, log_probs: Tensor, parents: Tensor, tokens: Tensor, state: ModelState) -> None:
        """Make the k best of the 2k candidates (B, 2k) that do not end the new beams."""
        rows, beams = self.log_probs.shape
        order = (tokens == self.end).to(torch.int8).sort(dim=1, stable=True).indices[:, : self.k]
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        self.log_probs = log_probs.gather(1, order).masked_fill(tokens == self.end, IMPOSSIBLE)
        self.tokens = _gather_beams(self.tokens, parents)
        self.tokens[:, :, self.length] = tokens
        self.uncovered = None if self.uncovered is None else _gather_beams(self.uncovered, parents)
        self.inputs = tokens.view(-1, 1)
        self.length += 1
        first_beams = torch.arange(0, rows * beams, beams, device=parents.device)[:, None]
        self.state = self.decoder.select(state, (parents + first_beams).flatten(), None)

    def _score(self, log_probs: Tensor, length: int, uncovered: Tensor | None) -> Tensor:
        score = log_probs / length_penalty(length, self.options.length_penalty)
        return score if uncovered is None else score + self.options.coverage_penalty * coverage_penalty(uncovered)

    def finished_rows(self) -> Tensor:
        alpha, best_beam = self.options.length_penalty, self.log_probs[:, 0]
        nth_best = self.finished.scores[:, self.options.n_best - 1]
        # A confident model may finish k poor hypotheses early: the search continues while a beam would beat them.
        is_beaten = best_beam / length_penalty(self.length + 1, alpha) <= nth_best
        has_enough = (self.finished.count >= self.k) & (is_beaten | (self.k == 1))
        # Log-probabilities only decrease, and the greatest length divides them by the largest penalty.
        bound = best_beam / length_penalty(self.max_lengths + 1, alpha)
        return has_enough | (bound <= nth_best) | (bound == IMPOSSIBLE) | (self.max_lengths <= self.length)

    def hypotheses(self, row: int) -> list[Hypothesis]:
        """Return the n best finished hypotheses; at the maximum length, unfinished beams complete them.

        If no token was allowed at all, the forced prefix is the result, with probability 0.
        """
        n_best = self.options.n_best
        hypotheses = self.finished.hypotheses(row, n_best)
        if len(hypotheses) < n_best and self.length >= int(self.max_lengths[row]):
            uncovered = None if self.uncovered is None else self.uncovered[row]
            scores = self._score(self.log_probs[row], max(1, self.length), uncovered)
            order = [beam for beam in scores.argsort(descending=True).tolist() if scores[beam] > IMPOSSIBLE]
            ids, log_probs = self.tokens[row, :, : self.length].tolist(), self.log_probs[row].tolist()
            hypotheses += [Hypothesis(ids[beam], log_probs[beam], float(scores[beam]), ended=False) for beam in order]
        return hypotheses[:n_best] or [Hypothesis(list(self.prefix), IMPOSSIBLE, IMPOSSIBLE, ended=False)]

    def keep_rows(self, rows: Tensor) -> None:
        self.finished.keep_rows(rows)
        self.uncovered = None if self.uncovered is None else self.uncovered[rows]
        super().keep_rows(rows)


class _FinishedHypotheses:
    """The k best finished hypotheses of each row, best first."""

    def __init__(self, rows: int, k: int, capacity: int, device: torch.device):
        self.tokens = torch.zeros(rows, k, capacity, dtype=torch.long, device=device)
        self.lengths = torch.zeros(rows, k, dtype=torch.long, device=device)
        self.log_probs = torch.full((rows, k), IMPOSSIBLE, device=device)
        self.scores = torch.full((rows, k), IMPOSSIBLE, device=device)
        self.count = torch.zeros(rows, dtype=torch.long, device=device)  # of all finished, not only the k best

    def add(self, tokens: Tensor, length: int, log_probs: Tensor, scores: Tensor) -> None:
        """Add sequences (B, k, …) of one length, except those with a score of -inf."""
        self.count += (scores > IMPOSSIBLE).sum(1)
        self.scores, order = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1])
        self.tokens = _gather_beams(torch.cat([self.tokens, tokens], dim=1), order)
        self.log_probs = torch.cat([self.log_probs, log_probs], dim=1).gather(1, order)
        self.lengths = torch.cat([self.lengths, torch.full_like(order, length)], dim=1).gather(1, order)

    def keep_rows(self, rows: Tensor) -> None:
        for name, value in vars(self).items():
            setattr(self, name, value[rows])

    def hypotheses(self, row: int, n_best: int) -> list[Hypothesis]:
        scores, log_probs = self.scores[row].tolist(), self.log_probs[row].tolist()
        return [
            Hypothesis(self.tokens[row, i, : int(self.lengths[row, i])].tolist(), log_probs[i], scores[i])
            for i in range(n_best)
            if scores[i] > IMPOSSIBLE
        ]


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14)."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(uncovered: Tensor) -> Tensor:
    """Σ_i log min(Σ_j p_ij, 1), given 1 − Σ_j p_ij (…, S). A position without any attention counts as 1e-6."""
    return (1 - uncovered.clamp(min=0)).clamp(min=1e-6).log().sum(-1)


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row (R, V) and their indices, largest first.

    The k largest are in those blocks whose maximum is among the k largest maxima: one pass over the scores and a
    search through a few blocks. On CPUs that is several times faster than `Tensor.topk`, which compares every score.
    """
    width = scores.shape[1]
    k, blocks = min(k, width), width // BLOCK_SIZE
    if scores.is_cuda or blocks <= 4 * k:
        return scores.topk(k)
    full_blocks = scores[:, : blocks * BLOCK_SIZE].unflatten(1, (blocks, BLOCK_SIZE))
    best_blocks = full_blocks.amax(-1).topk(k, sorted=False).indices  # (R, k)
    indices = (best_blocks[..., None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten(1)
    rest = torch.arange(blocks * BLOCK_SIZE, width).expand(len(scores), -1)
    indices = torch.cat([indices, rest], dim=1)
    values, positions = scores.gather(1, indices).topk(k)
    return values, indices.gather(1, positions)


def _topk_padded(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row and their indices, padded with -inf where there are fewer."""
    count = values.shape[1]
    if count >= k:
        return values.topk(k)
    top, index = values.topk(count)
    padding = (0, k - count)
    return torch.nn.functional.pad(top, padding, value=IMPOSSIBLE), torch.nn.functional.pad(index, padding)


def _gather_beams(values: Tensor, parents: Tensor) -> Tensor:
    """Return values (B, k, n) of the beams `parents` (B, k')."""
    return values.gather(1, parents[..., None].expand(-1, -1, values.shape[2]))
