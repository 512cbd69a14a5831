"""Builds the small Transformer language models of this chapter, by the package's own classes."""

from __future__ import annotations

from torch import Tensor, nn

from seqwise.errors import UsageError, suggest
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel

POSITIONS = ("sinusoidal", "learned", "rotary")


def build_language_model(
    vocabulary: int,
    *,
    width: int,
    depth: int,
    length: int,
    positions: str = "sinusoidal",
    norm: str = "pre",
    heads: int = 4,
) -> LanguageModel:
    """Returns an untrained causal Transformer that reads up to `length` tokens.

    Its output weights are larger than usual, so that predictions depend visibly on the tokens before any training.
    """
    if positions not in POSITIONS:
        raise UsageError(f"there are no {positions!r} positions.", fix=suggest(positions, POSITIONS))
    settings = ResolvedSettings.model_validate(
        {
            "model": "transformer",
            "data": {"window": length},
            "network": {"width": width, "depth": depth, "tie_weights": False},
            "transformer": {"heads": heads, "positions": positions, "norm": norm},
        }
    )
    model = LanguageModel(settings, vocabulary)
    nn.init.normal_(model.head.output.weight, std=width**-0.5)  # type: ignore[arg-type]
    return model


def compute_losses(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Returns the loss of the target at each position (B, T), in nats, given the tokens up to it."""
    vectors = model.backbone(model.embedding(ids)).vectors  # type: ignore[operator]
    return model.head.losses(vectors, targets)  # type: ignore[operator,union-attr]
