"""The persistent kernels on a real GPU beside the open scan in float64: values, and gradients into everything."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqwise.kernels.recurrence.availability import get_unavailable_reason
from seqwise.layers import cells
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent, valid_steps
from seqwise.layers.scan import scan, zero_padding

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)
CELLS: dict[str, Callable[[int, int], cells.Cell]] = {
    "rnn": cells.RNNCell,
    "rnn sigmoid": lambda inputs, units: cells.RNNCell(inputs, units, "sigmoid"),
    "rnn identity": lambda inputs, units: cells.RNNCell(inputs, units, "identity"),
    "lstm": cells.LSTMCell,
    "gru": cells.GRUCell,
    "gru replaces": cells.ReplacingGRUCell,
    "gru before": cells.EarlyResetGRUCell,
    "gru before replaces": cells.EarlyResetReplacingGRUCell,
    "normed rnn": cells.LayerNormRNNCell,
    "normed lstm": cells.LayerNormLSTMCell,
    "normed gru": cells.LayerNormGRUCell,
    "normed gru replaces": cells.LayerNormReplacingGRUCell,
}
# Largest relative error of outputs and of gradients. float32 is multiplied as TF32.
ALLOWED = {torch.bfloat16: (6e-3, 2.5e-2), torch.float16: (1e-3, 4e-3), torch.float32: (2e-3, 6e-3)}


@pytest.fixture(autouse=True)
def _where_they_run() -> None:
    if reason := get_unavailable_reason(DEVICE):
        pytest.skip(f"no persistent kernels here: {reason}")


def layer_of(kind: str, inputs: int, units: int, dtype: torch.dtype) -> Recurrent:
    torch.manual_seed(0)
    layer = Recurrent(CELLS[kind](inputs, units)).to(DEVICE)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim() == 1:  # norms and biases that are not 1 and 0
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layer.to(dtype)


def leaves(layer: Recurrent, batch: int, steps: int) -> list[Tensor]:
    """Random x and start states."""
    weight = layer.cell.weight_input
    x = torch.randn(batch, steps, layer.cell.inputs, device=DEVICE)
    states = [torch.randn(batch, layer.units, device=DEVICE) / 2 for _ in layer.cell.start(1, x)]
    return [tensor.to(weight.dtype).requires_grad_() for tensor in (x, *states)]


def error(mine: Tensor | None, true: Tensor | None) -> float:
    if true is None:
        assert mine is None
        return 0.0
    assert mine is not None
    return float((mine.detach().double() - true).norm() / (true.norm() + 1e-9))


def worst(layer: Recurrent, batch: int, steps: int, lengths: Tensor | None, open: bool = False) -> tuple[float, float]:
    """The largest errors of outputs and states, and of gradients, beside float64: ours, or those of the open scan."""
    torch.manual_seed(1)
    mine = leaves(layer, batch, steps)
    exact = copy.deepcopy(layer).double()
    true = [tensor.detach().double().requires_grad_() for tensor in mine]
    real = valid_steps(true[0], layer.cell.inputs, lengths)
    if open:
        outputs, state = scan(layer.cell, zero_padding(mine[0], real), tuple(mine[1:]), layer.cell.weight_hidden, real)
    else:
        outputs, state = layer(mine[0], tuple(mine[1:]), lengths)
        assert layer.backend == "triton"
    wanted, last = scan(exact.cell, zero_padding(true[0], real), tuple(true[1:]), exact.cell.weight_hidden, real)
    slopes = [torch.randn_like(part) for part in (wanted, *last)]
    found = torch.autograd.grad(
        [outputs, *state],
        [*mine, *layer.parameters()],
        [slope.to(outputs.dtype) for slope in slopes],
        allow_unused=True,
    )
    expected = torch.autograd.grad([wanted, *last], [*true, *exact.parameters()], slopes, allow_unused=True)
    values = max(error(a, b) for a, b in zip((outputs, *state), (wanted, *last), strict=True))
    return values, max(error(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", CELLS)
def test_values_and_gradients_over_random_shapes(kind: str, seed: int) -> None:
    draw = random.Random(f"{kind} {seed}")
    steps, batch = draw.choice([4, 7, 20]), draw.choice([1, 3, 8, 20, 64, 130])
    units, dtype = draw.choice([5, 16, 33, 64, 100, 256, 300, 512]), draw.choice(list(ALLOWED))
    lengths = None if seed % 2 else torch.tensor([draw.randint(0, steps) for _ in range(batch)])
    layer = layer_of(kind, draw.choice([5, 64]), units, dtype)
    allowed = ALLOWED[dtype]
    if kind.startswith("normed"):  # norms lengthen what rounding has shortened, in the open scan too
        rough = worst(layer, batch, steps, lengths, open=True)
        allowed = 4 * allowed[0] + 2 * rough[0], 4 * allowed[1] + 2 * rough[1]
    values, gradients = worst(layer, batch, steps, lengths)
    assert values < allowed[0]
    assert gradients < allowed[1]


@pytest.mark.parametrize("kind", ["lstm", "gru", "gru before", "rnn", "normed lstm"])
def test_2048_units(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqwise.kernels.recurrence.gpu import persistent

    monkeypatch.setattr(persistent, "is_faster_than_cudnn", lambda *_: True)  # also where cuDNN is faster
    values, gradients = worst(layer_of(kind, 32, 2048, torch.bfloat16), 8, 6, None)
    assert values < 6e-3
    assert gradients < 2.5e-2


@pytest.mark.parametrize("kind", CELLS)
def test_two_runs_give_the_same_bits(kind: str) -> None:
    layer, runs = layer_of(kind, 64, 256, torch.bfloat16), []
    mine = leaves(layer, 40, 30)
    for _ in range(2):
        outputs, state = layer(mine[0], tuple(mine[1:]))
        parts = [outputs, *state]
        slopes = [torch.ones_like(part) for part in parts]
        runs.append([*parts, *torch.autograd.grad(parts, [*mine, *layer.parameters()], slopes)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("kind", CELLS)
def test_uninitialised_memory_is_never_read(kind: str) -> None:
    """All of the allocator's free memory holds NaN before the call; none may be left in a result."""
    layer = layer_of(kind, 64, 100, torch.float16)
    mine, lengths = leaves(layer, 20, 12), torch.arange(20) % 13
    for _ in range(3):
        poison = [torch.full((1 << 20,), float("nan"), device=DEVICE) for _ in range(64)]
        del poison
        outputs, state = layer(mine[0], tuple(mine[1:]), lengths)
        parts = [outputs, *state]
        found = torch.autograd.grad(parts, [*mine, *layer.parameters()], [torch.ones_like(part) for part in parts])
        assert all(bool(part.isfinite().all()) for part in (*parts, *found))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_both_directions_at_once(kind: str, padded: bool) -> None:
    """Beside float64, which the kernels do not take."""
    both = Bidirectional(layer_of(kind, 32, 100, torch.float32), layer_of(kind, 32, 100, torch.float32))
    exact = copy.deepcopy(both).double()
    lengths = torch.randint(0, 16, (20,), generator=torch.Generator().manual_seed(0)) if padded else None
    x = torch.randn(20, 15, 32, device=DEVICE, requires_grad=True)
    true = x.detach().double().requires_grad_()
    (outputs, states), (wanted, last) = both(x, None, lengths), exact(true, None, lengths)
    assert both.forwards.backend == both.backwards.backend == "triton"
    found, expected = [outputs, *states[0], *states[1]], [wanted, *last[0], *last[1]]
    slopes = [torch.randn(part.shape, device=DEVICE) for part in found]
    mine = torch.autograd.grad(found, [x, *both.parameters()], slopes)
    theirs = torch.autograd.grad(expected, [true, *exact.parameters()], [slope.double() for slope in slopes])
    slack = 4 if kind.startswith(("normed", "rnn identity")) else 1  # whose TF32 errors no activation makes smaller
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < slack * ALLOWED[torch.float32][0]
    assert max(error(a, b) for a, b in zip(mine, theirs, strict=True)) < slack * ALLOWED[torch.float32][1]


@pytest.mark.parametrize("kind", CELLS)
def test_recorded_values_are_those_of_the_reference(kind: str) -> None:
    layer = layer_of(kind, 32, 64, torch.float32)
    x, lengths = torch.randn(6, 9, 32, device=DEVICE), torch.tensor([9, 1, 0, 4, 9, 7])
    plain, _ = layer(x, None, lengths)
    with record(layer) as seen:
        recorded, _ = layer(x, None, lengths)
    with record(layer, live=True) as expected:
        layer(x, None, lengths)
    assert torch.equal(plain, recorded)
    assert set(seen) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(seen[name], value.detach(), atol=5e-3, rtol=5e-3)


def test_a_kernel_that_cannot_run_is_replaced_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqwise.kernels.recurrence.gpu import persistent
    from seqwise.layers import scan as scan_module

    def broken(*_: object) -> None:
        raise RuntimeError("Triton Error [CUDA]: no such luck")

    monkeypatch.setattr(persistent, "verify_backward_launch", broken)
    monkeypatch.setattr(scan_module, "_failed", set())
    layer = layer_of("lstm", 8, 16, torch.float32)
    x = torch.randn(2, 5, 8, device=DEVICE)
    with pytest.warns(UserWarning, match="no such luck"):
        layer(x)
    assert layer.backend == "aten"
    layer(x)  # not tried again, not said again


def test_weights_get_float32_gradients_under_autocast() -> None:
    layer = layer_of("lstm", 32, 64, torch.float32)
    x = torch.randn(4, 12, 32, device=DEVICE, requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        outputs, (h, c) = layer(x)
    outputs.float().sum().backward()
    assert layer.backend == "triton"
    assert outputs.dtype == h.dtype == c.dtype == torch.bfloat16
    assert layer.cell.weight_hidden.grad is not None
    assert layer.cell.weight_hidden.grad.dtype == torch.float32
