"""Train a classifier, measure it, see which words it looks at: one label for a whole text.

    python examples/04_classify.py

Docstrings of Python's standard library, with the names of their modules hidden: to which module does each belong?
"""
# ruff: noqa: T201

from __future__ import annotations

import torch

import seqwise
from seqwise.layers.record import record

TEXT = "Move forward, then draw a circle of the given radius."


def main() -> None:
    trained = seqwise.train(
        "builtin:modules",  # or a .csv, .tsv or .jsonl file with text and label, or a folder
        task="classify",
        model="gru",
        budget="150k-tokens",
        settings={
            "network": {"width": 64},
            "data": {"max_length": 60},
            "classify": {"pooling": "attention"},
            "training": {"learning_rate": 0.02, "validate_every": 100},
        },
        on_step=lambda step: step.validation and print(f"step {step.number}  valid {step.validation['accuracy']:.3f}"),
    )
    result = trained.evaluate("builtin:modules")
    for name in ("accuracy", "macro_f1"):
        print(f"{name:10} {result.metrics[name]:.3f}   {result.definitions[name]}")

    answer = trained.predict(TEXT)
    print(f"\n{TEXT}\n{answer.text}")

    # How much of the answer each word was: the weights of attention pooling.
    words = trained.run.preprocessor.tokenizer.encode(TEXT)
    ids, lengths = torch.from_numpy(words.ids)[None], torch.tensor([len(words)])
    with record(trained.model, "head.pooling.weights") as seen, torch.no_grad():
        trained.model.scores(ids, lengths)
    for (start, stop), weight in zip(words.offsets, seen["head.pooling.weights"][0].tolist()):
        print(f"{TEXT[start:stop]:>12} {weight:.2f} {'█' * round(40 * weight)}")


if __name__ == "__main__":
    main()
