"""Written text against references: BLEU and chrF by sacreBLEU, each with its signature, and the share that is exact.

It knows nothing of models or of tokens: texts are compared as people see them, cased and detokenised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from seqwise.errors import UsageError
from seqwise.metrics.examples import hits

EXACT = "share of outputs equal to a reference, character by character, blanks at the ends apart"


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 with the signature that makes it comparable."""

    value: float
    signature: str


@dataclass(frozen=True)
class BleuCounts:
    """The counts BLEU is made of. Those of several parts of the data add up to those of the whole."""

    matches: tuple[int, ...] = (0, 0, 0, 0)
    ngrams: tuple[int, ...] = (0, 0, 0, 0)
    length: int = 0
    reference: int = 0

    @classmethod
    def of(cls, outputs: Sequence[str], references: Sequence[str]) -> BleuCounts:
        if not outputs:
            return cls()
        score = BLEU().corpus_score(list(outputs), [list(references)])
        return cls(tuple(score.counts), tuple(score.totals), score.sys_len, score.ref_len)

    def numbers(self) -> tuple[int, ...]:
        """All counts in a row, to be summed over processes."""
        return *self.matches, *self.ngrams, self.length, self.reference

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> BleuCounts:
        whole = [round(number) for number in numbers]
        return cls(tuple(whole[:4]), tuple(whole[4:8]), whole[8], whole[9])

    @property
    def bleu(self) -> float:
        if not self.length:
            return 0.0
        matches, ngrams = list(self.matches), list(self.ngrams)
        return float(BLEU.compute_bleu(matches, ngrams, self.length, self.reference, smooth_method="exp").score)


def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus BLEU. `references` holds one list per output; where their numbers differ, all of them count.

    13a tokenisation, cased, exponential smoothing: sacreBLEU's defaults (Post 2018).
    """
    return _score(BLEU(), outputs, references)


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus chrF2 over character n-grams up to 6 (Popović 2015): sacreBLEU's defaults."""
    return _score(CHRF(), outputs, references)


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Share of outputs that equal one of their references."""
    return sum(exact_matches(outputs, references)) / max(1, len(outputs))


def exact_matches(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """Whether each output equals one of its references."""
    pairs = zip(outputs, references, strict=True)
    return [output.strip() in [text.strip() for text in texts] for output, texts in pairs]


def sums_of(metric: str, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """(N, parts): what each output adds to the metric, as `examples.value_of` reads it."""
    if metric == "bleu":
        return bleu_counts(outputs, references)
    if metric == "exact_match":
        return hits(exact_matches(outputs, references))
    raise UsageError(f"{metric!r} is not told for each example.", repair="Ask for 'bleu' or 'exact_match'.")


def bleu_counts(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """(N, 10): what each output adds to the counts of `bleu`, in the order of `BleuCounts.numbers`."""
    metric, found = BLEU(), np.zeros((len(outputs), 10))
    for row, (output, texts) in enumerate(zip(outputs, references, strict=True)):
        score = metric.corpus_score([output], [[text] for text in texts])
        found[row] = (*score.counts, *score.totals, score.sys_len, score.ref_len)
    return found


def _score(metric: BLEU | CHRF, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs cannot be compared with references of {len(references)}")
    if not outputs:
        return Score(0.0, "nothing to score")
    most = max(len(texts) for texts in references)
    streams: list[list[str | None]] = [
        [texts[at] if at < len(texts) else None for texts in references] for at in range(most)
    ]
    score = metric.corpus_score(list(outputs), streams)  # type: ignore[arg-type]
    return Score(float(score.score), f"sacreBLEU {metric.get_signature()}")
