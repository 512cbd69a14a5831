"""Train a language model, measure it, let it write: what `seqwise train`, `evaluate` and `predict` do, from Python.

    python examples/01_language_model.py

It takes some seconds; a minute of training (`budget="60s"`, without the width) writes far better text.
"""
# ruff: noqa: T201

from __future__ import annotations

import seqwise
from seqwise.training.loop import Step


def show(step: Step) -> None:
    """The stream of steps that the terminal draws is yours to read."""
    if step.validation:
        print(f"step {step.number:4}  loss {step.loss:.3f}  valid perplexity {step.validation['perplexity']:6.2f}")


def main() -> None:
    trained = seqwise.train(
        "builtin:docs",  # or a .txt file, a .jsonl file, a folder
        model="lstm",
        budget="200k-tokens",
        settings={"network": {"width": 64}, "training": {"validate_every": 50}},
        on_step=show,
    )
    print(f"\nThe run lies in {trained.run.folder}")

    run = seqwise.load(trained.run.folder)  # as another program would, later
    result = run.evaluate("builtin:docs")
    for name, value in result.metrics.items():
        print(f"{name:20} {value:,.3f}")
    print(f"on {result.on}: {result.how}\n")

    for piece in run.predict("The ", temperature=0.8, seed=1, max_length=80):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
