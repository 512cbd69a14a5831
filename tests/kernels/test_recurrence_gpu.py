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
from seqwise.layers.recurrent import Bidirectional, Recurrent, build_step_mask
from seqwise.layers.scan import scan_reference, zero_padding

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)
CELLS: dict[str, Callable[[int, int], cells.Cell]] = {
    "rnn": cells.RNNCell,
    "rnn sigmoid": lambda inputs, units: cells.RNNCell(inputs, units, "sigmoid"),
    "rnn identity": lambda inputs, units: cells.RNNCell(inputs, units, "identity"),
    "lstm": cells.LSTMCell,
    "lstm capped": cells.CappedLSTMCell,
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


def build_layer(cell_name: str, inputs: int, units: int, dtype: torch.dtype, state_dropout: float = 0.0) -> Recurrent:
    torch.manual_seed(0)
    layer = Recurrent(CELLS[cell_name](inputs, units), state_dropout=state_dropout).to(DEVICE)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim() == 1:  # norms and biases that are not 1 and 0
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return layer.to(dtype)


def draw_leaves(layer: Recurrent, batch: int, steps: int) -> list[Tensor]:
    """Returns random x and initial states."""
    weight = layer.cell.weight_input
    x = torch.randn(batch, steps, layer.cell.inputs, device=DEVICE)
    states = [torch.randn(batch, layer.units, device=DEVICE) / 2 for _ in layer.cell.start(1, x)]
    return [tensor.to(weight.dtype).requires_grad_() for tensor in (x, *states)]


def compute_relative_error(actual: Tensor | None, expected: Tensor | None) -> float:
    if expected is None:
        assert actual is None
        return 0.0
    assert actual is not None
    return float((actual.detach().double() - expected).norm() / (expected.norm() + 1e-9))


def compute_largest_errors(
    layer: Recurrent, batch: int, steps: int, lengths: Tensor | None, reference: bool = False
) -> tuple[float, float]:
    """Returns the largest relative errors of outputs and states, and of gradients, for kernels or `reference`."""
    torch.manual_seed(1)
    leaves = draw_leaves(layer, batch, steps)
    float64_layer = copy.deepcopy(layer).double()
    float64_leaves = [tensor.detach().double().requires_grad_() for tensor in leaves]
    valid = build_step_mask(float64_leaves[0], layer.cell.inputs, lengths)
    torch.manual_seed(2)
    mask = layer.draw_state_mask(leaves[0])
    torch.manual_seed(2)  # the layer draws the same mask
    if reference:
        outputs, state = scan_reference(
            layer.cell, zero_padding(leaves[0], valid), tuple(leaves[1:]), layer.cell.weight_hidden, valid
        )
    else:
        outputs, state = layer(leaves[0], tuple(leaves[1:]), lengths)
        assert layer.backend == "triton"
    float64_outputs, last = scan_reference(
        float64_layer.cell,
        zero_padding(float64_leaves[0], valid),
        tuple(float64_leaves[1:]),
        float64_layer.cell.weight_hidden,
        valid,
        None if mask is None else mask.double(),
    )
    grad_outputs = [torch.randn_like(part) for part in (float64_outputs, *last)]
    gradients = torch.autograd.grad(
        [outputs, *state],
        [*leaves, *layer.parameters()],
        [grad_output.to(outputs.dtype) for grad_output in grad_outputs],
        allow_unused=True,
    )
    expected = torch.autograd.grad(
        [float64_outputs, *last], [*float64_leaves, *float64_layer.parameters()], grad_outputs, allow_unused=True
    )
    values = max(compute_relative_error(a, b) for a, b in zip((outputs, *state), (float64_outputs, *last), strict=True))
    return values, max(compute_relative_error(a, b) for a, b in zip(gradients, expected, strict=True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cell_name", CELLS)
def test_values_and_gradients_equal_the_reference_for_random_shapes(cell_name: str, seed: int) -> None:
    generator = random.Random(f"{cell_name} {seed}")
    steps, batch = generator.choice([4, 7, 20]), generator.choice([1, 3, 8, 20, 64, 130])
    units, dtype = generator.choice([5, 16, 33, 64, 100, 256, 300, 512]), generator.choice(list(MAX_ERRORS))
    lengths = None if seed % 2 else torch.tensor([generator.randint(0, steps) for _ in range(batch)])
    layer = build_layer(cell_name, generator.choice([5, 64]), units, dtype)
    max_errors = MAX_ERRORS[dtype]
    if cell_name.startswith("layer-norm"):  # norms amplify rounding errors, in the reference implementation too
        reference_errors = compute_largest_errors(layer, batch, steps, lengths, reference=True)
        max_errors = 4 * max_errors[0] + 2 * reference_errors[0], 4 * max_errors[1] + 2 * reference_errors[1]
    values, gradients = compute_largest_errors(layer, batch, steps, lengths)
    assert values < max_errors[0]
    assert gradients < max_errors[1]


@pytest.mark.parametrize("cell_name", ["lstm", "lstm capped", "layer-norm lstm"])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_a_masked_state_equals_the_reference(cell_name: str, has_lengths: bool) -> None:
    layer = build_layer(cell_name, 40, 300, torch.float32, state_dropout=0.4)
    lengths = torch.arange(30) % 12 if has_lengths else None
    values, gradients = compute_largest_errors(layer, 30, 11, lengths)
    assert values < 8e-3
    assert gradients < 2.4e-2


@pytest.mark.parametrize("cell_name", ["lstm", "gru", "gru before", "rnn", "layer-norm lstm"])
def test_layers_of_2048_units_equal_the_reference(cell_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqwise.kernels.recurrence.gpu import persistent

    monkeypatch.setattr(persistent, "is_faster_than_cudnn", lambda *_: True)  # also where cuDNN is faster
    values, gradients = compute_largest_errors(build_layer(cell_name, 32, 2048, torch.bfloat16), 8, 6, None)
    assert values < 6e-3
    assert gradients < 2.5e-2


@pytest.mark.parametrize("cell_name", CELLS)
def test_two_runs_give_the_same_bits(cell_name: str) -> None:
    layer = build_layer(cell_name, 64, 256, torch.bfloat16)
    runs = []
    leaves = draw_leaves(layer, 40, 30)
    for _ in range(2):
        outputs, state = layer(leaves[0], tuple(leaves[1:]))
        parts = [outputs, *state]
        grad_outputs = [torch.ones_like(part) for part in parts]
        runs.append([*parts, *torch.autograd.grad(parts, [*leaves, *layer.parameters()], grad_outputs)])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


@pytest.mark.parametrize("cell_name", CELLS)
def test_uninitialised_memory_is_never_read(cell_name: str) -> None:
    """All of the allocator's free memory holds NaN before the call; none may be left in a result."""
    layer = build_layer(cell_name, 64, 100, torch.float16)
    leaves, lengths = draw_leaves(layer, 20, 12), torch.arange(20) % 13
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
def test_bidirectional_layers_equal_the_reference_in_float64(cell_name: str, padded: bool) -> None:
    """Compared with float64, which the kernels do not support."""
    layer = Bidirectional(
        build_layer(cell_name, 32, 100, torch.float32), build_layer(cell_name, 32, 100, torch.float32)
    )
    float64_layer = copy.deepcopy(layer).double()
    lengths = torch.randint(0, 16, (20,), generator=torch.Generator().manual_seed(0)) if padded else None
    x = torch.randn(20, 15, 32, device=DEVICE, requires_grad=True)
    float64_x = x.detach().double().requires_grad_()
    (outputs, states), (float64_outputs, last) = layer(x, None, lengths), float64_layer(float64_x, None, lengths)
    assert layer.forward_layer.backend == layer.backward_layer.backend == "triton"
    results, expected = [outputs, *states[0], *states[1]], [float64_outputs, *last[0], *last[1]]
    grad_outputs = [torch.randn(part.shape, device=DEVICE) for part in results]
    gradients = torch.autograd.grad(results, [x, *layer.parameters()], grad_outputs)
    float64_gradients = torch.autograd.grad(
        expected, [float64_x, *float64_layer.parameters()], [grad_output.double() for grad_output in grad_outputs]
    )
    factor = (
        4 if cell_name.startswith(("layer-norm", "rnn identity")) else 1
    )  # no activation makes their TF32 errors smaller
    assert (
        max(compute_relative_error(a, b) for a, b in zip(results, expected, strict=True))
        < factor * MAX_ERRORS[torch.float32][0]
    )
    assert (
        max(compute_relative_error(a, b) for a, b in zip(gradients, float64_gradients, strict=True))
        < factor * MAX_ERRORS[torch.float32][1]
    )


@pytest.mark.parametrize("cell_name", CELLS)
def test_recorded_values_are_those_of_the_reference(cell_name: str) -> None:
    layer = build_layer(cell_name, 32, 64, torch.float32)
    x, lengths = torch.randn(6, 9, 32, device=DEVICE), torch.tensor([9, 1, 0, 4, 9, 7])
    unrecorded, _ = layer(x, None, lengths)
    with record(layer) as recording:
        recorded, _ = layer(x, None, lengths)
    with record(layer, live=True) as expected:
        layer(x, None, lengths)
    assert torch.equal(unrecorded, recorded)
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
    for use_reference in (False, True):
        module = copy.deepcopy(layer).double() if use_reference else layer
        with pytest.MonkeyPatch.context() as patch:
            if use_reference:
                patch.setattr("seqwise.layers.recurrent.choose_backend", lambda *arguments, **options: "reference")
            inputs = x.detach().to(next(module.parameters()).dtype).requires_grad_()
            outputs, _ = module(inputs, None, lengths)
        assert module.forward_layer.backend == ("reference" if use_reference else "triton")
        leaves = [inputs, *module.parameters()]
        grads = torch.autograd.grad(outputs.square().sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(grad.square().sum() for grad in grads), leaves))
    for actual, expected in zip(*results, strict=True):
        assert compute_relative_error(actual, expected) < 2e-2
