"""Scores captions against all captions of an image. It knows nothing of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.metrics.translation import EXACT_MATCH_DEFINITION, bleu, chrf, compute_example_sums, exact_match
from seqwise.tasks.caption.reader import CaptionedImage
from seqwise.text.patterns import join_words


def get_references(examples: Sequence[CaptionedImage]) -> list[list[str]]:
    """Returns the captions of each image."""
    return [normalize_spacing(example.captions) for example in examples]


def normalize_spacing(captions: Sequence[str]) -> list[str]:
    """Returns captions with spaces where the tokenisers put them, so that data and output can be compared."""
    return [join_words(caption.split()) for caption in captions]


def compute_metrics(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the metrics and their definitions."""
    outputs = normalize_spacing(outputs)
    bleu_score, chrf_score = bleu(outputs, references), chrf(outputs, references)
    metrics = {
        "bleu": bleu_score.value,
        "chrf": chrf_score.value,
        "exact_match": exact_match(outputs, references),
        "distinct": len(set(outputs)) / max(1, len(outputs)),
        "images": len(outputs),
    }
    distinct_in_data = len({captions[0] for captions in references}) / max(1, len(references))
    usual_count = Counter(len(captions) for captions in references).most_common(1)[0][0]
    definitions = {
        "bleu": f"BLEU-4 against all captions of an image (mostly {usual_count}), {bleu_score.signature}",
        "chrf": f"chrF2 against the same, {chrf_score.signature}",
        "exact_match": EXACT_MATCH_DEFINITION,
        "distinct": f"distinct captions divided by images; of the first captions in the data: {distinct_in_data:.2f}",
        "images": "images that were captioned",
    }
    return metrics, definitions


def score_examples(
    metric: str, examples: Sequence[CaptionedImage], outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> ExampleScores:
    """Returns what each image contributes to BLEU or to the exact matches."""
    outputs = normalize_spacing(outputs)
    texts = tuple(
        ExampleText.single_line(example.image, " / ".join(captions), output)
        for example, captions, output in zip(examples, references, outputs)
    )
    return ExampleScores(metric, "images", compute_example_sums(metric, outputs, references), texts)
