"""The LSTM's persistent kernels under Triton's interpreter, every program in a process of its own, beside the cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interpreted import side_by_side
from laid_out import expected, scanned
from torch import Tensor

from seqwise.layers.cells import LSTMCell

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import OWN, cut
from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.gpu.lstm_scan import lstm_scan

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

ON, BACK = (False,), (True,)
SHAPES = {  # which scans are reversed, steps, rows, units, lengths
    "one program": (ON, 3, 3, 16, None),
    "two blocks, the second not full": (ON, 4, 5, 20, None),
    "a block of 64 units and a part": (ON, 3, 4, 70, None),
    "two groups of rows": (ON, 3, 11, 18, None),
    "from the end": (BACK, 3, 4, 18, None),
    "from the end, and lengths": (BACK, 4, 10, 18, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "two directions": (ON + BACK, 3, 4, 20, None),
    "two directions and lengths": (ON + BACK, 4, 9, 40, [4, 0, 1, 3, 2, 4, 1, 0, 2]),
    "a group of padding": (ON, 3, 10, 16, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
    "nothing but padding": (ON + BACK, 2, 3, 16, [0, 0, 0]),
    "one step, one row, one unit": (ON, 1, 1, 1, None),
}


def tensors(scans: int, steps: int, batch: int, units: int) -> list[Tensor]:
    torch.manual_seed(0)
    parts = [(scans, steps, batch, 4 * units), (scans, 4 * units, units), (scans, batch, units), (scans, batch, units)]
    made = [torch.randn(shape) for shape in parts]
    made[1] /= units**0.5
    return [tensor.requires_grad_() for tensor in made]


def check(inputs: list[Tensor], lengths: list[int] | None, reverse: tuple[bool, ...]) -> None:
    """Values, and gradients into everything."""
    wanted = expected(LSTMCell(1, inputs[1].shape[2]), *inputs[:2], inputs[2:], lengths, reverse)
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found = scanned(lstm_scan, *inputs[:2], (), inputs[2:], lengths, reverse)[:3]
        gradients = torch.autograd.grad(found, inputs, slopes)
    for mine, true in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-5)
    for mine, true in zip(gradients, torch.autograd.grad(wanted, inputs, slopes), strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_those_of_the_cell(name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    check(tensors(len(reverse), *sizes), lengths, reverse)


def test_a_matrix_that_does_not_fit_on_chip_and_rows_that_need_several_launches(monkeypatch) -> None:
    small = replace(cut(40, OWN, 5, 1, 4, torch.device("cpu")), columns=32, held=1, rows=2, groups=1)
    monkeypatch.setattr(launch, "cut", lambda *_: small)
    check(tensors(2, 3, 5, 40), [3, 1, 0, 2, 3], ON + BACK)


def test_the_memory_of_the_inputs_takes_the_gates() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in tensors(1, 3, 2, 20))
    rows, gates, h, c = (
        RowLayout(2, 3, 6),
        gates.transpose(0, 2).transpose(0, 1).flatten(0, 1),
        h[0, :, None],
        c[0, :, None],
    )
    with side_by_side():
        consumed = gates.clone()
        outputs, _, _, cells = lstm_scan(consumed, weight, h, c, rows, keep=True)
        forgotten = gates.clone()
        plain, *_ = lstm_scan(forgotten, weight, h, c, rows)
    i, f, g, o = consumed.view(3, 2, 1, -1).chunk(4, dim=-1)
    earlier = torch.cat([c[None], cells[:-1]])
    torch.testing.assert_close(cells, f * earlier + i * g, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs, o * cells.tanh(), atol=1e-5, rtol=1e-5)
    assert torch.equal(plain, outputs)
    assert torch.equal(forgotten, gates), "without a reader nothing but outputs is written"


def test_a_nan_is_passed_on_and_nobody_waits_for_it() -> None:
    gates, weight, h, c = (tensor.detach() for tensor in tensors(1, 3, 3, 20))
    gates[0, 1, 2] = float("nan")
    gates[0, 1, 2, ::2].view(torch.int32).fill_(-1)  # the very bits that mean "not written yet"
    h[0, 1].view(torch.int32).fill_(-1)
    with side_by_side():
        outputs, *_ = scanned(lstm_scan, gates, weight, (), (h, c))
    assert outputs[0, 1:, 2].isnan().all()
    assert outputs[0, :, 1].isnan().all()
    assert not outputs[0, :, 0].isnan().any()


def test_two_runs_are_the_same_to_the_bit() -> None:
    inputs = tensors(1, 4, 5, 40)
    runs = []
    with side_by_side():
        for _ in range(2):
            found = scanned(lstm_scan, *inputs[:2], (), inputs[2:])[0]
            runs.append([found, *torch.autograd.grad(found, inputs, torch.ones_like(found))])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
