"""What do the gates of a trained LSTM do? Record them, layer by layer and character by character.

    python examples/02_look_inside_an_lstm.py

Takes a few seconds.
"""
# ruff: noqa: T201

from __future__ import annotations

import math

import torch
from torch import nn

import seqwise

TEXT = "The following statement is executed in a new scope."


def main() -> None:
    settings = {"network": {"width": 64, "depth": 2}, "training": {"validate_every": 100}}
    trained_model = seqwise.train("builtin:docs", model="lstm", budget="100k-tokens", settings=settings)
    model, tokenizer = trained_model.model, trained_model.run.tokenizer
    assert isinstance(model, nn.Module)  # an n-gram model has no gates

    ids = torch.tensor(tokenizer.encode(TEXT).ids)[None]
    with torch.no_grad(), seqwise.record(model) as recording:
        model.next(ids)

    print("recorded:", ", ".join(name for name in recording if ".layer.0." in name))
    for layer in range(2):
        forget = recording[f"backbone.stack.layer.{layer}.lstm.forget"]  # (B, T, U)
        mean = forget.mean().item()
        half_life = math.log(0.5) / math.log(mean)  # of a cell whose gate is always at the mean
        print(f"layer {layer}: mean forget gate {mean:.3f}, half-life {half_life:.1f} characters")

    print("\nforget gate of layer 1 at each character, mean over its units")
    means = recording["backbone.stack.layer.1.lstm.forget"][0].mean(-1).tolist()
    for character, mean in list(zip(TEXT, means))[:16]:
        print(f"  {character!r:4} {mean:.3f} {'█' * round(60 * mean)}")


if __name__ == "__main__":
    main()
