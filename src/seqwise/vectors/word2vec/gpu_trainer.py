"""Skip-gram and CBOW with negative sampling on a GPU: chunks of the corpus are subsampled and trained on there.

Importing this module imports torch and triton. It knows ids, not words.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
import triton
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.vectors.corpus import Sentences
from seqwise.vectors.settings import LEARNING_RATES, WINDOWS, ResolvedVectorSettings
from seqwise.vectors.trainer import VectorStep
from seqwise.vectors.word2vec.base_trainer import BaseWord2VecTrainer
from seqwise.vectors.word2vec.sampling_tables import (
    NEGATIVE_POWER,
    UINT32_MAX,
    build_negative_table,
    subsampling_thresholds,
)
from seqwise.vectors.word2vec.triton_kernels import negative_sampling

CHUNK = 1 << 24  # ids on the GPU at once
CENTRES, TARGETS = 16, 64  # centre words that a program takes together; centre words plus negatives
STEPS = 32  # groups of centre words per program and launch; a launch has one learning rate
MAX_PROGRAMS = 128  # in parallel: one for each multiprocessor of a large GPU
# Concurrent programs do not see each other's updates of the same row. The probability that two programs draw the same
# word is the sum of the squared word probabilities: with 1/793, 96 programs trained as well as 16 and 128 diverged;
# with 1/100, 105 diverged. This limit is half of the smallest number that diverged.
MAX_COLLISIONS = 64 / 793  # programs times that probability
WIDTH = 64  # numbers of a row that a program loads at once
PRECISION, WARPS = "tf32", 8


class GpuWord2VecTrainer(BaseWord2VecTrainer):
    """Skip-gram or CBOW with negative sampling on a GPU."""

    def __init__(self, sentences: Sentences, settings: ResolvedVectorSettings, device: str = "cuda"):
        self.device = torch.device(device)
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "interpreter"
        super().__init__(sentences, settings, name)
        counts, generator = sentences.vocabulary.counts, torch.Generator(self.device).manual_seed(settings.seed)
        shape = (len(counts), settings.dim)
        self.inputs = (torch.rand(shape, generator=generator, device=self.device) - 0.5) / settings.dim
        self.outputs = torch.zeros(shape, device=self.device)
        table = build_negative_table(counts)
        self.threshold = torch.from_numpy(table.threshold.astype(np.int64)).to(self.device)
        self.alias = torch.from_numpy(table.alias).to(self.device)
        keep = subsampling_thresholds(counts, settings.subsample).astype(np.float64) / UINT32_MAX
        self.keep_probability = torch.from_numpy(keep.astype(np.float32)).to(self.device)
        self.programs = choose_programs(counts, settings)
        self._tally = torch.zeros(settings.epochs, self.programs, 2, device=self.device, dtype=torch.float64)

    def sum_losses(self, epochs: slice) -> np.ndarray:
        return self._tally[epochs].sum(dim=1).cpu().numpy()  # waits for the GPU

    def vectors(self) -> np.ndarray:
        return self.inputs.cpu().numpy()

    def compile(self) -> None:
        """Compiles the kernel by a launch on no words; raises `UsageError` if the GPU is too small for it."""
        empty = torch.zeros(1, dtype=torch.int32, device=self.device)
        try:
            self._launch(empty, empty, 0, 0, 0.0, 0, 0)
        except triton.runtime.errors.OutOfResources as error:
            raise UsageError(
                f"the GPU is too small for this kernel: {str(error).rstrip('.')}.",
                repair="Train with --device cpu, or a smaller --window.",
            ) from None

    def steps(self) -> Iterator[VectorStep]:
        yield VectorStep("compiling", 0, 0.0, 0.0)
        self.compile()
        start = time.monotonic()
        for epoch in range(self.settings.epochs):
            for number, block in enumerate(self.sentences.blocks(CHUNK)):
                self._train(block, epoch, number)
                yield self.make_step(epoch, start, finished=False)
            yield self.make_step(epoch, start, finished=True)

    def _train(self, block: np.ndarray, epoch: int, number: int) -> None:
        seed = int(np.random.SeedSequence([self.settings.seed, epoch + 1, number]).generate_state(1)[0] >> 2)
        ids, sentences = self._subsample(torch.from_numpy(block.copy()).to(self.device), seed)
        size = self.programs * STEPS * CENTRES
        for first in range(0, len(ids), size):
            progress = (self.items_done + len(block) * first / len(ids)) / self.items_planned
            learning_rate = self.compute_learning_rate(progress)
            self._launch(ids, sentences, first, min(first + size, len(ids)), learning_rate, seed, epoch)
        self.items_done += len(block)

    def _subsample(self, block: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Returns the words that subsampling keeps, and the number of the sentence of each."""
        generator = torch.Generator(self.device).manual_seed(seed)
        is_end = block < 0
        sentence = torch.cumsum(is_end, 0, dtype=torch.int32)
        random = torch.rand(len(block), generator=generator, device=self.device)
        keep = ~is_end & (random < self.keep_probability[block.clamp(min=0).long()])
        return block[keep].contiguous(), sentence[keep].contiguous()

    def _launch(
        self, ids: Tensor, sentences: Tensor, first: int, last: int, learning_rate: float, seed: int, epoch: int
    ) -> None:
        settings, window = self.settings, self.settings.window
        width = min(WIDTH, max(16, triton.next_power_of_2(settings.dim)))
        negative_sampling[(self.programs,)](
            ids, sentences, self.inputs, self.outputs, self.threshold, self.alias, self._tally[epoch],
            first, last, len(ids), len(self.inputs), settings.dim, learning_rate, seed,
            WINDOW=window, NEGATIVE=settings.negative, CENTRES=CENTRES,
            ROWS=triton.next_power_of_2(CENTRES + 2 * window), TARGETS=TARGETS, STEPS=STEPS,
            CHUNKS=-(-settings.dim // width), WIDTH=width, CBOW=settings.method == "cbow",
            PRECISION=PRECISION, num_warps=WARPS,
        )  # fmt: skip


def choose_programs(counts: np.ndarray, settings: ResolvedVectorSettings) -> int:
    """Returns how many programs may run in parallel: fewer for a small vocabulary, or where updates are larger."""
    weights = counts.astype(np.float64) ** NEGATIVE_POWER
    collision_probability = float(np.square(weights / weights.sum()).sum())
    scale = LEARNING_RATES[settings.method] / settings.learning_rate
    if settings.method == "skipgram":  # a row gets a gradient from every neighbour
        scale *= WINDOWS["skipgram"] / settings.window
    return max(1, min(MAX_PROGRAMS, int(MAX_COLLISIONS * min(1.0, scale) / collision_probability)))
