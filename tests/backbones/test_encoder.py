"""Bidirectional encoders, whose directions are concatenated in every layer or at the end; the states of every layer."""

from __future__ import annotations

import pytest
import torch

from seqwise.backbones.encoder import BidirectionalBackbone, SeparateDirections, build_encoder, compute_layer_states
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def build_small_encoder(model: str, **recurrent: object) -> torch.nn.Module:
    values = {"network": {"width": 8, "depth": 3}, "transformer": {"heads": 2}, "context": {"length": 3}}
    torch.manual_seed(0)
    return build_encoder(
        ResolvedSettings.model_validate(values | {"model": model, "recurrent": recurrent}), 5, 12
    ).eval()


def draw_vectors(rows: int = 2, time: int = 6) -> torch.Tensor:
    return torch.randn(rows, time, 5, generator=torch.Generator().manual_seed(1))


def test_the_setting_concat_directions_chooses_the_encoder_class():
    assert isinstance(build_small_encoder("lstm", bidirectional=True), BidirectionalBackbone)
    assert isinstance(build_small_encoder("lstm", bidirectional=True, concat_directions=True), BidirectionalBackbone)
    assert isinstance(build_small_encoder("lstm", bidirectional=True, concat_directions=False), SeparateDirections)
    assert isinstance(build_small_encoder("attentive-rnn", bidirectional=True), SeparateDirections)


@pytest.mark.parametrize("concat_directions", [True, False])
@pytest.mark.parametrize("model", ["rnn", "gru", "lstm", "attentive-rnn"])
def test_the_width_counts_both_directions(model: str, concat_directions: bool):
    encoder = build_small_encoder(model, bidirectional=True, concat_directions=concat_directions)
    assert encoder.width == 8
    assert encoder(draw_vectors()).vectors.shape == (2, 6, 8)


@pytest.mark.parametrize("model", ["rnn", "gru", "lstm", "attentive-rnn"])
def test_separate_directions_are_two_backbones_one_reading_in_reverse(model: str):
    encoder, x = build_small_encoder(model, bidirectional=True, concat_directions=False), draw_vectors()
    out = encoder(x).vectors
    assert torch.equal(out[..., :4], encoder.forward_layer(x).vectors)
    assert torch.equal(out[..., 4:], encoder.backward_layer(x.flip(1)).vectors.flip(1))


@pytest.mark.parametrize("model", ["rnn", "gru", "lstm", "attentive-rnn"])
def test_padding_changes_nothing(model: str):
    encoder, x = build_small_encoder(model, bidirectional=True, concat_directions=False), draw_vectors(1, 4)
    padded = torch.cat([x, torch.full((1, 2, 5), torch.nan)], dim=1)
    out = encoder(padded, lengths=torch.tensor([4])).vectors
    assert torch.allclose(out[:, :4], encoder(x).vectors, atol=1e-6)


@pytest.mark.parametrize(("bidirectional", "concat_directions"), [(False, None), (True, True), (True, False)])
@pytest.mark.parametrize("model", FAMILIES)
def test_the_last_layer_states_are_the_encoder_output(model: str, bidirectional: bool, concat_directions: bool | None):
    encoder, x = (
        build_small_encoder(model, bidirectional=bidirectional, concat_directions=concat_directions),
        draw_vectors(),
    )
    lengths = torch.tensor([6, 4])
    layers = compute_layer_states(encoder, x, lengths)
    assert torch.equal(layers[0], x)
    assert [layer.shape for layer in layers[1:]] == [(2, 6, 8)] * 3
    assert torch.equal(layers[-1], encoder(x, lengths=lengths).vectors)
    assert not torch.allclose(layers[1], layers[2])


def test_the_first_layer_of_a_stack_equals_a_stack_of_one_layer():
    """A stack of depth 1 with the weights of the first layer gives the states of layer 1."""
    deep, x = build_small_encoder("gru", bidirectional=True, concat_directions=False), draw_vectors()
    first = torch.cat(
        [deep.forward_layer.stack.layer[0](x)[0], deep.backward_layer.stack.layer[0](x.flip(1))[0].flip(1)], dim=-1
    )
    assert torch.equal(compute_layer_states(deep, x)[1], first)


def test_layer_states_of_a_centred_window_are_aligned_with_their_positions():
    encoder, x = build_small_encoder("feedforward"), draw_vectors()
    changed = x.clone()
    changed[:, 0] += 1
    before, after = compute_layer_states(encoder, x), compute_layer_states(encoder, changed)
    for layer in (1, 2, 3):
        has_changed = (before[layer] != after[layer]).any(dim=-1)[0]
        assert has_changed.tolist() == [True, True, False, False, False, False]  # a window of three


def test_layer_states_of_a_module_without_layers_are_rejected():
    with pytest.raises(UsageError, match="Linear"):
        compute_layer_states(torch.nn.Linear(2, 2), draw_vectors())
