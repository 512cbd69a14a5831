"""Token by token: feed a model its own choices. Cost per token does not grow with a carried state or a cache."""

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
    """Reads more tokens of each row and gives the log-probabilities of the token after them."""

    def next(self, ids: Tensor, carry: ModelState) -> tuple[Tensor, ModelState]: ...


def generate(model: Predictor, prompt: Tensor, choice: SamplingOptions, seed: int = 0) -> Iterator[Tensor]:
    """Endless continuation of the prompt (B, T ≥ 1), one id per row (B,) at a time."""
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must lie between 0 and 2^63 - 1; received {seed}.")
    return _generate(model, prompt, choice, torch.Generator(prompt.device).manual_seed(seed))


@torch.inference_mode()
def _generate(
    model: Predictor, prompt: Tensor, choice: SamplingOptions, generator: torch.Generator
) -> Iterator[Tensor]:
    seen, carry, read = None, None, prompt
    while True:
        scores, carry = model.next(read, carry)
        if choice.repetition_penalty != 1:
            # One mark per token of the vocabulary: the cost does not grow with the text.
            seen = torch.zeros_like(scores, dtype=torch.bool) if seen is None else seen
            seen.scatter_(1, read, True)
        chosen = pick(choice, scores.float(), seen, generator)
        yield chosen
        read = chosen[:, None]
