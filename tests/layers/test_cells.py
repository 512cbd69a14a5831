"""Steps of cells against hand-computed numbers; the contract table has longer sequences."""

from __future__ import annotations

import math

import pytest
import torch

from seqwise.config import RecurrentSettings
from seqwise.errors import UsageError
from seqwise.layers import cells


def set_weights(
    cell: cells.Cell, weight_input: list[float], weight_hidden: list[float], bias: list[float]
) -> cells.Cell:
    with torch.no_grad():
        cell.weight_input.copy_(torch.tensor(weight_input)[:, None])
        cell.weight_hidden.copy_(torch.tensor(weight_hidden)[:, None])
        cell.bias.copy_(torch.tensor(bias))  # type: ignore[union-attr]
    return cell


def step(cell: cells.Cell, x: float, *state: float) -> list[float]:
    projected = cell.project(torch.tensor([[[x]]]))[:, 0]
    after = cell.step(projected, tuple(torch.tensor([[part]]) for part in state), cell.weight_hidden)
    return [round(part.item(), 6) for part in after]


@pytest.mark.parametrize(
    ("activation", "expected"), [("tanh", 0.604368), ("relu", 0.7), ("sigmoid", 0.668188), ("identity", 0.7)]
)
def test_an_rnn_step_equals_a_hand_computed_value(activation: str, expected: float) -> None:
    cell = set_weights(cells.RNNCell(1, 1, activation), [0.5], [-0.4], [0.1])
    assert step(cell, 2.0, 1.0) == [expected]  # a = 0.5 · 2 − 0.4 · 1 + 0.1 = 0.7


def test_a_relu_cell_outputs_no_negative_values() -> None:
    assert step(set_weights(cells.RNNCell(1, 1, "relu"), [0.5], [-0.4], [0.1]), -2.0, 1.0) == [0.0]


def test_an_lstm_step_equals_a_hand_computed_value() -> None:
    cell = set_weights(cells.LSTMCell(1, 1), [0.5, 0.25, 1.0, -0.5], [0.1, 0.2, -0.3, 0.4], [0.0, 1.0, 0.5, 0.2])
    # x = 2, h = 0.5, c = −1:  i = σ(1.05) = 0.740775, f = σ(1.6) = 0.832018, g = tanh(2.35) = 0.981973,
    # o = σ(−0.6) = 0.354344; c = 0.832018 · −1 + 0.740775 · 0.981973 = −0.104597; h = 0.354344 · tanh(−0.104597)
    assert step(cell, 2.0, 0.5, -1.0) == pytest.approx([-0.036929, -0.104597], abs=2e-6)


GRU_WEIGHTS = ([0.5, -0.25, 1.0], [0.2, 0.6, -0.8], [0.1, 0.0, -0.3])


@pytest.mark.parametrize(
    ("cell_class", "expected"),
    [
        # x = 1, h = 2:  r = σ(1.0) = 0.731059, z = σ(0.95) = 0.721115
        # after: n = tanh(0.7 + r · (−1.6 + 0.5)) = tanh(−0.104164) = −0.103789; before: n = tanh(0.7 − 0.8 · r · 2)
        # = tanh(−0.469694) = −0.437952
        (cells.GRUCell, 1.413285),  # z · 2 + (1 − z) · n
        (cells.ReplacingGRUCell, 0.482926),  # (1 − z) · 2 + z · n
        (cells.EarlyResetGRUCell, 1.320092),
        (cells.EarlyResetReplacingGRUCell, 0.241956),
    ],
)
def test_a_step_of_the_four_gru_variants_equals_a_hand_computed_value(
    cell_class: type[cells.GatedCell], expected: float
) -> None:
    cell = set_weights(cell_class(1, 1), *GRU_WEIGHTS)
    if isinstance(cell, cells.GRUCell):
        torch.nn.init.constant_(cell.bias_hidden, 0.5)
    assert step(cell, 1.0, 2.0) == pytest.approx([expected], abs=2e-6)


def test_an_update_gate_of_one_keeps_or_replaces_the_state() -> None:
    open_gate = ([0.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 40.0, 0.0])
    assert step(set_weights(cells.GRUCell(1, 1), *open_gate), 1.0, 0.25) == [0.25]
    assert step(set_weights(cells.ReplacingGRUCell(1, 1), *open_gate), 1.0, 0.25) == [0.462117]  # tanh(0.5)


def test_initial_weights_are_orthogonal_and_xavier_with_a_forget_bias_of_one() -> None:
    cell = cells.LSTMCell(3, 5)
    for block in cell.weight_hidden.detach().chunk(4):
        torch.testing.assert_close(block @ block.T, torch.eye(5), rtol=1e-5, atol=1e-5)
    assert cell.weight_input.abs().max() <= (6 / 8) ** 0.5
    assert cell.bias.tolist() == [0] * 5 + [1] * 5 + [0] * 10


def test_the_forget_bias_is_a_setting() -> None:
    cell = cells.make_cell("lstm", 3, 2, RecurrentSettings(forget_bias=-0.5))
    assert cell.bias is not None
    assert cell.bias.tolist() == [0, 0, -0.5, -0.5, 0, 0, 0, 0]


def test_a_capped_input_gate_keeps_the_cell_between_minus_one_and_one() -> None:
    """With open gates an LSTM adds a candidate of 1 at every step; the capped one only replaces what it forgets."""
    open_gates = ([0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [40.0, 1.0, 40.0, 40.0])
    sizes = {}
    for cell_class in (cells.LSTMCell, cells.CappedLSTMCell):
        cell = set_weights(cell_class(1, 1), *open_gates)
        state = cell.start(1, torch.zeros(1))
        for _ in range(20):
            state = cell.step(cell.project(torch.zeros(1, 1)), state, cell.weight_hidden)
        sizes[cell_class] = state[1].item()
    keep = 1 / (1 + math.exp(-1))
    assert sizes[cells.LSTMCell] == pytest.approx((1 - keep**20) / (1 - keep), rel=1e-5)
    assert sizes[cells.CappedLSTMCell] == pytest.approx(1 - keep**20, rel=1e-5)


def test_a_capped_lstm_has_no_layer_norm() -> None:
    with pytest.raises(UsageError, match="no capped input gate"):
        cells.make_cell("lstm", 3, 5, RecurrentSettings(layer_norm=True, cap_input_gate=True))


def test_only_the_gru_with_reset_after_the_product_has_a_second_bias() -> None:
    with_second_bias = [
        cell_class
        for cell_class in cells.GRU_CELLS.values()
        if "bias_hidden" in dict(cell_class(2, 2).named_parameters())
    ]
    assert with_second_bias == [cells.GRUCell, cells.ReplacingGRUCell]


@pytest.mark.parametrize("cell_class", [cells.LayerNormRNNCell, cells.LayerNormLSTMCell, cells.LayerNormGRUCell])
def test_a_layer_normalised_cell_is_invariant_to_the_scale_of_its_weights(cell_class: type[cells.Cell]) -> None:
    """The invariance the norm is for (Ba et al. 2016, section 5.1)."""
    torch.manual_seed(0)
    cell, x = cell_class(4, 8).double(), torch.randn(2, 1, 4, dtype=torch.float64)
    state = tuple(torch.rand_like(part) for part in cell.start(2, x))
    before = cell.step(cell.project(x)[:, 0], state, cell.weight_hidden)[0]
    with torch.no_grad():
        cell.weight_input *= 7
        cell.weight_hidden *= 7
    after = cell.step(cell.project(x)[:, 0], state, cell.weight_hidden)[0]
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "cell_class"),
    [
        ("rnn", {}, cells.RNNCell),
        ("lstm", {}, cells.LSTMCell),
        ("gru", {}, cells.GRUCell),
        ("gru", {"update": "replaces"}, cells.ReplacingGRUCell),
        ("gru", {"reset": "before"}, cells.EarlyResetGRUCell),
        ("gru", {"reset": "before", "update": "replaces"}, cells.EarlyResetReplacingGRUCell),
        ("gru", {"update": "replaces", "layer_norm": True}, cells.LayerNormReplacingGRUCell),
        ("gru", {"layer_norm": True}, cells.LayerNormGRUCell),
        ("lstm", {"layer_norm": True}, cells.LayerNormLSTMCell),
        ("lstm", {"cap_input_gate": True}, cells.CappedLSTMCell),
        ("rnn", {"layer_norm": True}, cells.LayerNormRNNCell),
    ],
)
def test_settings_choose_the_cell(name: str, settings: dict, cell_class: type[cells.Cell]) -> None:
    cell = cells.make_cell(name, 3, 5, RecurrentSettings(**settings))
    assert type(cell) is cell_class
    assert (cell.inputs, cell.units, cell.name) == (3, 5, name)


def test_the_activation_setting_reaches_the_cell() -> None:
    cell = cells.make_cell("rnn", 3, 5, RecurrentSettings(activation="relu"))
    assert isinstance(cell, cells.RNNCell)
    assert cell.activation == "relu"


def test_unknown_cells_and_activations_are_rejected_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="Perhaps you meant 'lstm'"):
        cells.make_cell("lsmt", 3, 5, RecurrentSettings())
    with pytest.raises(UsageError, match="Perhaps you meant 'tanh'"):
        cells.RNNCell(3, 5, "tahn")
    with pytest.raises(UsageError, match=r"--recurrent\.reset after"):
        cells.make_cell("gru", 3, 5, RecurrentSettings(reset="before", layer_norm=True))


@pytest.mark.parametrize(("inputs", "units"), [(0, 4), (4, 0), (4, -1)])
def test_a_cell_without_inputs_or_units_is_rejected(inputs: int, units: int) -> None:
    with pytest.raises(UsageError, match=f"received {inputs} and {units}"):
        cells.make_cell("gru", inputs, units, RecurrentSettings())
