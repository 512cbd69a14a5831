"""Autoregressive generation: feed a model its own tokens. The model's state keeps the cost per token constant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from seqwise.backbones.states import ModelState
from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sampling import pick
from seqwise.errors import UsageError


class Predictor(Protocol):
    """Reads more tokens of each row and returns the log-probabilities of the next token and the state after them."""

    def next(self, ids: Tensor, state: ModelState, /) -> tuple[Tensor, ModelState]: ...


def generate(model: Predictor, prompt: Tensor, sampling: SamplingOptions, seed: int = 0) -> Iterator[Tensor]:
    """Yield an endless continuation of the prompt (B, T ≥ 1), one id per row (B,) at a time."""
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must lie between 0 and 2^63 - 1; received {seed}.")
    return _generate(model, prompt, sampling, torch.Generator(prompt.device).manual_seed(seed))


@torch.inference_mode()
def _generate(
    model: Predictor, prompt: Tensor, sampling: SamplingOptions, generator: torch.Generator
) -> Iterator[Tensor]:
    inputs, state, occurred = prompt, None, None
    while True:
        scores, state = model.next(inputs, state)
        if sampling.repetition_penalty != 1:
            # One flag per token of the vocabulary: the cost does not grow with the text.
            occurred = torch.zeros_like(scores, dtype=torch.bool) if occurred is None else occurred
            occurred.scatter_(1, inputs, True)
        ids = pick(sampling, scores.float(), occurred, generator)
        yield ids
        inputs = ids[:, None]
