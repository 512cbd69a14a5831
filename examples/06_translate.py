"""Written dates → ISO dates: train a translator, measure it, ask it, and see where it looks while it writes.

    python examples/06_translate.py

It takes some seconds, so it is often wrong; three minutes (`budget="3m"`, without the settings) get nearly all right.
"""
# ruff: noqa: T201

from __future__ import annotations

import seqwise
from seqwise.layers.record import record
from seqwise.training.loop import Step


def show(step: Step) -> None:
    if step.validation:
        print(f"step {step.number:4}  loss {step.loss:.3f}  valid exact {step.validation['exact_match']:6.1%}")


def main() -> None:
    trained = seqwise.train(
        "builtin:dates",  # or a folder with train.en and train.de, or a table with source and target
        task="translate",
        model="gru",
        budget="60k-tokens",
        settings={
            "network": {"width": 64},
            "translate": {"attention": "general"},
            "training": {"validate_every": 30, "learning_rate": 0.01},
        },
        on_step=show,
    )
    result = trained.evaluate("builtin:dates", beam=5)
    print(f"\nexact {result.metrics['exact_match']:.1%}, BLEU {result.metrics['bleu']:.1f} on {result.on}")
    print(f"{result.definitions['bleu']}\n")

    written = "Sunday, May 3rd, 1998"
    best = trained.predict(written, beam=5, n_best=3)
    print(f"{written}\n{best.text}\n")

    with record(trained.model, "writers.0.decoder.weights") as seen:
        answer = trained.predict(written).values["translation"]
    steps = seen.every("writers.0.decoder.weights")  # one per written character: (1, 1, S)
    for character, weights in zip(answer, steps):
        bars = "".join(" .:-=+*#%@"[int(9.99 * share)] for share in weights[0, -1].tolist())
        print(f"{character}  |{bars}|")
    print(f"   |{written}|")


if __name__ == "__main__":
    main()
