"""Random sampling of whole sequences over the rows of a memory. Choosing one token is in `sampling.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sampling import pick
from seqwise.decoding.sequences import Constraints, Hypothesis, SequenceDecoding, StepDecoder
from seqwise.errors import UsageError


def sample_sequences(
    decoder: StepDecoder,
    memory: Memory,
    *,
    begin: int,
    end: int,
    sampling: SamplingOptions,
    max_length: int | Tensor,
    seed: int = 0,
    options: BeamSearchOptions = BeamSearchOptions(),
    prefix: Sequence[int] = (),
    banned: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Return `options.n_best` sampled sequences for each row of the memory, in the order drawn.

    The other arguments are those of `beam_search`; of `options` also the minimum length and the n-grams that may not
    repeat apply. A score is the log-probability under the model, regardless of temperature, top-k and top-p. The
    samples depend on which rows are in one batch.
    """
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must lie between 0 and 2^63 - 1; received {seed}.")
    generator = torch.Generator(memory.vectors.device).manual_seed(seed)
    constraints = Constraints(end, options, banned)
    with torch.inference_mode():
        prompt = (begin, *prefix)
        return _SequenceSampling(decoder, memory, prompt, constraints, max_length, sampling, generator).run()


class _SequenceSampling(SequenceDecoding):
    """A sequence that has ended is decoded further, and ignored, until all sequences of its row have ended."""

    def __init__(
        self,
        decoder: StepDecoder,
        memory: Memory,
        prompt: Sequence[int],
        constraints: Constraints,
        max_length: int | Tensor,
        sampling: SamplingOptions,
        generator: torch.Generator,
    ):
        super().__init__(decoder, memory, prompt, constraints, max_length)
        self.sampling, self.generator = sampling, generator
        self.ended = torch.zeros_like(self.log_probs, dtype=torch.bool)  # (B, k)
        self.lengths = torch.full_like(self.log_probs, self.length, dtype=torch.long)  # (B, k)

    def extend(self) -> None:
        output = self.decoder.step(self.inputs, self.state)
        scores = self.next_scores(output)
        self.state = output.state
        if self.log_probs.shape[1] < self.options.n_best:  # the first step: each row is copied for its samples
            scores = self._repeat_rows(scores)
        token = pick(self.sampling, scores, self._occurred(scores), self.generator)
        gain = scores.gather(1, token[:, None]).view_as(self.log_probs)
        self.log_probs = torch.where(self.ended, self.log_probs, self.log_probs + gain)
        self.inputs, token = token[:, None], token.view_as(self.log_probs)
        self.tokens[:, :, self.length] = token
        self.ended = self.ended | (token == self.end)
        self.length += 1
        self.lengths = torch.where(self.ended, self.lengths, self.length)

    def _repeat_rows(self, scores: Tensor) -> Tensor:
        count = self.options.n_best
        rows = torch.arange(len(scores), device=scores.device).repeat_interleave(count)
        self.state = self.decoder.select(self.state, rows, None)
        for name in ("tokens", "log_probs", "ended", "lengths"):
            setattr(self, name, getattr(self, name).repeat_interleave(count, dim=1))
        return scores[rows]

    def _occurred(self, scores: Tensor) -> Tensor | None:
        """Return which tokens each sequence contains, (B·k, V), for the repetition penalty."""
        if self.sampling.repetition_penalty == 1:
            return None
        tokens = self.tokens.flatten(0, 1)[:, : self.length]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, tokens, True)

    def finished_rows(self) -> Tensor:
        return self.ended.all(1) | (self.max_length <= self.length)

    def hypotheses(self, row: int) -> list[Hypothesis]:
        parts = (self.tokens, self.log_probs, self.lengths, self.ended)
        samples = zip(*(part[row].tolist() for part in parts), strict=True)
        return [Hypothesis(ids[:length], total, total, ended) for ids, total, length, ended in samples]

    def keep_rows(self, rows: Tensor) -> None:
        self.ended, self.lengths = self.ended[rows], self.lengths[rows]
        super().keep_rows(rows)
