"""Translate written dates to ISO dates: train, evaluate, predict, and print the attention over the source.

    python examples/06_translate.py

Takes a few seconds, so many dates are wrong; three minutes (`budget="3m"`, default settings) get nearly all right.
"""
# ruff: noqa: T201

from __future__ import annotations

import seqwise
from seqwise.layers.record import record
from seqwise.training.loop import Step


def print_validation(step: Step) -> None:
    if step.validation:
        print(f"step {step.number:4}  loss {step.loss:.3f}  valid exact {step.validation['exact_match']:6.1%}")


def main() -> None:
    trained_model = seqwise.train(
        "builtin:dates",  # or a folder with train.en and train.de, or a table with source and target
        task="translate",
        model="gru",
        budget="60k-tokens",
        settings={
            "network": {"width": 64},
            "translate": {"attention": "general"},
            "training": {"validate_every": 30, "learning_rate": 0.01},
        },
        on_step=print_validation,
    )
    result = trained_model.evaluate("builtin:dates", beam=5)
    print(f"\nexact {result.metrics['exact_match']:.1%}, BLEU {result.metrics['bleu']:.1f} on {result.data}")
    print(f"{result.definitions['bleu']}\n")

    source = "Sunday, May 3rd, 1998"
    prediction = trained_model.predict(source, beam=5, n_best=3)
    print(f"{source}\n{prediction.text}\n")

    with record(trained_model.model, "decoders.0.decoder.weights") as recording:
        translation = trained_model.predict(source).values["translation"]
    attention = recording.every("decoders.0.decoder.weights")  # one per output character: (1, 1, S)
    for character, weights in zip(translation, attention):
        bars = "".join(" .:-=+*#%@"[int(9.99 * weight)] for weight in weights[0, -1].tolist())
        print(f"{character}  |{bars}|")
    print(f"   |{source}|")


if __name__ == "__main__":
    main()
