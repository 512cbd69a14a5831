"""The rows of negative sampling, and what its loops (`negative`) are given. Nothing here imports numba."""

from __future__ import annotations

import numpy as np

from seqwise.vectors.machine_code import Loop
from seqwise.vectors.rows import LANES, aligned, padded, real_lanes
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.chances import POWER, alias_table, keep_below
from seqwise.vectors.word2vec.objective import LONGEST, Objective, new_inputs

skipgram = Loop("seqwise.vectors.word2vec.negative", "skipgram")
cbow = Loop("seqwise.vectors.word2vec.negative", "cbow")


class NegativeSampling(Objective):
    """Skip-gram or CBOW with negative sampling."""

    def __init__(self, words: list[str], counts: np.ndarray, settings: VectorSettings):
        super().__init__(words, counts, settings)
        self.inputs = new_inputs(len(counts), settings.dim, settings.seed)
        self.outputs: np.ndarray | None = aligned(len(counts), settings.dim)
        self.keep = keep_below(counts, settings.subsample)
        self.threshold, self.other = alias_table(counts.astype(np.float64) ** POWER)

    def scratch(self) -> tuple:
        window, negative, width = self.settings.window or 0, self.settings.negative, self.inputs.shape[1]
        stride = padded(negative + 1) + LANES  # the tile of three may write behind the last column
        labels = aligned(1, stride)[0]
        labels[0] = 1
        return (
            np.empty(LONGEST, dtype=np.int32),
            np.empty(2 * window, dtype=np.int64),
            np.empty(negative + 1, dtype=np.int64),
            np.empty(negative, dtype=np.int64),
            aligned(2 * window + 2, stride).reshape(-1),
            stride,
            aligned(1, max(width, (negative + 4) * LANES))[0],
            labels,
            real_lanes(),
        )

    def train(self, block: np.ndarray, state: np.uint64, rate: float, scratch: tuple, tally: np.ndarray) -> None:
        assert self.outputs is not None, "the vectors were taken: training is over"
        settings, width = self.settings, self.inputs.shape[1]
        common = (
            block, state, np.float32(rate), self.inputs.reshape(-1), self.outputs.reshape(-1), width, self.keep,
            self.threshold, self.other, settings.window, scratch, tally,
        )  # fmt: skip
        if settings.method == "cbow":
            cbow(*common, settings.update == "gradient")
        else:
            skipgram(*common)
