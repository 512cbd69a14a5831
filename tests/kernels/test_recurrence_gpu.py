"""The persistent kernels on a GPU, compared with the reference implementation in float64: outputs and gradients."""

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
    "layer-norm rnn": cells.LayerNormRNNCell,
    "layer-norm lstm": cells.LayerNormLSTMCell,
    "layer-norm gru": cells.LayerNormGRUCell,
    "layer-norm gru replaces": cells.LayerNormReplacingGRUCell,
}
# Largest relative error of outputs and of gradients. float32 is multiplied as TF32.
MAX_ERRORS = {torch.bfloat16: (6e-3, 2.5e-2), torch.float16: (1e-3, 4e-3), torch.float32: (2e-3, 6e-3)}


@pytest.fixture(autouse=True)
def _skip_without_kernels() -> None:
    if reason := get_unavailable_reason(DEVICE):
        pytest.skip(f"no persistent kernels here: {reason}")


def build_layer(cell_name: str, inputs: int, units: int, dtype: torch.dtype) -> Recurrent:
    torch.manual_seed(0)
    layer = Recurrent(CELLS[cell_name](inputs, units)).to(DEVICE)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim() == 1:  # norms and biases that are not 1 and 0
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layer.to(dtype)


def random_leaves(layer: Recurrent, batch: int, steps: int) -> list[Tensor]:
    """Random x and initial states."""
    weight = layer.cell.weight_input
    x = torch.randn(batch, steps, layer.cell.inputs, device=DEVICE)
    states = [torch.randn(batch, layer.units, device=DEVICE) / 2 for _ in layer.cell.start(1, x)]
    return [tensor.to(weight.dtype).requires_grad_() for tensor in (x, *states)]


def relative_error(actual: Tensor | None, exact: Tensor | None) -> float:
    if exact is None:
        assert actual is None
        return 0.0
    assert actual is not None
    return float((actual.detach().double() - exact).norm() / (exact.norm() + 1e-9))


def largest_errors(
    layer: Recurrent, batch: int, steps: int, lengths: Tensor | None, reference: bool = False
) -> tuple[float, float]:
    """The largest relative errors of outputs and states, and of gradients: of the kernels or of the `reference`."""
    torch.manual_seed(1)
    leaves = random_leaves(layer, batch, steps)
    exact = copy.deepcopy(layer).double()
    exact_leaves = [tensor.detach().double().requires_grad_() for tensor in leaves]
    valid = valid_steps(exact_leaves[0], layer.cell.inputs, lengths)
    if reference:
        outputs, state = scan(
            layer.cell, zero_padding(leaves[0], valid), tuple(leaves[1:]), layer.cell.weight_hidden, valid
        )
    else:
        outputs, state = layer(leaves[0], tuple(leaves[1:]), lengths)
        assert layer.backend == "triton"
    exact_outputs, last = scan(
        exact.cell, zero_padding(exact_leaves[0], valid), tuple(exact_leaves[1:]), exact.cell.weight_hidden, valid
    )
    grad_outputs = [torch.randn_like(part) for part in (exact_outputs, *last)]
    gradients = torch.autograd.grad(
        [outputs, *state],
        [*leaves, *layer.parameters()],
        [grad_output.to(outputs.dtype) for grad_output in grad_outputs],
        allow_unused=True,
    )
    expected = torch.autograd.grad(
        [exact_outputs, *last], [*exact_leaves, *exact.parameters()], grad_outputs, allow_unused=True
    )
    values = max(relative_error(a, b) for a, b in zip((outputs, *state), (exact_outputs, *last), strict=True))
    return values, max(relative_error(a, b) for a, b in zip(gradients, expected, strict=True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cell_name", CELLS)
def test_values_and_gradients_over_random_shapes(cell_name: str, seed: int) -> None:
    generator = random.Random(f"{cell_name} {seed}")
    steps, batch = generator.choice([4, 7, 20]), generator.choice([1, 3, 8, 20, 64, 130])
    units, dtype = generator.choice([5, 16, 33, 64, 100, 256, 300, 512]), generator.choice(list(MAX_ERRORS))
    lengths = None if seed % 2 else torch.tensor([generator.randint(0, steps) for _ in range(batch)])
    layer = build_layer(cell_name, generator.choice([5, 64]), units, dtype)
    max_errors = MAX_ERRORS[dtype]
    if cell_name.startswith("layer-norm"):  # norms amplify rounding errors, in the reference implementation too
        reference_errors = largest_errors(layer, batch, steps, lengths, reference=True)
        max_errors = 4 * max_errors[0] + 2 * reference_errors[0], 4 * max_errors[1] + 2 * reference_errors[1]
    values, gradients = largest_errors(layer, batch, steps, lengths)
    assert values < max_errors[0]
    assert gradients < max_errors[1]


@pytest.mark.parametrize("cell_name", ["lstm", "gru", "gru before", "rnn", "layer-norm lstm"])
def test_2048_units(cell_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqwise.kernels.recurrence.gpu import persistent

    monkeypatch.setattr(persistent, "is_faster_than_cudnn", lambda *_: True)  # also where cuDNN is faster
    values, gradients = largest_errors(build_layer(cell_name, 32, 2048, torch.bfloat16), 8, 6, None)
    assert values < 6e-3
    assert gradients < 2.5e-2


@pytest.mark.parametrize("cell_name", CELLS)
def test_two_runs_give_the_same_bits(cell_name: str) -> None:
    layer = build_layer(cell_name, 64, 256, torch.bfloat16)
    runs = []
    leaves = random_leaves(layer, 40, 30)
    for _ in range(2):
        outputs, state = layer(leaves[0], tuple(leaves[1:]))
        parts = [outputs, *state]
        grad_outputs = [torch.ones_like(part) for part in parts]
        runs.append([*parts, *torch.autograd.grad(parts, [*leaves, *layer.parameters()], grad_outputs)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@pytest.mark.parametrize("cell_name", CELLS)
def test_uninitialised_memory_is_never_read(cell_name: str) -> None:
    """All of the allocator's free memory holds NaN before the call; none may be left in a result."""
    layer = build_layer(cell_name, 64, 100, torch.float16)
    leaves, lengths = random_leaves(layer, 20, 12), torch.arange(20) % 13
    for _ in range(3):
        poison = [torch.full((1 << 20,), float("nan"), device=DEVICE) for _ in range(64)]
        del poison
        outputs, state = layer(leaves[0], tuple(leaves[1:]), lengths)
        parts = [outputs, *state]
        gradients = torch.autograd.grad(
            parts, [*leaves, *layer.parameters()], [torch.ones_like(part) for part in parts]
        )
        assert all(bool(part.isfinite().all()) for part in (*parts, *gradients))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cell_name", CELLS)
def test_both_directions_at_once(cell_name: str, padded: bool) -> None:
    """Compared with float64, which the kernels do not support."""
    both = Bidirectional(build_layer(cell_name, 32, 100, torch.float32), build_layer(cell_name, 32, 100, torch.float32))
    exact = copy.deepcopy(both).double()
    lengths = torch.randint(0, 16, (20,), generator=torch.Generator().manual_seed(0)) if padded else None
    x = torch.randn(20, 15, 32, device=DEVICE, requires_grad=True)
    exact_x = x.detach().double().requires_grad_()
    (outputs, states), (exact_outputs, last) = both(x, None, lengths), exact(exact_x, None, lengths)
    assert both.forwards.backend == both.backwards.backend == "triton"
    results, expected = [outputs, *states[0], *states[1]], [exact_outputs, *last[0], *last[1]]
    grad_outputs = [torch.randn(part.shape, device=DEVICE) for part in results]
    gradients = torch.autograd.grad(results, [x, *both.parameters()], grad_outputs)
    exact_gradients = torch.autograd.grad(
        expected, [exact_x, *exact.parameters()], [grad_output.double() for grad_output in grad_outputs]
    )
    factor = (
        4 if cell_name.startswith(("layer-norm", "rnn identity")) else 1
    )  # no activation makes their TF32 errors smaller
    assert (
        max(relative_error(a, b) for a, b in zip(results, expected, strict=True))
        < factor * MAX_ERRORS[torch.float32][0]
    )
    assert (
        max(relative_error(a, b) for a, b in zip(gradients, exact_gradients, strict=True))
        < factor * MAX_ERRORS[torch.float32][1]
    )


@pytest.mark.parametrize("cell_name", CELLS)
def test_recorded_values_are_those_of_the_reference(cell_name: str) -> None:
    layer = build_layer(cell_name, 32, 64, torch.float32)
    x, lengths = torch.randn(6, 9, 32, device=DEVICE), torch.tensor([9, 1, 0, 4, 9, 7])
    plain, _ = layer(x, None, lengths)
    with record(layer) as recording:
        recorded, _ = layer(x, None, lengths)
    with record(layer, live=True) as expected:
        layer(x, None, lengths)
    assert torch.equal(plain, recorded)
    assert set(recording) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(recording[name], value.detach(), atol=5e-3, rtol=5e-3)


def test_a_kernel_that_cannot_run_is_replaced_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqwise.kernels.recurrence.gpu import persistent
    from seqwise.layers import scan as scan_module

    def fail(*_: object) -> None:
        raise RuntimeError("Triton Error [CUDA]: simulated")

    monkeypatch.setattr(persistent, "verify_backward_launch", fail)
    monkeypatch.setattr(scan_module, "_failed_kernels", set())
    layer = build_layer("lstm", 8, 16, torch.float32)
    x = torch.randn(2, 5, 8, device=DEVICE)
    with pytest.warns(UserWarning, match="simulated"):
        layer(x)
    assert layer.backend == "aten"
    layer(x)  # not launched again, no second warning


def test_weights_get_float32_gradients_under_autocast() -> None:
    layer = build_layer("lstm", 32, 64, torch.float32)
    x = torch.randn(4, 12, 32, device=DEVICE, requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        outputs, (h, c) = layer(x)
    outputs.float().sum().backward()
    assert layer.backend == "triton"
    assert outputs.dtype == h.dtype == c.dtype == torch.bfloat16
    assert layer.cell.weight_hidden.grad is not None
    assert layer.cell.weight_hidden.grad.dtype == torch.float32


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cell_name", CELLS)
def test_second_derivatives_are_those_of_the_reference(cell_name: str, padded: bool) -> None:
    layers = [build_layer(cell_name, 24, 40, torch.float32) for _ in range(2)]
    layer, lengths = Bidirectional(*layers), torch.tensor([5, 9, 0, 3], device=DEVICE) if padded else None
    x = torch.randn(4, 9, 24, device=DEVICE, requires_grad=True)
    results = []
    for is_exact in (False, True):
        module = copy.deepcopy(layer).double() if is_exact else layer
        with pytest.MonkeyPatch.context() as patch:
            if is_exact:
                patch.setattr("seqwise.layers.recurrent.choose_backend", lambda *arguments, **options: "reference")
            inputs = x.detach().to(next(module.parameters()).dtype).requires_grad_()
            outputs, _ = module(inputs, None, lengths)
        assert module.forwards.backend == ("reference" if is_exact else "triton")
        leaves = [inputs, *module.parameters()]
        grads = torch.autograd.grad(outputs.square().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves))
    for actual, exact in zip(*results, strict=True):
        assert relative_error(actual, exact) < 2e-2
