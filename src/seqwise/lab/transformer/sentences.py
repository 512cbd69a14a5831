"""A small Transformer decoder trained on a few sentences, for the experiments about generation.

Half of the sentences begin with "the", but each of those has a probability of 5 % only; "it rains" has 30 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.memory import Memory
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis, StepOutput
from seqwise.lab.experiment import Experiment
from seqwise.lab.fitting import fit
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder

ANIMALS, VERBS = ("cat", "dog", "bird", "fish", "horse"), ("sleeps", "runs")
SENTENCES: dict[tuple[str, ...], float] = {
    **{("the", animal, verb): 0.05 for animal, verb in product(ANIMALS, VERBS)},
    ("it", "rains"): 0.3,
    ("we", "sing"): 0.1,
    ("we", "sing", "again"): 0.1,
}
WORDS = ["‹pad›", "‹start›", "‹end›", *dict.fromkeys(word for sentence in SENTENCES for word in sentence)]
PAD, START, END = 0, 1, 2
MAX_WORDS = max(map(len, SENTENCES))
MEMORY = Memory(torch.zeros(1, 1, 1))  # the decoder attends to nothing: it is a language model here


@dataclass(frozen=True, kw_only=True)
class SentenceExperiment(Experiment):
    """What both experiments share: the decoder and its training."""

    steps: int = 150
    """Training steps."""
    width: int = 32
    """Width of the decoder."""
    max_length: int = 100
    """Largest number of tokens, if the end token is never chosen."""

    def train_decoder(self) -> TokenDecoder:
        """Returns a decoder that was trained on random sentences."""
        settings = ResolvedSettings.model_validate(
            {
                "model": "transformer",
                "network": {"width": self.width, "tie_weights": False},
                "transformer": {"heads": 4},
            }
        )
        decoder = TokenDecoder(settings, len(WORDS), memory_width=1, max_length=self.max_length)
        fit(decoder, draw_sentences, compute_losses, steps=self.steps, learning_rate=1e-2, seed=self.seed)
        return decoder

    def trace(self, decoder: TokenDecoder) -> TracedDecoder:
        return TracedDecoder(decoder)

    def decode(self, decoder: TracedDecoder, **arguments: Any) -> Hypothesis:
        """Returns the sentence that sampling or a search finds."""
        return decode_sequences(decoder, MEMORY, begin=START, end=END, max_length=self.max_length, **arguments)[0][0]


def draw_sentences(generator: torch.Generator, count: int = 64) -> tuple[Tensor, Tensor]:
    """Returns inputs and targets (B, 4): sentences after the start token, and before the end token."""
    rows = torch.zeros(len(SENTENCES), 5, dtype=torch.long)
    for row, sentence in zip(rows, SENTENCES, strict=True):
        row[: len(sentence) + 2] = torch.tensor([START, *map(WORDS.index, sentence), END])
    chosen = rows[torch.multinomial(torch.tensor([*SENTENCES.values()]), count, replacement=True, generator=generator)]
    return chosen[:, :-1], chosen[:, 1:]


def compute_losses(decoder: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the losses of all targets that are no padding."""
    memory = Memory(MEMORY.vectors.expand(len(inputs), -1, -1))
    return decoder.losses(memory, inputs, targets)[targets != PAD]  # type: ignore[operator]


class TracedDecoder:
    """A decoder that keeps what it has read and predicted at each step."""

    def __init__(self, decoder: TokenDecoder):
        self.decoder, self.start, self.select = decoder, decoder.start, decoder.select
        self.inputs: list[list[int]] = []
        self.log_probs: list[Tensor] = []  # (V,) each

    def step(self, ids: Tensor, state: Any, need_weights: bool = False) -> StepOutput:
        output = self.decoder.step(ids, state, need_weights)
        self.inputs.append(ids[0].tolist())
        self.log_probs.append(output.log_probabilities[0].clone())
        return output


def spell(ids: Sequence[int]) -> str:
    return " ".join(WORDS[token] for token in ids)


@torch.no_grad()
def score_all(decoder: TokenDecoder) -> dict[tuple[int, ...], float]:
    """Returns the log-probability of each sentence of up to three words."""
    words = torch.tensor([*product(range(END + 1, len(WORDS)), repeat=MAX_WORDS)])
    memory = Memory(MEMORY.vectors.expand(len(words), -1, -1))
    inputs = torch.cat([torch.full((len(words), 1), START), words], dim=1)
    log_probs = decoder.head(decoder.decode(inputs, None, memory).vectors)  # (B, 4, V)
    scores: dict[tuple[int, ...], float] = {}
    prefix = torch.zeros(len(words))
    for length in range(MAX_WORDS + 1):
        totals = (prefix + log_probs[:, length, END]).tolist()
        scores |= {tuple(ids[:length]): total for ids, total in zip(words.tolist(), totals, strict=True)}
        if length < MAX_WORDS:
            prefix = prefix + log_probs[:, length].gather(1, words[:, length, None])[:, 0]
    return scores
