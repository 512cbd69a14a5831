"""The simple RNN's persistent kernels under Triton's interpreter, compared with the cell and PyTorch."""

from __future__ import annotations

import pytest
import torch
from interpreter import run_concurrently
from packed_scans import mark_slow, run_packed, run_reference
from torch import Tensor, nn

from seqwise.layers.cells import ACTIVATIONS, RNNCell

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.cell_scans import RNNScan
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import ScanInputs

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

CPU = torch.device("cpu")
FORWARD, REVERSE = (False,), (True,)
SHAPES = {  # which directions are reversed, steps, sequences, units, lengths
    "one program": (FORWARD, 3, 3, 16, None),
    "two blocks, the second not full": (FORWARD, 4, 5, 70, None),
    "reversed": (REVERSE, 4, 3, 16, None),
    "reversed, with lengths": (REVERSE, 4, 9, 16, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "two directions, two groups, lengths": (FORWARD + REVERSE, 4, 9, 70, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "a group without steps": (FORWARD, 3, 10, 5, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
}


def draw_tensors(directions: int, steps: int, batch: int, units: int) -> list[Tensor]:
    """Returns projected inputs, recurrent weights, states."""
    torch.manual_seed(0)
    weight = torch.randn(directions, units, units) / units**0.5
    tensors = [torch.randn(directions, steps, batch, units), weight, torch.randn(directions, batch, units)]
    return [tensor.requires_grad_() for tensor in tensors]


def assert_matches_reference(
    activation: str, leaves: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = FORWARD
) -> None:
    """Checks that values and all gradients equal those of the reference implementation."""
    inputs, weight, h = leaves
    expected = run_reference(RNNCell(1, weight.shape[2], activation), inputs, weight, [h], lengths, reverse)
    grads = [torch.randn_like(part) for part in expected]
    with run_concurrently():
        results, _ = run_packed(RNNScan(ACTIVATION=activation), inputs, weight, (), [h], lengths, reverse)
        gradients = torch.autograd.grad(results, leaves, grads)
    torch.testing.assert_close(results, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves, grads), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", mark_slow(SHAPES, "one program"))
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    assert_matches_reference("tanh", draw_tensors(len(reverse), *sizes), lengths, reverse)


@pytest.mark.slow
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "tanh"])
def test_every_activation_equals_the_cell(activation: str) -> None:
    assert_matches_reference(activation, draw_tensors(1, 3, 3, 16), [3, 1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_the_last_of_several_launches_may_be_partly_filled(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "get_device_limits", lambda device: (2, 232448))  # a small GPU
    launch.choose_tiling.cache_clear()
    try:
        tiling = launch.choose_tiling(4, 64, 150, 1, 4, CPU)
        assert tiling is not None
        assert (tiling.batch_capacity, tiling.batch_tile) == (128, 64), (
            "the second launch has a group without sequences"
        )
        lengths = [row % 3 for row in range(150)] if padded else None
        assert_matches_reference("tanh", draw_tensors(1, 2, 150, 4), lengths)
    finally:
        launch.choose_tiling.cache_clear()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_values_and_gradients_are_those_of_pytorch(activation: str) -> None:
    torch.manual_seed(0)
    layer, x, h = nn.RNN(4, 6, nonlinearity=activation), torch.randn(3, 2, 4), torch.randn(1, 2, 6, requires_grad=True)
    expected = layer(x, h)
    inputs = nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0)
    leaves, grads = [h, *layer.parameters()], [torch.randn_like(part) for part in expected]
    with run_concurrently():
        scan = RNNScan(ACTIVATION=activation)
        (outputs, last), _ = run_packed(scan, inputs[None], layer.weight_hh_l0[None], (), [h])
        gradients = torch.autograd.grad([outputs[0], last], leaves, grads)
    torch.testing.assert_close((outputs[0], last), expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves, grads), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_the_inputs_are_only_read_and_a_scan_without_gradients_is_the_same() -> None:
    inputs, weight, h = draw_tensors(1, 3, 3, 20)
    leaves, layout = [inputs[0].flatten(0, 1)[:, None], weight, h[0][:, None]], PackedLayout(3, 3, 9)
    inputs_before, h_before = leaves[0].detach().clone(), h.detach().clone()
    with run_concurrently():
        scan = RNNScan(ACTIVATION="tanh")
        outputs, (last,), _ = scan.run(ScanInputs(*leaves[:2], (), leaves[2:], layout))
        x, weight, initial = (leaf.detach() for leaf in leaves)
        without_gradients, (state,), _ = scan.run(ScanInputs(x, weight, (), [initial], layout))
    assert torch.equal(leaves[0], inputs_before)
    assert torch.equal(h, h_before)
    assert torch.equal(outputs, without_gradients)
    assert torch.equal(last, state)
    assert torch.equal(last, outputs[-1])


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_nan_propagates_and_blocks_no_program(activation: str) -> None:
    inputs, weight, h = (tensor.detach() for tensor in draw_tensors(1, 3, 3, 20))
    inputs[0, 1, 2].view(torch.int32).fill_(-1)  # the bits of `UNWRITTEN`
    with run_concurrently():
        (outputs, _), _ = run_packed(RNNScan(ACTIVATION=activation), inputs, weight, (), [h])
    assert outputs[0, 1:, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()


@pytest.mark.slow
def test_a_second_backward_pass_gives_the_same_bits() -> None:
    leaves = draw_tensors(1, 3, 3, 70)
    with run_concurrently():
        (outputs, _), _ = run_packed(RNNScan(ACTIVATION="tanh"), *leaves[:2], (), leaves[2:])
        runs = [torch.autograd.grad(outputs.sum(), leaves, retain_graph=True) for _ in range(2)]
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


@pytest.mark.slow
def test_half_precision_stays_near_float32() -> None:
    float32_leaves = draw_tensors(1, 3, 3, 20)
    float16_leaves = [tensor.detach().half().requires_grad_() for tensor in float32_leaves]
    expected, _ = run_reference(RNNCell(1, 20), *float32_leaves[:2], float32_leaves[2:])
    with run_concurrently():
        (outputs, _), _ = run_packed(RNNScan(ACTIVATION="tanh"), *float16_leaves[:2], (), float16_leaves[2:])
        gradients = torch.autograd.grad(outputs.float().sum(), float16_leaves)
    torch.testing.assert_close(outputs.float(), expected, atol=5e-3, rtol=5e-3)
    for gradient, reference in zip(gradients, torch.autograd.grad(expected.sum(), float32_leaves), strict=True):
        assert float((gradient.float() - reference).norm() / reference.norm()) < 5e-3
