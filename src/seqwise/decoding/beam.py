"""Beam search for all sources of a memory at once; a beam of 1 is greedy search.

Each source has k beams. One step of the search:

1. The decoder predicts the next token of every beam.
2. The 2k most likely continuations of each source are its candidates. At most k of them end.
3. Candidates among the first k that end become finished hypotheses; the k best of these are kept.
4. The k best candidates that do not end become the beams of the next step.

Beams have equal length and are compared by log-probability. Finished hypotheses are compared by their score

    log P(Y) / lp(Y) + cp(Y)        lp(Y) = ((5 + |Y|) / 6)^α        cp(Y) = β Σ_i log min(Σ_j p_ij, 1)

where |Y| counts the end token and p_ij is the attention to source position i at step j (Wu et al. 2016, eq. 14). α is
the length penalty, β the coverage penalty. A sequence cut at the maximum length ranks behind all that ended.

The search for a source stops when k hypotheses are finished and its best beam, if it ended now, would not be among the
n best (greedy search stops at its first end); when no beam can still reach the n best; or at the maximum length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.backbones.states import ModelState
from seqwise.decoding.sequences import Hypothesis, SequenceDecoding
from seqwise.decoding.trace import get_trace
from seqwise.errors import UsageError

IMPOSSIBLE = -torch.inf
BLOCK_SIZE = 64  # scores of a block, of which `topk` compares the maximum first


@dataclass(kw_only=True, eq=False)
class BeamSearch(SequenceDecoding):
    """Finds the n best sequences for each source of the memory, best first."""

    def start(self) -> None:
        super().start()
        self.k, self.trace = self.options.beam, get_trace()
        if self.trace is not None:
            self.trace.start(self.options, self.end, self.prefix, int(self.max_lengths.max()))
        self.finished = _FinishedHypotheses(len(self.source_indices), self.k, self.tokens.shape[2], self.tokens.device)
        # (B, k, S): 1 - Σ_j p_ij, the attention that each source position has not received yet; 0 for padding
        self.uncovered: Tensor | None = None
        if self.options.coverage_penalty:
            mask = self.memory.build_mask()
            batch_size, steps, _ = self.memory.vectors.shape
            ones = torch.ones(batch_size, 1, steps, device=self.tokens.device)
            self.uncovered = ones if mask is None else mask.float()

    def extend(self) -> None:
        batch_size, num_beams = self.log_probs.shape  # one beam in the first step, then k
        output = self.decoder.step(self.inputs, self.state, need_weights=self.uncovered is not None)
        # A copy for the trace: forbidden tokens are overwritten.
        model_log_probs = None if self.trace is None else output.log_probabilities.float().clone()
        beam_log_probs = self.log_probs
        next_scores = self.compute_next_scores(output)
        # Of each beam at most k + 1 tokens can be candidates: the end and k others.
        token_log_probs, tokens = topk(next_scores, self.k + 1)
        totals = token_log_probs.view(batch_size, num_beams, -1) + self.log_probs[..., None]
        log_probs, index = _topk_padded(totals.flatten(1), 2 * self.k)
        parents = index // tokens.shape[1]
        tokens = tokens.view(batch_size, -1).gather(1, index)
        if self.uncovered is not None:
            if output.weights is None:
                raise UsageError(
                    "the coverage penalty needs attention weights, but this model has no attention.",
                    fix="Leave --coverage-penalty out, or train with attention.",
                )
            # A forced prefix is read in one step, so the weights of several tokens may have to be added.
            self.uncovered = self.uncovered - output.weights.sum(1).view(batch_size, num_beams, -1)
        scores = self._collect_finished(log_probs[:, : self.k], parents[:, : self.k], tokens[:, : self.k])
        order = self._select_beams(log_probs, parents, tokens, output.state)
        if self.trace is not None and model_log_probs is not None:
            candidates = log_probs, parents, tokens
            self.trace.add_beam_step(model_log_probs, next_scores, beam_log_probs, candidates, scores, order)

    def _collect_finished(self, log_probs: Tensor, parents: Tensor, tokens: Tensor) -> Tensor | None:
        """Adds the candidates that end to the finished hypotheses. All arguments are (B, k).

        Returns their scores, -inf for those that do not end; None if none does.
        """
        ended = (tokens == self.end) & (log_probs > IMPOSSIBLE)
        if not ended.any():
            return None
        uncovered = None if self.uncovered is None else _gather_beams(self.uncovered, parents)
        scores = self._compute_scores(log_probs, self.length + 1, uncovered).masked_fill(~ended, IMPOSSIBLE)
        self.finished.add(_gather_beams(self.tokens, parents), self.length, log_probs, scores)
        return scores

    def _select_beams(self, log_probs: Tensor, parents: Tensor, tokens: Tensor, state: ModelState) -> Tensor:
        """Makes the k best of the candidates (B, 2k) that do not end the new beams; returns which these are (B, k)."""
        batch_size, num_beams = self.log_probs.shape
        order = (tokens == self.end).to(torch.int8).sort(dim=1, stable=True).indices[:, : self.k]
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        self.log_probs = log_probs.gather(1, order).masked_fill(tokens == self.end, IMPOSSIBLE)
        self.tokens = _gather_beams(self.tokens, parents)
        self.tokens[:, :, self.length] = tokens
        self.uncovered = None if self.uncovered is None else _gather_beams(self.uncovered, parents)
        self.inputs = tokens.view(-1, 1)
        self.length += 1
        first_beams = torch.arange(0, batch_size * num_beams, num_beams, device=parents.device)[:, None]
        self.state = self.decoder.select(state, (parents + first_beams).flatten(), None)
        return order

    def _compute_scores(self, log_probs: Tensor, length: int, uncovered: Tensor | None) -> Tensor:
        """Returns the scores of sequences of one length, by which finished hypotheses are compared."""
        scores = log_probs / compute_length_penalty(length, self.options.length_penalty)
        if uncovered is None:
            return scores
        return scores + self.options.coverage_penalty * compute_coverage_penalty(uncovered)

    def check_finished(self) -> Tensor:
        has_enough, cannot_improve, has_no_beam, is_longest = self.find_stop_reasons().values()
        return has_enough | cannot_improve | has_no_beam | is_longest

    def find_stop_reasons(self) -> dict[str, Tensor]:
        """Returns the conditions of which one stops the search for a source, (B,) each."""
        alpha, best_beam = self.options.length_penalty, self.log_probs[:, 0]
        nth_best = self.finished.scores[:, self.options.n_best - 1]
        # A confident model may finish k poor hypotheses early: the search continues while a beam would beat them.
        is_beaten = best_beam / compute_length_penalty(self.length + 1, alpha) <= nth_best
        has_enough = (self.finished.count >= self.k) & (is_beaten | (self.k == 1))
        # Log-probabilities only decrease, and the greatest length divides them by the largest penalty.
        bound = best_beam / compute_length_penalty(self.max_lengths + 1, alpha)
        return {
            "enough": has_enough,
            "bound": bound <= nth_best,
            "no beam": bound == IMPOSSIBLE,
            "maximum length": self.max_lengths <= self.length,
        }

    def get_hypotheses(self, source: int) -> list[Hypothesis]:
        """Returns the n best finished hypotheses; at the maximum length, unfinished beams complete them.

        If no token was allowed at all, the forced prefix is the result, with probability 0.
        """
        n_best = self.options.n_best
        hypotheses = self.finished.get_hypotheses(source, n_best)
        if len(hypotheses) < n_best and self.length >= int(self.max_lengths[source]):
            uncovered = None if self.uncovered is None else self.uncovered[source]
            scores = self._compute_scores(self.log_probs[source], max(1, self.length), uncovered)
            order = [beam for beam in scores.argsort(descending=True).tolist() if scores[beam] > IMPOSSIBLE]
            ids, log_probs = self.tokens[source, :, : self.length].tolist(), self.log_probs[source].tolist()
            hypotheses += [Hypothesis(ids[beam], log_probs[beam], float(scores[beam]), ended=False) for beam in order]
        hypotheses = hypotheses[:n_best] or [Hypothesis(list(self.prefix), IMPOSSIBLE, IMPOSSIBLE, ended=False)]
        if self.trace is not None:
            reasons = tuple(name for name, is_true in self.find_stop_reasons().items() if is_true[source])
            self.trace.finish(reasons, self.log_probs[source], hypotheses)
        return hypotheses

    def keep_sources(self, sources: Tensor) -> None:
        self.finished.keep_sources(sources)
        self.uncovered = None if self.uncovered is None else self.uncovered[sources]
        super().keep_sources(sources)


class _FinishedHypotheses:
    """The k best finished hypotheses of each source, best first."""

    def __init__(self, num_sources: int, k: int, capacity: int, device: torch.device):
        self.tokens = torch.zeros(num_sources, k, capacity, dtype=torch.long, device=device)
        self.lengths = torch.zeros(num_sources, k, dtype=torch.long, device=device)
        self.log_probs = torch.full((num_sources, k), IMPOSSIBLE, device=device)
        self.scores = torch.full((num_sources, k), IMPOSSIBLE, device=device)
        self.count = torch.zeros(num_sources, dtype=torch.long, device=device)  # of all finished, not only the k best

    def add(self, tokens: Tensor, length: int, log_probs: Tensor, scores: Tensor) -> None:
        """Adds sequences (B, k, …) of one length, except those with a score of -inf."""
        self.count += (scores > IMPOSSIBLE).sum(1)
        self.scores, order = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1])
        self.tokens = _gather_beams(torch.cat([self.tokens, tokens], dim=1), order)
        self.log_probs = torch.cat([self.log_probs, log_probs], dim=1).gather(1, order)
        self.lengths = torch.cat([self.lengths, torch.full_like(order, length)], dim=1).gather(1, order)

    def keep_sources(self, sources: Tensor) -> None:
        """Drops all sources but these indices (B',)."""
        for name, value in vars(self).items():
            setattr(self, name, value[sources])

    def get_hypotheses(self, source: int, n_best: int) -> list[Hypothesis]:
        """Returns the n best hypotheses of a source, or fewer."""
        scores, log_probs = self.scores[source].tolist(), self.log_probs[source].tolist()
        return [
            Hypothesis(self.tokens[source, i, : int(self.lengths[source, i])].tolist(), log_probs[i], scores[i])
            for i in range(n_best)
            if scores[i] > IMPOSSIBLE
        ]


def compute_length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """Returns lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14)."""
    return ((5 + length) / 6) ** alpha


def compute_coverage_penalty(uncovered: Tensor) -> Tensor:
    """Returns Σ_i log min(Σ_j p_ij, 1), given 1 − Σ_j p_ij (…, S). A position without attention counts as 1e-6."""
    return (1 - uncovered.clamp(min=0)).clamp(min=1e-6).log().sum(-1)


def topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest of scores (N, V) along the vocabulary and their indices, largest first.

    The k largest are in the blocks whose maximum is among the k largest maxima: one pass over the scores and a search
    through a few blocks. On CPUs that is several times faster than `Tensor.topk`, which compares every score.
    """
    width = scores.shape[1]
    k, blocks = min(k, width), width // BLOCK_SIZE
    if scores.is_cuda or blocks <= 4 * k:
        return scores.topk(k)
    full_blocks = scores[:, : blocks * BLOCK_SIZE].unflatten(1, (blocks, BLOCK_SIZE))
    best_blocks = full_blocks.amax(-1).topk(k, sorted=False).indices  # (N, k)
    indices = (best_blocks[..., None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten(1)
    rest = torch.arange(blocks * BLOCK_SIZE, width).expand(len(scores), -1)
    indices = torch.cat([indices, rest], dim=1)
    values, positions = scores.gather(1, indices).topk(k)
    return values, indices.gather(1, positions)


def _topk_padded(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest values along the last dimension and their indices, padded with -inf if there are fewer."""
    count = values.shape[1]
    if count >= k:
        return values.topk(k)
    top, index = values.topk(count)
    padding = (0, k - count)
    return torch.nn.functional.pad(top, padding, value=IMPOSSIBLE), torch.nn.functional.pad(index, padding)


def _gather_beams(values: Tensor, parents: Tensor) -> Tensor:
    """Returns values (B, k, n) of the beams `parents` (B, k')."""
    return values.gather(1, parents[..., None].expand(-1, -1, values.shape[2]))
