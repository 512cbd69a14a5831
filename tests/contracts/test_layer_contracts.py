"""Every layer through the same checks. Each layer is a row of the table, which says what the layer guarantees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attention_rows
import pytest
import recurrent_rows
import torch
from row import Row
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from seqwise.layers.record import record

ROWS: list[Row] = recurrent_rows.ROWS + attention_rows.ROWS


def parametrize_rows(condition: Callable[[Row], Any] = lambda row: True) -> pytest.MarkDecorator:
    """Runs a test on each row that meets the condition."""
    rows = [row for row in ROWS if condition(row)]
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


def build(row: Row, dtype: torch.dtype = torch.float32) -> nn.Module:
    return row.build().to(dtype).eval()


def create_inputs(row: Row, dtype: torch.dtype = torch.float32) -> Tensor:
    x = row.inputs()
    return x.to(dtype) if x.is_floating_point() else x


def change_values(x: Tensor) -> Tensor:
    """Returns other values of the same kind."""
    return 3 - 5 * x if x.is_floating_point() else (x + 1) % (x.max() + 1)


def choose_lengths(x: Tensor) -> Tensor:
    """Returns lengths (B,): the first sequence is full, each next one shorter by one step."""
    return (x.shape[1] - torch.arange(x.shape[0])).clamp(min=1)


class RunModule(nn.Module):
    """The layer and the row's `run` as one module, so that `functional_call` can replace its parameters."""

    def __init__(self, layer: nn.Module, row: Row):
        super().__init__()
        self.layer, self.row = layer, row

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        return self.row.run(self.layer, x, lengths)


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


@parametrize_rows()
def test_a_layer_equals_a_hand_computed_result(row: Row) -> None:
    outputs, expected = row.compare_by_hand()
    assert outputs.shape == expected.shape
    torch.testing.assert_close(outputs, expected.to(outputs.dtype), rtol=1e-5, atol=1e-6)


@parametrize_rows(lambda row: row.compare_with_torch)
def test_a_layer_equals_that_of_pytorch_with_the_same_weights(row: Row) -> None:
    assert row.compare_with_torch is not None
    ours, theirs = row.compare_with_torch()
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@parametrize_rows(lambda row: row.inputs().is_floating_point() or list(row.build().parameters()))
def test_gradients_match_finite_differences(row: Row) -> None:
    module, x = RunModule(build(row, torch.float64), row), create_inputs(row, torch.float64)
    lengths = choose_lengths(x) if row.supports_padding else None
    names = [name for name, _ in module.named_parameters()]
    parameters = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]
    x.requires_grad_(x.is_floating_point())

    def run(x: Tensor, *values: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, dict(zip(names, values)), (x, lengths))
        return outputs if lengths is None else torch.cat([part[:n] for part, n in zip(outputs, lengths.tolist())])

    assert torch.autograd.gradcheck(run, (x, *parameters), fast_mode=True)


@parametrize_rows(lambda row: row.supports_padding)
def test_a_padded_row_equals_the_row_without_padding(row: Row) -> None:
    layer, x = build(row, torch.float64), create_inputs(row, torch.float64)
    lengths = choose_lengths(x)
    padded = row.run(layer, x, lengths)
    for number, length in enumerate(lengths.tolist()):
        without_padding = row.run(layer, x[number : number + 1, :length], None)
        torch.testing.assert_close(padded[number, :length], without_padding[0], rtol=1e-9, atol=1e-9)


@parametrize_rows(lambda row: row.supports_padding)
def test_values_in_the_padding_do_not_change_the_result(row: Row) -> None:
    layer, x = build(row), create_inputs(row)
    lengths = choose_lengths(x)
    valid = torch.arange(x.shape[1]) < lengths[:, None]
    garbage = torch.where(valid if x.dim() == 2 else valid[..., None], x, change_values(x))
    assert not torch.equal(garbage, x)
    assert torch.equal(row.run(layer, x, lengths)[valid], row.run(layer, garbage, lengths)[valid])


@parametrize_rows(lambda row: row.causal)
def test_later_inputs_do_not_change_earlier_outputs(row: Row) -> None:
    layer, x = build(row), create_inputs(row)
    outputs = row.run(layer, x, None)
    for step in range(1, x.shape[1]):
        changed_outputs = row.run(layer, torch.cat([x[:, :step], change_values(x[:, step:])], dim=1), None)
        assert torch.equal(outputs[:, :step], changed_outputs[:, :step]), f"outputs before step {step} depend on it"
        assert not torch.equal(outputs[:, step:], changed_outputs[:, step:])


@parametrize_rows(lambda row: row.run_with_state)
def test_a_sequence_read_in_two_segments_equals_the_whole_sequence(row: Row) -> None:
    assert row.run_with_state is not None
    layer, x = build(row, torch.float64), create_inputs(row, torch.float64)
    expected, _ = row.run_with_state(layer, x, None)
    for cut in range(1, x.shape[1]):
        first, state = row.run_with_state(layer, x[:, :cut], None)
        second, _ = row.run_with_state(layer, x[:, cut:], state)
        torch.testing.assert_close(torch.cat([first, second], dim=1), expected, rtol=1e-9, atol=1e-9)


@parametrize_rows(lambda row: row.run_with_state)
def test_a_state_has_one_entry_per_row(row: Row) -> None:
    """A batch and its state can be split by rows between two segments."""
    assert row.run_with_state is not None
    layer, x = build(row, torch.float64), create_inputs(row, torch.float64)
    _, state = row.run_with_state(layer, x, None)
    expected, _ = row.run_with_state(layer, x, state)
    for number in range(len(x)):
        outputs, _ = row.run_with_state(layer, x[number : number + 1], select_row(state, number))
        torch.testing.assert_close(outputs[0], expected[number], rtol=1e-9, atol=1e-9)


def select_row(state: Any, number: int) -> Any:
    if isinstance(state, Tensor):
        return state[number : number + 1]
    return None if state is None else tuple(select_row(part, number) for part in state)


@parametrize_rows(lambda row: row.records)
def test_recording_has_every_documented_name_and_does_not_change_the_result(row: Row) -> None:
    layer, x = build(row), create_inputs(row)
    lengths = choose_lengths(x) if row.supports_padding else None
    expected = row.run(layer, x, lengths)
    with record(layer) as recording:
        recorded = row.run(layer, x, lengths)
    assert torch.equal(expected, recorded)
    assert set(row.records) <= set(recording), f"missing: {sorted(set(row.records) - set(recording))}"
    assert not any(recording[name].requires_grad for name in recording)


@parametrize_rows(lambda row: row.records)
def test_the_fast_backend_equals_the_computation_from_recorded_values(row: Row) -> None:
    """Outputs and gradients of the fast backend against those of the reference implementation."""
    layer, x = build(row, torch.float64), create_inputs(row, torch.float64)
    lengths = choose_lengths(x) if row.supports_padding else None
    x.requires_grad_(x.is_floating_point())
    variables = [*layer.parameters(), *([x] if x.requires_grad else [])]
    fast = row.run(layer, x, lengths)
    with record(layer, live=True) as recording:
        reference = row.run(layer, x, lengths)
    torch.testing.assert_close(fast, reference, rtol=1e-9, atol=1e-9)
    direction = torch.randn_like(fast)
    if lengths is not None:
        direction *= (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    fast_gradients = torch.autograd.grad((fast * direction).sum(), variables, allow_unused=True)
    reference_gradients = torch.autograd.grad(
        (reference * direction).sum(), variables, allow_unused=True, retain_graph=True
    )
    for actual, expected in zip(fast_gradients, reference_gradients):
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)
    for name in row.records:
        if not recording[name].requires_grad and not list(layer.parameters()):
            continue  # a constant, such as a sinusoid
        (gradient,) = torch.autograd.grad((reference * direction).sum(), recording[name], retain_graph=True)
        assert gradient.abs().sum() > 0, f"no gradient flows through {name}"


@parametrize_rows()
def test_a_saved_and_loaded_layer_gives_the_same_result(row: Row, tmp_path: Any) -> None:
    layer, x = build(row), create_inputs(row)
    save_model(layer, str(tmp_path / "layer.safetensors"))
    loaded = build(row)
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.fill_(0.123)
    load_model(loaded, str(tmp_path / "layer.safetensors"))
    assert torch.equal(row.run(layer, x, None), row.run(loaded, x, None))


@parametrize_rows()
def test_the_same_seed_gives_the_same_weights(row: Row) -> None:
    torch.manual_seed(7)
    first = row.build().state_dict()
    torch.manual_seed(7)
    second = row.build().state_dict()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@parametrize_rows()
def test_double_precision_gives_the_same_numbers(row: Row) -> None:
    layer = build(row)
    float32 = row.run(layer, create_inputs(row), None)
    float64 = row.run(layer.to(torch.float64), create_inputs(row, torch.float64), None)
    assert float64.dtype == torch.float64
    torch.testing.assert_close(float32.double(), float64, rtol=1e-4, atol=1e-5)


@parametrize_rows()
def test_conversion_to_bfloat16_and_back_changes_outputs_by_rounding_only(row: Row) -> None:
    """Weights and buffers keep eight significant bits. Nothing is computed in bfloat16, which some processors lack."""
    layer = build(row)
    before = row.run(layer, create_inputs(row), None)
    after = row.run(layer.to(torch.bfloat16).to(torch.float32), create_inputs(row), None)
    assert after.dtype == before.dtype
    assert (after - before).norm() <= 0.03 * before.norm()


@parametrize_rows()
def test_a_layer_can_be_built_on_the_meta_device(row: Row) -> None:
    expected = row.build()
    with torch.device("meta"):
        layer = row.build()
    assert all(parameter.is_meta for parameter in layer.parameters())
    shapes = {name: parameter.shape for name, parameter in layer.named_parameters()}
    assert shapes == {name: parameter.shape for name, parameter in expected.named_parameters()}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@parametrize_rows()
def test_a_gpu_gives_the_same_numbers_with_and_without_recording(row: Row) -> None:
    """In double precision, because cuDNN rounds single precision to TF32."""
    layer, x = build(row, torch.float64), create_inputs(row, torch.float64)
    expected = row.run(layer, x, None)
    layer, x = layer.to("cuda"), x.to("cuda")
    outputs = row.run(layer, x, None)
    with record(layer):
        recorded = row.run(layer, x, None)
    assert outputs.is_cuda
    assert torch.equal(outputs, recorded)
    torch.testing.assert_close(outputs.cpu(), expected, rtol=1e-9, atol=1e-9)
