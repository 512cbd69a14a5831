"""Training batches of a token store: contiguous streams for recurrent models, shuffled windows for Transformers.

Which tokens are in which batch is a pure function of (seed, epoch, batch number), so `epoch(n, start=k)` resumes a
killed run without reading anything before batch k. Rank r of `world` processes gets its own rows of every batch. The
module knows nothing of models or of text.
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
LOOKAHEAD = 64  # batches whose windows are permuted at once, which is faster than one by one


class StreamLoader:
    """The text as `rows` contiguous streams read in parallel; each batch continues the previous one.

    Row r of a batch begins where row r of the previous one stopped, so the state of a recurrent model stays valid
    (`resets_state` is True only for the first batch of an epoch). Each epoch begins at another token of the first
    window, so that windows are not cut at the same tokens again. All streams are read to their end: the last window of
    an epoch may be shorter. An epoch leaves out fewer than window + rows tokens.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world: int = 1):
        self.store, self.rows, self.seed = store, rows, seed
        self.rank_rows = shard_rows(rows, rank, world)
        targets = len(store) - 1
        require_targets(store, max(rows, 1 if window == "full" else window), rows, window)
        # The offsets between epochs cost a short text at most a twentieth of its tokens.
        self.num_offsets = 1 if window == "full" else min(window, 1 + targets // 20, targets - rows + 1)
        self.length = (targets - (self.num_offsets - 1)) // rows
        self.window = self.length if window == "full" else min(window, self.length)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.length // self.window)

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        """Yield the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, number) % self.num_offsets
        starts = offset + self.length * np.arange(self.rank_rows.start, self.rank_rows.stop, dtype=np.int64)
        for step in range(start, self.steps):
            done = step * self.window
            yield read_token_batch(self.store, starts + done, min(self.window, self.length - done), step == 0)


class WindowLoader:
    """Windows of the text that do not overlap, in random order; rows are independent of each other.

    Each epoch cuts the text at another offset and shuffles anew. The last batch of an epoch may have fewer rows; the
    fewer than `world` windows of it that cannot be divided evenly among the ranks are left out of that epoch, as are
    fewer than two windows of tokens at the ends of the text.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world: int = 1):
        self.store, self.rows, self.seed, self.rank, self.world = store, rows, seed, rank, world
        shard_rows(rows, rank, world)  # raises where the rows cannot be divided
        targets = len(store) - 1
        self.window = max(1, targets // world) if window == "full" else window
        require_targets(store, self.window * world, rows, window)
        self.num_offsets = min(self.window, 1 + targets // 20, targets - self.window * world + 1)
        self.num_windows = (targets - (self.num_offsets - 1)) // self.window
        self.last_rows = self.num_windows % rows // world * world  # of the last, smaller batch

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return self.num_windows // self.rows + (self.last_rows > 0)

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        """Yield the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, number) % self.num_offsets
        for first in range(start, self.steps, LOOKAHEAD):
            indices = [self._window_indices(step) for step in range(first, min(first + LOOKAHEAD, self.steps))]
            windows = permute_indices(np.concatenate(indices), self.num_windows, self.seed, number)
            starts = offset + self.window * windows
            for part in np.split(starts, np.cumsum([len(each) for each in indices])[:-1]):
                yield read_token_batch(self.store, part, self.window)

    def _window_indices(self, step: int) -> np.ndarray:
        """Return the indices in the shuffled order of this rank's windows of a batch."""
        rows = self.rows if (step + 1) * self.rows <= self.num_windows else self.last_rows
        rank_rows = shard_rows(rows, self.rank, self.world)
        return step * self.rows + np.arange(rank_rows.start, rank_rows.stop, dtype=np.int64)


def read_token_batch(store: TokenStore, starts: np.ndarray, length: int, resets_state: bool = True) -> TokenBatch:
    """Return rows of `length` inputs from the given tokens on; the targets are the tokens one further."""
    tokens = torch.from_numpy(store.read_rows(starts, length + 1))
    positions = torch.from_numpy(starts)
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], positions=positions, resets_state=resets_state)


def require_targets(store: TokenStore, targets: int, rows: int, window: Window) -> None:
    """Raise if a text has fewer targets than its batches need."""
    if len(store) > targets:
        return
    raise DataError(
        f"the {store.info.split or 'data'} text has {len(store):,} tokens; {rows} rows of windows of {window} need "
        f"at least {targets + 1:,}.",
        repair="Give more text, or a smaller --data.window or --training.batch-size.",
    )
