"""Every backbone through the same checks, as a language model uses it."""

from __future__ import annotations

import pytest
import torch

from seqwise.backbones.encoder import build_backbone
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings

WIDTH, WINDOW = 8, 6
VARIANTS = {
    "feedforward": {"model": "feedforward", "context": {"length": 3}},
    "rnn": {"model": "rnn"},
    "gru": {"model": "gru"},
    "gru reset before, z replaces": {"model": "gru", "recurrent": {"reset": "before", "update": "replaces"}},
    "lstm": {"model": "lstm"},
    "lstm layer norm": {"model": "lstm", "recurrent": {"layer_norm": True}},
    "attentive": {"model": "attentive-rnn", "recurrent": {"attention_span": 4}},
    "transformer": {"model": "transformer"},
    "transformer post-norm": {"model": "transformer", "transformer": {"norm": "post", "positions": "sinusoidal"}},
    "transformer learned positions": {"model": "transformer", "transformer": {"positions": "learned"}},
    "transformer no positions": {"model": "transformer", "transformer": {"positions": "none", "activation": "relu"}},
}


def build(variant: str, inputs: int = WIDTH):
    values = VARIANTS[variant] | {"network": {"width": WIDTH, "depth": 2}, "data": {"window": WINDOW}}
    settings = ResolvedSettings.model_validate(values)
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return build_backbone(settings, inputs).double().eval()


def draw_vectors(time: int = WINDOW, rows: int = 2) -> torch.Tensor:
    return torch.randn(rows, time, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


each_variant = pytest.mark.parametrize("variant", VARIANTS)


@each_variant
def test_one_vector_per_position(variant):
    assert build(variant)(draw_vectors()).vectors.shape == (2, WINDOW, WIDTH)
    assert build(variant, inputs=5)(draw_vectors()[..., :5]).vectors.shape == (2, WINDOW, WIDTH)


@each_variant
def test_later_inputs_do_not_change_earlier_outputs(variant):
    backbone, x = build(variant), draw_vectors()
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = backbone(x).vectors, backbone(changed).vectors
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 4:], after[:, 4:])


@each_variant
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_continuing_from_a_state_equals_the_whole_sequence(variant, cut):
    backbone, x = build(variant), draw_vectors()
    expected = backbone(x).vectors
    first = backbone(x[:, :cut])
    second = backbone(x[:, cut:], first.state)
    torch.testing.assert_close(torch.cat([first.vectors, second.vectors], 1), expected)


@each_variant
def test_one_token_at_a_time_equals_the_whole_sequence(variant):
    backbone, x = build(variant), draw_vectors()
    state, outputs = None, []
    for t in range(WINDOW):
        states = backbone(x[:, t : t + 1], state)
        state = states.state
        outputs.append(states.vectors)
    torch.testing.assert_close(torch.cat(outputs, 1), backbone(x).vectors)


@each_variant
def test_rows_are_independent(variant):
    backbone, x = build(variant), draw_vectors(rows=3)
    together = backbone(x).vectors
    torch.testing.assert_close(together[1:2], backbone(x[1:2]).vectors)


LENGTHS = torch.tensor([WINDOW, 3, 1])


@each_variant
def test_padding_does_not_change_valid_positions(variant):
    backbone, x = build(variant), draw_vectors(rows=3)
    padded = backbone(x, None, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        without_padding = backbone(x[row : row + 1, :length]).vectors
        torch.testing.assert_close(padded.vectors[row : row + 1, :length], without_padding)
    if backbone.stateful:
        assert padded.vectors[1, 3:].abs().max() == 0


@each_variant
def test_the_state_of_padded_rows_is_that_after_their_last_valid_step(variant):
    """A continued row equals the same row without padding; a Transformer returns no state for padded rows."""
    backbone, x, continuation = build(variant), draw_vectors(rows=3), draw_vectors(time=4)[:1].expand(3, -1, -1)
    state = backbone(x, None, LENGTHS).state
    if not backbone.stateful:
        assert state is None
        with pytest.raises(UsageError, match="cannot be continued together"):
            backbone(continuation, backbone(x).state, LENGTHS)
        return
    continued = backbone(continuation, state).vectors
    for row, length in enumerate(LENGTHS.tolist()):
        without_padding = torch.cat([x[row : row + 1, :length], continuation[:1]], dim=1)
        torch.testing.assert_close(continued[row : row + 1], backbone(without_padding).vectors[:, length:])


@each_variant
def test_recording_does_not_change_the_result(variant):
    backbone, x = build(variant), draw_vectors()
    expected = backbone(x).vectors
    with record(backbone) as recording:
        recorded = backbone(x).vectors
    assert torch.equal(expected, recorded)
    assert len(recording) > 0


def test_only_the_recorded_model_is_recorded():
    with record(build("lstm")) as recording:
        build("lstm")(draw_vectors())
    assert len(recording) == 0


def test_recorded_names_are_stable():
    backbone = build("lstm")
    with record(backbone) as recording:
        backbone(draw_vectors())
    assert "stack.layer.0.lstm.forget" in recording
    assert recording["stack.layer.1.lstm.cell"].shape == (2, WINDOW, WIDTH)
    transformer = build("transformer")
    with record(transformer) as recording:
        transformer(draw_vectors())
    assert recording["encoder.layer.1.attention.weights"].shape == (2, 2, WINDOW, WINDOW)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.startswith("transformer")])
def test_a_full_cache_is_rebuilt_from_half_a_window(variant):
    """Far beyond the window, each output equals one computed without a cache from at least half a window."""
    backbone, x = build(variant), draw_vectors(time=4 * WINDOW)
    state = None
    for t in range(4 * WINDOW):
        states = backbone(x[:, t : t + 1], state)
        state = states.state
        cached = state[0].shape[1]
        assert cached <= WINDOW
        recomputed = backbone(x[:, t + 1 - cached : t + 1]).vectors[:, -1:]
        torch.testing.assert_close(states.vectors, recomputed)
        assert cached >= min(t + 1, WINDOW // 2)
