"""Autoregressive generation: a model reads its own tokens. Its state keeps the cost per token constant.

`generate` continues a prompt without end; `decode_sequences` returns whole sequences for the sources of a memory, by
sampling (here) or beam search (`beam.py`). Sampling one token is in `sampling.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.decoding.beam import BeamSearch
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sampling import choose_token
from seqwise.decoding.sequences import Hypothesis, SequenceDecoding, StepDecoder
from seqwise.decoding.steps import Predictor, TokenReader
from seqwise.decoding.trace import get_trace
from seqwise.errors import UsageError


def generate(model: Predictor, prompt: Tensor, sampling: SamplingOptions, seed: int = 0) -> Iterator[Tensor]:
    """Yields an endless continuation of the prompts (B, T ≥ 1), one id per prompt (B,) at a time."""
    return _Continuation(model, prompt, sampling, _create_generator(seed, prompt.device))


class _Continuation:
    """The tokens after a prompt, each read before the next one is chosen."""

    def __init__(self, model: Predictor, prompt: Tensor, sampling: SamplingOptions, generator: torch.Generator):
        self.inputs = prompt  # what the model has not read yet
        self.sampling, self.generator = sampling, generator
        self.reader, self.trace = TokenReader(model), get_trace()
        self.occurred: Tensor | None = None  # (B, V), whether a token of the vocabulary has been read

    def __iter__(self) -> Iterator[Tensor]:
        return self

    @torch.inference_mode()
    def __next__(self) -> Tensor:
        scores = self.reader.read(self.inputs).float()
        if self.sampling.repetition_penalty != 1:
            scores = scores.log_softmax(-1)  # the penalty multiplies log-probabilities
            # One flag per token of the vocabulary: the cost does not grow with the text.
            self.occurred = torch.zeros_like(scores, dtype=torch.bool) if self.occurred is None else self.occurred
            self.occurred.scatter_(1, self.inputs, True)
        ids = choose_token(self.sampling, scores, self.occurred, self.generator)
        if self.trace is not None:
            self.trace.add_token(scores, ids, self.sampling)
        self.inputs = ids[:, None]
        return ids


def _create_generator(seed: int, device: torch.device) -> torch.Generator:
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must lie between 0 and 2^63 - 1; received {seed}.")
    return torch.Generator(device).manual_seed(seed)


def decode_sequences(
    decoder: StepDecoder, memory: Memory, sampling: SamplingOptions | None = None, seed: int = 0, **arguments: Any
) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each source, sampled or, without `sampling`, found by beam search.

    `arguments` are those of `SequenceDecoding`.
    """
    if sampling is None:
        return BeamSearch(decoder=decoder, memory=memory, **arguments).run()
    return SequenceSampling(decoder=decoder, memory=memory, sampling=sampling, seed=seed, **arguments).run()


@dataclass(kw_only=True, eq=False)
class SequenceSampling(SequenceDecoding):
    """Samples `options.n_best` sequences for each source of the memory, in the order of sampling.

    Of `options`, `min_length` and `no_repeat_ngram` apply too. A score is the log-probability under the model,
    regardless of temperature, top-k and top-p. The samples depend on which sources are in one batch. A sequence that
    has ended is decoded further, and ignored, until all sequences of its source have ended.
    """

    source_tensors = (*SequenceDecoding.source_tensors, "ended", "lengths")

    sampling: SamplingOptions
    seed: int = 0

    def start(self) -> None:
        super().start()
        self.generator = _create_generator(self.seed, self.memory.vectors.device)
        self.ended = torch.zeros_like(self.log_probs, dtype=torch.bool)  # (B, k)
        self.lengths = torch.full_like(self.log_probs, self.length, dtype=torch.long)  # (B, k)

    def extend(self) -> None:
        k = self.options.n_best
        output = self.decoder.step(self.inputs, self.state)
        scores = self.compute_next_scores(output)
        self.state = output.state
        if self.log_probs.shape[1] < k:  # the first step: each source is copied for its samples
            beams = torch.arange(len(scores), device=scores.device).repeat_interleave(k)
            scores, self.state = scores[beams], self.decoder.select(self.state, beams, None)
            for name in ("tokens", "log_probs", "ended", "lengths"):
                setattr(self, name, getattr(self, name).repeat_interleave(k, dim=1))
        occurred = None
        if self.sampling.repetition_penalty != 1:
            tokens = self.tokens.flatten(0, 1)[:, : self.length]
            occurred = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, tokens, True)
        token = choose_token(self.sampling, scores, occurred, self.generator)
        token_log_probs = scores.gather(1, token[:, None]).view_as(self.log_probs)
        self.log_probs = torch.where(self.ended, self.log_probs, self.log_probs + token_log_probs)
        self.inputs, token = token[:, None], token.view_as(self.log_probs)
        self.tokens[:, :, self.length] = token
        self.ended = self.ended | (token == self.end)
        self.length += 1
        self.lengths = torch.where(self.ended, self.lengths, self.length)

    def check_finished(self) -> Tensor:
        return self.ended.all(1) | (self.max_lengths <= self.length)

    def get_hypotheses(self, source: int) -> list[Hypothesis]:
        tensors = (self.tokens, self.log_probs, self.lengths, self.ended)
        samples = zip(*(tensor[source].tolist() for tensor in tensors), strict=True)
        return [Hypothesis(ids[:length], log_prob, log_prob, ended) for ids, log_prob, length, ended in samples]
