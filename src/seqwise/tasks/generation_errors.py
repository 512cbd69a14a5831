"""Errors of generated texts (translations, captions) against their references. The module knows nothing of models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics import CHRF

from seqwise.metrics.translation import compute_example_sums, compute_text_metrics
from seqwise.tasks.error_report import NUM_WORST, Listing, Metric, ScoredItems, SliceGroup

CHRF_METRIC = Metric("chrF", definition="mean chrF2 of single outputs against their references (sacreBLEU), 0 to 100")
EXACT_MATCH = Metric("exact match", "exact_match", definition="share of outputs equal to a reference")
RATIO_NAMES = ("outputs shorter than 0.8 × reference", "outputs of 0.8 to 1.25 × reference",
               "outputs longer than 1.25 × reference")  # fmt: skip


def score_outputs(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the sentence-level chrF2 of each output, (N,)."""
    metric = CHRF()
    return np.array([metric.sentence_score(each, list(texts)).score for each, texts in zip(outputs, references)])


def build_items(metric: str, outputs: Sequence[str], references: Sequence[Sequence[str]], name: str) -> ScoredItems:
    """Returns the outputs as items: exact matches if that is the run's metric, else sentence-level chrF."""
    if metric == "exact_match":
        chosen, sums = EXACT_MATCH, compute_example_sums(metric, outputs, references)
    else:
        scores = score_outputs(outputs, references)
        chosen, sums = CHRF_METRIC, np.stack([scores, np.ones(len(scores))], axis=1)
    return ScoredItems(chosen, name, sums, np.arange(len(outputs)), len(outputs), name)


def compute_length_ratios(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the characters of each output divided by those of the reference that is closest in length, (N,)."""
    return np.array([
        len(output) / max(1, min((len(text) for text in texts), key=lambda length: abs(length - len(output))))
        for output, texts in zip(outputs, references)
    ])  # fmt: skip


def group_ratios(items: ScoredItems, ratios: np.ndarray) -> SliceGroup:
    """Returns slices of outputs that are too short, of about the right length, and too long."""
    return items.group("length ratio", RATIO_NAMES, (ratios >= 0.8).astype(np.int64) + (ratios > 1.25))


def compute_metrics(
    outputs: Sequence[str], references: Sequence[Sequence[str]], ratios: np.ndarray
) -> dict[str, float]:
    """Returns BLEU, chrF and exact match of all outputs, and their median length ratio."""
    metrics, _ = compute_text_metrics(outputs, references)
    return {**metrics, "length_ratio": float(np.median(ratios))}


def list_worst(
    items: ScoredItems,
    inputs: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    input_title: str,
) -> Listing:
    """Returns the outputs with the lowest chrF; `input_title` is the title of the column of inputs."""
    scores = items.sums[:, 0] if items.metric is CHRF_METRIC else score_outputs(outputs, references)
    rows = [
        (float(scores[index]), inputs[index], " | ".join(references[index]), outputs[index])
        for index in np.argsort(scores, kind="stable")[:NUM_WORST]
        if outputs[index].strip() not in [text.strip() for text in references[index]]
    ]
    note = "The lowest chrF2 of single outputs. A good output may differ from its reference: read before judging."
    return Listing("Worst examples", ("chrF", input_title, "expected", "predicted"), rows, note)
