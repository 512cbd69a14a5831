"""Derivatives through time against autograd, finite differences and what is known of linear recurrences."""

import math
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.attentive import AttentiveRecurrent
from seqwise.layers.cells import Cell, EarlyResetGRUCell, GRUCell, LayerNormLSTMCell, LSTMCell, RNNCell
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent
from seqwise.lens import subject as subject_module
from seqwise.lens.gradients import compute_half_life, gradients
from seqwise.lens.jacobians import Trajectory, record_trajectory
from seqwise.lens.recurrent import list_layers
from seqwise.lens.subject import choose_example, name_runs, open_subject, open_subjects

CELLS = [RNNCell, LSTMCell, GRUCell, EarlyResetGRUCell, LayerNormLSTMCell]


def make_inputs(steps: int, width: int = 3) -> torch.Tensor:
    return torch.randn(1, steps, width, generator=torch.Generator().manual_seed(2))


def make_linear_layer(matrix: torch.Tensor) -> Recurrent:
    cell = RNNCell(3, len(matrix), activation="identity")
    with torch.no_grad():
        cell.weight_hidden.copy_(matrix)
    return Recurrent(cell)


@pytest.mark.parametrize("cell_class", CELLS)
def test_step_jacobians_equal_finite_differences(cell_class: type[Cell]):
    subject = open_subject(Recurrent(cell_class(3, 4)), make_inputs(5))
    trajectory = record_trajectory(subject, list_layers(subject)[0])
    step, epsilon = 3, 1e-6
    state = torch.cat(trajectory.states[step])
    columns = []
    for index in range(len(state)):
        results = []
        for sign in (1, -1):
            moved = state.clone()
            moved[index] += sign * epsilon
            parts = tuple(part[None] for part in moved.split(4))
            new = trajectory.cell.step(trajectory.inputs[step][None], parts, trajectory.cell.weight_hidden)
            results.append(torch.cat(new, dim=-1)[0])
        columns.append((results[0] - results[1]) / (2 * epsilon))
    torch.testing.assert_close(trajectory.compute_jacobian(step), torch.stack(columns, dim=1), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("cell_class", [RNNCell, GRUCell, LSTMCell])
def test_norms_through_time_equal_autograd(cell_class: type[Cell]):
    torch.manual_seed(0)
    layer, x = Recurrent(cell_class(3, 4)), make_inputs(7)
    norms = gradients(layer, x).data["Recurrent"]["norms"]
    inputs, states = layer.cell.project(x)[0], [layer.cell.start(1, x)]
    for projected in inputs:
        states.append(layer.cell.step(projected[None], states[-1], layer.cell.weight_hidden))
    for k in (1, 4, 7):
        rows = [torch.autograd.grad(states[-1][0][0, i], states[k][0], retain_graph=True)[0][0] for i in range(4)]
        assert norms[k - 1] == pytest.approx(float(torch.stack(rows).norm()) / 2, rel=1e-4)


def test_lyapunov_exponents_of_a_linear_recurrence_are_the_logarithms_of_its_eigenvalues():
    eigenvalues = torch.tensor([1.05, 0.9, 0.6, 0.3])
    basis = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0))).Q
    view = gradients(make_linear_layer(basis @ torch.diag(eigenvalues) @ basis.T), make_inputs(400))
    np.testing.assert_allclose(view.data["Recurrent"]["exponents"], eigenvalues.log(), atol=0.01)
    assert view.data["Recurrent"]["radius"][0] == pytest.approx(1.05, abs=1e-5)
    assert view.data["Recurrent"]["singular"][0] == pytest.approx(1.05, abs=1e-4)
    assert "do not vanish" in view.summary[0]


def test_a_matrix_that_is_not_normal_stretches_although_its_radius_is_below_one():
    matrix = torch.tensor([[0.5, 4.0], [0.0, 0.5]])
    values = gradients(make_linear_layer(matrix), make_inputs(6)).data["Recurrent"]
    assert values["radius"][0] == pytest.approx(0.5, abs=1e-3)
    assert values["singular"][0] == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-5)
    assert values["norms"][-2] > values["norms"][-1]


def test_the_direct_path_of_an_lstm_is_the_product_of_its_forget_gates():
    torch.manual_seed(0)
    layer, x = Recurrent(LSTMCell(3, 4)), make_inputs(5)
    from seqwise.layers.record import record

    with record(layer) as recording, torch.no_grad():
        layer(x)
    forget = recording["lstm.forget"][0].double()
    direct = gradients(layer, x).data["Recurrent"]["direct"]
    assert direct[4] == 1
    assert direct[2] == pytest.approx(float((forget[3] * forget[4]).square().mean().sqrt()), rel=1e-5)


def test_half_life_of_a_constant_decay_is_exact():
    assert compute_half_life(0.5 ** np.arange(10)[::-1]) == pytest.approx(1.0)
    assert compute_half_life(np.ones(10)) == math.inf


def test_several_models_are_drawn_on_one_chart():
    models = [Recurrent(RNNCell(3, 4)), StackedRecurrent([Recurrent(GRUCell(3, 4)), Recurrent(GRUCell(4, 4))])]
    view = gradients(models, make_inputs(5))
    assert [line.name for line in view.figures[0].series] == ["Recurrent", "StackedRecurrent"]
    assert view.data["StackedRecurrent"]["layer"] == "layer 2"


def test_a_bidirectional_layer_is_one_layer_with_two_directions():
    torch.manual_seed(0)
    both, x = Bidirectional(Recurrent(RNNCell(3, 4)), Recurrent(RNNCell(3, 4))), make_inputs(6)
    view = gradients(both, x)
    forward, backward = view.data["Bidirectional, forward"], view.data["Bidirectional, backward"]
    assert [row[1] for row in view.figures[2].rows] == ["layer 1, forward", "layer 1, backward"]
    assert view.summary[-1] == "Bidirectional has one recurrent layer with two directions, forward and backward."
    np.testing.assert_allclose(forward["norms"], gradients(both.forward_layer, x).data["Recurrent"]["norms"])
    reversed_alone = gradients(both.backward_layer, x.flip(1)).data["Recurrent"]
    np.testing.assert_allclose(backward["norms"], reversed_alone["norms"])
    assert forward["tokens"] == ["0", "1", "2", "3", "4", "5"]
    assert backward["tokens"] == ["5", "4", "3", "2", "1", "0"], "in the order of reading"
    steps = {line.name: line for line in view.figures[1].series}
    shown = steps["Bidirectional, backward: singular value"].y
    np.testing.assert_allclose(shown, reversed_alone["singular"][::-1], err_msg="in the order of the text")


def test_layers_with_equal_labels_are_different_layers():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Recurrent(GRUCell(3, 4)), Recurrent(GRUCell(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x)[0])[0]

    torch.manual_seed(0)
    model, x = Two(), make_inputs(5)
    view = gradients(model, x)
    assert view.summary[-1] == "Two has 2 recurrent layers; --layer 1 shows layer 1."
    norms = {layer: gradients(model, x, layer=layer).data["Two"]["norms"] for layer in (1, 2)}
    np.testing.assert_array_equal(view.data["Two"]["norms"], norms[2])
    np.testing.assert_array_equal(norms[1], gradients(model.first, x).data["Recurrent"]["norms"])
    assert not np.array_equal(norms[1], norms[2])


def test_layers_of_two_directions_are_numbered_by_layer():
    def build(width: int) -> Bidirectional:
        return Bidirectional(Recurrent(GRUCell(width, 4)), Recurrent(GRUCell(width, 4)))

    stack, x = StackedRecurrent([build(3), build(8)]), make_inputs(5)
    view = gradients(stack, x)
    layers = [values["layer"] for values in view.data.values()]
    assert layers == ["layer 2, forward", "layer 2, backward"]
    expected = "StackedRecurrent has 2 recurrent layers with two directions each; --layer 1 shows layer 1."
    assert view.summary[-1] == expected
    for layer in (1, "layer 1"):
        chosen = gradients(stack, x, layer=layer).data.values()
        assert [values["layer"] for values in chosen] == ["layer 1, forward", "layer 1, backward"]
    (only,) = gradients(stack, x, layer="layer 1, backward").data.items()
    assert (only[0], only[1]["layer"]) == ("StackedRecurrent", "layer 1, backward")
    with pytest.raises(UsageError, match="no recurrent layer 3") as error:
        gradients(stack, x, layer=3)
    assert error.value.fix == "Choose from: 1 (layer 1); 2 (layer 2); or one direction, such as 'layer 2, backward'."


def test_the_model_is_unchanged_and_has_no_gradients():
    layer, x = Recurrent(LSTMCell(3, 4)), make_inputs(5)
    before = [parameter.clone() for parameter in layer.parameters()]
    gradients(layer, x)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, layer.parameters()))


def test_a_state_that_attention_enters_is_refused():
    with pytest.raises(UsageError, match="attention enters its state"):
        gradients(AttentiveRecurrent(GRUCell(3, 4), attention_span=3), make_inputs(5))


def test_runs_of_one_name_are_told_apart_by_their_folders():
    def build(folder: str, model: str = "lstm") -> SimpleNamespace:
        return SimpleNamespace(run=SimpleNamespace(folder=Path(folder)), settings=SimpleNamespace(model=model))

    assert name_runs([build("/a/ptb-lstm"), build("/a/ptb-gru", "gru")]) == ["ptb-lstm", "ptb-gru"]
    assert name_runs([build("/a/book"), build("/b/book")]) == ["a/book (lstm)", "b/book (lstm)"]
    assert name_runs([build("/a/trials/lstm/seed-0")]) == ["lstm/seed-0"]
    assert name_runs([build("/a/book")] * 2) == ["book (lstm) 1", "book (lstm) 2"]


@pytest.mark.parametrize("cell_class", CELLS)
def test_a_matrix_is_multiplied_by_a_jacobian_without_computing_it(cell_class: type[Cell]):
    subject = open_subject(Recurrent(cell_class(3, 4)), make_inputs(5))
    trajectory = record_trajectory(subject, list_layers(subject)[0])
    jacobian = trajectory.compute_jacobian(3)
    matrix = torch.randn(len(jacobian), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(trajectory.multiply_by_jacobian(3, matrix), jacobian @ matrix)


def test_one_jacobian_at_a_time_is_kept(monkeypatch):
    alive: weakref.WeakSet = weakref.WeakSet()
    counts = []
    compute = Trajectory.compute_jacobian

    def count(trajectory: Trajectory, step: int) -> torch.Tensor:
        counts.append(len(alive))
        jacobian = compute(trajectory, step)
        alive.add(jacobian)
        return jacobian

    monkeypatch.setattr(Trajectory, "compute_jacobian", count)
    gradients(Recurrent(LSTMCell(3, 4)), make_inputs(30))
    assert len(counts) == 30
    assert max(counts) <= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_derivatives_on_a_gpu_are_those_on_the_cpu():
    layer, x = Recurrent(LSTMCell(3, 4)), make_inputs(6)
    expected = gradients(layer, x).data["Recurrent"]["norms"]
    np.testing.assert_allclose(gradients(layer.cuda(), x.cuda()).data["Recurrent"]["norms"], expected, rtol=1e-4)


def test_one_token_has_no_gradient_through_time():
    with pytest.raises(UsageError, match="at least 2 tokens"):
        gradients(Recurrent(LSTMCell(3, 4)), make_inputs(1))


def test_an_empty_list_of_models_is_an_error():
    with pytest.raises(UsageError, match="received none"):
        gradients([], make_inputs(3))


@pytest.mark.parametrize("task", ["language", "classify", "tag", "translate"])
def test_runs_of_one_task_read_the_same_example(task: str, small_run):
    first, second = open_subjects([small_run(task, "gru"), small_run(task, "lstm")])
    assert first.tokens == second.tokens


@pytest.mark.parametrize("task", ["masked", "caption", "forecast"])
def test_runs_whose_examples_are_no_texts_read_their_own(task: str, small_run):
    for subject in open_subjects([small_run(task, "gru"), small_run(task, "lstm")]):
        assert subject.inspected.description == choose_example(subject.trained).description


def test_an_example_that_is_truncated_is_not_shared(small_run, monkeypatch):
    runs = [small_run("classify", "gru"), small_run("classify", "lstm")]
    first = replace(choose_example(runs[0]), text="word " * 10_000)  # only its beginning is read
    monkeypatch.setitem(subject_module._chosen_examples, runs[0], first)
    assert open_subjects(runs)[1].inspected.text == choose_example(runs[1]).text


def test_the_last_layer_with_a_jacobian_is_chosen(small_run):
    """The decoder of a translator runs step by step, so the last layer of its encoder is shown."""
    trained = small_run("translate", "lstm")
    view = gradients(trained)
    assert [values["layer"] for values in view.data.values()] == [
        "encoder, layer 1, forward",
        "encoder, layer 1, backward",
    ]
    assert "--layer" not in view.summary[-1], "no other layer can be shown"
    with pytest.raises(UsageError, match="step by step"):
        gradients(trained, layer="decoder, layer 1")
