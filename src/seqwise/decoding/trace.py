"""Records what a search does at each step, for the view `decoding` of `seqwise.lens`.

    with trace_decoding(top=5) as trace:
        trained.predict("Das ist gut.")
    trace.beam_steps    # of beam search; trace.token_steps of a language model

Beam search and generation add their steps to the trace of the surrounding block. Without one, that costs one comparison
with None per step. A trace is of one sequence: one source to translate, one image or one prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import UsageError

_active: ContextVar[DecodingTrace | None] = ContextVar("seqwise_decoding_trace", default=None)


@dataclass(frozen=True)
class NextTokens:
    """What a model predicts after each of N sequences, before any token is forbidden."""

    ids: np.ndarray  # (N, top), most probable first
    log_probs: np.ndarray  # (N, top)
    entropy: np.ndarray  # (N,) in nats

    @classmethod
    def of(cls, log_probs: Tensor, top: int) -> NextTokens:
        """Returns the most probable tokens of normalised log-probabilities (N, V)."""
        values, ids = log_probs.topk(min(top, log_probs.shape[1]))
        entropy = -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(-1)
        return cls(*(each.cpu().numpy() for each in (ids, values, entropy)))


@dataclass(frozen=True)
class TokenStep:
    """A token that a language model generated."""

    next_tokens: NextTokens  # N = 1
    token: int
    log_prob: float  # under the model, whatever the temperature
    rank: int  # from 1, by probability


@dataclass(frozen=True)
class BeamStep:
    """One step of beam search: the beams, their C candidates, and what becomes of those.

    K is the number of beams: 1 in the first step, then k.
    """

    next_tokens: NextTokens  # N = K
    is_forbidden: np.ndarray  # (K, top) bool: of `next_tokens`, those that the search may not choose here
    beam_log_probs: np.ndarray  # (K,) of the sequences so far
    tokens: np.ndarray  # (C,) of the candidates, the most probable sequence first
    parents: np.ndarray  # (C,) the beam that each continues
    log_probs: np.ndarray  # (C,) of the sequences
    ranks: np.ndarray  # (C,) of the token among the next tokens of its beam, from 1
    scores: np.ndarray  # (C,) of candidates that become finished hypotheses, else NaN
    beams: np.ndarray  # (≤ k,) the candidates that are the beams of the next step


@dataclass
class DecodingTrace:
    """All steps of a search. Of beam search also its options, why it stopped, and the hypotheses that it returns."""

    top: int
    token_steps: list[TokenStep] = field(default_factory=list)
    beam_steps: list[BeamStep] = field(default_factory=list)
    sampling: SamplingOptions | None = None
    options: BeamSearchOptions | None = None
    end: int = -1  # id of the end token
    prefix: tuple[int, ...] = ()  # ids that every sequence begins with
    max_length: int = 0
    stop_reasons: tuple[str, ...] = ()  # keys of `BeamSearch.find_stop_reasons`
    beam_log_probs: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of the beams at the end
    hypotheses: list[Hypothesis] = field(default_factory=list)

    def start(self, options: BeamSearchOptions, end: int, prefix: Sequence[int], max_length: int) -> None:
        """Begins a beam search, whose sequences end with the token `end`."""
        self.options, self.end, self.prefix, self.max_length = options, end, tuple(prefix), max_length

    def finish(self, reasons: tuple[str, ...], beam_log_probs: Tensor, hypotheses: list[Hypothesis]) -> None:
        """Ends a beam search: why it stopped, the log-probabilities (k,) of its last beams, and what it returns."""
        self.stop_reasons, self.beam_log_probs, self.hypotheses = reasons, beam_log_probs.cpu().numpy(), hypotheses

    def add_token(self, scores: Tensor, ids: Tensor, sampling: SamplingOptions) -> None:
        """Adds a generated token (1,); `scores` (1, V) are its log-probabilities plus a constant."""
        check_single(len(scores))
        self.sampling = sampling
        log_probs = scores.log_softmax(-1)
        value = log_probs[0, ids[0]]
        rank = 1 + int((log_probs[0] > value).sum())
        self.token_steps.append(TokenStep(NextTokens.of(log_probs, self.top), int(ids[0]), float(value), rank))

    def add_beam_step(
        self,
        model_log_probs: Tensor,
        allowed_log_probs: Tensor,
        beam_log_probs: Tensor,
        candidates: tuple[Tensor, Tensor, Tensor],
        scores: Tensor | None,
        order: Tensor,
    ) -> None:
        """Adds a step of beam search; its tensors have the sizes that `BeamSearch.extend` gives them, with B = 1.

        candidates: log-probabilities, parents and tokens, (1, 2k) each
        scores: (1, k) of the candidates that end, -inf for the others; None if no candidate ends
        order: (1, k) the candidates that become beams
        """
        check_single(len(beam_log_probs))
        log_probs, parents, tokens = (each[0] for each in candidates)
        is_possible = log_probs > -torch.inf
        next_tokens = NextTokens.of(model_log_probs, self.top)
        top_ids = torch.from_numpy(next_tokens.ids).to(allowed_log_probs.device)
        rows = model_log_probs[parents]
        ranks = 1 + (rows > rows.gather(1, tokens[:, None])).sum(1)
        final_scores = torch.full_like(log_probs, torch.nan)
        if scores is not None:
            final_scores[: scores.shape[1]] = scores[0].masked_fill(scores[0] == -torch.inf, torch.nan)
        is_beam = is_possible[order[0]] & (tokens[order[0]] != self.end)
        arrays = [each[is_possible].cpu().numpy() for each in (tokens, parents, log_probs, ranks, final_scores)]
        self.beam_steps.append(
            BeamStep(
                next_tokens=next_tokens,
                is_forbidden=(allowed_log_probs.gather(1, top_ids) == -torch.inf).cpu().numpy(),
                beam_log_probs=beam_log_probs[0].cpu().numpy(),
                tokens=arrays[0],
                parents=arrays[1],
                log_probs=arrays[2],
                ranks=arrays[3],
                scores=arrays[4],
                beams=order[0][is_beam].cpu().numpy(),
            )
        )


def check_single(num_sequences: int) -> None:
    """Raises an error for several sequences at once."""
    if num_sequences != 1:
        raise UsageError(f"a trace is of one sequence; received {num_sequences} at once.", fix="Decode them in turn.")


@contextmanager
def trace_decoding(top: int = 5) -> Iterator[DecodingTrace]:
    """Records the search that runs inside the block, with the `top` most probable tokens of each step."""
    trace = DecodingTrace(top)
    token = _active.set(trace)
    try:
        yield trace
    finally:
        _active.reset(token)


def get_trace() -> DecodingTrace | None:
    """Returns the trace of the surrounding block, if there is one."""
    return _active.get()
