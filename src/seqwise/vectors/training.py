"""`train_vectors`: trains word vectors on a corpus. It reads the corpus, chooses the trainer and runs it.

`VectorTrainer` is the interface of the trainers of word2vec and GloVe. They are imported when they are chosen: until
then neither numba nor torch is.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.callbacks import LogFunction
from seqwise.data.corpus.sources import open_unsplit
from seqwise.data.in_memory import save_data
from seqwise.data.records import Data
from seqwise.environment import get_gpu
from seqwise.errors import DataError, MemoryLimitError, NonFiniteError, UsageError
from seqwise.signals import defer_interrupts
from seqwise.vectors.corpus import EncodedCorpus, choose_tokenizer, describe_files, encode_corpus
from seqwise.vectors.keyed import KeyedVectors, Subwords
from seqwise.vectors.settings import ResolvedVectorSettings, VectorSettings, build_settings

CUDA_DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of the CUDA driver; the second under WSL
MAX_GPU_WINDOW = 24  # the GPU kernel has room for no more
LARGE_SOFTMAX = 5_000  # words of a vocabulary above which a full softmax takes hours on a corpus of useful size


@dataclass(frozen=True)
class VectorStep:
    """Progress of the training."""

    stage: str  # "compiling", "counting" or "training"
    epoch: int  # from 0
    progress: float  # of the stage, 0 … 1
    speed: float  # in `unit` per second, since the stage began
    loss: float | None = None  # mean per pair of the epoch so far; None before the first pair
    is_epoch_end: bool = False
    unit: str = "words"  # words of the corpus, or pairs counted in it


class VectorTrainer(ABC):
    """Trains vectors on a corpus. `steps()` may be stopped early; all other methods can be called at any time."""

    description: str  # one line about the training

    def __init__(self, corpus: EncodedCorpus, settings: ResolvedVectorSettings):
        self.corpus, self.settings = corpus, settings

    @property
    @abstractmethod
    def losses(self) -> list[float | None]:
        """The mean loss of each epoch; None for an epoch that has none yet."""

    @property
    @abstractmethod
    def progress(self) -> float:
        """The share of the training that is done, 0 … 1."""

    @abstractmethod
    def steps(self) -> Iterator[VectorStep]:
        """Trains, and yields the progress several times a second."""

    @abstractmethod
    def export_vectors(self) -> np.ndarray:
        """Returns the vectors (V, D) as trained so far. Training cannot continue afterwards."""

    def export_subwords(self) -> Subwords | None:
        """Returns the vectors of the n-grams, if there are any."""
        return None


def train_vectors(
    corpus: Data, settings: VectorSettings | None = None, log: LogFunction | None = None, **changes: Any
) -> KeyedVectors:
    """Trains vectors on a file, a folder, `builtin:…`, or texts in memory; `changes` are settings by name.

    A str is a path. Texts are a list, Series or iterable of sentences, each a str or a list of words. Ctrl-C discards
    the vectors.

    vectors = train_vectors("reviews.txt.gz", method="cbow", dim=200)
    """
    values = {**(settings or VectorSettings()).model_dump(), **changes}
    with VectorTraining(corpus, build_settings(**values), log) as training:
        with defer_interrupts() as is_interrupted:
            for _ in training.steps():
                if is_interrupted():
                    break
        if is_interrupted():
            raise KeyboardInterrupt
        return training.export_vectors()


class VectorTraining:
    """Reads a corpus and builds a trainer for it. Iterate over `steps()`, then call `export_vectors()`."""

    def __init__(
        self,
        corpus: Data,
        settings: VectorSettings,
        log: LogFunction | None = None,
        progress: Callable[[int, int], None] | None = None,
    ):
        self.name, log = save_data(corpus, ("text",)), log or (lambda text: None)
        should_use_gpu(settings.resolve())  # reports wrong settings and a missing device before anything is read
        source = open_unsplit(self.name)
        tokenizer, reason = choose_tokenizer(source, settings.tokenizer)
        self.settings = settings.resolve(tokenizer)
        self.corpus = encode_corpus(source, tokenizer, settings.lowercase, settings.min_count, progress=progress)
        vocabulary, num_words = self.corpus.vocabulary, self.corpus.num_words
        log(
            f"{num_words:,} words, {vocabulary.num_distinct:,} distinct; {len(vocabulary):,} occur at least "
            f"{settings.min_count} times and make up {vocabulary.counts.sum() / num_words:.1%} of the text."
        )
        log(f"text: {reason}{describe_files(source)}.")
        try:
            self.trainer = build_trainer(self.corpus, self.settings)
        except MemoryError as error:
            raise MemoryLimitError(
                f"{len(vocabulary):,} vectors of {settings.dim} numbers do not fit into memory: {error}.",
                fix="Train with a smaller --dim, a larger --min-count, or fewer --buckets.",
            ) from None
        log(self.trainer.description)
        if settings.loss == "softmax" and len(vocabulary) > LARGE_SOFTMAX:
            log("The full softmax takes time in proportion to the vocabulary; --loss negative takes a fraction.")
        self.seconds = 0.0

    def __enter__(self) -> VectorTraining:
        return self

    def __exit__(self, *_: object) -> None:
        self.corpus.file.close()

    def steps(self) -> Iterator[VectorStep]:
        """Trains, and yields the progress. May be stopped early."""
        start = time.monotonic()
        try:
            yield from self.trainer.steps()
        finally:
            self.seconds = time.monotonic() - start
        if all(loss is None for loss in self.trainer.losses):
            fix = "Subsampling dropped too much of a small corpus: train with --subsample 0."
            raise DataError("no two words were left next to each other.", fix=fix, file=self.name)

    def export_vectors(self) -> KeyedVectors:
        """Returns the vectors as trained so far. Training cannot continue afterwards."""
        trainer, vocabulary = self.trainer, self.corpus.vocabulary
        about = {
            "corpus": self.name,
            "words": self.corpus.num_words,
            "settings": self.settings.model_dump(mode="json"),
            "threads": self.settings.threads,
            "losses": trainer.losses,
            "progress": trainer.progress,
        }
        vectors, subwords = trainer.export_vectors(), trainer.export_subwords()
        return KeyedVectors(vocabulary.words, vectors, vocabulary.counts, subwords, about)


def build_trainer(corpus: EncodedCorpus, settings: ResolvedVectorSettings) -> VectorTrainer:
    """Returns the trainer for the method and device that the settings name."""
    use_gpu = should_use_gpu(settings)
    if settings.method == "glove":
        from seqwise.vectors.glove.trainer import GloveTrainer

        return GloveTrainer(corpus, settings)
    if use_gpu:
        from seqwise.vectors.word2vec.gpu_trainer import GpuWord2VecTrainer

        trainer = GpuWord2VecTrainer(corpus, settings)
        try:
            trainer.compile()
            return trainer
        except UsageError:  # the GPU is too small for the kernel
            if settings.device == "cuda":
                raise
    from seqwise.vectors.word2vec.trainer import Word2VecTrainer

    return Word2VecTrainer(corpus, settings)


def should_use_gpu(settings: ResolvedVectorSettings) -> bool:
    """Returns whether to train on a GPU; raises `UsageError` if the settings require one and it cannot.

    torch, which is large, is imported only where a CUDA driver is installed.
    """
    if settings.device == "cpu":
        return False
    problem = ""
    if settings.method == "glove" or settings.loss != "negative" or settings.subwords or settings.update != "gradient":
        problem = "only skipgram and cbow with negative sampling run on a GPU."
    elif settings.window > MAX_GPU_WINDOW:
        problem = f"windows wider than {MAX_GPU_WINDOW} do not run on a GPU."
    if settings.device == "auto":
        return not problem and any(Path(name).exists() for name in CUDA_DEVICE_FILES) and get_gpu() is not None
    if problem:
        raise UsageError(problem, fix="Leave --device out, or pass --device cpu.")
    if get_gpu() is None:
        raise UsageError("PyTorch finds no CUDA device here.", fix="Leave out --device, or see: seqwise doctor")
    return True


def build_divergence_error(loss: float, epoch: int, settings: ResolvedVectorSettings) -> NonFiniteError:
    """Returns the error for a loss that is not finite or far too high."""
    problem = f"training diverged: the loss is {loss:g} in epoch {epoch + 1}."
    return NonFiniteError(problem, fix=f"Train with a smaller --learning-rate than {settings.learning_rate:g}.")


def format_count(count: int, noun: str) -> str:
    """Returns "1 epoch" or "2 epochs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
