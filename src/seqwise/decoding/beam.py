"""Whole sequences over a memory: beam search (a beam of 1 is greedy search) and sampling, for many rows at once.

Each row of the memory has k beams. At every step each beam proposes its best next tokens, the k best sequences of a
row go on, and those that ended go into the row's pool. A row is done when its pool holds k sequences and what is open
would not be among the n best if it ended now (greedy search ends with its first), when nothing that is still open could
enter the n best, or at its longest; then it leaves the batch. Results come in the order of the memory's rows.

Open beams are compared by log-probability: they have the same length. Those that ended are compared by their score

    log P(Y) / lp(Y) + cp(Y)        lp(Y) = ((5 + |Y|) / 6)^α        cp(Y) = β Σ_i log min(Σ_j p_ij, 1)

where |Y| counts the end and p_ij is the weight of source position i at step j (Wu et al. 2016, eq. 14). α is the length
penalty, β the coverage penalty. A sequence that did not end before `longest` ranks behind all that did.

It knows nothing of text, and of the model only that it reads on from a carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.backbones.states import ModelState
from seqwise.decoding.constraints import apply_constraints, topk
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sampling import pick
from seqwise.errors import UsageError

NEVER = -torch.inf


@dataclass(frozen=True)
class StepOutput:
    """What comes after the tokens that were read, and how to read on."""

    log_probabilities: Tensor  # (R, V); whoever asked may change it
    carry: ModelState
    weights: Tensor | None = None  # (R, T, S): where the model looked, if asked for


class StepDecoder(Protocol):
    """What a search needs of a model; `tasks/writing.py` has it."""

    def start(self, memory: Memory) -> ModelState: ...
    def step(self, ids: Tensor, carry: ModelState, weights: bool = False) -> StepOutput: ...
    def select(self, carry: ModelState, rows: Tensor, sources: Tensor | None = None) -> ModelState: ...


@dataclass(frozen=True)
class Hypothesis:
    """A sequence without its begin and end. The forced start belongs to `ids`, but not to the log-probability."""

    ids: list[int]
    log_probability: float
    score: float
    ended: bool = True  # False: cut at the longest length


def beam_search(
    writer: StepDecoder,
    memory: Memory,
    *,
    begin: int,
    end: int,
    how: BeamSearchOptions,
    longest: int | Tensor,
    start: Sequence[int] = (),
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """The n best sequences over each row of the memory, best first.

    `longest` is the most tokens, one number or one per row; a sequence that has so many is cut there. Every sequence
    begins with the tokens of `start`, and none has a token of `never` behind them.
    """
    with torch.inference_mode():
        return _Beams(writer, memory, (begin, *start), _Rules(end, how, tuple(never)), how, longest).run()


def sample_sequences(
    writer: StepDecoder,
    memory: Memory,
    *,
    begin: int,
    end: int,
    choice: SamplingOptions,
    longest: int | Tensor,
    seed: int = 0,
    how: BeamSearchOptions = BeamSearchOptions(),
    start: Sequence[int] = (),
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """As `beam_search`, but each token is drawn: `how.n_best` sequences per row, in the order drawn.

    Of `how` the least length and the repetitions hold too. A score is the log-probability under the model, whatever
    narrowed the choice. The draw depends on which rows stand in one batch.
    """
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must lie between 0 and 2^63 - 1; received {seed}.")
    generator = torch.Generator(memory.vectors.device).manual_seed(seed)
    with torch.inference_mode():
        draws = _Draws(writer, memory, (begin, *start), _Rules(end, how, tuple(never)), how, longest)
        return draws.run(choice, generator)


@dataclass(frozen=True)
class _Rules:
    """What may not be written next."""

    end: int
    how: BeamSearchOptions
    never: tuple[int, ...]

    def apply(self, scores: Tensor, written: Tensor) -> None:
        if self.never:
            scores[:, list(self.never)] = NEVER
        if self.how.min_length > written.shape[-1] or self.how.no_repeat_ngram:
            apply_constraints(scores, written.flatten(0, 1), self.end, self.how.min_length, self.how.no_repeat_ngram)


class _Rows:
    """What searching and drawing share: B rows that are not done, k sequences each, and how rows leave."""

    def __init__(
        self,
        writer: StepDecoder,
        memory: Memory,
        start: tuple[int, ...],
        rules: _Rules,
        how: BeamSearchOptions,
        longest: int | Tensor,
    ):
        rows, device = len(memory.vectors), memory.vectors.device
        self.writer, self.rules, self.how, self.end = writer, rules, how, rules.end
        self.start = list(start[1:])  # the first of `start` is the begin
        self.length = len(self.start)  # tokens written
        self.limit = torch.as_tensor(longest, device=device).expand(rows).clamp(min=self.length)
        self.most = max(1, int(self.limit.max()) if rows else 1)
        self.origin = torch.arange(rows, device=device)
        self.carry = writer.start(memory)
        self.newest = torch.tensor(start, device=device).expand(rows, -1)  # (R, T): not read yet
        self.tokens = torch.zeros(rows, 1, self.most, dtype=torch.long, device=device)
        self.tokens[:, :, : self.length] = self.newest[:, None, 1:]
        self.total = torch.zeros(rows, 1, device=device)  # log-probabilities
        self.results: list[list[Hypothesis]] = [[] for _ in range(rows)]

    def _scores(self, written: StepOutput) -> Tensor:
        """Log-probabilities (R, V) of what comes next; -inf for what may not."""
        scores = written.log_probabilities.float()
        self.rules.apply(scores, self.tokens[:, :, : self.length])
        return scores

    def _keep(self, kept: Tensor) -> None:
        """Only these rows (B',) go on."""
        beams = self.total.shape[1]
        self.origin, self.limit = self.origin[kept], self.limit[kept]
        self.tokens, self.total = self.tokens[kept], self.total[kept]
        self.newest = self.newest.unflatten(0, (-1, beams))[kept].flatten(0, 1)
        if len(kept):
            rows = (kept[:, None] * beams + torch.arange(beams, device=kept.device)).flatten()
            self.carry = self.writer.select(self.carry, rows, kept)


class _Draws(_Rows):
    """The state of sampling. A sequence that ended waits for the others of its row."""

    def run(self, choice: SamplingOptions, generator: torch.Generator) -> list[list[Hypothesis]]:
        self.ended = torch.zeros_like(self.total, dtype=torch.bool)
        self.lengths = torch.full_like(self.total, self.length, dtype=torch.long)
        self._retire()
        while len(self.origin):
            self._step(choice, generator)
            self._retire()
        return self.results

    def _step(self, choice: SamplingOptions, generator: torch.Generator) -> None:
        written = self.writer.step(self.newest, self.carry)
        scores = self._scores(written)
        self.carry, count = written.carry, self.how.n_best
        if self.total.shape[1] < count:  # the first step: each row splits into its draws
            rows = torch.arange(len(scores), device=scores.device).repeat_interleave(count)
            self.carry, scores = self.writer.select(self.carry, rows, None), scores[rows]
            for name in ("tokens", "total", "ended", "lengths"):
                setattr(self, name, getattr(self, name).repeat_interleave(count, dim=1))
        token = pick(choice, scores, self._seen(scores, choice), generator)
        gained = scores.gather(1, token[:, None]).view_as(self.total)
        self.total = torch.where(self.ended, self.total, self.total + gained)
        self.newest, token = token[:, None], token.view_as(self.total)
        self.tokens[:, :, self.length] = token
        self.ended = self.ended | (token == self.end)
        self.length += 1
        self.lengths = torch.where(self.ended, self.lengths, self.length)

    def _seen(self, scores: Tensor, choice: SamplingOptions) -> Tensor | None:
        if choice.repetition_penalty == 1:
            return None
        written = self.tokens.flatten(0, 1)[:, : self.length]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, written, True)

    def _retire(self) -> None:
        done = self.ended.all(1) | (self.limit <= self.length)
        if not done.any():
            return
        for row in done.nonzero().flatten().tolist():
            ids, totals, lengths = (part[row].tolist() for part in (self.tokens, self.total, self.lengths))
            found = zip(ids, totals, lengths, self.ended[row].tolist(), strict=True)
            self.results[int(self.origin[row])] = [Hypothesis(i[:n], t, t, ended) for i, t, n, ended in found]
        self._keep((~done).nonzero().flatten())

    def _keep(self, kept: Tensor) -> None:
        self.ended, self.lengths = self.ended[kept], self.lengths[kept]
        super()._keep(kept)


class _Beams(_Rows):
    """The state of one search."""

    def __init__(
        self,
        writer: StepDecoder,
        memory: Memory,
        start: tuple[int, ...],
        rules: _Rules,
        how: BeamSearchOptions,
        longest: int | Tensor,
    ):
        super().__init__(writer, memory, start, rules, how, longest)
        self.missing = _uncovered(memory) if how.coverage_penalty else None
        self.pool = _Pool(len(self.origin), how.beam, self.most, self.origin.device)

    def run(self) -> list[list[Hypothesis]]:
        self._retire()
        while len(self.origin):
            self._step()
            self._retire()
        return self.results

    def _step(self) -> None:
        rows, beams = self.total.shape
        written = self.writer.step(self.newest, self.carry, self.missing is not None)
        # A beam has one end and needs at most k other tokens.
        values, ids = topk(self._scores(written), self.how.beam + 1)
        values = values.view(rows, beams, -1) + self.total[..., None]
        total, index = _largest(values.flatten(1), 2 * self.how.beam)  # (B, 2k)
        parent, token = index // ids.shape[1], ids.view(rows, -1).gather(1, index)
        missing = None
        if self.missing is not None:
            if written.weights is None:
                raise UsageError(
                    "the coverage penalty asks where the model looked, but it has no attention.",
                    repair="Leave --coverage-penalty out, or train with attention.",
                )
            # A forced start is read in one step: all that was looked at counts.
            missing = self.missing - written.weights.sum(1).view(rows, beams, -1)
        self._pool_ended(total, parent, token, missing)
        self._go_on(total, parent, token, missing, written.carry)

    def _pool_ended(self, total: Tensor, parent: Tensor, token: Tensor, missing: Tensor | None) -> None:
        """Of the k best continuations, those that end."""
        k = self.how.beam
        ended = (token[:, :k] == self.end) & (total[:, :k] > NEVER)
        if not ended.any():
            return
        left = None if missing is None else _follow(missing, parent[:, :k])
        score = self._score(total[:, :k], self.length + 1, left).masked_fill(~ended, NEVER)
        self.pool.add(_follow(self.tokens, parent[:, :k]), self.length, total[:, :k], score)

    def _go_on(self, total: Tensor, parent: Tensor, token: Tensor, missing: Tensor | None, carry: ModelState) -> None:
        """The k best continuations that do not end."""
        k, (rows, before) = self.how.beam, self.total.shape
        order = (token == self.end).to(torch.int8).sort(dim=1, stable=True).indices[:, :k]
        parent, token = parent.gather(1, order), token.gather(1, order)
        self.total = total.gather(1, order).masked_fill(token == self.end, NEVER)
        self.tokens = _follow(self.tokens, parent)
        self.tokens[:, :, self.length] = token
        self.missing = None if missing is None else _follow(missing, parent)
        self.newest = token.view(-1, 1)
        self.length += 1
        offset = torch.arange(0, rows * before, before, device=parent.device)[:, None]
        self.carry = self.writer.select(carry, (parent + offset).flatten(), None)

    def _score(self, total: Tensor, length: int | Tensor, missing: Tensor | None) -> Tensor:
        score = total / length_penalty(length, self.how.length_penalty)
        return score if missing is None else score + self.how.coverage_penalty * coverage_penalty(missing)

    def _retire(self) -> None:
        """Rows that are done leave the batch."""
        enough, alpha = self.pool.score[:, self.how.n_best - 1], self.how.length_penalty
        # A sure model fills the pool with ends that nobody wants: while what is open would be better, it goes on.
        settled = (self.total[:, 0] / length_penalty(self.length + 1, alpha) <= enough) | (self.how.beam == 1)
        done = (self.pool.count >= self.how.beam) & settled
        # What is open can only lose log-probability, and the longest divides it by most.
        hope = self.total[:, 0] / length_penalty(self.limit + 1, alpha)
        done |= (hope <= enough) | (hope == NEVER) | (self.limit <= self.length)
        if not done.any():
            return
        for row in done.nonzero().flatten().tolist():
            self.results[int(self.origin[row])] = self._results(row)
        self._keep((~done).nonzero().flatten())

    def _keep(self, kept: Tensor) -> None:
        self.pool = self.pool.keep(kept)
        self.missing = None if self.missing is None else self.missing[kept]
        super()._keep(kept)

    def _results(self, row: int) -> list[Hypothesis]:
        """The n best of the pool; where it holds fewer, what is still open stands in.

        Where nothing may be written at all, the start is the answer, with a probability of 0.
        """
        found, wanted = self.pool.hypotheses(row, self.how.n_best), self.how.n_best
        if len(found) < wanted and self.length >= int(self.limit[row]):
            missing = None if self.missing is None else self.missing[row]
            scores = self._score(self.total[row], max(1, self.length), missing)
            order = [i for i in scores.argsort(descending=True).tolist() if scores[i] > NEVER]
            ids, totals = self.tokens[row, :, : self.length].tolist(), self.total[row].tolist()
            found += [Hypothesis(ids[i], totals[i], float(scores[i]), ended=False) for i in order]
        return found[:wanted] or [Hypothesis(list(self.start), NEVER, NEVER, ended=False)]


class _Pool:
    """The best k sequences of each row that ended, best first."""

    def __init__(self, rows: int, size: int, most: int, device: torch.device):
        self.tokens = torch.zeros(rows, size, most, dtype=torch.long, device=device)
        self.length = torch.zeros(rows, size, dtype=torch.long, device=device)
        self.total = torch.full((rows, size), NEVER, device=device)
        self.score = torch.full((rows, size), NEVER, device=device)
        self.count = torch.zeros(rows, dtype=torch.long, device=device)

    def add(self, tokens: Tensor, length: int, total: Tensor, score: Tensor) -> None:
        """Sequences (B, k, …) of one length; a score of -inf means none."""
        size = self.score.shape[1]
        self.count += (score > NEVER).sum(1)
        self.score, order = torch.cat([self.score, score], dim=1).topk(size)
        self.tokens = _follow(torch.cat([self.tokens, tokens], dim=1), order)
        self.total = torch.cat([self.total, total], dim=1).gather(1, order)
        lengths = torch.full_like(order, length)
        self.length = torch.cat([self.length, lengths], dim=1).gather(1, order)

    def keep(self, rows: Tensor) -> _Pool:
        kept = object.__new__(_Pool)
        for name, value in vars(self).items():
            setattr(kept, name, value[rows])
        return kept

    def hypotheses(self, row: int, wanted: int) -> list[Hypothesis]:
        scores, totals = self.score[row].tolist(), self.total[row].tolist()
        return [
            Hypothesis(self.tokens[row, i, : int(self.length[row, i])].tolist(), totals[i], scores[i])
            for i in range(wanted)
            if scores[i] > NEVER
        ]


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^α (Wu et al. 2016, eq. 14)."""
    return ((5 + length) / 6) ** alpha


def coverage_penalty(missing: Tensor) -> Tensor:
    """Σ_i log min(Σ_j p_ij, 1), where `missing` (…, S) is 1 − Σ_j p_ij. A position never looked at counts as 1e-6."""
    return (1 - missing.clamp(min=0)).clamp(min=1e-6).log().sum(-1)


def _uncovered(memory: Memory) -> Tensor:
    """(B, 1, S): what each source position still lacks of a weight of 1; padding lacks nothing."""
    mask, (rows, size, _) = memory.mask(), memory.vectors.shape
    return torch.ones(rows, 1, size, device=memory.vectors.device) if mask is None else mask.float()


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, filled up with -inf where there are fewer."""
    short = count - values.shape[1]
    found, index = values.topk(min(count, values.shape[1]))
    if short <= 0:
        return found, index
    return torch.nn.functional.pad(found, (0, short), value=NEVER), torch.nn.functional.pad(index, (0, short))


def _follow(values: Tensor, parent: Tensor) -> Tensor:
    """values (B, k, n) of the beams that are followed, (B, k')."""
    return values.gather(1, parent[..., None].expand(-1, -1, values.shape[2]))
