"""`VectorTrainer`: what word2vec and GloVe have in common, and the choice between them. It knows nothing of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.environment import gpu
from seqwise.errors import UsageError
from seqwise.vectors.corpus import Sentences
from seqwise.vectors.settings import ResolvedVectorSettings
from seqwise.vectors.subwords import Subwords

CUDA_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # one of them exists where CUDA is installed; the second under Windows
MAX_GPU_WINDOW = 24  # the GPU kernel has room for no more


@dataclass(frozen=True)
class VectorStep:
    """Progress of the training."""

    stage: str  # "compiling", "counting" or "training"
    epoch: int  # from 0
    progress: float  # of the stage, 0 … 1
    speed: float  # in `unit` per second, since the stage began
    loss: float | None = None  # mean per pair of the epoch so far; None before the first pair
    finished: bool = False  # the epoch is over
    unit: str = "words"  # words of the corpus, or pairs counted in it


class VectorTrainer(ABC):
    """Trains vectors on a corpus. `steps()` may be left early; all other methods can be called at any time."""

    description: str  # of the training, in one line

    def __init__(self, sentences: Sentences, settings: ResolvedVectorSettings):
        self.sentences, self.settings = sentences, settings

    @property
    @abstractmethod
    def losses(self) -> list[float | None]:
        """Mean loss of each epoch; None for an epoch that has not begun."""

    @property
    @abstractmethod
    def progress(self) -> float:
        """Share of the training that is done, 0 … 1."""

    @abstractmethod
    def steps(self) -> Iterator[VectorStep]:
        """Trains, and yields the progress several times a second."""

    @abstractmethod
    def vectors(self) -> np.ndarray:
        """Returns the vectors (V, D) as trained so far. Training cannot continue afterwards."""

    def subwords(self) -> Subwords | None:
        """Returns the vectors of the n-grams, if there are any."""
        return None


def build_trainer(sentences: Sentences, settings: ResolvedVectorSettings) -> VectorTrainer:
    """Returns the trainer for the method and device that the settings name."""
    use_gpu = should_use_gpu(settings)
    if settings.method == "glove":
        from seqwise.vectors.glove.trainer import GloveTrainer

        return GloveTrainer(sentences, settings)
    if use_gpu:
        from seqwise.vectors.word2vec.gpu_trainer import GpuWord2VecTrainer

        trainer = GpuWord2VecTrainer(sentences, settings)
        try:
            trainer.compile()
            return trainer
        except UsageError:  # the GPU is too small for the kernel
            if settings.device == "cuda":
                raise
    from seqwise.vectors.word2vec.cpu_trainer import Word2VecTrainer

    return Word2VecTrainer(sentences, settings)


def should_use_gpu(settings: ResolvedVectorSettings) -> bool:
    """Whether to train on a GPU; raises `UsageError` if the settings require one that cannot do it.

    torch, which is large, is imported only where a CUDA driver is installed.
    """
    if settings.device == "cpu":
        return False
    reason = _why_not_on_gpu(settings)
    if settings.device == "auto":
        return not reason and any(Path(name).exists() for name in CUDA_DRIVERS) and gpu() is not None
    if reason:
        raise UsageError(f"{reason}.", repair="Leave --device out, or pass --device cpu.")
    if gpu() is None:
        raise UsageError("PyTorch finds no CUDA device here.", repair="Leave out --device, or see: seqwise doctor")
    return True


def _why_not_on_gpu(settings: ResolvedVectorSettings) -> str:
    """Returns what a GPU cannot do of these settings; empty if it can do everything."""
    if settings.method == "glove" or settings.loss != "negative" or settings.subwords or settings.update != "gradient":
        return "only skipgram and cbow with negative sampling run on a GPU"
    if settings.window > MAX_GPU_WINDOW:
        return f"windows wider than {MAX_GPU_WINDOW} do not run on a GPU"
    return ""


def format_count(number: int, noun: str) -> str:
    """Returns "1 epoch" or "2 epochs"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
