"""The LSTM's persistent kernels under Triton's interpreter, every program in a process of its own, beside the cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interpreted import side_by_side
from torch import Tensor

from seqwise.layers.cells import LSTMCell
from seqwise.layers.scan import scan as open_scan

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import OWN, Rows, cut
from seqwise.kernels.recurrence.gpu.lstm_scan import lstm_scan

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

SHAPES = {  # scans, steps, rows, units, lengths
    "one program": (1, 3, 3, 16, None),
    "two blocks, the second not full": (1, 4, 5, 20, None),
    "a block of 64 units and a part": (1, 3, 4, 70, None),
    "two groups of rows": (1, 3, 11, 18, None),
    "two directions and lengths": (2, 4, 9, 40, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "a group of padding": (1, 3, 10, 16, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
    "nothing but padding": (1, 2, 3, 16, [0, 0, 0]),
    "one step, one row, one unit": (1, 1, 1, 1, None),
}


def tensors(scans: int, steps: int, batch: int, units: int) -> list[Tensor]:
    torch.manual_seed(0)
    parts = [(scans, steps, batch, 4 * units), (scans, 4 * units, units), (scans, batch, units), (scans, batch, units)]
    made = [torch.randn(shape) for shape in parts]
    made[1] /= units**0.5
    return [tensor.requires_grad_() for tensor in made]


def expected(gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
    """The open scan of the cell's own equation, one direction after another."""
    steps, batch, units = gates.shape[1], gates.shape[2], weight.shape[2]
    real = None if lengths is None else torch.arange(steps) < lengths[:, None]
    cell, results = LSTMCell(1, units), []
    for s in range(len(gates)):
        cell.project = lambda x, s=s: gates[s].transpose(0, 1)  # type: ignore[method-assign]
        outputs, (last_h, last_c) = open_scan(cell, torch.empty(batch, steps, 1), (h[s], c[s]), weight[s], real)
        results.append((outputs.transpose(0, 1), last_h, last_c))
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    *sizes, rows = SHAPES[name]
    lengths = None if rows is None else torch.tensor(rows)
    inputs = tensors(*sizes)
    wanted = expected(*inputs, lengths)
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found = lstm_scan(inputs[0].clone(), *inputs[1:], Rows.of(lengths, torch.device("cpu")))[:3]
        gradients = torch.autograd.grad(found, inputs, slopes)
    for mine, true in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-5)
    for mine, true in zip(gradients, torch.autograd.grad(wanted, inputs, slopes), strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-4)


def test_a_matrix_that_does_not_fit_on_chip_and_rows_that_need_several_launches(monkeypatch) -> None:
    small = replace(cut(40, OWN, 5, 1, 4, torch.device("cpu")), columns=32, held=1, rows=2, groups=1)
    monkeypatch.setattr(launch, "cut", lambda *_: small)
    inputs, lengths = tensors(1, 3, 5, 40), torch.tensor([3, 1, 0, 2, 3])
    wanted = expected(*inputs, lengths)
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found = lstm_scan(inputs[0].clone(), *inputs[1:], Rows.of(lengths, torch.device("cpu")))[:3]
        gradients = torch.autograd.grad(found, inputs, slopes)
    for mine, true in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-5)
    for mine, true in zip(gradients, torch.autograd.grad(wanted, inputs, slopes), strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-4)


def test_the_memory_of_the_inputs_takes_the_gates() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in tensors(1, 3, 2, 20))
    with side_by_side():
        consumed = gates.clone()
        outputs, _, _, cells = lstm_scan(consumed, weight, h, c, Rows(), keep=True)
        forgotten = gates.clone()
        plain, *_ = lstm_scan(forgotten, weight, h, c, Rows())
    i, f, g, o = consumed.chunk(4, dim=-1)
    torch.testing.assert_close(cells[:, 1:], f * cells[:, :-1] + i * g, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs, o * cells[:, 1:].tanh(), atol=1e-5, rtol=1e-5)
    assert torch.equal(plain, outputs)
    assert torch.equal(forgotten, gates), "without a reader nothing but outputs is written"


def test_a_nan_is_passed_on_and_nobody_waits_for_it() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in tensors(1, 3, 3, 20))
    gates[0, 1, 2] = float("nan")
    gates[0, 1, 2, ::2].view(torch.int32).fill_(-1)  # the very bits that mean "not written yet"
    h[0, 1].view(torch.int32).fill_(-1)
    with side_by_side():
        outputs, *_ = lstm_scan(gates, weight, h, c, Rows())
    assert outputs[0, 1:, 2].isnan().all()
    assert outputs[0, :, 1].isnan().all()
    assert not outputs[0, :, 0].isnan().any()


def test_two_runs_are_the_same_to_the_bit() -> None:
    inputs = tensors(1, 4, 5, 40)
    runs = []
    with side_by_side():
        for _ in range(2):
            found = lstm_scan(inputs[0].clone(), *inputs[1:], Rows())[0]
            runs.append([found, *torch.autograd.grad(found, inputs, torch.ones_like(found))])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
