"""What a new Transformer adds to its inputs, and at which scale."""

from __future__ import annotations

import pytest
import torch

from seqwise.backbones.image import PatchEncoder
from seqwise.backbones.transformer import TransformerBackbone, TransformerDecoder
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.positions import LearnedPositions, SinusoidalPositions
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings

WIDTH, WINDOW = 64, 32


def build(positions: str, inputs: int = WIDTH) -> TransformerBackbone:
    torch.manual_seed(0)
    transformer = {"heads": 2, "hidden": 4 * WIDTH, "positions": positions}
    settings = {"network": {"width": WIDTH, "depth": 1}, "transformer": transformer}
    return TransformerBackbone(ResolvedSettings.model_validate(settings), inputs, WINDOW).eval()


@pytest.mark.parametrize(
    ("positions", "position_class"),
    [("sinusoidal", SinusoidalPositions), ("learned", LearnedPositions), ("rotary", type(None)), ("none", type(None))],
)
def test_the_positions_of_the_settings_are_built(positions, position_class):
    assert type(build(positions).positions) is position_class


@pytest.mark.parametrize("inputs", [WIDTH, 48])
@pytest.mark.parametrize(("positions", "ratio"), [("sinusoidal", 2.0), ("learned", 1.0)])
def test_positions_do_not_dominate_the_vectors_they_are_added_to(positions, ratio, inputs):
    """Sines and cosines have variance ½, inputs 1, as published; learned positions are initialised like inputs."""
    backbone = build(positions, inputs)
    x = 0.02 * torch.randn(64, WINDOW, inputs)
    with record(backbone, "positions.*") as recording:
        backbone(x)
    position_vectors = recording["positions.positions"]
    input_vectors = backbone.factor * backbone.input_projection(x)
    assert input_vectors.var().item() / position_vectors.square().mean().item() == pytest.approx(ratio, rel=0.1)


def test_attention_dropout_reaches_all_attention_and_acts_in_training_only():
    network = {"width": 8, "depth": 2, "dropout": 0.0}
    values = {"network": network, "transformer": {"heads": 2, "hidden": 8, "attention_dropout": 0.5}}
    settings = ResolvedSettings.model_validate(values)
    backbone = TransformerBackbone(settings, 8, WINDOW)
    others = TransformerDecoder(settings, 8, 8, WINDOW), PatchEncoder(8, 16, 4, 1, settings.transformer)
    for module in (backbone, *others):
        rates = [each.dropout for each in module.modules() if isinstance(each, MultiHeadAttention)]
        assert rates
        assert set(rates) == {0.5}
    x = torch.randn(2, 6, 8)
    assert not torch.equal(backbone(x).vectors, backbone(x).vectors)
    backbone.eval()
    assert torch.equal(backbone(x).vectors, backbone(x).vectors)
