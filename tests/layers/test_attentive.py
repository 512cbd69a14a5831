"""Recurrent layers that attend to their earlier states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwise.layers import cells
from seqwise.layers.attentive import AttentiveRecurrent, StateAttention
from seqwise.layers.record import record
from seqwise.layers.recurrent import Recurrent

LAYERS = {
    "attentive": lambda attention_span: AttentiveRecurrent(cells.LSTMCell(4, 4), attention_span),
    "state": lambda attention_span: StateAttention(4, attention_span),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def random_input(rows: int = 3, steps: int = 8) -> Tensor:
    return torch.randn(rows, steps, 4, dtype=torch.float64)


def get_memory(kind: str, state: Any) -> Any:
    return state[1] if kind == "attentive" else state


def test_the_first_step_attends_to_nothing_and_equals_the_plain_cell() -> None:
    cell = cells.LSTMCell(4, 4)
    x = random_input().float()
    without_attention, attentive = Recurrent(cell)(x)[0], AttentiveRecurrent(cell, 3)(x)[0]
    torch.testing.assert_close(attentive[:, 0], without_attention[:, 0])
    assert not torch.allclose(attentive[:, 1], without_attention[:, 1])


def test_the_second_step_adds_the_value_of_the_first_state() -> None:
    """With one state to attend to, its weight is 1."""
    layer, x = AttentiveRecurrent(cells.RNNCell(4, 4), 3).double(), random_input()
    outputs, _ = layer(x)
    h = outputs[:, 0]
    without_attention = layer.cell.step(layer.cell.project(x)[:, 1], (h,), layer.cell.weight_hidden)[0]
    torch.testing.assert_close(outputs[:, 1], without_attention + h @ layer.weight_memory[4:].T)


def test_a_single_state_attends_to_itself() -> None:
    layer, s = StateAttention(4, 3).double(), random_input()
    torch.testing.assert_close(layer(s)[0][:, 0], s[:, 0] + s[:, 0] @ layer.weight[8:].T)


@pytest.mark.parametrize("kind", LAYERS)
def test_states_older_than_the_attention_span_are_not_attended_to(kind: str) -> None:
    layer = LAYERS[kind](2).double()
    with record(layer) as recording:
        layer(random_input())
    weights = recording["weights"]
    distance = torch.arange(8)[:, None] - torch.arange(8)
    nearest = 1 if kind == "attentive" else 0  # without feedback a state also attends to itself
    allowed = (distance >= nearest) & (distance <= 2)
    assert weights.shape == (3, 8, 8)
    assert (weights[:, allowed] > 0).all()
    assert (weights[:, ~allowed] == 0).all()
    torch.testing.assert_close(weights[:, 1:].sum(-1), torch.ones(3, 7, dtype=torch.float64))


@pytest.mark.parametrize("attention_span", [1, 3, 100])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_read_in_segments_equals_the_whole_sequence(kind: str, attention_span: int) -> None:
    layer, x = LAYERS[kind](attention_span).double(), random_input()
    expected, _ = layer(x)
    state, segment_outputs = None, []
    for segment in x.split([1, 3, 2, 1, 1], dim=1):
        outputs, state = layer(segment, state)
        segment_outputs.append(outputs)
        assert get_memory(kind, state)[0].shape[1] <= attention_span
    torch.testing.assert_close(torch.cat(segment_outputs, dim=1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("attention_span", [2, 4, 100])
@pytest.mark.parametrize("kind", LAYERS)
def test_rows_of_different_length_continue_independently(kind: str, attention_span: int) -> None:
    """Three windows with padding at the end of each; every row must equal its own uncut, unpadded run."""
    layer, x = LAYERS[kind](attention_span).double(), random_input(rows=4, steps=12)
    lengths = torch.tensor([[4, 4, 4], [3, 0, 4], [0, 2, 3], [1, 1, 1]])
    state, windows = None, []
    for window, length in zip(x.split(4, dim=1), lengths.T, strict=True):
        outputs, state = layer(window, state, length)
        windows.append(outputs)
    for row, row_lengths in enumerate(lengths.tolist()):
        valid = [slice(4 * window, 4 * window + end) for window, end in enumerate(row_lengths)]
        expected, _ = layer(torch.cat([x[row : row + 1, part] for part in valid], dim=1))
        actual = torch.cat([outputs[row, :end] for outputs, end in zip(windows, row_lengths, strict=True)])
        torch.testing.assert_close(actual, expected[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_recorded_weights_cover_states_of_this_and_of_earlier_segments(kind: str) -> None:
    layer, x = LAYERS[kind](3).double(), random_input()
    _, state = layer(x)
    with record(layer) as recording:
        layer(x[:, :2], state)
    assert recording["weights"].shape == (3, 2, 5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_states_do_not_grow_over_four_hundred_steps(activation: str) -> None:
    layer = AttentiveRecurrent(cells.RNNCell(20, 60, activation), 64)
    with torch.no_grad():
        norms = layer(torch.randn(2, 400, 20))[0].norm(dim=-1).mean(0)
    assert norms[300:].mean() < 3 * norms[10:60].mean()


def test_padding_gives_zeros() -> None:
    for kind, build in LAYERS.items():
        outputs, _ = build(3).double()(random_input(), None, torch.tensor([8, 3, 0]))
        assert outputs[1, 3:].abs().max() == 0, kind
        assert outputs[2].abs().max() == 0, kind
