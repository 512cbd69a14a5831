"""Windows of text with hidden tokens: batches of the task masked.

Whether a token is hidden, and by what, is a pure function of (seed, epoch, its place in the text). So it depends
neither on the batch nor on the process that reads it, and a killed run goes on with the same masks. Nothing here knows
of models or of text.
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
from seqwise.data.shuffle import hash_integers

# Of the chosen tokens so many become <mask>, so many a random token; the rest stays (Devlin et al. 2019, §3.1).
MASKED, RANDOM = 0.8, 0.1
FIXED = 0  # seed and epoch of the masks of evaluation: the same for every run


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Rows in which some tokens are hidden. `targets` has the true token at every place.

    `both` says that a model is trained in both directions on all tokens, not on the chosen ones. `counted` leaves out
    tokens that another window of an evaluation counts.
    """

    position_unit = "token"

    ids: Tensor  # (B, T) int64, as the model sees them
    targets: Tensor  # (B, T) int64
    chosen: Tensor  # (B, T) bool: tokens to be filled in
    counted: Tensor | None = None  # (B, T) bool; None means all
    both: bool = False

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        if not self.both:
            return int(self.chosen.sum())
        if self.counted is None:
            return 2 * self.ids.shape[0] * (self.ids.shape[1] - 1)
        return int(self.counted[:, 1:].sum()) + int(self.counted[:, :-1].sum())

    @property
    def num_tokens(self) -> int:
        """Tokens that were read, so that a budget means the same text for every family."""
        return self.ids.numel()


@dataclass(frozen=True)
class Masks:
    """Which tokens are hidden. Ids below `first` are specials; those and `unknown` are never chosen."""

    rate: float
    mask: int  # the id of <mask>
    first: int
    vocabulary: int
    unknown: int | None = None

    def draw(
        self, ids: np.ndarray, starts: np.ndarray, *key: int, at_least_one: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """ids (B, T) of rows that begin at `starts` → what the model sees, and which tokens are chosen.

        `at_least_one` chooses the likeliest token of a row that would have none, if there is one to choose.
        """
        places = starts[:, None] + np.arange(ids.shape[1])
        draw = uniform(places, *key, 0)
        allowed = ids >= self.first
        if self.unknown is not None:
            allowed &= ids != self.unknown
        chosen = allowed & (draw < self.rate)
        if at_least_one:
            bare = ~chosen.any(axis=1) & allowed.any(axis=1)
            likeliest = np.where(allowed, draw, 1.0).argmin(axis=1)
            chosen[bare, likeliest[bare]] = True
        how = uniform(places, *key, 1)
        others = self.first + (uniform(places, *key, 2) * (self.vocabulary - self.first)).astype(np.int64)
        seen = np.where(chosen & (how < MASKED), self.mask, ids)
        seen = np.where(chosen & (how >= MASKED) & (how < MASKED + RANDOM), others, seen)
        return seen, chosen


def uniform(places: np.ndarray, *key: int) -> np.ndarray:
    """A number in [0, 1) for each place: the finaliser of SplitMix64 over the place and the key."""
    state = places.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(hash_integers(*key))
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


class MaskedWindows:
    """Training batches: the shuffled windows of `WindowLoader`, with new masks in every epoch."""

    def __init__(self, windows: WindowLoader, masks: Masks, both: bool):
        self.windows, self.masks, self.both = windows, masks, both

    @property
    def steps(self) -> int:
        return self.windows.steps

    def epoch(self, number: int, start: int = 0) -> Iterator[MaskedBatch]:
        """The batches of an epoch from batch `start` on."""
        for batch in self.windows.epoch(number, start):
            assert batch.positions is not None
            ids, starts = batch.ids.numpy(), batch.positions.numpy()
            seen, chosen = self.masks.draw(ids, starts, self.windows.seed, number)
            yield MaskedBatch(
                torch.from_numpy(seen), batch.ids, torch.from_numpy(chosen), both=self.both, positions=batch.positions
            )


class EvaluationMasks:
    """Fixed masks over a whole text; every token counts once.

    Windows overlap by half, and the middle half of each counts. So a token has at least a quarter of a window on both
    sides, except at the ends of the text. The first and the last token are never chosen: a model that reads in two
    directions would have only one. Which tokens are hidden does not depend on the length of the window.
    """

    def __init__(self, store: TokenStore, masks: Masks, rows: int, window: int, both: bool):
        require_targets(store, 2, rows, window)
        self.store, self.masks, self.rows, self.both = store, masks, rows, both
        self.window = min(window, len(store))
        stride, last = max(1, self.window // 2), len(store) - self.window
        self.starts = np.append(np.arange(0, last, stride, dtype=np.int64), last)
        # where the counted tokens of each window begin and end
        self.ends = self.starts + self.window - self.window // 4
        self.ends[-1] = len(store)
        self.begins = np.append(0, self.ends[:-1])

    @property
    def steps(self) -> int:
        return -(-len(self.starts) // self.rows)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[MaskedBatch]:
        """All batches from batch `start` on; every epoch is the same."""
        for step in range(start, self.steps):
            yield self._batch(slice(step * self.rows, (step + 1) * self.rows))

    def _batch(self, some: slice) -> MaskedBatch:
        starts = self.starts[some]
        ids = self.store.read_rows(starts, self.window)
        seen, chosen = self.masks.draw(ids, starts, FIXED, FIXED, at_least_one=False)
        places = starts[:, None] + np.arange(self.window)
        counted = (places >= self.begins[some, None]) & (places < self.ends[some, None])
        ends = (places == 0) | (places == len(self.store) - 1)
        seen = np.where(ends, ids, seen)
        return MaskedBatch(
            torch.from_numpy(seen),
            torch.from_numpy(ids),
            torch.from_numpy(chosen & counted & ~ends),
            torch.from_numpy(counted),
            self.both,
            positions=torch.from_numpy(starts),
        )
