"""Batches of the task masked: windows of text with masked tokens.

Whether a token is masked, and its replacement, is a pure function of (seed, epoch, its position in the text). So it
depends neither on the batch nor on the process, and an interrupted run resumes with the same masks. The module knows
nothing of models or of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.data.batch import Batch
from seqwise.data.corpus.batching import WindowLoader, require_targets
from seqwise.data.corpus.store import TokenStore
from seqwise.data.shuffle import hash_integers, mix_bits

# Shares of the targets that become <mask> or a random token; the others stay as they are (Devlin et al. 2019, §3.1).
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
EVALUATION_KEY = 0  # seed and epoch of the masks in evaluation, which are the same for every run


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Windows in which some tokens are masked. `targets` has the true token at every position.

    A `bidirectional` batch is for two language models, one per direction, which are trained on all tokens.
    `scored_mask` is False for tokens that another window of an evaluation scores.
    """

    position_unit = "token"

    ids: Tensor  # (B, T) int64, the inputs of the model
    targets: Tensor  # (B, T) int64
    target_mask: Tensor  # (B, T) bool: tokens to predict
    scored_mask: Tensor | None = None  # (B, T) bool; None means all
    bidirectional: bool = False

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        if not self.bidirectional:
            return int(self.target_mask.sum())
        if self.scored_mask is None:
            return 2 * self.ids.shape[0] * (self.ids.shape[1] - 1)
        return int(self.scored_mask[:, 1:].sum()) + int(self.scored_mask[:, :-1].sum())

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the batch, so that a budget is the same amount of text for every family."""
        return self.ids.numel()


@dataclass(frozen=True)
class MaskSampler:
    """Samples the tokens to predict. Ids below `num_specials` and `unknown` are never targets."""

    rate: float  # share of the tokens that are targets
    mask_id: int
    num_specials: int
    vocabulary_size: int
    unknown: int | None = None

    def sample(
        self, ids: np.ndarray, starts: np.ndarray, *key: int, at_least_one: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the model's inputs and the target mask (B, T), for windows of ids (B, T) that begin at `starts`.

        `key` are the seed and the epoch. With `at_least_one`, a window without a target gets one: the allowed token
        with the smallest random number.
        """
        positions = starts[:, None] + np.arange(ids.shape[1])
        uniform = hash_to_uniform(positions, *key, 0)
        allowed = ids >= self.num_specials
        if self.unknown is not None:
            allowed &= ids != self.unknown
        target_mask = allowed & (uniform < self.rate)
        if at_least_one:
            lacks_target = ~target_mask.any(axis=1) & allowed.any(axis=1)
            smallest = np.where(allowed, uniform, 1.0).argmin(axis=1)
            target_mask[lacks_target, smallest[lacks_target]] = True
        replacement = hash_to_uniform(positions, *key, 1)  # decides between <mask>, a random token and the token itself
        num_ids = self.vocabulary_size - self.num_specials
        random_ids = self.num_specials + (hash_to_uniform(positions, *key, 2) * num_ids).astype(np.int64)
        is_random = (replacement >= MASK_SHARE) & (replacement < MASK_SHARE + RANDOM_SHARE)
        inputs = np.where(target_mask & (replacement < MASK_SHARE), self.mask_id, ids)
        inputs = np.where(target_mask & is_random, random_ids, inputs)
        return inputs, target_mask


def hash_to_uniform(positions: np.ndarray, *key: int) -> np.ndarray:
    """Returns a number in [0, 1) for each position: the finaliser of SplitMix64 over the position and the key."""
    state = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(hash_integers(*key))
    return (mix_bits(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class MaskedWindowLoader:
    """Training batches: the shuffled windows of `WindowLoader`, with new masks in every epoch."""

    def __init__(self, windows: WindowLoader, sampler: MaskSampler, bidirectional: bool):
        self.windows, self.sampler, self.bidirectional = windows, sampler, bidirectional

    @property
    def steps(self) -> int:
        return self.windows.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[MaskedBatch]:
        """Yields the batches of an epoch from batch `start` on."""
        for batch in self.windows.epoch(number, start):
            assert batch.positions is not None
            ids, starts = batch.ids.numpy(), batch.positions.numpy()
            inputs, target_mask = map(torch.from_numpy, self.sampler.sample(ids, starts, self.windows.seed, number))
            yield MaskedBatch(
                inputs, batch.ids, target_mask,
                bidirectional=self.bidirectional, positions=batch.positions, is_filler=batch.is_filler,
            )  # fmt: skip


class MaskedEvaluationLoader:
    """Batches with fixed masks over a whole text; every token is scored once.

    Windows overlap by half, and the middle half of each is scored. So a token has at least a quarter of a window on
    both sides, except at the ends of the text. The first and the last token are never targets: one of the directions
    of a bidirectional model would have no context. Which tokens are masked does not depend on the window.
    """

    def __init__(self, store: TokenStore, sampler: MaskSampler, batch_size: int, window: int, bidirectional: bool):
        require_targets(store, 2, batch_size, window)
        self.store, self.sampler, self.batch_size, self.bidirectional = store, sampler, batch_size, bidirectional
        self.window = min(window, len(store))
        stride, last_start = max(1, self.window // 2), len(store) - self.window
        self.starts = np.append(np.arange(0, last_start, stride, dtype=np.int64), last_start)
        # positions of the first scored token of each window, and after the last
        self.scored_ends = self.starts + self.window - self.window // 4
        self.scored_ends[-1] = len(store)
        self.scored_starts = np.append(0, self.scored_ends[:-1])

    @property
    def steps(self) -> int:
        return -(-len(self.starts) // self.batch_size)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[MaskedBatch]:
        """Yields all batches from batch `start` on; every epoch is the same."""
        for step in range(start, self.steps):
            batch = slice(step * self.batch_size, (step + 1) * self.batch_size)
            starts = self.starts[batch]
            ids = self.store.read_sequences(starts, self.window)
            inputs, target_mask = self.sampler.sample(ids, starts, EVALUATION_KEY, EVALUATION_KEY, at_least_one=False)
            positions = starts[:, None] + np.arange(self.window)
            scored_mask = (positions >= self.scored_starts[batch, None]) & (positions < self.scored_ends[batch, None])
            is_end = (positions == 0) | (positions == len(self.store) - 1)
            yield MaskedBatch(
                torch.from_numpy(np.where(is_end, ids, inputs)),
                torch.from_numpy(ids),
                torch.from_numpy(target_mask & scored_mask & ~is_end),
                torch.from_numpy(scored_mask),
                self.bidirectional,
                positions=torch.from_numpy(starts),
            )
