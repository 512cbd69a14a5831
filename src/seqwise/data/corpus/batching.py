"""Batches for training: contiguous streams for recurrent models, shuffled windows for Transformers.

Which tokens are in which batch is a pure function of (seed, epoch, batch number), so that `epoch(n, start=k)` goes on
where a killed run stopped without reading anything before. Rank r of `world` gets its own rows of every batch. Nothing
here knows of models or of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch

from seqwise.data.batch import TokenBatch, shard_rows
from seqwise.data.corpus.store import TokenStore
from seqwise.data.shuffle import hash_integers, permute_indices
from seqwise.errors import DataError

Window = int | Literal["full"]

AHEAD = 64  # batches whose places are shuffled at once, which is faster than one by one


class StreamLoader:
    """The text as `rows` contiguous streams read side by side; each batch continues the one before.

    Row r of a batch goes on where row r of the last one stopped, so a carried state stays valid (`fresh` is True only
    for the first batch of an epoch). Each epoch begins at another token within the first window, so that windows are
    not cut at the same places again. All streams are used to their end: the last window of an epoch may be shorter.
    Fewer than window + rows tokens of the text are left out in an epoch.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world: int = 1):
        self.store, self.rows, self.seed = store, rows, seed
        self.mine = shard_rows(rows, rank, world)
        predicted = len(store) - 1
        require_targets(store, max(rows, 1 if window == "full" else window), rows, window)
        # A short text gives up at most a twentieth to the shifts between epochs.
        self.shifts = 1 if window == "full" else min(window, 1 + predicted // 20, predicted - rows + 1)
        self.length = (predicted - (self.shifts - 1)) // rows
        self.window = self.length if window == "full" else min(window, self.length)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.length // self.window)

    @property
    def tokens(self) -> int:
        """Targets per epoch, over all ranks."""
        return self.rows * self.length

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        """The batches of an epoch from batch `start` on."""
        shift = hash_integers(self.seed, number) % self.shifts
        streams = shift + self.length * np.arange(self.mine.start, self.mine.stop, dtype=np.int64)
        for step in range(start, self.steps):
            done = step * self.window
            yield read_token_batch(self.store, streams + done, min(self.window, self.length - done), fresh=step == 0)


class WindowLoader:
    """Windows of the text that do not overlap, in random order; rows are independent of each other.

    Each epoch cuts the text at another offset and shuffles anew. The last batch of an epoch may have fewer rows; what
    of it cannot be divided evenly among the ranks (fewer than `world` windows) is left out of that epoch, as are fewer
    than two windows of tokens at the ends of the text.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world: int = 1):
        self.store, self.rows, self.seed, self.rank, self.world = store, rows, seed, rank, world
        shard_rows(rows, rank, world)
        predicted = len(store) - 1
        self.window = max(1, predicted // world) if window == "full" else window
        require_targets(store, self.window * world, rows, window)
        self.shifts = min(self.window, 1 + predicted // 20, predicted - self.window * world + 1)
        self.count = (predicted - (self.shifts - 1)) // self.window
        self.last = self.count % rows // world * world  # rows of the last, smaller batch

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return self.count // self.rows + (self.last > 0)

    @property
    def tokens(self) -> int:
        """Targets per epoch, over all ranks."""
        return (self.count // self.rows * self.rows + self.last) * self.window

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        """The batches of an epoch from batch `start` on."""
        shift = hash_integers(self.seed, number) % self.shifts
        for first in range(start, self.steps, AHEAD):
            mine = [self._places(step) for step in range(first, min(first + AHEAD, self.steps))]
            starts = shift + self.window * permute_indices(np.concatenate(mine), self.count, self.seed, number)
            for part in np.split(starts, np.cumsum([len(places) for places in mine])[:-1]):
                yield read_token_batch(self.store, part, self.window)

    def _places(self, step: int) -> np.ndarray:
        """The places in the shuffled order that this rank's rows of a batch hold."""
        rows = self.rows if (step + 1) * self.rows <= self.count else self.last
        mine = shard_rows(rows, self.rank, self.world)
        return step * self.rows + np.arange(mine.start, mine.stop, dtype=np.int64)


def read_token_batch(store: TokenStore, starts: np.ndarray, length: int, fresh: bool = True) -> TokenBatch:
    """Rows of `length` inputs from the given places; the targets are the tokens one further on."""
    tokens = torch.from_numpy(store.read_rows(starts, length + 1))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], positions=torch.from_numpy(starts), fresh=fresh)


def require_targets(store: TokenStore, targets: int, rows: int, window: Window) -> None:
    """Complain about a text with fewer targets than the batches asked for need."""
    if len(store) > targets:
        return
    raise DataError(
        f"the {store.facts.split or 'data'} text has {len(store):,} tokens; {rows} rows of windows of {window} need "
        f"at least {targets + 1:,}.",
        repair="Give more text, or a smaller --data.window or --training.batch-size.",
    )
