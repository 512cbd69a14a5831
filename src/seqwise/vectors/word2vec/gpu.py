"""Skip-gram and CBOW with negative sampling on a GPU: the corpus in chunks, each thinned out there and trained on.

Importing this imports torch and triton. It knows ids, not words.
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
from seqwise.vectors.settings import RATES, WINDOWS, VectorSettings
from seqwise.vectors.steps import VectorStep, amount
from seqwise.vectors.word2vec.chances import POWER, alias_table, keep_below
from seqwise.vectors.word2vec.training import LEAST, check_loss, describe
from seqwise.vectors.word2vec.triton_kernels import negative_sampling

CHUNK = 1 << 24  # items on the GPU at once
CENTRES, TARGETS = 16, 64  # words whose windows are taken together; they and their negatives
SHARE = 32  # times that a program does so in one launch, which has one rate
MOST_PROGRAMS = 128  # side by side; one for each multiprocessor of a large GPU
# What programs add to the same row at the same time is not yet seen by the others. How often two of them draw the same
# word is the sum of its squared shares: with 1/793, 96 programs trained as well as 16 and 128 ran away; with 1/100, 105
# ran away. This keeps to half of the least number that did.
CROWD = 64 / 793  # programs times that sum
WIDTH = 64  # numbers of a row at once
PRECISION, WARPS = "tf32", 8


class GpuWord2Vec:
    """Iterate over `steps()`, then take `vectors()`."""

    def __init__(self, sentences: Sentences, settings: VectorSettings, device: str = "cuda"):
        self.sentences, self.settings, self.device = sentences, settings, torch.device(device)
        self.epochs = settings.epochs or 1
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "interpreter"
        self.says = f"{describe(settings)}, {amount(self.epochs, 'epoch')}, {name}"
        counts, generator = sentences.vocabulary.counts, torch.Generator(self.device).manual_seed(settings.seed)
        shape = (len(counts), settings.dim)
        self.inputs = (torch.rand(shape, generator=generator, device=self.device) - 0.5) / settings.dim
        self.outputs = torch.zeros(shape, device=self.device)
        threshold, other = alias_table(counts.astype(np.float64) ** POWER)
        self.threshold = torch.from_numpy(threshold.astype(np.int64)).to(self.device)
        self.other = torch.from_numpy(other).to(self.device)
        kept = keep_below(counts, settings.subsample).astype(np.float64) / (2**32 - 1)
        self.keep = torch.from_numpy(kept.astype(np.float32)).to(self.device)
        self.programs = _programs(counts, settings)
        self._tally = torch.zeros(self.epochs, self.programs, 2, device=self.device, dtype=torch.float64)
        self._done = 0

    @property
    def losses(self) -> list[float | None]:
        sums = self._tally.sum(dim=1).tolist()
        return [loss / pairs if pairs else None for loss, pairs in sums]

    @property
    def progress(self) -> float:
        return self._done / (self.epochs * self.sentences.items)

    def vectors(self) -> np.ndarray:
        return self.inputs.cpu().numpy()

    def subwords(self) -> None:
        return None

    def compile(self) -> None:
        """Launch the kernel on nothing; complains about a GPU that is too small for it."""
        nothing = torch.zeros(1, dtype=torch.int32, device=self.device)
        try:
            self._launch(nothing, nothing, 0, 0, 0.0, 0, 0)
        except triton.runtime.errors.OutOfResources as error:
            raise UsageError(
                f"the GPU is too small for this kernel: {str(error).rstrip('.')}.",
                repair="Train with --device cpu, or a smaller --window.",
            ) from None

    def steps(self) -> Iterator[VectorStep]:
        """Train. Leaving the iteration early loses nothing."""
        yield VectorStep("compiling", 0, 0.0, 0.0)
        self.compile()
        start = time.monotonic()
        for epoch in range(self.epochs):
            for number, block in enumerate(self.sentences.blocks(CHUNK)):
                self._train(block, epoch, number)
                yield self._step(epoch, start, finished=False)
            check_loss(self.losses[epoch], epoch, self.settings)
            yield self._step(epoch, start, finished=True)

    def _step(self, epoch: int, start: float, finished: bool) -> VectorStep:
        loss = self.losses[epoch]  # waits for the GPU
        words = self.progress * self.epochs * self.sentences.words
        speed = words / max(time.monotonic() - start, 1e-9)
        return VectorStep("training", epoch, self.progress, speed, loss, finished)

    def _train(self, block: np.ndarray, epoch: int, number: int) -> None:
        seed = int(np.random.SeedSequence([self.settings.seed, epoch + 1, number]).generate_state(1)[0] >> 2)
        ids, sentences = self._thinned(torch.from_numpy(block.copy()).to(self.device), seed)
        size = self.programs * SHARE * CENTRES
        for first in range(0, len(ids), size):
            done = (self._done + len(block) * first / len(ids)) / (self.epochs * self.sentences.items)
            rate = (self.settings.rate or 0.0) * max(1 - done, LEAST)
            self._launch(ids, sentences, first, min(first + size, len(ids)), rate, seed, epoch)
        self._done += len(block)

    def _thinned(self, items: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The words that subsampling keeps, and the number of each one's sentence."""
        generator = torch.Generator(self.device).manual_seed(seed)
        ends = items < 0
        sentence = torch.cumsum(ends, 0, dtype=torch.int32)
        chance = torch.rand(len(items), generator=generator, device=self.device)
        kept = ~ends & (chance < self.keep[items.clamp(min=0).long()])
        return items[kept].contiguous(), sentence[kept].contiguous()

    def _launch(
        self, ids: Tensor, sentences: Tensor, first: int, last: int, rate: float, seed: int, epoch: int
    ) -> None:
        settings, window = self.settings, self.settings.window or 1
        width = min(WIDTH, max(16, triton.next_power_of_2(settings.dim)))
        negative_sampling[(self.programs,)](
            ids, sentences, self.inputs, self.outputs, self.threshold, self.other, self._tally[epoch],
            first, last, len(ids), len(self.inputs), settings.dim, rate, seed,
            WINDOW=window, NEGATIVE=settings.negative, CENTRES=CENTRES,
            ROWS=triton.next_power_of_2(CENTRES + 2 * window), TARGETS=TARGETS, SHARE=SHARE,
            PIECES=-(-settings.dim // width), WIDTH=width, CBOW=settings.method == "cbow",
            PRECISION=PRECISION, num_warps=WARPS,
        )  # fmt: skip


def _programs(counts: np.ndarray, settings: VectorSettings) -> int:
    """How many programs may run side by side: fewer where few words share all windows, or more is added to each row."""
    weights = counts.astype(np.float64) ** POWER
    meeting = float(np.square(weights / weights.sum()).sum())
    usual = RATES[settings.method] / (settings.rate or 1.0)
    if settings.method == "skipgram":  # a row gets a gradient from every neighbour
        usual *= WINDOWS["skipgram"] / (settings.window or 1)
    return max(1, min(MOST_PROGRAMS, int(CROWD * min(1.0, usual) / meeting)))
