"""`train_vectors`: a corpus and settings → `KeyedVectors`. This module reads the corpus and runs the trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqwise.data.corpus.sources import open_unsplit
from seqwise.errors import DataError, MemoryLimitError
from seqwise.vectors.corpus import choose_tokenizer, list_files, read_sentences
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.settings import VectorSettings, build_settings
from seqwise.vectors.trainer import VectorStep, build_trainer, should_use_gpu

LogFunction = Callable[[str], None]
LARGE_SOFTMAX = 5_000  # words above which a full softmax takes hours on a corpus of useful size


def train_vectors(
    corpus: str | Path, settings: VectorSettings | None = None, log: LogFunction | None = None, **changes: Any
) -> KeyedVectors:
    """Trains vectors on a file, a folder or `builtin:…`; `changes` are settings by name.

    vectors = train_vectors("reviews.txt.gz", method="cbow", dim=200)
    """
    values = {**(settings or VectorSettings()).model_dump(), **changes}
    with VectorTraining(corpus, build_settings(**values), log) as training:
        for _ in training.steps():
            pass
        return training.vectors()


class VectorTraining:
    """A corpus that is read and a trainer for it. Iterate over `steps()`, then call `vectors()`."""

    def __init__(
        self,
        corpus: str | Path,
        settings: VectorSettings,
        log: LogFunction | None = None,
        progress: Callable[[int, int], None] | None = None,
    ):
        self.name, self.log = str(corpus), log or (lambda text: None)
        should_use_gpu(settings.resolve())  # reports wrong settings and a missing device before anything is read
        for note in settings.find_unused():
            self.log(note)
        source = open_unsplit(corpus)
        tokenizer, reason = choose_tokenizer(source, settings.tokenizer)
        self.settings = settings.resolve(tokenizer)
        self.sentences = read_sentences(source, tokenizer, settings.lowercase, settings.min_count, progress=progress)
        vocabulary, words = self.sentences.vocabulary, self.sentences.words
        self.log(
            f"{words:,} words, {vocabulary.num_different:,} different; {len(vocabulary):,} occur at least "
            f"{settings.min_count} times and make up {vocabulary.counts.sum() / words:.1%} of the text."
        )
        self.log(f"text: {reason}{list_files(source)}.")
        try:
            self.trainer = build_trainer(self.sentences, self.settings)
        except MemoryError as error:
            raise MemoryLimitError(
                f"{len(vocabulary):,} vectors of {settings.dim} numbers do not fit into memory: {error}.",
                repair="Train with a smaller --dim, a larger --min-count, or fewer --buckets.",
            ) from None
        self.log(self.trainer.description)
        if settings.loss == "softmax" and len(vocabulary) > LARGE_SOFTMAX:
            self.log("The full softmax takes time in proportion to the vocabulary; --loss negative takes a fraction.")
        self.seconds = 0.0

    def __enter__(self) -> VectorTraining:
        return self

    def __exit__(self, *_: object) -> None:
        self.sentences.file.close()

    def steps(self) -> Iterator[VectorStep]:
        """Trains, and yields the progress. May be left early."""
        start = time.monotonic()
        try:
            yield from self.trainer.steps()
        finally:
            self.seconds = time.monotonic() - start
        if all(loss is None for loss in self.trainer.losses):
            raise DataError(
                "no two words were left next to each other.",
                repair="Subsampling dropped too much of a small corpus: train with --subsample 0.",
                file=self.name,
            )

    @property
    def losses(self) -> list[float | None]:
        """Mean loss of each epoch; None for an epoch that has not begun."""
        return self.trainer.losses

    @property
    def progress(self) -> float:
        """Share of the training that is done, 0 … 1."""
        return self.trainer.progress

    def vectors(self) -> KeyedVectors:
        """Returns the vectors as trained so far. Training cannot continue afterwards."""
        about = {
            "corpus": self.name,
            "words": self.sentences.words,
            "settings": self.settings.model_dump(mode="json"),
            "threads": self.settings.threads,
            "losses": self.losses,
            "progress": self.progress,
        }
        vocabulary = self.sentences.vocabulary
        return KeyedVectors(vocabulary.words, self.trainer.vectors(), vocabulary.counts, self.trainer.subwords(), about)
