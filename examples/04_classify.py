"""Train and evaluate a text classifier, and print the attention weight of each word.

    python examples/04_classify.py

The texts are docstrings of Python's standard library without module names; the label is the module.
"""
# ruff: noqa: T201

from __future__ import annotations

import torch

import seqwise
from seqwise.layers.record import record

TEXT = "Move forward, then draw a circle of the given radius."


def main() -> None:
    trained_model = seqwise.train(
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
    result = trained_model.evaluate("builtin:modules")
    for name in ("accuracy", "macro_f1"):
        print(f"{name:10} {result.metrics[name]:.3f}   {result.definitions[name]}")

    prediction = trained_model.predict(TEXT)
    print(f"\n{TEXT}\n{prediction.text}")

    # The pooled vector of the text is the mean of the encoder states with these attention weights.
    tokens = trained_model.run.preprocessor.tokenizer.encode(TEXT)
    ids, lengths = torch.from_numpy(tokens.ids)[None], torch.tensor([len(tokens)])
    with record(trained_model.model, "head.pooling.weights") as recording, torch.no_grad():
        trained_model.model.scores(ids, lengths)
    for (start, end), weight in zip(tokens.offsets, recording["head.pooling.weights"][0].tolist()):
        print(f"{TEXT[start:end]:>12} {weight:.2f} {'█' * round(40 * weight)}")


if __name__ == "__main__":
    main()
