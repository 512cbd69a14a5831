"""Generated text against references: sacreBLEU's BLEU and chrF with their signatures, and exact match.

The module knows nothing of models or tokens: texts are compared as a reader sees them, cased and detokenised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from seqwise.errors import UsageError
from seqwise.metrics.evaluation import count_correct

EXACT_MATCH_DEFINITION = "share of outputs equal to a reference, ignoring blanks at the ends"


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 with the sacreBLEU signature that makes it comparable."""

    value: float
    signature: str


@dataclass(frozen=True)
class BleuCounts:
    """The counts that BLEU is computed from. Counts of parts of the data add up to those of the whole."""

    matches: tuple[int, ...] = (0, 0, 0, 0)
    ngrams: tuple[int, ...] = (0, 0, 0, 0)
    output_length: int = 0
    reference_length: int = 0

    @classmethod
    def from_texts(cls, outputs: Sequence[str], references: Sequence[str]) -> BleuCounts:
        if not outputs:
            return cls()
        score = BLEU().corpus_score(list(outputs), [list(references)])
        return cls(tuple(score.counts), tuple(score.totals), score.sys_len, score.ref_len)

    def as_tuple(self) -> tuple[int, ...]:
        """Return all counts in a row, so that processes can sum them."""
        return *self.matches, *self.ngrams, self.output_length, self.reference_length

    @classmethod
    def from_tuple(cls, numbers: Sequence[float]) -> BleuCounts:
        counts = [round(number) for number in numbers]
        return cls(tuple(counts[:4]), tuple(counts[4:8]), counts[8], counts[9])

    @property
    def bleu(self) -> float:
        if not self.output_length:
            return 0.0
        lengths = self.output_length, self.reference_length
        return float(BLEU.compute_bleu(list(self.matches), list(self.ngrams), *lengths, smooth_method="exp").score)


def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Return corpus BLEU. `references` has one list per output; the lists may differ in length.

    13a tokenisation, cased, exponential smoothing: sacreBLEU's defaults (Post 2018).
    """
    return _score(BLEU(), outputs, references)


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Return corpus chrF2 over character n-grams up to 6 (Popović 2015): sacreBLEU's defaults."""
    return _score(CHRF(), outputs, references)


def compute_text_metrics(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, str]]:
    """Return BLEU, chrF and exact match, and the definition of each."""
    words, characters = bleu(outputs, references), chrf(outputs, references)
    metrics = {"bleu": words.value, "chrf": characters.value, "exact_match": exact_match(outputs, references)}
    return metrics, {"bleu": words.signature, "chrf": characters.signature, "exact_match": EXACT_MATCH_DEFINITION}


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Return the share of outputs that equal one of their references."""
    return sum(_exact_matches(outputs, references)) / max(1, len(outputs))


def _exact_matches(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    pairs = zip(outputs, references, strict=True)
    return [output.strip() in [text.strip() for text in texts] for output, texts in pairs]


def compute_example_sums(metric: str, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return what each output adds to the metric, (N, sums), as `evaluation.compute_metric` expects it."""
    if metric == "bleu":
        return count_bleu_ngrams(outputs, references)
    if metric == "exact_match":
        return count_correct(_exact_matches(outputs, references))
    raise UsageError(f"{metric!r} has no scores per example.", repair="Choose 'bleu' or 'exact_match'.")


def count_bleu_ngrams(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return what each output adds to the counts of `bleu`, (N, 10), in the order of `BleuCounts.as_tuple`."""
    metric, counts = BLEU(), np.zeros((len(outputs), 10))
    for row, (output, texts) in enumerate(zip(outputs, references, strict=True)):
        score = metric.corpus_score([output], [[text] for text in texts])
        counts[row] = (*score.counts, *score.totals, score.sys_len, score.ref_len)
    return counts


def _score(metric: BLEU | CHRF, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs cannot be compared with references of {len(references)}")
    if not outputs:
        return Score(0.0, "nothing to score")
    # sacreBLEU expects one list per reference number, with None where an output has fewer references.
    max_references = max(len(texts) for texts in references)
    streams: list[list[str | None]] = [
        [texts[at] if at < len(texts) else None for texts in references] for at in range(max_references)
    ]
    score = metric.corpus_score(list(outputs), streams)  # type: ignore[arg-type]
    return Score(float(score.score), f"sacreBLEU {metric.get_signature()}")
