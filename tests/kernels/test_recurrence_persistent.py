"""Whole layers on the persistent kernels under Triton's interpreter, compared with the reference implementation."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from interpreter import run_concurrently
from torch import Tensor, nn

from seqwise.layers import cells, recurrent
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent

pytest.importorskip("triton")

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

CELLS: dict[str, Callable[[int, int], cells.Cell]] = {
    "rnn": cells.RNNCell,
    "lstm": cells.LSTMCell,
    "gru": cells.GRUCell,
    "gru reset before": cells.EarlyResetGRUCell,
    "layer-norm rnn": cells.LayerNormRNNCell,
    "layer-norm lstm": cells.LayerNormLSTMCell,
    "layer-norm gru": cells.LayerNormReplacingGRUCell,
}
LENGTHS = [4, 0, 2, 4, 1]
UNITS = 18


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda name: monkeypatch.setattr(recurrent, "choose_backend", lambda *_, **__: name)


def build_layer(name: str, bidirectional: bool) -> nn.Module:
    torch.manual_seed(0)
    layers = [Recurrent(CELLS[name](3, UNITS)) for _ in range(1 + bidirectional)]
    layer = Bidirectional(*layers) if bidirectional else layers[0]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layer


def build_states(name: str, bidirectional: bool) -> list[Tensor]:
    """Returns initial states, direction by direction."""
    parts = (1 + bidirectional) * len(CELLS[name](3, UNITS).start(1, torch.empty(1)))
    return [torch.randn(len(LENGTHS), UNITS, requires_grad=True) for _ in range(parts)]


def run(layer: nn.Module, x: Tensor, states: list[Tensor], lengths: Tensor | None, bidirectional: bool) -> list[Tensor]:
    """Returns outputs and last states, then the gradients of x, the states and all parameters."""
    num_forward_states = len(states) // 2
    outputs, last = layer(
        x,
        (tuple(states[:num_forward_states]), tuple(states[num_forward_states:])) if bidirectional else tuple(states),
        lengths,
    )
    results = [outputs, *(part for direction in last for part in direction)] if bidirectional else [outputs, *last]
    torch.manual_seed(1)
    grads = [torch.randn(part.shape) for part in results]
    leaves = [x, *states, *layer.parameters()]
    return [*results, *torch.autograd.grad(results, leaves, grads)]


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["unidirectional", "bidirectional"])
@pytest.mark.parametrize("name", CELLS)
def test_layers_give_the_results_of_the_reference(
    name: str, bidirectional: bool, lengths: list[int] | None, backend
) -> None:
    layer = build_layer(name, bidirectional)
    length_tensor = None if lengths is None else torch.tensor(lengths)
    x, states = torch.randn(len(LENGTHS), 4, 3, requires_grad=True), build_states(name, bidirectional)
    backend("reference")
    expected = run(layer, x, states, length_tensor, bidirectional)
    backend("triton")
    with run_concurrently():
        results = run(layer, x, states, length_tensor, bidirectional)
    assert all(part.backend == "triton" for part in layer.modules() if isinstance(part, Recurrent))
    for actual, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, reference, atol=5e-5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives_are_those_of_the_reference(name: str, lengths: list[int] | None, backend) -> None:
    layer, states, results = build_layer(name, True), build_states(name, True), []
    length_tensor = None if lengths is None else torch.tensor(lengths)
    x, num_forward_states = torch.randn(len(LENGTHS), 4, 3, requires_grad=True), len(states) // 2
    leaves = [x, *states, *layer.parameters()]
    for backend_name in ("reference", "triton"):
        backend(backend_name)
        with run_concurrently():
            outputs, last = layer(
                x, (tuple(states[:num_forward_states]), tuple(states[num_forward_states:])), length_tensor
            )
            loss = outputs.square().sum() + sum((part**3).sum() for direction in last for part in direction)
            grads = torch.autograd.grad(loss, leaves, create_graph=True)
            results.append([*grads, *torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves)])
    for reference, actual in zip(*results, strict=True):
        assert (actual - reference).norm() <= 1e-3 * reference.norm() + 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1, -1], ids=["outputs", "first state", "last state"])
@pytest.mark.parametrize("name", CELLS)
def test_a_gradient_of_one_result_alone_is_enough(name: str, part: int, backend) -> None:
    layer, (h, *others), results = build_layer(name, False), build_states(name, False), []
    for backend_name in ("reference", "triton"):
        backend(backend_name)
        with run_concurrently():
            outputs, last = layer(torch.ones(len(LENGTHS), 4, 3), (h, *others))
            results.append(torch.autograd.grad([outputs, *last][part].sum(), [h, layer.cell.weight_hidden]))
    for reference, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, reference, atol=5e-5, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_recorded_values_are_those_of_the_reference(name: str, backend) -> None:
    layer, lengths = build_layer(name, False), torch.tensor(LENGTHS)
    x = torch.randn(len(LENGTHS), 4, 3)
    recordings = []
    for backend_name in ("reference", "triton"):
        backend(backend_name)
        with run_concurrently(), record(layer) as recorded:
            layer(x, None, lengths)
        recordings.append(dict(recorded))
    assert recordings[0].keys() == recordings[1].keys()
    for key, reference in recordings[0].items():
        torch.testing.assert_close(recordings[1][key], reference, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_an_initial_state_of_another_type_is_converted(name: str, backend) -> None:
    layer = build_layer(name, False)
    results = []
    x, states = torch.randn(len(LENGTHS), 4, 3), [part.detach().double() for part in build_states(name, False)]
    for backend_name in ("reference", "triton"):
        backend(backend_name)
        with run_concurrently(), record(layer) as recorded:
            results.append([layer(x, tuple(states))[0], *dict(recorded).values()])
    for reference, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, reference, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_padding_may_be_nan_and_gets_no_gradient(backend) -> None:
    layer, lengths = build_layer("lstm", True), torch.tensor(LENGTHS)
    with_nan = torch.randn(len(LENGTHS), 4, 3)
    with_nan[torch.arange(4) >= lengths[:, None]] = float("nan")
    backend("triton")
    with run_concurrently():
        outputs, _ = layer(with_nan.requires_grad_(), None, lengths)
        (gradient,) = torch.autograd.grad(outputs.sum(), with_nan)
    assert outputs.isfinite().all()
    assert gradient.isfinite().all()
    assert not gradient[torch.arange(4) >= lengths[:, None]].any()


def test_a_deep_copy_of_a_layer_gives_the_same_outputs(backend) -> None:
    layer, x = build_layer("gru", False), torch.randn(2, 4, 3)
    backend("triton")
    with run_concurrently():
        outputs, _ = layer(x)
        outputs_of_copy, _ = copy.deepcopy(layer)(x)
    assert torch.equal(outputs, outputs_of_copy)
