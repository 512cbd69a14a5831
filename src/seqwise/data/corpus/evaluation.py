"""Evaluation batches of a token store: every token is predicted exactly once, except the first one.

A store of n tokens has n - 1 targets; `mask` marks them where a batch has more. The classes have the interface of the
training loaders in `batching.py`; every epoch is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from seqwise.data.batch import TokenBatch, shard_rows
from seqwise.data.corpus.batching import Window, read_token_batch, require_targets
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError


class StreamEvaluationLoader:
    """The text as `rows` contiguous streams, for models with a state; their lengths differ by at most one.

    A stream begins with the last token of the stream before it, so no target is lost at the boundaries: its first
    target merely has a short history. With rows=1 every target has all the text before it. Shorter streams end with a
    target that `mask` excludes.
    """

    def __init__(self, store: TokenStore, rows: int, window: Window, rank: int = 0, world: int = 1):
        self.store, self.rows = store, rows
        rank_rows = shard_rows(rows, rank, world)
        self.num_targets = len(store) - 1
        require_targets(store, 1, rows, window)
        stream = np.arange(rows + 1, dtype=np.int64)
        length, longer = divmod(self.num_targets, rows)
        bounds = stream * length + np.minimum(stream, longer)  # the first `longer` streams have one target more
        self.starts = bounds[rank_rows.start : rank_rows.stop]
        self.stops = bounds[rank_rows.start + 1 : rank_rows.stop + 1]
        self.length = length + (longer > 0)
        self.window = self.length if window == "full" else min(window, self.length)

    @property
    def steps(self) -> int:
        return -(-self.length // self.window)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yield all batches from batch `start` on."""
        for step in range(start, self.steps):
            done = step * self.window
            yield self._read(self.starts + done, min(self.window, self.length - done), resets_state=step == 0)

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

    def __init__(self, store: TokenStore, rows: int, window: Window, context: int = 0, rank: int = 0, world: int = 1):
        self.store, self.rows, self.rank, self.world = store, rows, rank, world
        shard_rows(rows, rank, world)  # raises where the rows cannot be divided
        self.num_targets = len(store) - 1
        require_targets(store, 1, rows, window)
        self.window = self.num_targets if window == "full" else min(window, self.num_targets)
        if context < 0 or (window != "full" and context > window):
            raise UsageError(
                f"a context of {context} does not fit into windows of {window}.", repair="Make it smaller."
            )
        self.stride = max(1, min(self.window, self.window - context + 1))
        self.num_windows = 1 + max(0, -(-(self.num_targets - self.window) // self.stride))

    @property
    def steps(self) -> int:
        return -(-self.num_windows // self.rows)

    def epoch(self, number: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yield all batches from batch `start` on."""
        for step in range(start, self.steps):
            rows = min(self.rows, self.num_windows - step * self.rows)
            share = -(-rows // self.world)
            yield self._read(step * self.rows + self.rank * share + np.arange(share, dtype=np.int64))

    def _read(self, windows: np.ndarray) -> TokenBatch:
        existing = np.minimum(windows, self.num_windows - 1)
        starts = np.minimum(existing * self.stride, self.num_targets - self.window)
        # Windows before number k have counted the targets up to this one.
        counted = np.where(existing > 0, (existing - 1) * self.stride + self.window, 0)
        targets = starts[:, None] + 1 + np.arange(self.window)
        mask = (targets > counted[:, None]) & (windows < self.num_windows)[:, None]
        ids = torch.from_numpy(self.store.read_rows(starts, self.window + 1))
        return TokenBatch(ids[:, :-1], ids[:, 1:], torch.from_numpy(mask), positions=torch.from_numpy(starts))
