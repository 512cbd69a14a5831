"""Batches of a token store: contiguous streams for recurrent models, windows for Transformers.

Which tokens are in which training batch is a pure function of (seed, epoch, batch index), so `epoch(n, start=k)`
resumes a killed run without reading anything before batch k. Each of `world_size` processes gets its own sequences of
every batch, by its rank. A store of n tokens has n - 1 targets. The module knows nothing of models or of text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from seqwise.data.batch import TokenBatch, check_batch_size, shard_batch
from seqwise.data.corpus.store import TokenStore
from seqwise.data.shuffle import hash_integers, permute_indices
from seqwise.errors import DataError, UsageError

Window = int | Literal["full"]
WINDOWS_PER_BLOCK = 8  # of a share of the text that is scored; one more is read before them
BATCHES_PER_PERMUTATION = 64  # batches whose windows are permuted at once, which is faster than one by one


class StreamLoader:
    """The text as `batch_size` contiguous streams read in parallel; each batch continues the previous one.

    Sequence i of a batch begins where sequence i of the previous one stopped, so the state of a recurrent model stays
    valid (`resets_state` is True only for the first batch of an epoch). Each epoch begins at another token of the first
    window, so that windows are not cut at the same tokens again. All streams are read to their end: the last window of
    an epoch may be shorter. An epoch leaves out fewer than window + batch_size tokens.
    """

    def __init__(
        self, store: TokenStore, batch_size: int, window: Window, seed: int, rank: int = 0, world_size: int = 1
    ):
        self.store, self.batch_size, self.seed = store, batch_size, seed
        check_batch_size(batch_size, world_size)
        shard = shard_batch(batch_size, rank, world_size)
        num_targets = len(store) - 1
        require_targets(store, max(batch_size, 1 if window == "full" else window), batch_size, window)
        self.num_offsets = 1 if window == "full" else self._choose_num_offsets(num_targets, window)
        self.length = (num_targets - (self.num_offsets - 1)) // batch_size  # targets per stream
        self.window = self.length if window == "full" else min(window, self.length)
        self.starts = self.length * np.arange(shard.start, shard.stop, dtype=np.int64)  # of the streams of this rank

    def _choose_num_offsets(self, num_targets: int, window: int) -> int:
        """Returns at how many tokens an epoch may begin, which cost a short text at most a twentieth of its tokens."""
        return min(window, 1 + num_targets // 20, num_targets - self.batch_size + 1)

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.length // self.window)

    def epoch(self, index: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yields the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, index) % self.num_offsets
        for step in range(start, self.steps):
            tokens_read = step * self.window
            yield self._read(offset + self.starts + tokens_read, min(self.window, self.length - tokens_read), step == 0)

    def _read(self, starts: np.ndarray, length: int, resets_state: bool) -> TokenBatch:
        return read_token_batch(self.store, starts, length, resets_state)


class RotatedStreamLoader(StreamLoader):
    """Streams that begin at a random token of their own in each epoch, and wrap around from their end to their start.

    So a window is cut elsewhere in each epoch, and the streams meet in other combinations, while batches keep their
    shapes (Press 2019, "Partially shuffling the training data to improve language models"). Each target keeps the token
    before it as its input; where a stream wraps around, the text jumps and the state is passed on. A stream always has
    the same text: an epoch leaves out fewer than batch_size tokens, those at the end of the text.
    """

    def _choose_num_offsets(self, num_targets: int, window: int) -> int:
        return 1  # rotation already moves the windows

    def epoch(self, index: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yields the batches of an epoch from batch `start` on."""
        streams = (self.starts // self.length).tolist()  # numbers in the whole batch, whatever the rank
        rotations = np.array([hash_integers(self.seed, index, stream) % self.length for stream in streams])
        for step in range(start, self.steps):
            length = min(self.window, self.length - step * self.window)
            yield self._read_rotated((rotations + step * self.window) % self.length, length, step == 0)

    def _read_rotated(self, offsets: np.ndarray, length: int, resets_state: bool) -> TokenBatch:
        """Returns `length` targets of each stream from its token `offsets` on."""
        wraps = offsets + length > self.length
        batch = self._read(self.starts + np.where(wraps, 0, offsets), length, resets_state)
        if not wraps.any():
            return batch
        ids, targets = batch.ids.clone(), batch.targets.clone()
        for row in np.flatnonzero(wraps).tolist():  # its beginning was read above, and follows its end
            count = self.length - int(offsets[row])
            end = torch.from_numpy(self.store.read_sequences(self.starts[row : row + 1] + offsets[row], count + 1))
            ids[row] = torch.cat((end[0, :-1], batch.ids[row, : length - count]))
            targets[row] = torch.cat((end[0, 1:], batch.targets[row, : length - count]))
        return replace(batch, ids=ids, targets=targets, positions=torch.from_numpy(self.starts + offsets))


class WindowLoader:
    """Windows of the text that do not overlap, in random order and independent of each other.

    Each epoch cuts the text at another offset and shuffles anew. The last batch of an epoch may have fewer windows; if
    they are fewer than the processes, some processes get a window that does not count. Fewer than two windows of tokens
    at the ends of the text are left out of an epoch.
    """

    def __init__(
        self, store: TokenStore, batch_size: int, window: Window, seed: int, rank: int = 0, world_size: int = 1
    ):
        self.store, self.batch_size, self.seed, self.rank, self.world_size = store, batch_size, seed, rank, world_size
        check_batch_size(batch_size, world_size)
        num_targets = len(store) - 1
        self.window = max(1, num_targets) if window == "full" else window
        require_targets(store, self.window, batch_size, window)
        self.num_offsets = min(self.window, 1 + num_targets // 20, num_targets - self.window + 1)
        self.num_windows = (num_targets - (self.num_offsets - 1)) // self.window

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.num_windows // self.batch_size)

    def epoch(self, index: int, start: int = 0) -> Iterator[TokenBatch]:
        """Yields the batches of an epoch from batch `start` on."""
        offset = hash_integers(self.seed, index) % self.num_offsets
        for first in range(start, self.steps, BATCHES_PER_PERMUTATION):
            steps = range(first, min(first + BATCHES_PER_PERMUTATION, self.steps))
            indices = [self._list_window_indices(step) for step in steps]
            windows = permute_indices(np.concatenate(indices), self.num_windows, self.seed, index)
            starts = offset + self.window * windows
            for step, batch_starts in zip(steps, np.split(starts, np.cumsum([len(each) for each in indices])[:-1])):
                batch = read_token_batch(self.store, batch_starts, self.window)
                yield batch if self._get_shard(step) else replace(batch, is_filler=True)

    def _list_window_indices(self, step: int) -> np.ndarray:
        """Returns the positions of this rank's windows of a batch in the shuffled order; the first if it has none."""
        shard = self._get_shard(step) or range(1)
        return step * self.batch_size + np.arange(shard.start, shard.stop, dtype=np.int64)

    def _get_shard(self, step: int) -> range:
        batch_size = min(self.batch_size, self.num_windows - step * self.batch_size)
        return shard_batch(batch_size, self.rank, self.world_size)


def read_token_batch(store: TokenStore, starts: np.ndarray, length: int, resets_state: bool = True) -> TokenBatch:
    """Returns sequences of `length` tokens that begin at `starts`; the targets are those one token later."""
    tokens = torch.from_numpy(store.read_sequences(starts, length + 1))
    positions = torch.from_numpy(starts)
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], positions=positions, resets_state=resets_state)


def require_targets(store: TokenStore, num_targets: int, batch_size: int, window: Window) -> None:
    """Raises if a text has fewer targets than its batches need."""
    if len(store) <= num_targets:
        available = f"the {store.info.split or 'data'} text has {len(store):,} tokens"
        problem = f"{available}; batches of {batch_size} windows of {window} need at least {num_targets + 1:,}."
        raise DataError(problem, fix="Give more text, or a smaller --data.window or --training.batch-size.")


# Evaluation: every token is predicted exactly once, except the first one; every epoch is the same


class StreamEvaluationLoader(StreamLoader):
    """The text as `batch_size` contiguous streams, for models with a state; their lengths differ by at most one.

    A stream begins with the last token of the stream before it, so no target is lost at the boundaries: its first
    target merely has a short history. With a batch size of 1 every target has all the text before it. Shorter streams
    end with a target that `mask` excludes.
    """

    def __init__(self, store: TokenStore, batch_size: int, window: Window, rank: int = 0, world_size: int = 1):
        self.store, self.batch_size, self.seed, self.num_offsets = store, batch_size, 0, 1
        check_batch_size(batch_size, world_size)
        shard = shard_batch(batch_size, rank, world_size)
        require_targets(store, 1, batch_size, window)
        stream = np.arange(batch_size + 1, dtype=np.int64)
        length, num_longer = divmod(len(store) - 1, batch_size)
        bounds = stream * length + np.minimum(stream, num_longer)  # the first `num_longer` streams have one target more
        self.starts = bounds[shard.start : shard.stop]
        self.stops = bounds[shard.start + 1 : shard.stop + 1]
        self.length = length + (num_longer > 0)
        self.window = self.length if window == "full" else min(window, self.length)

    def _read(self, starts: np.ndarray, length: int, resets_state: bool) -> TokenBatch:
        """Returns up to `length` targets of each stream; the mask, None if not needed, excludes those after its end."""
        counts = np.clip(self.stops - starts, 0, length)
        if (counts == length).all():
            return read_token_batch(self.store, starts, length, resets_state)
        tokens = np.zeros((len(starts), length + 1), dtype=np.int64)
        for index, (start, count) in enumerate(zip(starts, counts)):
            if count:
                tokens[index, : count + 1] = self.store.read(start, int(count) + 1)
        mask = torch.from_numpy(np.arange(length) < counts[:, None])
        positions, ids = torch.from_numpy(starts), torch.from_numpy(tokens)
        return TokenBatch(ids[:, :-1], ids[:, 1:], mask, positions=positions, resets_state=resets_state)


class BlockEvaluationLoader:
    """A share of the text for models with a state: blocks at equal distances, `batch_size` of them in parallel.

    The text is divided into as many equal parts as there are blocks, and a block is the end of its part. Before it the
    model reads a window that does not count, so that its state is not empty. The blocks are always the same.
    """

    def __init__(
        self, store: TokenStore, batch_size: int, window: int, share: float, rank: int = 0, world_size: int = 1
    ):
        require_targets(store, 1, batch_size, window)
        self.store, self.batch_size, self.rank, self.world_size = store, batch_size, rank, world_size
        num_targets = len(store) - 1
        num_counted = min(num_targets, max(1, math.ceil(share * num_targets)))
        num_rounds = max(1, round(num_counted / (batch_size * WINDOWS_PER_BLOCK * window)))
        self.num_blocks = min(num_rounds * batch_size, num_counted)
        shortest = num_targets // self.num_blocks  # of the parts
        self.length = min(shortest, -(-num_counted // self.num_blocks))  # targets of a block that count
        self.warmup = min(window, shortest - self.length)
        self.window = min(window, self.length)

    def epoch(self) -> Iterator[TokenBatch]:
        """Yields the windows of the first blocks, then those of the next."""
        ends = np.arange(1, self.num_blocks + 1, dtype=np.int64) * (len(self.store) - 1) // self.num_blocks
        for first in range(0, self.num_blocks, self.batch_size):
            starts = np.array_split(ends[first : first + self.batch_size], self.world_size)[self.rank] - self.length
            if not len(starts):
                continue
            if self.warmup:
                batch = read_token_batch(self.store, starts - self.warmup, self.warmup)
                yield replace(batch, mask=torch.zeros_like(batch.ids, dtype=torch.bool))
            for done in range(0, self.length, self.window):
                length = min(self.window, self.length - done)
                yield read_token_batch(self.store, starts + done, length, resets_state=not (done or self.warmup))


class WindowEvaluationLoader:
    """Overlapping windows, for models without a state.

    Windows overlap by `context - 1` tokens, and only targets that no earlier window has counted are counted. So each
    is predicted from at least `context` tokens of history, or from all there are. The last window is moved back to be
    full. The last batch is filled up with windows that do not count, so that all ranks have a batch.
    """

    def __init__(
        self, store: TokenStore, batch_size: int, window: Window, context: int = 0, rank: int = 0, world_size: int = 1
    ):
        self.store, self.batch_size, self.rank, self.world_size = store, batch_size, rank, world_size
        check_batch_size(batch_size, world_size)
        self.num_targets = len(store) - 1
        require_targets(store, 1, batch_size, window)
        self.window = self.num_targets if window == "full" else min(window, self.num_targets)
        if context < 0 or (window != "full" and context > window):
            problem = f"a context of {context} does not fit into windows of {window}."
            raise UsageError(problem, fix="Make it smaller.")
        self.stride = max(1, min(self.window, self.window - context + 1))
        self.num_windows = 1 + max(0, -(-(self.num_targets - self.window) // self.stride))

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return -(-self.num_windows // self.batch_size)

    def epoch(self, index: int = 0, start: int = 0) -> Iterator[TokenBatch]:
        """Yields all batches from batch `start` on."""
        for step in range(start, self.steps):
            stop = min((step + 1) * self.batch_size, self.num_windows)
            share = -(-(stop - step * self.batch_size) // self.world_size)
            windows = step * self.batch_size + self.rank * share + np.arange(share, dtype=np.int64)
            yield self._read(windows, stop)

    def _read(self, windows: np.ndarray, stop: int) -> TokenBatch:
        """Returns windows by their indices; those of indices from `stop` on do not count."""
        indices = np.minimum(windows, self.num_windows - 1)
        starts = np.minimum(indices * self.stride, self.num_targets - self.window)
        # Earlier windows have counted the targets up to this one.
        last_counted = np.where(indices > 0, (indices - 1) * self.stride + self.window, 0)
        targets = starts[:, None] + 1 + np.arange(self.window)
        mask = (targets > last_counted[:, None]) & (windows < stop)[:, None]
        ids = torch.from_numpy(self.store.read_sequences(starts, self.window + 1))
        return TokenBatch(ids[:, :-1], ids[:, 1:], torch.from_numpy(mask), positions=torch.from_numpy(starts))
