"""The plain recurrent network's persistent kernels under Triton's interpreter, beside the cell and PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from interpreted import side_by_side
from laid_out import expected, scanned
from torch import Tensor, nn

from seqwise.layers.cells import ACTIVATIONS, RNNCell

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.gpu.rnn_scan import rnn_scan

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

CPU = torch.device("cpu")
ON, BACK = (False,), (True,)
SHAPES = {  # which scans are reversed, steps, rows, units, lengths
    "one program": (ON, 3, 3, 16, None),
    "two blocks, the second not full": (ON, 4, 5, 70, None),
    "from the end": (BACK, 4, 3, 16, None),
    "from the end, and lengths": (BACK, 4, 9, 16, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "two directions, two groups, lengths": (ON + BACK, 4, 9, 70, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "a group of padding": (ON, 3, 10, 5, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
}


def tensors(scans: int, steps: int, batch: int, units: int) -> list[Tensor]:
    """Projected inputs, matrices, states."""
    torch.manual_seed(0)
    weight = torch.randn(scans, units, units) / units**0.5
    made = [torch.randn(scans, steps, batch, units), weight, torch.randn(scans, batch, units)]
    return [tensor.requires_grad_() for tensor in made]


def compare(
    activation: str, leaves: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = ON
) -> None:
    """Values, and gradients into everything, beside the cell's."""
    inputs, weight, h = leaves
    wanted = expected(RNNCell(1, weight.shape[2], activation), inputs, weight, [h], lengths, reverse)
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found = scanned(rnn_scan, inputs, weight, (), [h], lengths, reverse, activation=activation)
        gradients = torch.autograd.grad(found, leaves, slopes)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, leaves, slopes), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    compare("tanh", tensors(len(reverse), *sizes), lengths, reverse)


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "tanh"])
def test_the_other_activations(activation: str) -> None:
    compare(activation, tensors(1, 3, 3, 16), [3, 1, 2])


@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_of_several_launches_the_last_not_full(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "resources", lambda device: (2, 232448))  # a small GPU
    launch.cut.cache_clear()
    try:
        shape = launch.cut(4, 64, 150, 1, 4, CPU)
        assert shape is not None
        assert (shape.taken, shape.rows) == (128, 64), "the second launch has a group without rows"
        compare("tanh", tensors(1, 2, 150, 4), [row % 3 for row in range(150)] if padded else None)
    finally:
        launch.cut.cache_clear()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_values_and_gradients_are_those_of_pytorch(activation: str) -> None:
    torch.manual_seed(0)
    layer, x, h = nn.RNN(4, 6, nonlinearity=activation), torch.randn(3, 2, 4), torch.randn(1, 2, 6, requires_grad=True)
    wanted = layer(x, h)
    inputs = nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0)
    leaves, slopes = [h, *layer.parameters()], [torch.randn_like(part) for part in wanted]
    with side_by_side():
        outputs, last = scanned(rnn_scan, inputs[None], layer.weight_hh_l0[None], (), [h], activation=activation)
        mine = torch.autograd.grad([outputs[0], last], leaves, slopes)
    torch.testing.assert_close((outputs[0], last), wanted)
    torch.testing.assert_close(mine, torch.autograd.grad(wanted, leaves, slopes), atol=1e-5, rtol=1e-4)


def test_the_inputs_are_only_read_and_a_scan_without_gradients_is_the_same() -> None:
    inputs, weight, h = tensors(1, 3, 3, 20)
    leaves, rows = [inputs[0].flatten(0, 1)[:, None], weight, h[0][:, None]], RowLayout(3, 3, 9)
    before, start = leaves[0].detach().clone(), h.detach().clone()
    with side_by_side():
        outputs, last = rnn_scan(*leaves, rows)
        plain, state = rnn_scan(*(leaf.detach() for leaf in leaves), rows)
    assert torch.equal(leaves[0], before)
    assert torch.equal(h, start)
    assert torch.equal(outputs, plain)
    assert torch.equal(last, state)
    assert torch.equal(last, outputs[-1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_nan_is_passed_on_and_nobody_waits_for_it(activation: str) -> None:
    inputs, weight, h = (tensor.detach() for tensor in tensors(1, 3, 3, 20))
    inputs[0, 1, 2].view(torch.int32).fill_(-1)  # the very bits that mean "not written yet"
    with side_by_side():
        outputs, _ = scanned(rnn_scan, inputs, weight, (), [h], activation=activation)
    assert outputs[0, 1:, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()


def test_gradients_can_be_asked_for_twice_and_are_the_same_to_the_bit() -> None:
    leaves = tensors(1, 3, 3, 70)
    with side_by_side():
        found, _ = scanned(rnn_scan, *leaves[:2], (), leaves[2:])
        runs = [torch.autograd.grad(found.sum(), leaves, retain_graph=True) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_half_precision_stays_near_float32() -> None:
    exact = tensors(1, 3, 3, 20)
    rough = [tensor.detach().half().requires_grad_() for tensor in exact]
    wanted, _ = expected(RNNCell(1, 20), *exact[:2], exact[2:])
    with side_by_side():
        found, _ = scanned(rnn_scan, *rough[:2], (), rough[2:])
        gradients = torch.autograd.grad(found.float().sum(), rough)
    torch.testing.assert_close(found.float(), wanted, atol=5e-3, rtol=5e-3)
    for mine, true in zip(gradients, torch.autograd.grad(wanted.sum(), exact), strict=True):
        assert float((mine.float() - true).norm() / true.norm()) < 5e-3
