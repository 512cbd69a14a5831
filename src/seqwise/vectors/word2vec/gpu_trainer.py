"""Trains skip-gram and CBOW with negative sampling on a GPU, on blocks of the corpus that are subsampled there.

A program of the Triton kernel takes `CENTRES` consecutive words at a time. Their windows overlap, so the rows of all
neighbours are loaded once; so are the rows of the centre words themselves and of `TARGETS - CENTRES` negatives that all
windows of the program share. A mask says which neighbour belongs to which window; negatives are weighted so that their
expected gradient is the same as with `NEGATIVE` draws for each pair. Scores and gradients are then matrix products, and
all rows are updated by atomic additions. Programs run in parallel without locks, like threads on the CPU.

Shapes: R rows of neighbours, T targets (centre words first, then negatives). This module knows ids, not words.
Importing it imports torch and triton.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.vectors.corpus import EncodedCorpus
from seqwise.vectors.settings import LEARNING_RATES, WINDOWS, ResolvedVectorSettings
from seqwise.vectors.training import VectorStep
from seqwise.vectors.word2vec.sampling_tables import (
    NEGATIVE_POWER,
    UINT32_MAX,
    build_negative_table,
    compute_keep_thresholds,
)
from seqwise.vectors.word2vec.trainer import BaseWord2VecTrainer

BLOCK_SIZE = 1 << 24  # ids on the GPU at once
CENTRES, TARGETS = 16, 64  # centre words that a program takes together; centre words plus negatives
NUM_GROUPS = 32  # groups of CENTRES words that a program takes one after another; a launch has one learning rate
MAX_PROGRAMS = 128  # that run in parallel: one for each multiprocessor of a large GPU
# Concurrent programs do not see each other's updates of the same row. The probability that two programs draw the same
# word is the sum of the squared word probabilities: if it was 1/793, 96 programs trained as well as 16, and 128
# diverged; if it was 1/100, 105 diverged. This limit is half of the smallest product that diverged.
MAX_COLLISIONS = 64 / 793  # number of programs times this probability
CHUNK_WIDTH = 64  # numbers of a row that a program loads at once
PRECISION, WARPS = "tf32", 8


@triton.jit
def _draw_word(seed, offset, threshold, alias, vocabulary_size):
    """Returns a word drawn by its weight from the alias table; each draw has another `offset`."""
    bits, coin, _, _ = tl.randint4x(seed, offset)
    slot = ((bits.to(tl.uint32, bitcast=True).to(tl.uint64) * vocabulary_size) >> 32).to(tl.int32)
    keep_slot = coin.to(tl.uint32, bitcast=True).to(tl.int64) <= tl.load(threshold + slot)
    return tl.where(keep_slot, slot, tl.load(alias + slot))


@triton.jit
def _read_windows(
    ids, sentence_indices, threshold, alias, start, end, count, vocabulary_size, seed,
    WINDOW: tl.constexpr, CENTRES: tl.constexpr, ROWS: tl.constexpr, TARGETS: tl.constexpr,
):  # fmt: skip
    """Returns ids and masks of the rows and targets of the windows from `start` on, then these two masks.

    positive (R, T): whether this row is in the window of this centre. The reach of each window is drawn uniformly.
    negative (T, T): whether this target is a negative for this centre; the word itself is not.
    """
    r, t = tl.arange(0, ROWS), tl.arange(0, TARGETS)
    is_centre = t < CENTRES
    row_position, centre_position = start - WINDOW + r, start + t
    row_mask = (row_position >= 0) & (row_position < count) & (r < CENTRES + 2 * WINDOW)
    centre_mask = is_centre & (centre_position < end)
    row_id = tl.load(ids + row_position, mask=row_mask, other=0).to(tl.int64)
    negative_id = _draw_word(seed, start * TARGETS + t, threshold, alias, vocabulary_size)
    target_id = tl.where(is_centre, tl.load(ids + centre_position, mask=centre_mask, other=0), negative_id).to(tl.int64)

    row_sentence = tl.load(sentence_indices + row_position, mask=row_mask, other=-1)
    centre_sentence = tl.load(sentence_indices + centre_position, mask=centre_mask, other=-2)
    reach = WINDOW - (tl.rand(seed + 1, centre_position) * WINDOW).to(tl.int32)
    distance = tl.abs(row_position[:, None] - centre_position[None, :])
    in_window = (distance > 0) & (distance <= reach[None, :]) & (row_sentence[:, None] == centre_sentence[None, :])
    positive = (in_window & row_mask[:, None] & centre_mask[None, :]).to(tl.float32)
    negative = (target_id[:, None] != target_id[None, :]) & is_centre[:, None] & (t >= CENTRES)[None, :]
    return row_id, row_mask, target_id, centre_mask | (t >= CENTRES), positive, negative.to(tl.float32)


@triton.jit
def _compute_steps(scores, positive, negative, learning_rate):
    """Returns learning_rate · (label − σ(score)) of each pair times its weight, and the sum of the losses.

    positive (·, T): weights of the pairs with label 1. negative (·, T): weights of the pairs with label 0.
    """
    exp = tl.exp(-tl.abs(scores))
    sigmoid = tl.where(scores >= 0, 1.0, exp) / (1.0 + exp)
    log = tl.log(1.0 + exp)
    loss = positive * (tl.maximum(-scores, 0.0) + log) + negative * (tl.maximum(scores, 0.0) + log)
    return learning_rate * (positive * (1.0 - sigmoid) - negative * sigmoid), tl.sum(loss)


# Otherwise Triton would compile the kernel again for special values, such as multiples of 16.
@triton.jit(do_not_specialize=["first", "end", "count", "vocabulary_size", "learning_rate", "seed"])
def train_negative_sampling(
    ids, sentence_indices, inputs, outputs, threshold, alias, tally,
    first, end, count, vocabulary_size, width, learning_rate, seed,
    WINDOW: tl.constexpr, NEGATIVE: tl.constexpr, CENTRES: tl.constexpr, ROWS: tl.constexpr, TARGETS: tl.constexpr,
    NUM_GROUPS: tl.constexpr, NUM_CHUNKS: tl.constexpr, CHUNK_WIDTH: tl.constexpr, CBOW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Trains on the words first … end-1 of `count`, each program on NUM_GROUPS · CENTRES consecutive ones.

    ids, sentence_indices (count,): the words, and the index of each word's sentence. inputs and outputs: rows of all
    words. tally (programs, 2): loss and pairs are added. Rows are loaded in chunks of CHUNK_WIDTH numbers, once for the
    scores and once for the updates: whole rows of some hundred numbers would not fit into a multiprocessor.
    """
    WEIGHT: tl.constexpr = NEGATIVE / (TARGETS - CENTRES)
    program, t = tl.program_id(0), tl.arange(0, TARGETS)
    loss_sum, pair_sum = 0.0, 0.0
    for group in range(NUM_GROUPS):
        start = first + (program * NUM_GROUPS + group) * CENTRES
        row_id, row_mask, target_id, target_mask, in_window, is_negative = _read_windows(
            ids, sentence_indices, threshold, alias, start, end, count, vocabulary_size, seed,
            WINDOW, CENTRES, ROWS, TARGETS,
        )  # fmt: skip
        num_neighbours = tl.sum(in_window, axis=0)  # (T,), zero for negatives
        averaging = tl.trans(in_window / tl.maximum(num_neighbours, 1.0)[None, :])  # (T, R): means of windows
        if CBOW:
            has_neighbours = (num_neighbours > 0).to(tl.float32)[:, None]
            positive = (t[:, None] == t[None, :]).to(tl.float32) * has_neighbours
            negative = is_negative * has_neighbours * WEIGHT
            scores = tl.zeros((TARGETS, TARGETS), tl.float32)
        else:
            positive = in_window
            negative = tl.dot(in_window, is_negative) * WEIGHT  # (R, T); sums of ones are exact in any precision
            scores = tl.zeros((ROWS, TARGETS), tl.float32)
        for chunk in range(NUM_CHUNKS):
            d = chunk * CHUNK_WIDTH + tl.arange(0, CHUNK_WIDTH)
            x = tl.load(inputs + row_id[:, None] * width + d, mask=row_mask[:, None] & (d < width), other=0.0)
            y = tl.load(outputs + target_id[:, None] * width + d, mask=target_mask[:, None] & (d < width), other=0.0)
            if CBOW:
                x = tl.dot(averaging, x, input_precision=PRECISION)
            scores += tl.dot(x, tl.trans(y), input_precision=PRECISION)
        steps, loss = _compute_steps(scores, positive, negative, learning_rate)
        for chunk in range(NUM_CHUNKS):
            d = chunk * CHUNK_WIDTH + tl.arange(0, CHUNK_WIDTH)
            row_pointers, row_valid = inputs + row_id[:, None] * width + d, row_mask[:, None] & (d < width)
            target_pointers = outputs + target_id[:, None] * width + d
            target_valid = target_mask[:, None] & (d < width)
            x = tl.load(row_pointers, mask=row_valid, other=0.0)
            y = tl.load(target_pointers, mask=target_valid, other=0.0)
            row_update = tl.dot(steps, y, input_precision=PRECISION)
            if CBOW:
                x = tl.dot(averaging, x, input_precision=PRECISION)
                row_update = tl.dot(tl.trans(averaging), row_update, input_precision=PRECISION)
            target_update = tl.dot(tl.trans(steps), x, input_precision=PRECISION)
            has_window = row_valid & (tl.sum(in_window, axis=1) > 0)[:, None]
            tl.atomic_add(row_pointers, row_update, mask=has_window, sem="relaxed")
            tl.atomic_add(target_pointers, target_update, mask=target_valid, sem="relaxed")
        loss_sum += loss
        pair_sum += tl.sum(positive)
    tl.store(tally + program * 2, tl.load(tally + program * 2) + loss_sum)
    tl.store(tally + program * 2 + 1, tl.load(tally + program * 2 + 1) + pair_sum)


class GpuWord2VecTrainer(BaseWord2VecTrainer):
    """Skip-gram or CBOW with negative sampling on a GPU."""

    def __init__(self, corpus: EncodedCorpus, settings: ResolvedVectorSettings, device: str = "cuda"):
        self.device = torch.device(device)
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "interpreter"
        super().__init__(corpus, settings, name)
        counts, generator = corpus.vocabulary.counts, torch.Generator(self.device).manual_seed(settings.seed)
        shape = (len(counts), settings.dim)
        self.inputs = (torch.rand(shape, generator=generator, device=self.device) - 0.5) / settings.dim
        self.outputs = torch.zeros(shape, device=self.device)
        table = build_negative_table(counts)
        self.threshold = torch.from_numpy(table.threshold.astype(np.int64)).to(self.device)
        self.alias = torch.from_numpy(table.alias).to(self.device)
        keep_probability = compute_keep_thresholds(counts, settings.subsample).astype(np.float64) / UINT32_MAX
        self.keep_probability = torch.from_numpy(keep_probability.astype(np.float32)).to(self.device)
        self.num_programs = choose_num_programs(counts, settings)
        self._tally = torch.zeros(settings.epochs, self.num_programs, 2, device=self.device, dtype=torch.float64)

    def sum_losses(self, epochs: slice) -> np.ndarray:
        return self._tally[epochs].sum(dim=1).cpu().numpy()  # waits for the GPU

    def export_vectors(self) -> np.ndarray:
        return self.inputs.cpu().numpy()

    def compile(self) -> None:
        """Compiles the kernel by a launch on no words; raises `UsageError` if the GPU is too small for it."""
        empty = torch.zeros(1, dtype=torch.int32, device=self.device)
        try:
            self._launch(empty, empty, 0, 0, 0.0, 0, 0)
        except triton.runtime.errors.OutOfResources as error:
            problem = f"the GPU is too small for this kernel: {str(error).rstrip('.')}."
            raise UsageError(problem, fix="Train with --device cpu, or a smaller --window.") from None

    def steps(self) -> Iterator[VectorStep]:
        yield VectorStep("compiling", 0, 0.0, 0.0)
        self.compile()
        yield VectorStep("compiling", 0, 1.0, 0.0)
        start = time.monotonic()
        for epoch in range(self.settings.epochs):
            for block_index, block in enumerate(self.corpus.iterate_blocks(BLOCK_SIZE)):
                self._train_block(block, epoch, block_index)
                yield self.build_step(epoch, start, is_epoch_end=False)
            yield self.build_step(epoch, start, is_epoch_end=True)

    def _train_block(self, block: np.ndarray, epoch: int, block_index: int) -> None:
        seed = int(np.random.SeedSequence([self.settings.seed, epoch + 1, block_index]).generate_state(1)[0] >> 2)
        ids, sentence_indices = self._subsample(torch.from_numpy(block.copy()).to(self.device), seed)
        size = self.num_programs * NUM_GROUPS * CENTRES
        for first in range(0, len(ids), size):
            progress = (self.items_done + len(block) * first / len(ids)) / self.items_planned
            learning_rate = self.compute_learning_rate(progress)
            self._launch(ids, sentence_indices, first, min(first + size, len(ids)), learning_rate, seed, epoch)
        self.items_done += len(block)

    def _subsample(self, block: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Returns the words that subsampling keeps, and the index of each word's sentence."""
        generator = torch.Generator(self.device).manual_seed(seed)
        is_line_end = block < 0
        sentence_indices = torch.cumsum(is_line_end, 0, dtype=torch.int32)
        random = torch.rand(len(block), generator=generator, device=self.device)
        should_keep = ~is_line_end & (random < self.keep_probability[block.clamp(min=0).long()])
        return block[should_keep].contiguous(), sentence_indices[should_keep].contiguous()

    def _launch(
        self, ids: Tensor, sentence_indices: Tensor, first: int, end: int, learning_rate: float, seed: int, epoch: int
    ) -> None:
        """Trains on the words first … end-1."""
        settings, window = self.settings, self.settings.window
        chunk_width = min(CHUNK_WIDTH, max(16, triton.next_power_of_2(settings.dim)))
        train_negative_sampling[(self.num_programs,)](
            ids, sentence_indices, self.inputs, self.outputs, self.threshold, self.alias, self._tally[epoch],
            first, end, len(ids), len(self.inputs), settings.dim, learning_rate, seed,
            WINDOW=window, NEGATIVE=settings.negative, CENTRES=CENTRES,
            ROWS=triton.next_power_of_2(CENTRES + 2 * window), TARGETS=TARGETS, NUM_GROUPS=NUM_GROUPS,
            NUM_CHUNKS=-(-settings.dim // chunk_width), CHUNK_WIDTH=chunk_width, CBOW=settings.method == "cbow",
            PRECISION=PRECISION, num_warps=WARPS,
        )  # fmt: skip


def choose_num_programs(counts: np.ndarray, settings: ResolvedVectorSettings) -> int:
    """Returns how many programs may run in parallel: fewer for a small vocabulary, or if updates are larger."""
    weights = counts.astype(np.float64) ** NEGATIVE_POWER
    collision_probability = float(np.square(weights / weights.sum()).sum())
    scale = LEARNING_RATES[settings.method] / settings.learning_rate
    if settings.method == "skipgram":  # a row gets a gradient from every neighbour
        scale *= WINDOWS["skipgram"] / settings.window
    return max(1, min(MAX_PROGRAMS, int(MAX_COLLISIONS * min(1.0, scale) / collision_probability)))
