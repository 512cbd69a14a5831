"""Settings of `seqwise vectors train`: the one home of their defaults and of their help texts.

`None` means "chosen by rule"; `resolved` fills it in. This module knows nothing of corpora.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationError

from seqwise.config import Device, Section, mistakes
from seqwise.errors import UsageError

Method = Literal["skipgram", "cbow", "glove"]
Loss = Literal["negative", "softmax", "hierarchical"]

# Measured on 6 million words of film reviews: docs/vectors.md.
RATES = {"skipgram": 0.025, "cbow": 0.15, "glove": 0.05}
GENSIM_RATE = 0.025
SUBWORD_RATES = {"skipgram": 0.2, "cbow": 0.8}  # a word's gradient is shared out among its n-grams
EPOCHS = {"skipgram": 5, "cbow": 5, "glove": 20}
WINDOWS = {"skipgram": 5, "cbow": 5, "glove": 10}


class VectorSettings(Section):
    """How word vectors are learned."""

    method: Method = "skipgram"
    """skipgram: a word from each neighbour. cbow: from their mean. glove: from counts of pairs."""
    dim: int = Field(100, ge=1, le=4096)
    """Numbers per word."""
    window: int | None = Field(None, ge=1, le=1000)
    """Most places between two words of a pair: 5, GloVe 10."""
    negative: int = Field(5, ge=1, le=1000)
    """Words drawn by chance for each one that is there."""
    min_count: int = Field(5, ge=1)
    """Words rarer than this get no vector."""
    subsample: float = Field(1e-3, ge=0, le=1)
    """Frequency above which occurrences of a word are dropped by chance; 0 drops none. Not in GloVe."""
    epochs: int | None = Field(None, ge=1)
    """Times through the corpus (GloVe: through the pairs): 5, GloVe 20."""
    loss: Loss = "negative"
    """negative: sampling. softmax: over all words, for small vocabularies. hierarchical: over a Huffman tree."""
    rate: float | None = Field(None, gt=0)
    """At the start; falls to nothing: skipgram 0.025, cbow 0.15, with n-grams 0.2 and 0.8. GloVe: AdaGrad's, 0.05."""
    update: Literal["gradient", "gensim"] = "gradient"
    """CBOW: a neighbour gets its share of the gradient. gensim: all of it, as in word2vec; rates differ, here 0.025."""
    limit: float = Field(10.0, gt=0)
    """GloVe: count from which on a pair has full weight."""
    subwords: bool = False
    """A word is the mean of its own vector and those of its n-grams (fastText), so that unknown words have one too."""
    least: int = Field(3, ge=1, le=20)
    """Characters of the shortest n-grams."""
    most: int = Field(6, ge=1, le=20)
    """Characters of the longest n-grams."""
    buckets: int = Field(200_000, ge=1, lt=2**31)
    """Vectors that all n-grams share."""
    tokenizer: Literal["spaces", "words"] | None = None
    """spaces: split at blanks. words: punctuation apart too; the rule takes it where the text has such."""
    lowercase: bool = False
    """Fold upper case."""
    seed: int = Field(0, ge=0)
    """Same seed and one thread on the CPU: same bits."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Threads on the CPU: all cores unless set."""
    device: Device = "auto"
    """Where to compute. auto: a GPU where there is one, for skipgram and cbow with negative sampling."""

    def resolved(self) -> VectorSettings:
        """Everything filled in that depends on other settings; complains about what cannot be together."""
        self._check()
        chosen = self.model_copy()
        chosen.window = self.window or WINDOWS[self.method]
        chosen.epochs = self.epochs or EPOCHS[self.method]
        usual = (SUBWORD_RATES if self.subwords else RATES)[self.method]
        chosen.rate = self.rate or (GENSIM_RATE if self.update == "gensim" else usual)
        return chosen

    def _check(self) -> None:
        wrong = []
        if self.method == "glove" and self.loss != "negative":
            wrong.append(f"--loss {self.loss} is for skipgram and cbow; glove has a loss of its own.")
        if self.method == "glove" and self.subwords:
            wrong.append("--subwords is for skipgram and cbow.")
        if self.update != "gradient" and self.method != "cbow":
            wrong.append(f"--update {self.update} is for cbow.")
        if self.subwords and self.loss != "negative":
            wrong.append(f"--subwords goes with --loss negative; received {self.loss}.")
        if self.least > self.most:
            repair = "Give a smaller --least or a larger --most."
            raise UsageError(f"--least {self.least} is more than --most {self.most}.", repair=repair)
        if wrong:
            raise UsageError("\n".join(wrong), repair="Leave out one of the two.")

    def idle(self) -> list[str]:
        """A sentence for each setting that was given and decides nothing."""
        return [
            f"note: --{name.replace('_', '-')} has no effect with {why}."
            for name, why in self._undecided()
            if getattr(self, name) != type(self).model_fields[name].default
        ]

    def _undecided(self) -> Iterator[tuple[str, str]]:
        """(setting, what it does not go with)."""
        if self.method == "glove":
            yield from ((name, "--method glove") for name in ("negative", "subsample"))
        else:
            yield "limit", f"--method {self.method}"
            if self.loss != "negative":
                yield "negative", f"--loss {self.loss}"
        if not self.subwords:
            yield from ((name, "whole words; add --subwords") for name in ("least", "most", "buckets"))


def vector_settings(**values: Any) -> VectorSettings:
    """Settings by name; what is wrong with them is one error of ours."""
    try:
        return VectorSettings(**values)
    except ValidationError as error:
        found = mistakes(error, VectorSettings)
        lines = [f"{'.'.join(each.place)}: {each.text}; received {each.value!r}." for each in found]
        raise UsageError("\n".join(lines), repair="See seqwise vectors train --help.") from None
