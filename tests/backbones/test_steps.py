"""A step over fixed memory computes what the backbone computes, for every family and variant."""

from __future__ import annotations

import pytest
import torch

from seqwise.backbones.encoder import build_backbone
from seqwise.backbones.states import map_state
from seqwise.backbones.steps import build_step
from seqwise.layers.cells import LSTMCell
from seqwise.layers.recurrent import Recurrent
from seqwise.resolved_settings import ResolvedSettings

WIDTH, WINDOW, STEPS = 8, 6, 17
VARIANTS = {
    "feedforward": {"model": "feedforward", "context": {"length": 3}},
    "feedforward of one vector": {"model": "feedforward", "context": {"length": 1}},
    "rnn": {"model": "rnn"},
    "rnn sigmoid": {"model": "rnn", "recurrent": {"activation": "sigmoid"}},
    "rnn relu": {"model": "rnn", "recurrent": {"activation": "relu"}},
    "gru": {"model": "gru"},
    "gru z replaces": {"model": "gru", "recurrent": {"update": "replaces"}},
    "gru reset before": {"model": "gru", "recurrent": {"reset": "before"}},
    "gru layer norm": {"model": "gru", "recurrent": {"layer_norm": True}},
    "lstm": {"model": "lstm"},
    "lstm layer norm": {"model": "lstm", "recurrent": {"layer_norm": True}},
    "attentive-rnn": {"model": "attentive-rnn", "recurrent": {"attention_span": 4}},
    "attentive-rnn of one state": {"model": "attentive-rnn", "recurrent": {"attention_span": 1}},
    "transformer": {"model": "transformer"},
    "transformer post-norm": {"model": "transformer", "transformer": {"norm": "post", "positions": "sinusoidal"}},
    "transformer learned positions": {"model": "transformer", "transformer": {"positions": "learned"}},
    "transformer no positions": {"model": "transformer", "transformer": {"positions": "none", "activation": "relu"}},
}


def build(variant: str, inputs: int = WIDTH, window: int = WINDOW):
    values = VARIANTS[variant] | {"network": {"width": WIDTH, "depth": 2}, "data": {"window": window}}
    settings = ResolvedSettings.model_validate(values)
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return build_backbone(settings, inputs).double().eval()


def draw_vectors(rows: int, time: int, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(rows, time, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def read_on(backbone, x: torch.Tensor, state) -> torch.Tensor:
    """Returns the outputs of the backbone itself, one vector at a time."""
    outputs = []
    for t in range(x.shape[1]):
        states = backbone(x[:, t : t + 1], state)
        state = states.state
        outputs.append(states.vectors[:, 0])
    return torch.stack(outputs, 1)


def advance(step, x: torch.Tensor) -> torch.Tensor:
    outputs = []
    for t in range(x.shape[1]):
        step.prepare_cache()
        outputs.append(step.advance(x[:, t]).clone())
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("rows", "prompt"), [(1, 1), (2, 4), (1, WINDOW)])
@torch.inference_mode()
def test_steps_equal_the_backbone(variant, rows, prompt):
    backbone, x = build(variant), draw_vectors(rows, prompt + STEPS)
    state = backbone(x[:, :prompt]).state
    expected = read_on(backbone, x[:, prompt:], state)
    torch.testing.assert_close(advance(build_step(backbone, state), x[:, prompt:]), expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [1, 5, 11])
@torch.inference_mode()
def test_the_backbone_continues_from_the_state_of_a_step(variant, count):
    backbone, x = build(variant), draw_vectors(2, STEPS)
    first = backbone(x[:, :2]).state
    expected = read_on(backbone, x[:, 2:], first)
    step = build_step(backbone, first)
    advance(step, x[:, 2 : 2 + count])
    torch.testing.assert_close(read_on(backbone, x[:, 2 + count :], step.get_state()), expected[:, count:])


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_a_step_changes_neither_the_state_it_began_with_nor_one_it_returned(variant):
    backbone, x = build(variant), draw_vectors(1, STEPS)
    first = backbone(x[:, :3]).state
    step = build_step(backbone, first)
    second = step.get_state()
    saved = [map_state(torch.clone, state) for state in (first, second)]
    advance(step, x[:, 3:])
    for state, copy in zip((first, second), saved, strict=True):
        map_state(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0) or a, state, copy)


@pytest.mark.parametrize("variant", ["feedforward", "gru", "attentive-rnn", "transformer"])
@torch.inference_mode()
def test_inputs_may_have_another_width(variant):
    backbone, x = build(variant, inputs=5), draw_vectors(1, 8, 5)
    state = backbone(x[:, :2]).state
    torch.testing.assert_close(advance(build_step(backbone, state), x[:, 2:]), read_on(backbone, x[:, 2:], state))


@pytest.mark.parametrize("window", [1, 2, 3])
@torch.inference_mode()
def test_a_transformer_with_a_tiny_window_reads_its_newer_half_again(window):
    backbone, x = build("transformer", window=window), draw_vectors(1, 9)
    state = backbone(x[:, :1]).state
    torch.testing.assert_close(advance(build_step(backbone, state), x[:, 1:]), read_on(backbone, x[:, 1:], state))


@torch.inference_mode()
def test_a_cell_of_another_class_uses_its_own_equation():
    class HalfLSTMCell(LSTMCell):
        def step(self, *arguments):
            h, c = super().step(*arguments)
            return h / 2, c

    backbone, x = build("lstm"), draw_vectors(1, 8)
    backbone.stack.layer[0] = Recurrent(HalfLSTMCell(WIDTH, WIDTH)).double()
    state = backbone(x[:, :2]).state
    torch.testing.assert_close(advance(build_step(backbone, state), x[:, 2:]), read_on(backbone, x[:, 2:], state))


@torch.inference_mode()
def test_other_backbones_have_no_step():
    class OtherBackbone(type(build("gru"))):
        pass

    backbone = build("gru")
    state = backbone(draw_vectors(1, 2)).state
    backbone.__class__ = OtherBackbone
    assert build_step(backbone, state) is None
    assert build_step(build("gru"), None) is None
