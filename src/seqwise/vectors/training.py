"""`train_vectors`: a corpus and settings → `KeyedVectors`. The page where reading, counting and learning meet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seqwise.environment import cpu_count
from seqwise.errors import DataError, MemoryLimitError
from seqwise.vectors.corpus import Reading, Sentences, read_sentences
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.learner import learner_of, on_gpu
from seqwise.vectors.settings import VectorSettings, vector_settings
from seqwise.vectors.steps import VectorStep

LogFunction = Callable[[str], None]
MANY = 5_000  # words from which on a full softmax is hours of work for a corpus worth its vectors


def train_vectors(
    corpus: str | Path, settings: VectorSettings | None = None, log: LogFunction | None = None, **changes: Any
) -> KeyedVectors:
    """Learn vectors from a file, a folder or `builtin:…`; `changes` are settings by name.

    vectors = train_vectors("reviews.txt.gz", method="cbow", dim=200)
    """
    chosen = vector_settings(**{**(settings or VectorSettings()).model_dump(), **changes})
    with VectorTraining(corpus, chosen, log) as training:
        for _ in training.steps():
            pass
        return training.vectors()


class VectorTraining:
    """A corpus read and ready. Iterate over `steps()`; `vectors()` gives what is learned so far and ends it."""

    def __init__(
        self,
        corpus: str | Path,
        settings: VectorSettings,
        log: LogFunction | None = None,
        reading: Callable[[int, int], None] | None = None,
    ):
        self.settings = settings.resolved()
        self.name, self.log = str(corpus), log or (lambda text: None)
        self.threads = self.settings.threads or cpu_count()
        on_gpu(self.settings)  # complains about a device that is not there before anything is read
        for remark in self.settings.idle():
            self.log(remark)
        how = Reading(self.settings.tokenizer, self.settings.lowercase, self.settings.min_count)
        self.sentences, why = read_sentences(corpus, how, progress=reading)
        self.settings.tokenizer = self.sentences.tokenizer  # type: ignore[assignment]
        self.log(_sizes(self.sentences, self.settings.min_count))
        self.log(f"text: {why}.")
        self.seconds = 0.0
        try:
            self._learner = learner_of(self.sentences, self.settings, self.threads)
        except MemoryError as error:
            raise MemoryLimitError(
                f"{len(self.sentences.vocabulary):,} words of {self.settings.dim} numbers do not fit: {error}.",
                repair="Train with a smaller --dim, a larger --min-count, or fewer --buckets.",
            ) from None
        self.log(self._learner.says)
        if self.settings.loss == "softmax" and len(self.sentences.vocabulary) > MANY:
            self.log("The full softmax takes as long per pair as there are words; --loss negative takes a fraction.")

    def __enter__(self) -> VectorTraining:
        return self

    def __exit__(self, *_: object) -> None:
        self.sentences.file.close()

    def steps(self) -> Iterator[VectorStep]:
        start = time.monotonic()
        try:
            yield from self._learner.steps()
        finally:
            self.seconds = time.monotonic() - start
        if all(loss is None for loss in self._learner.losses):
            raise DataError(
                "no two words were left beside each other.",
                repair="Subsampling dropped too much of a small corpus: train with --subsample 0.",
                file=self.name,
            )

    @property
    def losses(self) -> list[float | None]:
        return self._learner.losses

    @property
    def progress(self) -> float:
        return self._learner.progress

    def vectors(self) -> KeyedVectors:
        vocabulary = self.sentences.vocabulary
        return KeyedVectors(
            vocabulary.words, self._learner.vectors(), vocabulary.counts, self._learner.subwords(), self._about()
        )

    def _about(self) -> dict[str, Any]:
        """What a file of the vectors says of its making."""
        return {
            "corpus": self.name,
            "words": self.sentences.words,
            "settings": self.settings.model_dump(mode="json"),
            "threads": self.threads,
            "losses": self._learner.losses,
            "progress": self._learner.progress,
        }


def _sizes(sentences: Sentences, min_count: int) -> str:
    """How much text there is, and how much of it the vocabulary covers."""
    vocabulary, words = sentences.vocabulary, sentences.words
    return (
        f"{words:,} words, {vocabulary.different:,} different; {len(vocabulary):,} occur {min_count} times or more "
        f"and make up {sentences.kept / words:.1%} of the text."
    )
