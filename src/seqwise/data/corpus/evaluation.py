"""Batches for evaluation: every token of a store is predicted exactly once, except the first, which nothing precedes.

So a store of n tokens has n - 1 targets that count. `mask` marks them where a batch holds more than those. Both classes
have the interface of the training batches; every epoch is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from seqwise.data.batch import TokenBatch, shard_rows
from seqwise.data.corpus.batching import Window, require_targets
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError


class StreamEvaluationLoader:
    """The text as `rows` contiguous streams, for models that carry a state; lengths differ by at most one.

    A stream begins with the last token of the stream before it, so no target is lost at the borders: its first target
    merely has a short history. With rows=1 every target has all the text before it. Shorter streams end in a place
    that `mask` leaves out.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, rank: int = 0, world: int = 1):
        self.store, self.rows = store, rows
        self.mine = shard_rows(rows, rank, world)
        self.tokens = len(store) - 1
        require_targets(store, 1, rows, window)
        bounds = np.arange(rows + 1, dtype=np.int64)
        base, longer = divmod(self.tokens, rows)
        self.bounds = bounds * base + np.minimum(bounds, longer)  # the first `longer` streams have one more
        self.length = base + (longer > 0)
        self.window = self.length if window == "full" else min(window, self.length)

    @property
    def steps(self) -> int:
        return -(-self.length // self.window)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """All batches from batch `start` on."""
        begin, end = (
            self.bounds[self.mine.start : self.mine.stop],
            self.bounds[self.mine.start + 1 : self.mine.stop + 1],
        )
        for step in range(start, self.steps):
            done = step * self.window
            width = min(self.window, self.length - done)
            yield _masked(self.store, begin + done, end, width, fresh=step == 0)


class WindowEvaluationLoader:
    """Overlapping windows, for models that see a window only.

    Windows overlap by `context - 1` tokens, and only targets that no window before has counted are counted. So each is
    predicted from at least `context` tokens of history, or from all there are. The last window is moved back to be
    full. Missing rows of the last batch are filled with rows that do not count, so that all ranks have a batch.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, context: int = 0, rank: int = 0, world: int = 1):
        self.store, self.rows, self.rank, self.world = store, rows, rank, world
        shard_rows(rows, rank, world)
        self.tokens = len(store) - 1
        require_targets(store, 1, rows, window)
        self.window = self.tokens if window == "full" else min(window, self.tokens)
        if context < 0 or (window != "full" and context > window):
            raise UsageError(
                f"a context of {context} does not fit into windows of {window}.", repair="Make it smaller."
            )
        self.stride = max(1, min(self.window, self.window - context + 1))
        self.count = 1 + max(0, -(-(self.tokens - self.window) // self.stride))

    @property
    def steps(self) -> int:
        return -(-self.count // self.rows)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """All batches from batch `start` on."""
        for step in range(start, self.steps):
            present = min(self.rows, self.count - step * self.rows)
            share = -(-present // self.world)
            numbers = step * self.rows + self.rank * share + np.arange(share, dtype=np.int64)
            yield self._batch(numbers)

    def _batch(self, numbers: np.ndarray) -> TokenBatch:
        known = np.minimum(numbers, self.count - 1)
        starts = np.minimum(known * self.stride, self.tokens - self.window)
        # windows before number k have counted the targets up to this one
        counted = np.where(known > 0, (known - 1) * self.stride + self.window, 0)
        tokens = torch.from_numpy(self.store.read_rows(starts, self.window + 1))
        targets = starts[:, None] + 1 + np.arange(self.window)
        mask = (targets > counted[:, None]) & (numbers < self.count)[:, None]
        return TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.from_numpy(mask), positions=torch.from_numpy(starts))


def _masked(store: TokenStore, starts: np.ndarray, ends: np.ndarray, width: int, fresh: bool) -> TokenBatch:
    """Rows of up to `width` targets that stop at their end; `mask` is None when all are full."""
    counts = np.clip(ends - starts, 0, width)
    if (counts == width).all():
        tokens = store.read_rows(starts, width + 1)
    else:
        tokens = np.zeros((len(starts), width + 1), dtype=np.int64)
        for row, (start, count) in enumerate(zip(starts, counts)):
            if count:
                tokens[row, : count + 1] = store.read(start, int(count) + 1)
    values = torch.from_numpy(tokens)
    mask = None if (counts == width).all() else torch.from_numpy(np.arange(width) < counts[:, None])
    return TokenBatch(values[:, :-1], values[:, 1:], mask, positions=torch.from_numpy(starts.copy()), fresh=fresh)
