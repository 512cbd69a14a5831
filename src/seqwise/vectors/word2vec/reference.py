"""Skip-gram with negative sampling in plain Python and NumPy (Mikolov et al. 2013b), the test oracle of the fast loops.

It draws the same random numbers in the same order as `negative_sampling.train_skipgram` with one thread, so that both
compute the same vectors up to rounding; it is some hundred times slower.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqwise.vectors.corpus import EncodedCorpus
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.word2vec.sampling_tables import build_negative_table, compute_keep_thresholds, seed_block


def train_skipgram(corpus: EncodedCorpus, settings: ResolvedVectorSettings) -> tuple[np.ndarray, list[float]]:
    """Returns the input vectors (V, D) and the mean loss of each epoch."""
    counts = corpus.vocabulary.counts
    random = np.random.default_rng([settings.seed, 0])
    inputs = (random.random((len(counts), settings.dim), dtype=np.float32) - 0.5) / settings.dim
    outputs = np.zeros_like(inputs)
    losses, items_done = [], 0
    for epoch in range(settings.epochs):
        loss, pairs = 0.0, 0
        for block_index, block in enumerate(corpus.iterate_blocks(10_000)):  # `Objective.block_size`
            progress = items_done / (settings.epochs * corpus.num_items)
            learning_rate = settings.learning_rate * max(1 - progress, 0.004)  # linear decay to `FINAL_RATE_SHARE`
            items_done += len(block)
            for context, word, negatives in draw_windows(block, counts, settings, epoch, block_index):
                targets = [word, *(negative for negative in negatives if negative != word)]
                labels = np.array([1] + [0] * (len(targets) - 1))
                u, v = inputs[context], outputs[targets]  # (n, D) and (1 + negatives, D), copies
                scores = u @ v.T
                loss += np.logaddexp(0, np.where(labels, -scores, scores)).sum()  # −log σ(±score)
                pairs += len(context)
                step = learning_rate * (labels - 1 / (1 + np.exp(-scores)))
                np.add.at(inputs, context, step @ v)  # a word may occur twice in a window
                np.add.at(outputs, targets, step.T @ u)
        losses.append(float(loss / pairs))
    return inputs, losses


def draw_windows(
    block: np.ndarray, counts: np.ndarray, settings: ResolvedVectorSettings, epoch: int, block_index: int
) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yields (context words, centre word, negatives) of every window of a block."""
    keep_threshold = compute_keep_thresholds(counts, settings.subsample)
    table = build_negative_table(counts)
    bits = generate_bits(int(seed_block(settings.seed, epoch + 1, block_index)))

    def draw_negatives() -> list[int]:
        words = []
        for _ in range(settings.negative):
            value = next(bits)
            slot = (value >> 32) * len(counts) >> 32
            keep_slot = (value >> 8) % 2**32 <= table.threshold[slot]
            words.append(slot if keep_slot else int(table.alias[slot]))
        return words

    next_negatives = draw_negatives()  # one window ahead, because the fast loop prefetches their rows
    for sentence in np.split(block, np.flatnonzero(block < 0)):
        words = [int(word) for word in sentence if word >= 0 and next(bits) >> 32 <= keep_threshold[word]]
        for centre, word in enumerate(words):
            negatives, next_negatives = next_negatives, draw_negatives()
            reach = settings.window - ((next(bits) >> 32) * settings.window >> 32)
            context = words[max(0, centre - reach) : centre] + words[centre + 1 : centre + reach + 1]
            if context:
                yield context, word, negatives


def generate_bits(state: int) -> Iterator[int]:
    """Yields 64-bit random numbers by xorshift64* (Marsaglia 2003, Vigna 2016)."""
    while True:
        state ^= state >> 12
        state ^= state << 25 & (2**64 - 1)
        state ^= state >> 27
        yield state * 2685821657736338717 & (2**64 - 1)
