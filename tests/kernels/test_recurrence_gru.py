"""The GRU's persistent kernels under Triton's interpreter, every program in a process of its own, beside the cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from interpreted import side_by_side
from laid_out import scanned, turn
from torch import Tensor, nn

from seqwise.layers.cells import (
    EarlyResetGRUCell,
    EarlyResetReplacingGRUCell,
    GatedCell,
    GRUCell,
    ReplacingGRUCell,
)
from seqwise.layers.scan import scan as open_scan

pytest.importorskip("triton")

from seqwise.kernels.recurrence.gpu import gru_scan as scans
from seqwise.kernels.recurrence.gpu import launch
from seqwise.kernels.recurrence.gpu.launch import cut
from seqwise.kernels.recurrence.gpu.layout import RowLayout

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: Triton is not interpreted")

CPU = torch.device("cpu")
KINDS: dict[str, type[GatedCell]] = {
    "after keeps": GRUCell,
    "after replaces": ReplacingGRUCell,
    "before keeps": EarlyResetGRUCell,
    "before replaces": EarlyResetReplacingGRUCell,
}
ON, BACK = (False,), (True,)
SHAPES = {  # which scans are reversed, steps, rows, units, lengths
    "one program": (ON, 3, 3, 16, None),
    "less than one, and no multiple of four": (ON + BACK, 2, 2, 5, None),
    "three blocks": (ON, 2, 3, 36, None),
    "from the end": (BACK, 3, 2, 6, None),
    "from the end, and lengths": (BACK, 4, 10, 6, [4, 0, 1, 3, 2, 4, 1, 0, 2, 3]),
    "two directions, two groups, lengths": (ON + BACK, 3, 9, 18, [3, 0, 1, 3, 2, 3, 1, 0, 2]),
    "a group of padding": (ON, 3, 10, 16, [3, 2, 3, 1, 3, 2, 3, 1, 0, 0]),
    "nothing but padding": (ON + BACK, 2, 3, 4, [0, 0, 0]),
}


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A small GPU, on which a batch of more than 128 rows takes two launches."""
    cut.cache_clear()
    monkeypatch.setattr(launch, "resources", lambda device: (8, 232448))
    yield
    cut.cache_clear()


def tensors(kind: str, size: int, steps: int, batch: int, units: int) -> list[Tensor]:
    """Projected inputs, matrices, the inner bias if there is one, states."""
    torch.manual_seed(0)
    weight = torch.randn(size, 3 * units, units) / units**0.5
    bias = [torch.randn(size, units)] if kind.startswith("after") else []
    made = [torch.randn(size, steps, batch, 3 * units), weight, *bias, torch.randn(size, batch, units)]
    return [tensor.requires_grad_() for tensor in made]


def run(
    kind: str, tensors: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = ON
) -> list[Tensor]:
    """The scan. Within `side_by_side`, which cannot be nested."""
    scan: Callable[..., tuple[Tensor, Tensor]] = scans.gru_scan if kind.startswith("after") else scans.early_gru_scan
    gates, weight, *bias, h = tensors
    return scanned(scan, gates, weight, bias, (h,), lengths, reverse, replaces=kind.endswith("replaces"))


def expected(
    kind: str, tensors: list[Tensor], lengths: list[int] | None = None, reverse: tuple[bool, ...] = ON
) -> list[Tensor]:
    """The open scan of the cell's own equation, one direction after another."""
    gates, weight, *bias, h = tensors
    steps, batch, units = gates.shape[1], gates.shape[2], weight.shape[2]
    real = None if lengths is None else torch.arange(steps) < torch.tensor(lengths)[:, None]
    results = []
    for s, back in enumerate(reverse):
        cell, inputs = KINDS[kind](1, units), turn(gates[s], lengths) if back else gates[s]
        cell.project = lambda x, inputs=inputs: inputs.transpose(0, 1)  # type: ignore[method-assign]
        if bias:
            del cell.bias_hidden
            cell.bias_hidden = bias[0][s]
        outputs, (last,) = open_scan(cell, torch.empty(batch, steps, 1), (h[s],), weight[s], real)
        outputs = outputs.transpose(0, 1)
        results.append((turn(outputs, lengths) if back else outputs, last))
    return [torch.stack(parts) for parts in zip(*results, strict=True)]


def compare(kind: str, inputs: list[Tensor], lengths: list[int] | None, reverse: tuple[bool, ...] = ON) -> None:
    """Values, and gradients into everything, beside the cell's."""
    wanted = expected(kind, inputs, lengths, reverse)
    slopes = [torch.randn_like(part) for part in wanted]
    with side_by_side():
        found = run(kind, inputs, lengths, reverse)
        gradients = torch.autograd.grad(found, inputs, slopes)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, inputs, slopes), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_those_of_the_cell(kind: str, name: str) -> None:
    reverse, *sizes, lengths = SHAPES[name]
    compare(kind, tensors(kind, len(reverse), *sizes), lengths, reverse)


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
@pytest.mark.parametrize(("units", "reverse"), [(22, BACK), (70, ON)])
def test_four_programs_that_share_64_units_agree(
    kind: str, units: int, reverse: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "LITTLE", 0)  # as where there is much to read
    compare(kind, tensors(kind, len(reverse), 2, 3, units), [2, 0, 1], reverse)


@pytest.mark.usefixtures("few_programs")
@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_of_several_launches_the_last_not_full(kind: str, padded: bool) -> None:
    shape = cut(4, 16, 150, 1, 4, CPU)
    assert shape is not None
    assert (shape.taken, shape.rows) == (128, 64), "the second launch has a group without rows"
    lengths = [row % 3 for row in range(150)] if padded else None
    compare(kind, tensors(kind, 1, 2, 150, 4), lengths, BACK if padded else ON)


@pytest.mark.parametrize("kind", ["after replaces", "before replaces"])
def test_the_other_convention_of_the_update_gate(kind: str) -> None:
    compare(kind, tensors(kind, 1, 3, 3, 20), [3, 1, 2])


def test_values_and_gradients_are_those_of_pytorch() -> None:
    torch.manual_seed(0)
    layer, x, h = nn.GRU(4, 6), torch.randn(3, 2, 4), torch.randn(1, 2, 6, requires_grad=True)
    nn.init.zeros_(layer.bias_hh_l0[:12])  # ours has the inner bias of n alone
    wanted = layer(x, h)
    gates = nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)[None]
    with side_by_side():
        found = run("after keeps", [gates, layer.weight_hh_l0[None], layer.bias_hh_l0[None, 12:], h])
    torch.testing.assert_close((found[0][0], found[1]), wanted)
    leaves, slopes = [h, *layer.parameters()], [torch.randn_like(part) for part in wanted]
    true = torch.autograd.grad(wanted, leaves, slopes)
    with side_by_side():
        mine = torch.autograd.grad([found[0][0], found[1]], leaves, slopes)
    torch.testing.assert_close(mine[:4], true[:4], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mine[4][12:], true[4][12:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
def test_the_memory_of_the_inputs_takes_the_gates(kind: str) -> None:
    gates, weight, *bias, h = (tensor.detach() for tensor in tensors(kind, 1, 3, 2, 20))
    rows, gates, h = RowLayout(2, 3, 6), gates[0].flatten(0, 1)[:, None], h[0, :, None]  # slots, scans, units
    scan: Callable[..., tuple[Tensor, Tensor]] = scans.gru_scan if bias else scans.early_gru_scan
    with side_by_side():
        consumed, forgotten = gates.clone(), gates.clone()
        outputs, last = scan(consumed, weight, *bias, h, rows, keep=True)
        plain, _ = scan(forgotten, weight, *bias, h, rows)
    before = torch.cat([h[None], outputs[:-1]])
    r, z, n = consumed.view(3, 2, 1, 60).chunk(3, dim=-1)
    torch.testing.assert_close(outputs, z * before + (1 - z) * n, atol=1e-5, rtol=1e-5)
    u_r, u_z, u_n = (before @ weight[0].mT).chunk(3, dim=-1)
    x_r, x_z, x_n = gates.view(3, 2, 1, 60).chunk(3, dim=-1)
    torch.testing.assert_close(r, torch.sigmoid(x_r + u_r), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(z, torch.sigmoid(x_z + u_z), atol=1e-5, rtol=1e-5)
    u_n = r * (u_n + bias[0]) if bias else (r * before) @ weight[0, 40:].mT
    torch.testing.assert_close(n, torch.tanh(x_n + u_n), atol=1e-5, rtol=1e-5)
    assert torch.equal(plain, outputs)
    assert torch.equal(last, outputs[-1])
    assert torch.equal(forgotten, gates), "without a reader nothing but outputs is written"


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
def test_a_nan_is_passed_on_and_nobody_waits_for_it(kind: str) -> None:
    inputs = [tensor.detach() for tensor in tensors(kind, 1, 3, 3, 20)]
    inputs[0][0, 1, 2].view(torch.int32).fill_(-1)  # the very bits that mean "not written yet"
    with side_by_side():
        outputs, _ = run(kind, inputs)
    assert outputs[0, 1:, 2].isnan().all()
    assert not outputs[0, :, :2].isnan().any()


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
def test_gradients_can_be_asked_for_twice_and_are_the_same_to_the_bit(kind: str) -> None:
    inputs = tensors(kind, 1, 3, 3, 20)
    with side_by_side():
        found, _ = run(kind, inputs)
        runs = [torch.autograd.grad(found.sum(), inputs, retain_graph=True) for _ in range(2)]
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
def test_one_gradient_alone_is_the_same(kind: str) -> None:
    inputs = tensors(kind, 1, 2, 2, 8)
    wanted = torch.autograd.grad(expected(kind, inputs)[0].sum(), inputs)
    for place, true in enumerate(wanted[1:], 1):
        alone = [tensor.detach().requires_grad_(n == place) for n, tensor in enumerate(inputs)]
        with side_by_side():
            (mine,) = torch.autograd.grad(run(kind, alone)[0].sum(), alone[place])
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["after keeps", "before keeps"])
def test_half_precision_stays_near_float32(kind: str) -> None:
    exact = tensors(kind, 1, 3, 3, 20)
    rough = [tensor.detach().half().requires_grad_() for tensor in exact]
    wanted = expected(kind, exact)
    with side_by_side():
        found = run(kind, rough)
        gradients = torch.autograd.grad(found[0].float().sum(), rough)
    torch.testing.assert_close(found[0].float(), wanted[0], atol=5e-3, rtol=5e-3)
    for mine, true in zip(gradients, torch.autograd.grad(wanted[0].sum(), exact), strict=True):
        assert mine.dtype == torch.float16
        assert float((mine.float() - true).norm() / true.norm()) < 5e-3


@pytest.mark.parametrize(
    ("units", "batch"), [(16, 1), (100, 3), (256, 64), (512, 64), (1024, 64), (1536, 20), (2048, 64)]
)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("matrices", [1, 3])
def test_what_a_program_holds_fits_on_chip(units: int, batch: int, size: int, matrices: int) -> None:
    shape = cut(units, 16, batch, 1, size, CPU)
    assert shape is not None
    columns = -(-units // 4) * 4 * (3 if matrices == 1 else 1)
    options = scans.quarters(shape, columns, matrices, size, CPU)
    whole = options["HELD"] * options["KC"] >= columns // 4
    rows = shape.rows if options["SPLIT"] else 4 * shape.rows
    chunks = matrices * options["HELD"] + (not whole)
    assert (64 * chunks + rows) * options["KC"] * size < 232448
    assert whole or units * size > 4000, "a small matrix stays on chip as a whole"
