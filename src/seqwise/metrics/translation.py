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

EXACT_MATCH_DEFINITION = "share of outputs equal to a reference, ignoring leading and trailing whitespace"


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 with the sacreBLEU signature that makes it comparable."""

    value: float
    signature: str


def compute_bleu(outputs: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False) -> Score:
    """Returns corpus BLEU. `references` has one list per output; the lists may differ in length.

    13a tokenisation, cased unless `lowercase`, exponential smoothing: sacreBLEU's defaults (Post 2018).
    """
    return _compute_score(BLEU(lowercase=lowercase), outputs, references)


def compute_chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Returns corpus chrF2 over character n-grams up to 6 (Popović 2015): sacreBLEU's defaults."""
    return _compute_score(CHRF(), outputs, references)


def compute_text_metrics(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns BLEU, chrF and exact match, and the definition of each."""
    bleu, chrf = compute_bleu(outputs, references), compute_chrf(outputs, references)
    metrics = {"bleu": bleu.value, "chrf": chrf.value, "exact_match": compute_exact_match(outputs, references)}
    definitions = {"bleu": bleu.signature, "chrf": chrf.signature, "exact_match": EXACT_MATCH_DEFINITION}
    return metrics, definitions


def compute_exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Returns the share of outputs that equal one of their references."""
    return sum(_find_exact_matches(outputs, references)) / max(1, len(outputs))


def _find_exact_matches(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """Returns whether each output equals one of its references."""
    pairs = zip(outputs, references, strict=True)
    return [output.strip() in [text.strip() for text in texts] for output, texts in pairs]


def compute_example_sums(metric: str, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns what each output adds to the metric, (N, sums), as `evaluation.compute_metric` expects it."""
    if metric == "bleu":
        return count_bleu_ngrams(outputs, references)
    if metric == "exact_match":
        return count_correct(_find_exact_matches(outputs, references))
    raise UsageError(f"{metric!r} has no scores per example.", fix="Choose 'bleu' or 'exact_match'.")


def count_bleu_ngrams(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns what each output adds to the counts of BLEU, (N, 10): matches and n-grams of 1 to 4 words, both lengths.

    The sum over all outputs gives the counts of the corpus.
    """
    metric, counts = BLEU(), np.zeros((len(outputs), 10))
    for index, (output, texts) in enumerate(zip(outputs, references, strict=True)):
        score = metric.corpus_score([output], [[text] for text in texts])
        counts[index] = (*score.counts, *score.totals, score.sys_len, score.ref_len)
    return counts


def compute_bleu_from_counts(counts: Sequence[float]) -> float:
    """Returns the BLEU of counts (10,) that were summed over outputs."""
    *ngrams, output_length, reference_length = map(round, counts)
    if not output_length:
        return 0.0
    score = BLEU.compute_bleu(ngrams[:4], ngrams[4:], output_length, reference_length, smooth_method="exp")
    return float(score.score)


def _compute_score(metric: BLEU | CHRF, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs cannot be compared with the references of {len(references)} outputs")
    if not outputs:
        return Score(0.0, "nothing to score")
    # sacreBLEU expects one list of first references, one of second references, …, with None where an output has fewer.
    max_references = max(len(texts) for texts in references)
    streams: list[list[str | None]] = [
        [texts[index] if index < len(texts) else None for texts in references] for index in range(max_references)
    ]
    score = metric.corpus_score(list(outputs), streams)  # type: ignore[arg-type]
    return Score(float(score.score), f"sacreBLEU {metric.get_signature()}")
