"""Weights and recorded values of version 0.1 are found under their present names."""

from __future__ import annotations

import pytest
import torch

from seqwise.layers.cells import LSTMCell
from seqwise.layers.old_names import current_name, use_current_names
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent


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
    assert use_current_names({"deep.a": 1, "b": 2}) == {"stack.a": 1, "b": 2}


def test_recorded_values_are_found_under_their_old_names():
    layer = Bidirectional(Recurrent(LSTMCell(2, 3)), Recurrent(LSTMCell(2, 3)))
    with record(layer) as recording:
        layer(torch.zeros(1, 4, 2))
    assert torch.equal(recording["backwards.lstm.forget"], recording["backward_layer.lstm.forget"])
