"""Learn from text without labels, fill in what is hidden, and start a classifier from what was learned.

    python examples/09_masked.py

It takes some seconds; with a minute of training (`budget="60s"`, without the width) the fillings make sense.
"""
# ruff: noqa: T201

from __future__ import annotations

import numpy as np

import seqwise

SMALL = {"network": {"width": 64}, "device": "cpu"}


def main() -> None:
    filler = seqwise.train("builtin:docs", task="masked", model="lstm", budget="40k-tokens", settings=SMALL)
    found = filler.evaluate("builtin:docs").metrics
    print(f"{found['accuracy']:.1%} of the hidden tokens guessed, perplexity {found['perplexity']:.1f}\n")

    answer = filler.predict("The value of the [MASK] is returned.", top=3)
    print(answer.text, "\n")

    # A word has another vector in another context; layer 0 has one vector per word.
    for layer in (0, 1):
        one, other = (filler.embed(text, layer)[2] for text in ("the old value of it", "a new value is made"))
        print(f"layer {layer}: similarity of 'value' in two texts {cosine(one, other):.3f}")

    classifier = seqwise.train(
        "builtin:modules", task="classify", init=str(filler.run.folder), budget="8k-tokens", device="cpu"
    )
    same = classifier.run.tokenizer.fingerprint == filler.run.tokenizer.fingerprint
    print(f"\nthe classifier is a {classifier.settings.model} with the same vocabulary: {same}")
    print(classifier.predict("Return the value of the header field.", top=3).text)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


if __name__ == "__main__":
    main()
