"""What learns vectors from a corpus that is read: word2vec or GloVe. Each tells its steps and can be stopped."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from seqwise.environment import gpu
from seqwise.errors import UsageError
from seqwise.vectors.corpus import Sentences
from seqwise.vectors.glove import Counts, Descent, FitSettings, count_pairs
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.steps import VectorStep, amount
from seqwise.vectors.subwords import Subwords

TICK = 0.2  # seconds between two steps of counting
DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # one of them is there where CUDA is; the second under Windows
WIDEST_WINDOW = 24  # what the GPU's kernel has room for


class Learner(Protocol):
    """`steps()` trains; leaving it early loses nothing. The rest can be asked at any time."""

    says: str  # what it is about to do, in a line

    @property
    def losses(self) -> list[float | None]:
        """The mean loss of each epoch; None for one that has not begun."""

    @property
    def progress(self) -> float:
        """Part of the work that is done, 0 … 1."""

    def steps(self) -> Iterator[VectorStep]: ...
    def vectors(self) -> np.ndarray: ...
    def subwords(self) -> Subwords | None: ...


class Glove:
    """Counts pairs, then fits their logarithms. The counts lie in a temporary folder that is removed at the end."""

    def __init__(self, sentences: Sentences, settings: VectorSettings, threads: int):
        self.sentences, self.settings, self.threads = sentences, settings, threads
        self.epochs = settings.epochs or 1
        self.says = (
            f"GloVe: {settings.dim} numbers per word, window {settings.window}, rate {settings.rate:g}, "
            f"limit {settings.limit:g}, {amount(self.epochs, 'epoch')}, {amount(threads, 'thread')}"
        )
        self.progress = 0.0
        self._descent: Descent | None = None

    @property
    def losses(self) -> list[float | None]:
        known: list[float | None] = list(self._descent.losses) if self._descent else []
        return known + [None] * (self.epochs - len(known))

    def steps(self) -> Iterator[VectorStep]:
        with tempfile.TemporaryDirectory(prefix="seqwise-glove-") as folder:
            counting = _Counting(self.sentences, self.settings, Path(folder))
            yield from counting.steps()
            with counting.counts as counts:
                yield from self._descend(counts)

    def _descend(self, counts: Counts) -> Iterator[VectorStep]:
        chosen, words = self.settings, len(self.sentences.vocabulary)
        fit = FitSettings(rate=chosen.rate or 0.0, limit=chosen.limit)
        self._descent = Descent(counts, words, chosen.dim, self.epochs, self.threads, chosen.seed, fit)
        start = time.monotonic()
        for epoch, done, entries, loss in self._descent.steps():
            self.progress = (epoch * entries + done) / (self.epochs * entries)
            speed = (epoch * entries + done) / max(time.monotonic() - start, 1e-9)
            yield VectorStep("training", epoch, self.progress, speed, loss, done == entries, unit="pairs")

    def vectors(self) -> np.ndarray:
        if self._descent is None:
            return np.zeros((len(self.sentences.vocabulary), self.settings.dim), dtype=np.float32)
        return self._descent.vectors()

    def subwords(self) -> None:
        return None


class _Counting:
    """`count_pairs` in a thread of its own, so that its progress can be iterated over and Ctrl-C is heard."""

    def __init__(self, sentences: Sentences, settings: VectorSettings, folder: Path):
        self.sentences, self.settings, self.folder = sentences, settings, folder
        self._done, self._stop = 0, threading.Event()
        self._counts: Counts | None = None
        self._trouble: BaseException | None = None

    @property
    def counts(self) -> Counts:
        assert self._counts is not None, "steps() has run to its end"
        return self._counts

    def steps(self) -> Iterator[VectorStep]:
        thread, start = threading.Thread(target=self._work, daemon=True), time.monotonic()
        thread.start()
        try:
            while thread.is_alive():
                thread.join(TICK)
                done = self._done / self.sentences.items
                speed = done * self.sentences.words / (time.monotonic() - start)
                yield VectorStep("counting", 0, done, speed)
        finally:
            self._stop.set()
            thread.join()
        if self._trouble is not None:
            raise self._trouble

    def _work(self) -> None:
        vocabulary, window = len(self.sentences.vocabulary), self.settings.window or 1
        try:
            self._counts = count_pairs(self.sentences.blocks(), vocabulary, window, self.folder, progress=self._heard)
        except BaseException as error:
            self._trouble = error

    def _heard(self, done: int) -> None:
        self._done = done
        if self._stop.is_set():
            raise KeyboardInterrupt


def learner_of(sentences: Sentences, settings: VectorSettings, threads: int) -> Learner:
    """The learner that settings ask for, on the device they ask for."""
    on_a_gpu = on_gpu(settings)
    if settings.method == "glove":
        return Glove(sentences, settings, threads)
    if on_a_gpu:
        from seqwise.vectors.word2vec.gpu import GpuWord2Vec

        learner = GpuWord2Vec(sentences, settings)
        try:
            learner.compile()
            return learner
        except UsageError:  # too small a GPU
            if settings.device == "cuda":
                raise
    from seqwise.vectors.word2vec.training import Word2Vec

    return Word2Vec(sentences, settings, threads)


def on_gpu(settings: VectorSettings) -> bool:
    """Is a GPU asked for, or there and able? Where no driver is, torch is not imported: it is large."""
    if settings.device == "cpu":
        return False
    unable = _gpu_cannot(settings)
    if settings.device == "cuda":
        if unable:
            raise UsageError(f"{unable}.", repair="Leave --device out, or give --device cpu.")
        if gpu() is None:
            raise UsageError("PyTorch finds no CUDA device here.", repair="Leave out --device, or see: seqwise doctor")
        return True
    return not unable and any(Path(name).exists() for name in DRIVERS) and gpu() is not None


def _gpu_cannot(settings: VectorSettings) -> str:
    """Empty if a GPU can do it, else what it cannot."""
    if settings.method == "glove" or settings.loss != "negative" or settings.subwords or settings.update != "gradient":
        return "only skipgram and cbow with negative sampling run on a GPU"
    if (settings.window or 0) > WIDEST_WINDOW:
        return f"windows wider than {WIDEST_WINDOW} do not run on a GPU"
    return ""
