"""Batches of a token store: contiguous streams for recurrent models, windows for Transformers.

Which tokens are in which training batch is a pure function of (seed, epoch, batch number), so `epoch(n, start=k)`
resumes a killed run without reading anything before batch k. Rank r of `world_size` processes gets its own rows of
every batch. A store of n tokens has n - 1 targets. The module knows nothing of models or of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch

from seqwise.data.batch import TokenBatch, shard_rows
from seqwise.data.corpus.store import TokenStore
from seqwise.data.shuffle import hash_integers, permute_indices
from seqwise.errors import DataError, UsageError

Window = int | Literal["full"]
BATCHES_PER_PERMUTATION = 64  # batches whose windows are permuted at once, which is faster than one by one


class StreamLoader:
    """The text as `rows` contiguous streams read in parallel; each batch continues the previous one.

    Row r of a batch begins where row r of the previous one stopped, so the state of a recurrent model stays valid
    (`resets_state` is True only for the first batch of an epoch). Each epoch begins at another token of the first
    window, so that windows are not cut at the same tokens again. All streams are read to their end: the last window of
    an epoch may be shorter. An epoch leaves out fewer than window + rows tokens.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world_size: int = 1):
        self.store, self.rows, self.seed = store, rows, seed
        rank_rows = shard_rows(rows, rank, world_size)
        targets = len(store) - 1
        require_targets(store, max(rows, 1 if window == "full" else window), rows, window)
        # The offsets between epochs cost a short text at most a twentieth of its tokens.
        self.num_offsets = 1 if window == "full" else min(window, 1 + targets // 20, targets - rows + 1)
        self.length = (targets - (self.num_offsets - 1)) // rows  # targets per stream
        self.window = self.length if window == "full" else min(window, self.length)
        self.starts = self.length * np.arange(rank_rows.start, rank_rows.stop, dtype=np.int64)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.length // self.window)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yield the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, number) % self.num_offsets
        for step in range(start, self.steps):
            tokens_read = step * self.window
            yield self._read(offset + self.starts + tokens_read, min(self.window, self.length - tokens_read), step == 0)

    def _read(self, starts: np.ndarray, width: int, resets_state: bool) -> TokenBatch:
        return read_token_batch(self.store, starts, width, resets_state)


class WindowLoader:
    """Windows of the text that do not overlap, in random order; rows are independent of each other.

    Each epoch cuts the text at another offset and shuffles anew. The last batch of an epoch may have fewer rows; the
    fewer than `world_size` windows of it that cannot be divided evenly among the ranks are left out of that epoch, as
    are fewer than two windows of tokens at the ends of the text.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, seed: int, rank: int = 0, world_size: int = 1):
        self.store, self.rows, self.seed, self.rank, self.world_size = store, rows, seed, rank, world_size
        shard_rows(rows, rank, world_size)  # raises where the rows cannot be divided
        targets = len(store) - 1
        self.window = max(1, targets // world_size) if window == "full" else window
        require_targets(store, self.window * world_size, rows, window)
        self.num_offsets = min(self.window, 1 + targets // 20, targets - self.window * world_size + 1)
        self.num_windows = (targets - (self.num_offsets - 1)) // self.window
        self.last_rows = self.num_windows % rows // world_size * world_size  # of the last, smaller batch

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return self.num_windows // self.rows + (self.last_rows > 0)

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        """Yield the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, number) % self.num_offsets
        for first in range(start, self.steps, BATCHES_PER_PERMUTATION):
            indices = [
                self._window_indices(step) for step in range(first, min(first + BATCHES_PER_PERMUTATION, self.steps))
            ]
            windows = permute_indices(np.concatenate(indices), self.num_windows, self.seed, number)
            starts = offset + self.window * windows
            for part in np.split(starts, np.cumsum([len(each) for each in indices])[:-1]):
                yield read_token_batch(self.store, part, self.window)

    def _window_indices(self, step: int) -> np.ndarray:
        """Return the indices in the shuffled order of this rank's windows of a batch."""
        rows = self.rows if (step + 1) * self.rows <= self.num_windows else self.last_rows
        rank_rows = shard_rows(rows, self.rank, self.world_size)
        return step * self.rows + np.arange(rank_rows.start, rank_rows.stop, dtype=np.int64)


def read_token_batch(store: TokenStore, starts: np.ndarray, length: int, resets_state: bool = True) -> TokenBatch:
    """Return rows of `length` tokens that begin at `starts`; the targets are the same rows one token later."""
    tokens = torch.from_numpy(store.read_rows(starts, length + 1))
    positions = torch.from_numpy(starts)
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], positions=positions, resets_state=resets_state)


def require_targets(store: TokenStore, targets: int, rows: int, window: Window) -> None:
    """Raise if a text has fewer targets than its batches need."""
    if len(store) <= targets:
        available = f"the {store.info.split or 'data'} text has {len(store):,} tokens"
        problem = f"{available}; {rows} rows of windows of {window} need at least {targets + 1:,}."
        raise DataError(problem, repair="Give more text, or a smaller --data.window or --training.batch-size.")


# Evaluation: every token is predicted exactly once, except the first one; every epoch is the same


class StreamEvaluationLoader(StreamLoader):
    """The text as `rows` contiguous streams, for models with a state; their lengths differ by at most one.

    A stream begins with the last token of the stream before it, so no target is lost at the boundaries: its first
    target merely has a short history. With rows=1 every target has all the text before it. Shorter streams end with a
    target that `mask` excludes.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, rank: int = 0, world_size: int = 1):
        self.store, self.rows, self.seed, self.num_offsets = store, rows, 0, 1
        rank_rows = shard_rows(rows, rank, world_size)
        require_targets(store, 1, rows, window)
        stream = np.arange(rows + 1, dtype=np.int64)
        length, num_longer = divmod(len(store) - 1, rows)
        bounds = stream * length + np.minimum(stream, num_longer)  # the first `num_longer` streams have one target more
        self.starts = bounds[rank_rows.start : rank_rows.stop]
        self.stops = bounds[rank_rows.start + 1 : rank_rows.stop + 1]
        self.length = length + (num_longer > 0)
        self.window = self.length if window == "full" else min(window, self.length)

    def _read(self, starts: np.ndarray, width: int, resets_state: bool) -> TokenBatch:
        """Return rows of up to `width` targets that stop at the end of their stream; no mask when all are full."""
        counts = np.clip(self.stops - starts, 0, width)
        if (counts == width).all():
            return read_token_batch(self.store, starts, width, resets_state)
        tokens = np.zeros((len(starts), width + 1), dtype=np.int64)
        for row, (start, count) in enumerate(zip(starts, counts)):
            if count:
                tokens[row, : count + 1] = self.store.read(start, int(count) + 1)
        mask = torch.from_numpy(np.arange(width) < counts[:, None])
        positions, ids = torch.from_numpy(starts), torch.from_numpy(tokens)
        return TokenBatch(ids[:, :-1], ids[:, 1:], mask, positions=positions, resets_state=resets_state)


class WindowEvaluationLoader:
    """Overlapping windows, for models that see one window only.

    Windows overlap by `context - 1` tokens, and only targets that no earlier window has counted are counted. So each
    is predicted from at least `context` tokens of history, or from all there are. The last window is moved back to be
    full. Missing rows of the last batch are filled with rows that do not count, so that all ranks have a batch.
    """

    def __init__(
        self, store: TokenStore, rows: int, window: Window, context: int = 0, rank: int = 0, world_size: int = 1
    ):
        self.store, self.rows, self.rank, self.world_size = store, rows, rank, world_size
        shard_rows(rows, rank, world_size)  # raises where the rows cannot be divided
        self.num_targets = len(store) - 1
        require_targets(store, 1, rows, window)
        self.window = self.num_targets if window == "full" else min(window, self.num_targets)
        if context < 0 or (window != "full" and context > window):
            problem = f"a context of {context} does not fit into windows of {window}."
            raise UsageError(problem, repair="Make it smaller.")
        self.stride = max(1, min(self.window, self.window - context + 1))
        self.num_windows = 1 + max(0, -(-(self.num_targets - self.window) // self.stride))

    @property
    def steps(self) -> int:
        return -(-self.num_windows // self.rows)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yield all batches from batch `start` on."""
        for step in range(start, self.steps):
            rows = min(self.rows, self.num_windows - step * self.rows)
            share = -(-rows // self.world_size)
            yield self._read(step * self.rows + self.rank * share + np.arange(share, dtype=np.int64))

    def _read(self, windows: np.ndarray) -> TokenBatch:
        window_numbers = np.minimum(windows, self.num_windows - 1)
        starts = np.minimum(window_numbers * self.stride, self.num_targets - self.window)
        # Earlier windows have counted the targets up to this one.
        last_counted = np.where(window_numbers > 0, (window_numbers - 1) * self.stride + self.window, 0)
        targets = starts[:, None] + 1 + np.arange(self.window)
        mask = (targets > last_counted[:, None]) & (windows < self.num_windows)[:, None]
        ids = torch.from_numpy(self.store.read_rows(starts, self.window + 1))
        return TokenBatch(ids[:, :-1], ids[:, 1:], torch.from_numpy(mask), positions=torch.from_numpy(starts))
