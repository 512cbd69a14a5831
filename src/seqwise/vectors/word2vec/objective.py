"""What the objectives of word2vec share: parameters, buffers of a thread, and the call of the compiled loop.

Nothing here imports numba.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqwise.vectors.aligned_rows import (
    LANES,
    allocate_rows,
    build_lane_masks,
    fill_uniform,
    pad_width,
    remove_padding,
)
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.subwords import Subwords
from seqwise.vectors.word2vec.sampling_tables import subsampling_thresholds

MAX_SENTENCE = 10_000  # words; a longer line is cut
GENSIM_MAX_SCORE = 6.0  # gensim's table of the sigmoid ends there; beyond it nothing is learned


class Model(NamedTuple):
    """What every compiled loop reads, and the rows that it updates."""

    inputs: np.ndarray  # flat: the input row of word w starts at w · width
    outputs: np.ndarray  # flat, likewise
    width: int  # padded dimension
    keep: np.ndarray  # (V,) uint32: see `subsampling_thresholds`
    window: int
    is_cbow: bool
    share_gradient: bool  # CBOW: each of n neighbours gets 1/n of the gradient
    max_score: np.float32  # beyond ± this score nothing is learned


class Workspace(NamedTuple):
    """Buffers of one thread. Two threads never write to the same cache line."""

    sentence: np.ndarray  # (MAX_SENTENCE,) int32
    own: np.ndarray  # (1,) int64: the centre word, where it is used like a list of neighbours
    neighbours: np.ndarray  # (2 · window,) int64
    targets: np.ndarray  # (max_targets,) int64: starts of output rows
    negatives: np.ndarray  # (max_targets,) int64: starts of output rows, drawn ahead of time
    labels: np.ndarray  # (stride,) 1 for the word to predict, 0 for a negative
    hidden: np.ndarray  # (max_hidden · width,)
    updates: np.ndarray  # of the hidden vectors or of the targets
    scores: np.ndarray  # ((max_hidden + 2) · stride,), scored two rows at a time
    stride: int  # between two rows of scores
    lane_masks: np.ndarray


class Objective(ABC):
    """A loss over one vocabulary. Subclasses define the compiled loop and the tables that it needs.

    The loop runs in several threads at once, each with its own workspace; they update the rows without locks.
    """

    inputs: np.ndarray  # (V or more, padded D)
    outputs: np.ndarray | None  # None after `vectors()`
    tables: tuple  # what the loop needs besides the model
    train_block: Callable[..., None]  # compiled: (block, state, learning_rate, model, tables, workspace, tally)
    block_size = 10_000  # words per call: how often the learning rate changes and Ctrl-C is noticed

    def __init__(
        self,
        words: list[str],
        counts: np.ndarray,
        settings: ResolvedVectorSettings,
        num_ngrams: int = 0,
        num_outputs: int | None = None,
    ):
        self.words, self.counts, self.settings = words, counts, settings
        self.inputs = allocate_rows(len(words) + num_ngrams, settings.dim)
        fill_uniform(self.inputs[:, : settings.dim], np.random.default_rng([settings.seed, 0]))
        self.outputs = allocate_rows(len(words) if num_outputs is None else num_outputs, settings.dim)
        self.keep = subsampling_thresholds(counts, settings.subsample)

    def allocate_workspace(self) -> Workspace:
        """Returns the buffers of one thread."""
        return self._allocate_workspace(max_targets=len(self.words), max_hidden=2 * self.settings.window)

    def _allocate_workspace(self, max_targets: int, max_hidden: int) -> Workspace:
        width = self.inputs.shape[1]
        stride = pad_width(max_targets) + LANES  # scores are computed by threes and may run over the last target
        return Workspace(
            sentence=np.empty(MAX_SENTENCE, dtype=np.int32),
            own=np.empty(1, dtype=np.int64),
            neighbours=np.empty(2 * self.settings.window, dtype=np.int64),
            targets=np.empty(max_targets, dtype=np.int64),
            negatives=np.empty(self.settings.negative, dtype=np.int64),
            labels=allocate_rows(1, stride)[0],
            hidden=allocate_rows(1, max_hidden * width)[0],
            updates=allocate_rows(1, max(max_hidden * width, (max_targets + 3) * LANES))[0],
            scores=allocate_rows(1, (max_hidden + 2) * stride)[0],
            stride=stride,
            lane_masks=build_lane_masks(),
        )

    def train(
        self, block: np.ndarray, state: np.uint64, learning_rate: float, workspace: Workspace, tally: np.ndarray
    ) -> None:
        """Trains on a block of ids, where -1 ends a sentence; adds (loss, pairs) to `tally`."""
        assert self.outputs is not None, "vectors() was called: training is over"
        block = block.view()
        block.setflags(write=False)  # numba would compile the loop again for a block that can be written
        share_gradient = self.settings.update == "gradient"
        model = Model(
            inputs=self.inputs.reshape(-1),
            outputs=self.outputs.reshape(-1),
            width=self.inputs.shape[1],
            keep=self.keep,
            window=self.settings.window,
            is_cbow=self.settings.method == "cbow",
            share_gradient=share_gradient,
            max_score=np.float32(1e30 if share_gradient else GENSIM_MAX_SCORE),
        )
        self.train_block(block, state, np.float32(learning_rate), model, self.tables, workspace, tally)

    def vectors(self) -> np.ndarray:
        """Returns the input row of each word, (V, D) float32. Ends the training; copies nothing, to save memory."""
        if self.outputs is not None:
            self.outputs = None
            self.inputs = remove_padding(self.inputs, self.settings.dim)
        return self.inputs

    def subwords(self) -> Subwords | None:
        """Returns the vectors of the n-grams, if there are any."""
        return None
