"""Images → captions: train on generated shapes, evaluate, caption an image, and record where the decoder attends.

    python examples/07_caption.py

Takes a few seconds, so the captions are poor; three minutes (`budget="3m"`, default width) describe nearly all images
exactly.
"""
# ruff: noqa: T201

from __future__ import annotations

import torch

import seqwise
from seqwise.layers.record import record
from seqwise.tasks.caption.shapes import draw_shapes


def main() -> None:
    trained_model = seqwise.train(
        "builtin:shapes",  # or a folder with captions.csv and images/
        task="caption",
        model="gru",
        budget="12k-tokens",
        settings={"network": {"width": 32}, "training": {"validate_every": 1000}},
    )
    loaded_model = seqwise.load(trained_model.run.folder)
    result = loaded_model.evaluate("builtin:shapes")
    for name, value in result.metrics.items():
        print(f"{name:12} {value:8.2f}   {result.definitions[name]}")

    images, captions = draw_shapes()
    (caption,) = loaded_model.predict(["builtin:shapes/3"])
    print(f"\nin the data: {captions[3]}\ngenerated:   {caption.text}")

    # The regions of an image are a 4 × 4 grid; the decoder attends to them once per word.
    model, bos_id = loaded_model.model.eval(), loaded_model.run.preprocessor.tokenizer.id("<bos>")
    with record(model, "*weights") as recording, torch.no_grad():
        memory = model.encode(torch.from_numpy(images[3:4]))
        model.decoder.next(torch.tensor([[bos_id]]), None, memory)
    (weights,) = recording.values()
    print(f"before the first word it attends most to region {int(weights.argmax())} of {weights.shape[-1]}")


if __name__ == "__main__":
    main()
