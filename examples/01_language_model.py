"""Train, evaluate and sample from a language model: `seqwise train`, `evaluate` and `predict` from Python.

    python examples/01_language_model.py

Takes a few seconds; a minute of training (`budget="60s"`, default width) gives far better text.
"""
# ruff: noqa: T201

from __future__ import annotations

import seqwise
from seqwise.training.loop import Step


def print_validation(step: Step) -> None:
    """Callback after each update; `step` holds what the terminal display shows."""
    if step.validation:
        print(f"step {step.number:4}  loss {step.loss:.3f}  valid perplexity {step.validation['perplexity']:6.2f}")


def main() -> None:
    trained_model = seqwise.train(
        "builtin:docs",  # or a .txt file, a .jsonl file, a folder
        model="lstm",
        budget="200k-tokens",
        settings={"network": {"width": 64}, "training": {"validate_every": 50}},
        on_step=print_validation,
    )
    print(f"\nSaved in {trained_model.run.folder}")

    loaded_model = seqwise.load(trained_model.run.folder)  # as in another process
    result = loaded_model.evaluate("builtin:docs")
    for name, value in result.metrics.items():
        print(f"{name:20} {value:,.3f}")
    print(f"on {result.data}: {result.method}\n")

    for piece in loaded_model.predict("The ", temperature=0.8, seed=1, max_length=80):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
