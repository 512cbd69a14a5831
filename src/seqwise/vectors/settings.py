"""Settings of `seqwise vectors train`, with their defaults and help texts.

`None` means "choose for me"; `resolve` chooses and returns a `ResolvedVectorSettings`, in which nothing is optional.
This module knows nothing of corpora.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from seqwise.applicability import Condition, check_effects, list_changed
from seqwise.config import Device, Section, describe_errors
from seqwise.environment import count_cpus
from seqwise.errors import UsageError

Method = Literal["skipgram", "cbow", "glove"]
Loss = Literal["negative", "softmax", "hierarchical"]
WordTokenizer = Literal["spaces", "words"]

# Measured on 6 million words of film reviews: docs/vectors.md.
LEARNING_RATES = {"skipgram": 0.025, "cbow": 0.15, "glove": 0.05}
GENSIM_LEARNING_RATE = 0.025
SUBWORD_LEARNING_RATES = {"skipgram": 0.2, "cbow": 0.8}  # the n-grams of a word share its gradient
EPOCHS = {"skipgram": 5, "cbow": 5, "glove": 20}
WINDOWS = {"skipgram": 5, "cbow": 5, "glove": 10}

# Option → the values of others with which it has an effect: see `applicability.USED_WITH`.
_WORD2VEC = ("skipgram", "cbow")
USED_WITH: dict[str, tuple[Condition, ...]] = {
    "negative": ({"method": _WORD2VEC, "loss": ("negative",)},),
    "subsample": ({"method": _WORD2VEC},),
    "loss": ({"method": _WORD2VEC},),
    "update": ({"method": ("cbow",)},),
    "x_max": ({"method": ("glove",)},),
    "subwords": ({"method": _WORD2VEC, "loss": ("negative",)},),
    **dict.fromkeys(("min_n", "max_n", "buckets"), ({"subwords": (True,)},)),
}


class VectorSettings(Section):
    """How word vectors are trained."""

    new_names: ClassVar = {"rate": "learning_rate", "limit": "x_max", "least": "min_n", "most": "max_n"}

    method: Method = "skipgram"
    """skipgram: predict a word from each neighbour. cbow: from the mean of its neighbours. glove: from pair counts."""
    dim: int = Field(100, ge=1, le=4096)
    """Dimension of the vectors."""
    window: int | None = Field(None, ge=1, le=1000)
    """Maximum distance between two words of a pair: 5, GloVe 10."""
    negative: int = Field(5, ge=1, le=1000)
    """Negative samples per positive pair."""
    min_count: int = Field(5, ge=1)
    """Words that occur less often get no vector."""
    subsample: float = Field(1e-3, ge=0, le=1)
    """Frequency above which occurrences of a word are randomly dropped; 0 drops none. Not in GloVe."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the corpus (GloVe: over the pairs): 5, GloVe 20."""
    loss: Loss = "negative"
    """negative: negative sampling. softmax: full softmax, for small vocabularies. hierarchical: over a Huffman tree."""
    learning_rate: float | None = Field(None, gt=0)
    """Initial rate, decays linearly: skipgram 0.025, cbow 0.15, with n-grams 0.2 and 0.8. GloVe: of AdaGrad, 0.05."""
    update: Literal["gradient", "gensim"] = "gradient"
    """CBOW: each of n neighbours gets 1/n of the gradient, or with gensim all of it (learning rate then 0.025)."""
    x_max: float = Field(10.0, gt=0)
    """GloVe: co-occurrence count from which on a pair has the full weight."""
    subwords: bool = False
    """A word is the mean of its own vector and those of its n-grams (fastText), so that unknown words have one too."""
    min_n: int = Field(3, ge=1, le=20)
    """Minimum length of the n-grams in characters."""
    max_n: int = Field(6, ge=1, le=20)
    """Maximum length of the n-grams in characters."""
    buckets: int = Field(200_000, ge=1, lt=2**31)
    """Number of vectors into which the n-grams are hashed."""
    tokenizer: WordTokenizer | None = None
    """spaces: split at whitespace. words: split off punctuation too; chosen where the text has punctuation on words."""
    lowercase: bool = False
    """Convert to lower case."""
    seed: int = Field(0, ge=0)
    """Random seed; with one thread on the CPU the same seed gives the same bits."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Threads on the CPU: all cores unless set."""
    device: Device = "auto"
    """auto: a GPU where there is one, for skipgram and cbow with negative sampling; otherwise the CPU."""

    def resolve(self, tokenizer: WordTokenizer = "spaces") -> ResolvedVectorSettings:
        """Returns the settings with every default filled in; raises `UsageError` for settings that exclude each other.

        The default tokeniser depends on the corpus, so the caller chooses it.
        """
        self._check()
        rates = SUBWORD_LEARNING_RATES if self.subwords else LEARNING_RATES
        defaults = {
            "window": WINDOWS[self.method],
            "epochs": EPOCHS[self.method],
            "learning_rate": GENSIM_LEARNING_RATE if self.update == "gensim" else rates[self.method],
            "tokenizer": tokenizer,
            "threads": count_cpus(),
        }
        return ResolvedVectorSettings(**{**defaults, **self.model_dump(exclude_none=True)})

    def _check(self) -> None:
        if self.min_n > self.max_n:
            fix = "Pass a smaller --min-n or a larger --max-n."
            raise UsageError(f"--min-n {self.min_n} is more than --max-n {self.max_n}.", fix=fix)
        check_vector_effects(self, list_changed(self))


class ResolvedVectorSettings(VectorSettings):
    """Settings with nothing left to choose."""

    window: int
    epochs: int
    learning_rate: float
    tokenizer: WordTokenizer
    threads: int


def check_vector_effects(settings: VectorSettings, names: Iterable[str]) -> None:
    """Raises an error for the settings among `names` that have no effect, with the reasons."""
    check_effects([settings], names, USED_WITH)


def build_settings(**values: Any) -> VectorSettings:
    """Returns settings by name; reports all wrong values in one `UsageError`."""
    try:
        return VectorSettings(**values)
    except ValidationError as error:
        raise UsageError(describe_errors(error, VectorSettings), fix="See seqwise vectors train --help.") from None
