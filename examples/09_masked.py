"""Train a masked language model on unlabelled text, fill in masks, and fine-tune a classifier from it.

    python examples/09_masked.py

Takes a few seconds; after a minute of training (`budget="60s"`, default width) the predictions make sense.
"""
# ruff: noqa: T201

from __future__ import annotations

import numpy as np

import seqwise

SMALL_MODEL = {"network": {"width": 64}, "device": "cpu"}


def main() -> None:
    masked_lm = seqwise.train("builtin:docs", task="masked", model="lstm", budget="40k-tokens", settings=SMALL_MODEL)
    metrics = masked_lm.evaluate("builtin:docs").metrics
    print(f"{metrics['accuracy']:.1%} of the masked tokens predicted, perplexity {metrics['perplexity']:.1f}\n")

    prediction = masked_lm.predict("The value of the [MASK] is returned.", top=3)
    print(prediction.text, "\n")

    # Layer 0 is the embedding, the same in every context; the vectors of layer 1 depend on the context.
    for layer in (0, 1):
        first, second = (masked_lm.embed(text, layer)[2] for text in ("the old value of it", "a new value is made"))
        cosine = compute_cosine_similarity(first, second)
        print(f"layer {layer}: cosine similarity of 'value' in two texts {cosine:.3f}")

    classifier = seqwise.train(
        "builtin:modules", task="classify", init=str(masked_lm.run.folder), budget="8k-tokens", device="cpu"
    )
    same_vocabulary = classifier.run.tokenizer.fingerprint == masked_lm.run.tokenizer.fingerprint
    print(f"\nmodel of the classifier: {classifier.settings.model}, same vocabulary: {same_vocabulary}")
    print(classifier.predict("Return the value of the header field.", top=3).text)


def compute_cosine_similarity(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


if __name__ == "__main__":
    main()
