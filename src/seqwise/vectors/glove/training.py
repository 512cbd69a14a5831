"""GloVe's vectors from counted pairs: weighted least squares by AdaGrad (Pennington, Socher and Manning, 2014).

    J = Σ f(X_ij) (w_i·w̃_j + b_i + b̃_j − log X_ij)²        f(x) = min(1, (x / limit)^alpha)

over all pairs that were met, (i, j) and (j, i) alike. Entries come from the disk in blocks. The order of the blocks,
and the order inside each, is a function of seed and epoch alone; with one thread, so are the vectors. Several threads
write to the same rows without locks, so no two of their runs are alike. The module knows ids, not words.

AdaGrad is the textbook's: a step is divided by the root of all squares so far, its own among them, and they begin at
(almost) zero. Begun at one, which is also done, they are slow on a small corpus: 10 epochs came to the loss that this
reaches in 4 (6 million words, limit 10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import numpy as np

from seqwise.errors import NonFiniteError
from seqwise.vectors.glove.entries import Counts
from seqwise.vectors.rows import padded

BLOCK = 1 << 18  # entries in memory at once
PART = 1 << 14  # entries of one call: some hundredths of a second, after which Ctrl-C is heard
START = 1e-6  # of the sums of squares: they begin at nothing, but padding must not divide by it

ProgressCallback = Callable[
    [int, int, int, float], None
]  # epoch, entries done in it, entries of an epoch, mean loss so far


@dataclass(frozen=True)
class FitSettings:
    """What is rarely changed."""

    rate: float = 0.05  # of AdaGrad
    limit: float = 10.0  # x_max: a pair counted as often has the full weight
    alpha: float = 0.75  # below it, the weight is (count / limit) to this power


USUAL = FitSettings()


def train_glove(
    counts: Counts,
    vocabulary: int,
    dim: int,
    epochs: int,
    threads: int,
    seed: int,
    fit: FitSettings = USUAL,
    progress: ProgressCallback | None = None,
) -> tuple[np.ndarray, list[float]]:
    """The vectors, (vocabulary, dim) float32, and the loss of each epoch."""
    descent = Descent(counts, vocabulary, dim, epochs, threads, seed, fit)
    for step in descent.steps():
        if progress is not None:
            progress(*step)
    return descent.vectors(), descent.losses


class Descent:
    """Rows on their way down. Iterate over `steps()`; `vectors()` has what is learned so far at any time.

    A word's vector is w + w̃, as published. The loss is J divided by the number of its terms, each measured just before
    its step; it compares between runs with the same counts, limit and alpha.
    """

    def __init__(
        self, counts: Counts, vocabulary: int, dim: int, epochs: int, threads: int, seed: int, fit: FitSettings = USUAL
    ):
        self.counts, self.dim, self.epochs, self.threads, self.seed, self.fit = counts, dim, epochs, threads, seed, fit
        self.rows = new_rows(vocabulary, dim, seed)
        self.losses: list[float] = []

    def steps(self) -> Iterator[tuple[int, int, int, float]]:
        """Train; yields (epoch, entries done in it, entries of an epoch, mean loss so far)."""
        with _Workers(self.threads, self.rows, self.dim, self.fit) as workers:
            for epoch in range(self.epochs):
                total, terms, done = 0.0, 0, 0
                for entries in shuffled(self.counts, self.seed, epoch, self.threads):
                    total += workers.descend(entries)
                    terms += 2 * len(entries) - int((entries["row"] == entries["column"]).sum())
                    done += len(entries)
                    if not np.isfinite(total):
                        raise NonFiniteError(
                            f"the loss is {total} in epoch {epoch + 1}.",
                            repair=f"Train with a smaller rate than {self.fit.rate:g}.",
                        )
                    if done == self.counts.entries:
                        self.losses.append(total / terms)
                    yield epoch, done, self.counts.entries, total / terms

    def vectors(self) -> np.ndarray:
        return self.rows[:, 0, : self.dim] + self.rows[:, 1, : self.dim]


def new_rows(vocabulary: int, dim: int, seed: int) -> np.ndarray:
    """(V, 4, width) as `descent.py` wants it: small random vectors, no biases, squares almost zero."""
    width = padded(dim + 2)
    rows = np.zeros((vocabulary, 4, width), dtype=np.float32)
    random = np.random.default_rng([seed, 0])
    for side, one in ((0, dim + 1), (1, dim)):
        for start in range(0, vocabulary, 4096):  # in pieces, for random numbers come in arrays of their own
            part = rows[start : start + 4096, side, :dim]
            part[:] = (random.random(part.shape, dtype=np.float32) - 0.5) / dim
        rows[:, side, one] = 1
    rows[:, 2:] = START
    return rows


def shuffled(counts: Counts, seed: int, epoch: int, threads: int = 1) -> Iterator[np.ndarray]:
    """All entries once, in blocks: the blocks in a new order, and each shuffled inside."""
    random = np.random.default_rng([seed, 1, epoch])
    size = max(BLOCK, 4 * threads * PART)  # work for every thread
    for block in random.permutation(-(-counts.entries // size)):
        start = int(block) * size
        entries = counts.read(start, min(size, counts.entries - start))
        yield entries[random.permutation(len(entries))]


class _Workers:
    """Threads that descend on the same rows; with one thread the caller's own, so that its results repeat."""

    def __init__(self, threads: int, rows: np.ndarray, dim: int, fit: FitSettings):
        self.rows, self.dim, self.fit = rows, dim, fit
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="glove") if threads > 1 else None
        self._stop = Event()

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def descend(self, entries: np.ndarray) -> float:
        parts = (entries[start : start + PART] for start in range(0, len(entries), PART))
        return sum((self._pool.map if self._pool else map)(self._part, parts))

    def _part(self, entries: np.ndarray) -> float:
        from seqwise.vectors.glove.descent import descend

        if self._stop.is_set():
            return 0.0
        logs = np.log(entries["count"])
        weights = np.exp(np.minimum(0, self.fit.alpha * (logs - np.float32(np.log(self.fit.limit)))))
        rate = np.float32(self.fit.rate)
        first, second = np.ascontiguousarray(entries["row"]), np.ascontiguousarray(entries["column"])
        return descend(self.rows, first, second, logs, weights.astype(np.float32), rate, self.dim)
