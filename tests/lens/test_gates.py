"""The view of gates shows the values of the cell's equation, and numbers computed from them."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from seqwise.errors import UsageError
from seqwise.layers.cells import GRUCell, LSTMCell, ReplacingGRUCell, RNNCell
from seqwise.layers.record import Recording
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent
from seqwise.lens.gates import gates
from seqwise.lens.subject import choose_example


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(1))


def test_gates_of_an_lstm_are_those_of_its_equation(x: torch.Tensor):
    layer = Recurrent(LSTMCell(3, 4))
    values = gates(layer, x).data["layer 1"]
    W, U, b = (layer.cell.weight_input, layer.cell.weight_hidden, layer.cell.bias)
    h, c = torch.zeros(4), torch.zeros(4)
    for t in range(6):
        i, f, g, o = (W @ x[0, t] + U @ h + b).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        expected = {"input": torch.sigmoid(i), "forget": torch.sigmoid(f), "output": torch.sigmoid(o), "cell": c}
        for name, value in {**expected, "candidate": torch.tanh(g), "hidden": h}.items():
            np.testing.assert_allclose(values[name][t], value.detach(), atol=1e-6, err_msg=f"{name} at step {t}")


def test_saturation_counts_values_below_a_tenth_and_above_nine_tenths(x: torch.Tensor):
    cell = LSTMCell(3, 4)
    with torch.no_grad():
        cell.weight_input.zero_()
        cell.weight_hidden.zero_()
        cell.bias.copy_(torch.tensor([-9.0] * 4 + [9.0, 9.0, 0.0, -9.0] + [0.0] * 4 + [0.0] * 4))  # i, f, g, o
    saturation = gates(Recurrent(cell), x).data["layer 1"]["saturation"]
    assert saturation == {"input": (1.0, 0.0), "forget": (0.25, 0.5), "output": (0.0, 0.0)}


@pytest.mark.parametrize(("cell_class", "gate"), [(GRUCell, 0.75), (ReplacingGRUCell, 0.25)])
def test_the_time_constant_is_the_inverse_of_what_a_step_forgets(cell_class, gate: float, x: torch.Tensor):
    cell = cell_class(3, 4)
    with torch.no_grad():
        cell.weight_input.zero_()
        cell.weight_hidden.zero_()
        cell.bias[4:8] = torch.logit(torch.tensor(gate))  # of the update gate
    view = gates(Recurrent(cell), x)
    np.testing.assert_allclose(view.data["layer 1"]["time_constant"], 4.0, rtol=1e-5)
    assert "1 / (1 − geometric mean of the " in view.figures[-1].value_label


def test_stored_and_exposed_values_of_an_lstm_differ_by_the_output_gate(x: torch.Tensor):
    values = gates(Recurrent(LSTMCell(3, 4)), x).data["layer 1"]
    np.testing.assert_allclose(values["stored"], np.abs(np.tanh(values["cell"])).mean(0), rtol=1e-5)
    np.testing.assert_allclose(values["hidden"], values["output"] * np.tanh(values["cell"]), atol=1e-6)
    assert (values["exposed"] <= values["stored"] + 1e-6).all()


def test_a_backward_layer_is_shown_in_the_order_of_the_text(x: torch.Tensor):
    layer = Bidirectional(Recurrent(RNNCell(3, 4)), Recurrent(RNNCell(3, 4)))
    outputs = layer(x)[0][0]
    data = gates(layer, x).data
    np.testing.assert_allclose(data["layer 1, forward"]["hidden"], outputs[:, :4].detach(), atol=1e-6)
    np.testing.assert_allclose(data["layer 1, backward"]["hidden"], outputs[:, 4:].detach(), atol=1e-6)


def test_heatmaps_show_the_units_that_vary_most_first(x: torch.Tensor):
    view = gates(Recurrent(GRUCell(3, 8)), x, max_units=3)
    values, heatmap = view.data["layer 1"], view.figures[0]
    order = np.argsort(-values["hidden"].std(axis=0), kind="stable")[:3]
    assert heatmap.rows == [str(unit) for unit in order]
    np.testing.assert_array_equal(heatmap.values, values["update"][:, order].T)


def test_one_unit_shows_all_its_gates(x: torch.Tensor):
    view = gates(Recurrent(LSTMCell(3, 4)), x, unit=2)
    (heatmap,) = view.figures
    assert heatmap.rows[:3] == ["input gate i", "forget gate f", "output gate o"]
    np.testing.assert_array_equal(heatmap.values[1], view.data["layer 1"]["forget"][:, 2])


def test_looking_inside_changes_nothing(x: torch.Tensor):
    model = StackedRecurrent([Recurrent(LSTMCell(3, 4)), Recurrent(LSTMCell(4, 4))], dropout=0.5).train()
    state = torch.get_rng_state()
    gates(model, x)
    assert torch.equal(torch.get_rng_state(), state), "no random number is drawn"
    assert all(part.training for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"layer": 3}, "there is no recurrent layer 3"),
        ({"unit": 4}, "has no unit 4"),
        ({"unit": -1}, "has no unit -1"),
    ],
)
def test_unknown_layers_and_units_are_errors(arguments: dict, problem: str, x: torch.Tensor):
    model = StackedRecurrent([Recurrent(LSTMCell(3, 4)), Recurrent(LSTMCell(4, 4))])
    with pytest.raises(UsageError, match=problem):
        gates(model, x, **arguments)


def test_the_number_of_a_layer_stands_for_both_of_its_directions(x: torch.Tensor):
    def build(width: int) -> Bidirectional:
        return Bidirectional(Recurrent(LSTMCell(width, 4)), Recurrent(LSTMCell(width, 4)))

    model = StackedRecurrent([build(3), build(8)])
    assert list(gates(model, x, layer=2).data) == ["layer 2, forward", "layer 2, backward"]
    assert list(gates(model, x, layer="layer 1, backward").data) == ["layer 1, backward"]


@pytest.mark.parametrize("num_layers", [2, 6])
def test_an_image_of_many_units_and_layers_can_be_read(num_layers: int, tmp_path: Path):
    def build(width: int) -> Bidirectional:
        return Bidirectional(Recurrent(LSTMCell(width, 64)), Recurrent(LSTMCell(width, 64)))

    model = StackedRecurrent([build(3), *(build(128) for _ in range(num_layers - 1))])
    view = gates(model, torch.randn(1, 300, 3))
    image = view.save(tmp_path / "gates.svg").read_text()
    assert float(re.search(r'height="([\d.]+)"', image).group(1)) < 3500
    first, second, saturation = view.overview
    assert (first.title, second.title) == ("Gates, layer 1, forward", "Gates, layer 1, backward")
    values = view.data["layer 1, forward"]
    assert [panel.title for panel in first.panels][1] == "forget gate f"
    np.testing.assert_array_equal(first.panels[1].values, values["forget"][:, values["units"][:10]].T)
    assert "The 10 of 64 units whose state varies most" in image
    assert "layer 2, backward (--layer)" in saturation.note
    forget = view.select(2)
    assert forget.figures[0].values.shape == (40, 300), "a single figure is not reduced"
    assert "forget gate f, layer 1, forward" in forget.save(tmp_path / "forget.svg").read_text()


def test_an_image_says_nothing_of_what_it_does_not_leave_out(x: torch.Tensor):
    overview = gates(Recurrent(RNNCell(3, 4)), x).overview
    assert [figure.note for figure in overview] == ["Units are counted from 0."]


def test_a_model_without_recurrent_layers_is_an_error(x: torch.Tensor):
    with pytest.raises(UsageError, match="no recurrent layer"):
        gates(torch.nn.Linear(3, 3), x)


def test_only_the_layers_that_are_shown_are_recorded(x: torch.Tensor, monkeypatch: pytest.MonkeyPatch):
    stack = StackedRecurrent([Recurrent(LSTMCell(3, 4)), Recurrent(LSTMCell(4, 4))])
    recorded: list[str] = []
    add = Recording.add

    def list_names(self: Recording, module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
        before = len(self)
        add(self, module, name, value)
        recorded.extend(list(self)[before:])

    monkeypatch.setattr(Recording, "add", list_names)
    both = gates(stack, x).data
    assert {name.rpartition(".")[0] for name in recorded} == {"layer.0.lstm", "layer.1.lstm"}
    recorded.clear()
    np.testing.assert_array_equal(gates(stack, x, layer=2).data["layer 2"]["forget"], both["layer 2"]["forget"])
    assert {name.rpartition(".")[0] for name in recorded} == {"layer.1.lstm"}


def test_the_positions_of_a_forecaster_are_steps_or_patches_of_them(small_run):
    view = gates(small_run("forecast", "gru"))
    name = choose_example(small_run("forecast", "gru")).position_name
    assert name == "step" or name.startswith("patch of ")
    assert view.figures[0].column_label == name
    assert "tokens" not in view.summary[0]
