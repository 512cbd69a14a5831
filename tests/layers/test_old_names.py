"""Weights and recorded values of version 0.1 are found under their present names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqwise.heads.tag import LinearChainCRF
from seqwise.layers.cells import LSTMCell
from seqwise.layers.old_names import current_name, use_current_names
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.training.checkpoints import get_weights, load_weights
from seqwise.training.optimizers import load_optimizer_state


@pytest.mark.parametrize(
    ("old", "current"),
    [
        ("backbone.deep.layer.0.lstm.weight_input", "backbone.stack.layer.0.lstm.weight_input"),
        ("encoder.forwards.look_back.weight", "encoder.forward_layer.state_attention.weight"),
        ("writers.0.decoder.layer.1.cross.inward.bias", "decoders.0.decoder.layer.1.cross_attention.in_proj.bias"),
        ("encoder.encoder.layer.0.feedforward.outward.weight", "encoder.encoder.layer.0.feedforward.out_proj.weight"),
        ("encoder.encoder.stage.1.0.inward.convolution.bias", "encoder.encoder.stage.1.0.conv1.convolution.bias"),
        ("head.link", "head.transition_scores"),
        ("head.end", "head.end_scores"),
        ("spread.output.weight", "quantile_head.output.weight"),
        ("encoder.enter.weight", "encoder.input_projection.weight"),
        ("embedding.weight", "embedding.weight"),
    ],
)
def test_old_names_have_present_ones(old: str, current: str):
    assert current_name(old) == current
    assert current_name(current) == current, "a present name stays as it is"


def test_values_keep_their_order_and_content():
    assert use_current_names({"deep.a": 1, "b": 2}, {"stack.a", "b"}) == {"stack.a": 1, "b": 2}


def test_a_model_of_the_users_own_may_have_a_layer_with_an_old_name():
    model, other = (nn.ModuleDict({"deep": nn.Linear(2, 3), "cross": nn.Linear(3, 1)}) for _ in range(2))
    load_weights(other, get_weights(model), "file")
    assert torch.equal(model["deep"].weight, other["deep"].weight)
    assert torch.equal(model["cross"].bias, other["cross"].bias)


def test_moments_of_the_optimizer_are_found_under_their_old_names():
    model = nn.ModuleDict({"head": LinearChainCRF(4, 3)})
    optimizer = torch.optim.AdamW(model.parameters())
    moments = {"head.link.exp_avg": torch.ones(3, 3), "head.end.exp_avg": torch.full((3,), 2.0)}
    load_optimizer_state(optimizer, model, moments)
    head = model["head"]
    assert torch.equal(optimizer.state[head.transition_scores]["exp_avg"], torch.ones(3, 3))
    assert torch.equal(optimizer.state[head.end_scores]["exp_avg"], torch.full((3,), 2.0))


def test_recorded_values_are_found_under_their_old_names():
    layer = Bidirectional(Recurrent(LSTMCell(2, 3)), Recurrent(LSTMCell(2, 3)))
    with record(layer) as recording:
        layer(torch.zeros(1, 4, 2))
    assert torch.equal(recording["backwards.lstm.forget"], recording["backward_layer.lstm.forget"])
