"""Builds the small Transformer language models of this chapter, by the package's own classes."""

from __future__ import annotations

import torch

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel


def build_language_model(
    vocabulary: int, *, width: int, depth: int, heads: int, length: int, positions: str = "sinusoidal"
) -> LanguageModel:
    """Returns an untrained causal Transformer (pre-norm) that reads up to `length` tokens.

    Its embedding is larger than usual, so that predictions depend visibly on the tokens without any training.
    """
    settings = ResolvedSettings.model_validate(
        {
            "model": "transformer",
            "data": {"window": length},
            "network": {"width": width, "depth": depth, "tie_weights": False},
            "transformer": {"heads": heads, "positions": positions},
        }
    )
    model = LanguageModel(settings, vocabulary)
    with torch.no_grad():
        model.embedding.weight.normal_(std=width**-0.5)
        model.head.output.weight.normal_(std=width**-0.5)  # type: ignore[operator,union-attr]
    return model
