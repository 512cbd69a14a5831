"""Tag the tokens of Python code with their kinds: words and their characters, bidirectional GRU.

    python examples/05_tag.py

Takes a few seconds. The kind of a name depends on its context: `read` is a method after a dot and before a bracket, a
keyword argument before an equals sign inside brackets, a variable elsewhere.
"""
# ruff: noqa: T201

from __future__ import annotations

import seqwise
from seqwise.layers.record import record
from seqwise.training.loop import Step


def print_validation(step: Step) -> None:
    if step.validation:
        print(f"step {step.number:4}  loss {step.loss:.3f}  valid accuracy {step.validation['token_accuracy']:.4f}")


def main() -> None:
    trained_model = seqwise.train(
        "builtin:code",  # or a file with a word and its tag per line, or .jsonl with tokens and tags
        task="tag",
        model="gru",
        budget="30k-tokens",
        settings={"training": {"batch_size": 8, "validate_every": 100}},
        on_step=print_validation,
    )
    result = trained_model.evaluate("builtin:code")
    print(f"\ntoken accuracy {result.metrics['token_accuracy']:.4f} on {result.data}\n")

    line = "data = file.read(size, read=read)"
    with record(trained_model.model, "head.scores") as recording:
        prediction = trained_model.predict(line)
    probabilities = recording["head.scores"][0].softmax(dim=-1).amax(dim=-1)
    for word, tag, probability in zip(prediction.values["tokens"], prediction.values["tags"], probabilities):
        print(f"{word:8} {tag:10} {probability:.3f}")


if __name__ == "__main__":
    main()
