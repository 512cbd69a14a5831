"""Recurrent layers: fast backends equal the reference implementation; padding, states, recording, dropout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.layers import cells, recurrent
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent, reverse_steps
from seqwise.layers.scan import scan_reference

ATEN_CELLS = {
    "rnn tanh": lambda: cells.RNNCell(4, 3),
    "rnn relu": lambda: cells.RNNCell(4, 3, "relu"),
    "lstm": lambda: cells.LSTMCell(4, 3),
    "gru": lambda: cells.GRUCell(4, 3),
    "gru z replaces": lambda: cells.ReplacingGRUCell(4, 3),
}
OTHER_CELLS = {
    "rnn sigmoid": lambda: cells.RNNCell(4, 3, "sigmoid"),
    "gru reset before": lambda: cells.EarlyResetGRUCell(4, 3),
    "lstm layer norm": lambda: cells.LayerNormLSTMCell(4, 3),
}
ALL_CELLS = ATEN_CELLS | OTHER_CELLS


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def build_layer(name: str) -> Recurrent:
    layer = Recurrent(ALL_CELLS[name]()).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def random_input() -> Tensor:
    return torch.randn(4, 6, 4, dtype=torch.float64)


@pytest.mark.parametrize("name", ALL_CELLS)
def test_a_layer_has_the_backend_of_its_last_call(name: str) -> None:
    layer = build_layer(name)
    assert layer.backend is None
    assert "backend=" not in repr(layer)
    layer(random_input()[:, :3])
    assert layer.backend == ("aten" if name in ATEN_CELLS else "compiled")  # ATen's is faster for so few steps
    layer(torch.randn(40, 20, 4, dtype=torch.float64), None, torch.arange(40) % 21)  # ATen is slow where rows differ
    assert layer.backend == "compiled"
    assert "backend=compiled" in repr(layer)


def test_a_subclass_of_a_cell_uses_the_reference_implementation() -> None:
    class Forgetful(cells.LSTMCell):
        def step(self, x: Tensor, state: Any, weight_hidden: Tensor, record: Any = cells.record_nothing) -> Any:
            h, c = super().step(x, state, weight_hidden, record)
            return h, c * 0

    layer = Recurrent(Forgetful(4, 3))
    assert layer(torch.randn(2, 5, 4))[1][1].abs().max() == 0
    assert layer.backend == "reference"


@pytest.mark.parametrize("lengths", [None, [6, 2, 0, 5], [6, 6, 6, 6]], ids=["whole", "padded", "full"])
@pytest.mark.parametrize("name", ATEN_CELLS)
@pytest.mark.parametrize("kernels", ["on", "off"])
def test_fast_scans_equal_the_reference_in_outputs_states_and_gradients(
    name: str, lengths: Any, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQWISE_KERNELS", kernels)
    layer, x = build_layer(name), random_input().requires_grad_()
    before = tuple(torch.randn_like(part).requires_grad_() for part in layer.cell.start(4, x))
    lengths = None if lengths is None else torch.tensor(lengths)
    valid = None if lengths is None else torch.arange(6) < lengths[:, None]
    results, gradients = [], []
    for outputs, after in (
        layer(x, before, lengths),
        scan_reference(layer.cell, x, before, layer.cell.weight_hidden, valid),
    ):
        results.append((outputs, *after))
        total = sum((part * torch.arange(part.numel()).view_as(part).cos()).sum() for part in results[-1])
        gradients.append(torch.autograd.grad(total, [x, *before, *layer.parameters()]))
    assert layer.backend == ("compiled" if kernels == "on" else "aten")
    for fast, slow in zip((*results[0], *gradients[0]), (*results[1], *gradients[1]), strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ALL_CELLS)
def test_padding_gives_zeros_and_the_state_of_the_last_valid_step(name: str) -> None:
    layer, x = build_layer(name), random_input()
    outputs, state = layer(x, None, torch.tensor([6, 2, 1, 5]))
    assert outputs[1, 2:].abs().max() == 0
    assert outputs[3, 5:].abs().max() == 0
    _, state_without_padding = layer(x[1:2, :2])
    for padded, expected in zip(state, state_without_padding, strict=True):
        torch.testing.assert_close(padded[1], expected[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ALL_CELLS)
def test_an_empty_row_keeps_its_state_exactly(name: str) -> None:
    layer, x = build_layer(name), random_input()
    before = tuple(torch.randn_like(part) for part in layer.cell.start(4, x))
    outputs, after = layer(x, before, torch.tensor([6, 0, 3, 0]))
    assert outputs[[1, 3]].abs().max() == 0
    for initial, last in zip(before, after, strict=True):
        assert torch.equal(initial[[1, 3]], last[[1, 3]])
        assert not torch.equal(initial[[0, 2]], last[[0, 2]])


@pytest.mark.parametrize("name", ALL_CELLS)
def test_nan_in_the_padding_does_not_reach_a_gradient(name: str) -> None:
    layer, x, lengths = build_layer(name), random_input(), torch.tensor([6, 2, 0, 5])
    x[1, 2:], x[2], x[3, 5:] = torch.nan, torch.inf, torch.nan
    layer(x, None, lengths)[0].sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", ALL_CELLS)
def test_the_recorded_hidden_values_are_the_outputs(name: str) -> None:
    layer, x = build_layer(name), random_input()
    with record(layer) as recording:
        outputs, _ = layer(x, None, torch.tensor([6, 2, 0, 5]))
    torch.testing.assert_close(recording[f"{layer.name}.hidden"], outputs, rtol=1e-10, atol=1e-10)
    assert set(recording) >= {f"{layer.name}.{gate}" for gate in layer.cell.gates}
    assert all(recording[f"{layer.name}.{gate}"].shape[:2] == (4, 6) for gate in layer.cell.gates)


def test_the_recorded_gates_of_an_lstm_satisfy_its_equation() -> None:
    layer, x = build_layer("lstm"), random_input()
    with record(layer, "lstm.*") as recording:
        layer(x)
    i, f, g, o, c, h = (recording[f"lstm.{gate}"] for gate in layer.cell.gates)
    previous_c = torch.cat([torch.zeros_like(c[:, :1]), c[:, :-1]], dim=1)
    torch.testing.assert_close(c, f * previous_c + i * g)
    torch.testing.assert_close(h, o * c.tanh())


def test_a_live_recording_gives_the_total_gradient_of_a_gate() -> None:
    """Through the step itself and all later ones: equal to changing the gate slightly and running again."""

    class PerturbedCell(cells.LSTMCell):
        perturbation, step_number = 0.0, 0

        def step(self, x: Tensor, state: Any, weight_hidden: Tensor, record: Any = cells.record_nothing) -> Any:
            self.step_number += 1

            def perturb(name: str, value: Tensor) -> Tensor:
                return record(name, value + self.perturbation if name == "forget" and self.step_number == 2 else value)

            return super().step(x, state, weight_hidden, perturb)

    layer, x = Recurrent(PerturbedCell(4, 3)).double(), random_input()
    cell: Any = layer.cell
    with record(layer, live=True) as recording:
        outputs, _ = layer(x)
    (gradient,) = torch.autograd.grad(outputs.sum(), recording["lstm.forget"])
    totals = []
    for cell.perturbation in (1e-5, -1e-5):
        cell.step_number = 0
        totals.append(layer(x)[0].sum().item())
    assert gradient[:, 1].sum().item() == pytest.approx((totals[0] - totals[1]) / 2e-5, rel=1e-6)


def test_weight_dropout_uses_one_mask_per_call_also_for_the_recording() -> None:
    layer, x = Recurrent(cells.LSTMCell(4, 3), weight_dropout=0.5).double(), random_input()
    first, second = layer(x)[0], layer(x)[0]
    assert not torch.equal(first, second)
    assert torch.equal(first[:, 0], second[:, 0])  # the first step has no recurrent product
    with record(layer) as recording:
        outputs, _ = layer(x)
    torch.testing.assert_close(recording["lstm.hidden"], outputs, rtol=1e-10, atol=1e-10)
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_state_dropout_masks_the_state_in_the_recurrent_product_only() -> None:
    torch.manual_seed(0)
    layer, x = Recurrent(cells.LSTMCell(4, 3), state_dropout=0.5).double(), random_input()
    torch.manual_seed(1)
    outputs, (h, c) = layer(x)
    torch.manual_seed(1)
    mask = layer.draw_state_mask(x)
    assert mask is not None
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    state = layer.cell.start(len(x), x)
    for t in range(x.shape[1]):
        masked = (state[0] * mask, state[1])
        state = layer.cell.step(layer.cell.project(x[:, t]), masked, layer.cell.weight_hidden)
        torch.testing.assert_close(outputs[:, t], state[0])
    torch.testing.assert_close((h, c), state)
    layer.eval()
    assert torch.equal(layer(x)[0], Recurrent.forward(layer, x)[0])
    assert layer.draw_state_mask(x) is None


def test_each_direction_draws_one_mask_of_its_state() -> None:
    layers = [Recurrent(cells.LSTMCell(4, 3), state_dropout=0.5).double() for _ in range(2)]
    layer, x = Bidirectional(*layers), random_input()
    torch.manual_seed(1)
    outputs, _ = layer(x)
    random_state = torch.get_rng_state()
    torch.manual_seed(1)
    first, _ = layer.forward_layer(x)
    second, _ = layer.backward_layer(x.flip(1))
    torch.testing.assert_close(outputs, torch.cat([first, second.flip(1)], dim=-1), rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state)


def test_state_dropout_is_refused_for_cells_that_blend_their_state() -> None:
    with pytest.raises(UsageError, match="LSTM; received gru"):
        Recurrent(cells.GRUCell(4, 3), state_dropout=0.5)


def test_summed_layers_return_the_sum_of_all_outputs() -> None:
    layers = [Recurrent(cells.LSTMCell(4, 3)), Recurrent(cells.LSTMCell(3, 3))]
    x = random_input().float()
    first, _ = layers[0](x)
    second, _ = layers[1](first)
    torch.testing.assert_close(StackedRecurrent(layers, sum_layers=True)(x)[0], first + second)
    with pytest.raises(UsageError, match=r"same width; received \[3, 2\]"):
        StackedRecurrent([layers[0], Recurrent(cells.LSTMCell(3, 2))], sum_layers=True)


def test_stacked_layers_apply_dropout_between_layers_only() -> None:
    class Identity(torch.nn.Module):
        units = 4

        def forward(self, x: Tensor, state: Any, lengths: Any) -> Any:
            return x, (x[:, -1],)

    x = torch.ones(2, 5, 4)
    assert torch.equal(StackedRecurrent([Identity()], dropout=0.5)(x)[0], x)
    dropped, states = StackedRecurrent([Identity(), Identity()], dropout=0.5)(x)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1]).all()
    assert len(states) == 2
    dropped, _ = StackedRecurrent([Identity(), Identity()], dropout=0.5, variational=False)(x)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert not (dropped == dropped[:, :1]).all()


def test_names_in_stacked_bidirectional_layers_are_paths() -> None:
    def bidirectional(width: int) -> Bidirectional:
        return Bidirectional(Recurrent(cells.LSTMCell(width, 3)), Recurrent(cells.LSTMCell(width, 3)))

    layer = StackedRecurrent([bidirectional(4), bidirectional(6)])
    with record(layer, "*.forget") as recording:
        outputs, _ = layer(torch.randn(2, 5, 4))
    assert outputs.shape == (2, 5, layer.units) == (2, 5, 6)
    directions = ("forward_layer", "backward_layer")
    assert list(recording) == [f"layer.{depth}.{direction}.lstm.forget" for depth in (0, 1) for direction in directions]


def test_a_row_is_reversed_within_its_own_length() -> None:
    x = torch.arange(8.0).view(2, 4, 1)
    assert reverse_steps(x, torch.tensor([4, 2]))[..., 0].tolist() == [[3, 2, 1, 0], [5, 4, 6, 7]]
    assert reverse_steps(x, None)[..., 0].tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]


def test_the_backward_state_is_that_of_the_first_step() -> None:
    layer = Bidirectional(Recurrent(cells.GRUCell(4, 3)), Recurrent(cells.GRUCell(4, 3))).double()
    outputs, (forwards, backwards) = layer(random_input(), None, torch.tensor([6, 3, 1, 2]))
    torch.testing.assert_close(backwards[0], outputs[:, 0, 3:])
    torch.testing.assert_close(forwards[0][1], outputs[1, 2, :3])


@pytest.mark.parametrize(
    ("shape", "lengths", "message"),
    [
        ((2, 5, 7), None, r"expected vectors \(batch, time > 0, 4\), received \(2, 5, 7\)"),
        ((2, 0, 4), None, r"received \(2, 0, 4\)"),
        ((5, 4), None, r"received \(5, 4\)"),
        ((2, 5, 4), [5], r"one length per sequence, \(2,\), received \(1,\)"),
        ((2, 5, 4), [5, 6], r"lengths from 0 to 5, received \[5, 6\]"),
    ],
)
def test_shapes_that_cannot_be_scanned_are_rejected(shape: Any, lengths: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Recurrent(cells.LSTMCell(4, 3))(torch.zeros(shape), None, None if lengths is None else torch.tensor(lengths))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ALL_CELLS)
def test_autocast_on_a_gpu_stays_near_single_precision(name: str) -> None:
    layer, x = Recurrent(ALL_CELLS[name]()).cuda().eval(), torch.randn(4, 6, 4, device="cuda")
    lengths = torch.tensor([6, 2, 0, 5], device="cuda")
    expected, _ = layer(x, None, lengths)
    with torch.autocast("cuda", torch.bfloat16):
        outputs, state = layer(x, None, lengths)
        continued, _ = layer(outputs.new_ones(4, 6, 4), state)
    (outputs.float().sum() + continued.float().sum()).backward()  # in evaluation mode: dynamic evaluation needs it
    torch.testing.assert_close(outputs.float(), expected, rtol=0.05, atol=0.05)
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", ["lstm", "gru reset before"])
@pytest.mark.parametrize("shape", [(1, 3), (9, 3), (4, 2), (4, 3, 1)])
def test_a_state_of_another_size_is_rejected(name: str, shape: tuple[int, ...]) -> None:
    layer = build_layer(name)
    parts = len(layer.cell.start(1, random_input()))
    with pytest.raises(UsageError, match=r"expected a state of \(4, 3\)"):
        layer(random_input(), tuple(torch.zeros(shape, dtype=torch.float64) for _ in range(parts)))
    with pytest.raises(UsageError, match="received nothing"):
        layer(random_input(), ())


@pytest.mark.parametrize("name", ["lstm", "gru reset before", "lstm layer norm"])
def test_a_penalty_on_a_gradient_is_that_of_the_reference_implementation(name: str, monkeypatch) -> None:
    layer, x = build_layer(name), random_input().requires_grad_()
    results = []
    for backend in ("compiled", "reference"):
        if backend == "reference":
            monkeypatch.setattr(recurrent, "choose_backend", lambda *arguments, **options: "reference")
        outputs, _ = layer(x)
        assert layer.backend == backend
        (grad_x,) = torch.autograd.grad(outputs.square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(grad_x.square().sum(), [x, *layer.parameters()]))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


def test_recording_does_not_change_bidirectional_outputs() -> None:
    bidirectional = Bidirectional(build_layer("lstm"), build_layer("lstm"))
    x, lengths = torch.randn(8, 20, 4, dtype=torch.float64), torch.tensor([20, 3, 0, 11, 20, 7, 1, 19])
    expected, _ = bidirectional(x, None, lengths)
    assert bidirectional.forward_layer.backend == "compiled"
    with record(bidirectional) as recording:
        recorded, _ = bidirectional(x, None, lengths)
    assert torch.equal(expected, recorded)
    torch.testing.assert_close(recording["forward_layer.lstm.hidden"], expected[..., :3])
    torch.testing.assert_close(recording["backward_layer.lstm.hidden"], reverse_steps(expected[..., 3:], lengths))
