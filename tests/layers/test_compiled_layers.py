"""Layers on the compiled backend behave like PyTorch's: mixed tensors, modes, transforms, in-place operations."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cpu import scan as compiled_scan
from seqwise.layers import cells, recurrent
from seqwise.layers import scan as scan_module
from seqwise.layers.record import record
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.scan import scan_reference

CELLS = {
    "lstm": cells.LSTMCell,
    "gru": cells.GRUCell,
    "gru reset before": cells.EarlyResetGRUCell,
    "rnn layer norm": cells.LayerNormRNNCell,
    "lstm layer norm": cells.LayerNormLSTMCell,
}
each_cell = pytest.mark.parametrize("name", CELLS)
LENGTHS = torch.tensor([20, 3, 0, 11, 20, 7, 1, 19])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def build_layer(name: str, inputs: int = 4, units: int = 16) -> Recurrent:
    return Recurrent(CELLS[name](inputs, units))


def random_input() -> Tensor:
    return torch.randn(8, 20, 4)


def run_reference(layer: Recurrent, x: Tensor) -> Tensor:
    return scan_reference(layer.cell, x, layer.get_initial_state(x, None), layer.cell.weight_hidden, None)[0]


# --- tensors that do not match ----------------------------------------------------------------------------------------


@each_cell
def test_tensors_of_different_types_or_devices_are_rejected(name: str) -> None:
    x = random_input()
    for layer, inputs in [
        (build_layer(name), x.double()),
        (build_layer(name).double(), x),
        (build_layer(name).bfloat16(), x),
        (build_layer(name).to("meta"), x),
    ]:
        with pytest.raises((UsageError, RuntimeError), match=r"type|device|dtype"):
            layer(inputs)


def test_a_state_on_another_device_is_rejected() -> None:
    layer, x = build_layer("lstm"), random_input()
    with pytest.raises(UsageError, match=r"expected a state of .* on cpu.*, received .* on meta and .* on meta"):
        layer(x, tuple(torch.zeros(8, 16, device="meta") for _ in range(2)))
    outputs, _ = layer(x, tuple(torch.zeros(8, 16, dtype=torch.float64) for _ in range(2)))  # another type is converted
    assert torch.equal(outputs, layer(x)[0])


@pytest.mark.parametrize(("forward_inputs", "backward_inputs"), [(4, 2), (2, 4), (4, 500)])
def test_a_direction_that_does_not_accept_the_input_width_is_rejected(
    forward_inputs: int, backward_inputs: int
) -> None:
    bidirectional = Bidirectional(build_layer("lstm", forward_inputs), build_layer("lstm", backward_inputs))
    with pytest.raises(UsageError, match=r"received \(8, 20, 4\)"):
        bidirectional(random_input())


@each_cell
def test_a_non_contiguous_weight_gets_its_gradient(name: str) -> None:
    layer, x = build_layer(name), random_input()
    non_contiguous = build_layer(name)
    non_contiguous.load_state_dict(layer.state_dict())
    non_contiguous.cell.weight_input = nn.Parameter(non_contiguous.cell.weight_input.detach().t().contiguous().t())
    for each in (layer, non_contiguous):
        each(x)[0].square().sum().backward()
        assert each.backend == "compiled"
    torch.testing.assert_close(layer.cell.weight_input.grad, non_contiguous.cell.weight_input.grad)


# --- modes and transforms ---------------------------------------------------------------------------------------------


@each_cell
def test_the_default_device_and_dtype_do_not_affect_a_scan(name: str) -> None:
    layer, x = build_layer(name), random_input()
    expected, _ = layer(x, None, LENGTHS)
    with torch.device("meta"):
        outputs, _ = layer(x, None, LENGTHS)
    assert torch.equal(outputs, expected)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        outputs, _ = layer(x, None, LENGTHS)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(outputs, expected)
    assert layer.backend == "compiled"


@each_cell
@pytest.mark.parametrize("frozen", [False, True])
def test_forward_mode_differentiation_gives_the_tangent(name: str, frozen: bool) -> None:
    layer, x = build_layer(name).double().requires_grad_(not frozen), random_input().double()
    direction = torch.randn_like(x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, direction))[0]).tangent
    assert layer.backend == "reference"
    step = 1e-6
    expected = (layer(x + step * direction)[0] - layer(x - step * direction)[0]) / (2 * step)
    assert layer.backend == "compiled"
    torch.testing.assert_close(tangent, expected, atol=1e-7, rtol=1e-6)


@each_cell
def test_torch_func_transforms_work_on_a_layer(name: str) -> None:
    layer, x = build_layer(name).double(), random_input().double()
    detached = {key: value.detach() for key, value in layer.named_parameters()}
    gradients = grad(lambda parameters: functional_call(layer, parameters, (x,))[0].square().sum())(detached)
    layer(x)[0].square().sum().backward()
    assert layer.backend == "compiled"
    for key, parameter in layer.named_parameters():
        torch.testing.assert_close(gradients[key], parameter.grad)
    inputs = torch.randn(3, 8, 20, 4, dtype=torch.float64)
    batched = vmap(lambda part: layer(part)[0])(inputs)
    torch.testing.assert_close(batched, torch.stack([layer(part)[0] for part in inputs]))


@pytest.mark.slow
def test_a_function_transform_before_the_first_scan_changes_nothing() -> None:
    script = """
import torch
from torch.func import functional_call, grad
from seqwise.layers import GRUCell, Recurrent
layer, x = Recurrent(GRUCell(8, 16)), torch.randn(4, 40, 8)
parameters = {name: part.detach() for name, part in layer.named_parameters()}
grad(lambda values: functional_call(layer, values, (x,))[0].sum())(parameters)
with torch.device("meta"):
    layer(x)
print(layer.backend)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "compiled"


def test_a_traced_layer_depends_on_its_inputs() -> None:
    layer, x = build_layer("gru").requires_grad_(False), random_input()
    with warnings.catch_warnings(action="ignore"):  # of the tracer, about sizes and its deprecation
        traced = torch.jit.trace(layer, (x,), check_trace=False)
    new_input = random_input()
    torch.testing.assert_close(traced(new_input)[0], layer(new_input)[0])


def test_fake_tensors_give_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = build_layer("gru")
    with FakeTensorMode(allow_non_fake_inputs=True):
        outputs, _ = layer(random_input())
    assert outputs.shape == (8, 20, 16)
    assert layer.backend == "aten"


def test_a_tensor_subclass_uses_another_backend() -> None:
    class Subclass(Tensor):
        pass

    layer, x = build_layer("gru"), random_input()
    outputs, _ = layer(x.as_subclass(Subclass))
    assert layer.backend == "aten"
    torch.testing.assert_close(outputs.as_subclass(Tensor), layer(x)[0])


def test_torch_compile_calls_the_scan_without_tracing_it() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(str(graph.graph))
        return graph

    layer, x = build_layer("gru"), random_input()
    compiled = torch.compile(layer, backend=backend)
    outputs, _ = compiled(x, None, LENGTHS)
    outputs.square().sum().backward()
    gradient = layer.cell.weight_hidden.grad.clone()
    layer.zero_grad()
    expected, _ = layer(x, None, LENGTHS)
    expected.square().sum().backward()
    assert layer.backend == "compiled"
    assert torch.equal(outputs, expected)
    assert torch.equal(gradient, layer.cell.weight_hidden.grad)
    assert graphs
    assert not any("sort" in graph or "data_ptr" in graph for graph in graphs)  # the scan sorts the rows


# --- in-place operations, checkpointing, other backends ---------------------------------------------------------------


@each_cell
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
def test_outputs_can_be_modified_in_place(name: str, lengths: Tensor | None) -> None:
    layer, x = build_layer(name), random_input()
    unmodified, _ = layer(x, None, lengths)
    ((unmodified + 1).relu() * 2).sum().backward()
    expected = layer.cell.weight_hidden.grad.clone()
    layer.zero_grad()
    outputs, _ = layer(x, None, lengths)
    assert layer.backend == "compiled"
    outputs += 1
    nn.Dropout(0.0, inplace=True)(outputs)
    torch.relu_(outputs)
    (outputs * 2).sum().backward()
    assert torch.equal(layer.cell.weight_hidden.grad, expected)


@pytest.mark.parametrize("weight", ["weight_input", "weight_hidden"])
def test_a_weight_modified_before_backward_is_an_error(weight: str) -> None:
    layer = build_layer("lstm")
    outputs, _ = layer(random_input().requires_grad_())
    with torch.no_grad():
        getattr(layer.cell, weight).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_layers_support_activation_checkpointing(reentrant: bool) -> None:
    layer, x = build_layer("lstm layer norm"), random_input().requires_grad_()
    (expected,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    checkpoint(lambda inputs: layer(inputs)[0], x, use_reentrant=reentrant).square().sum().backward()
    assert torch.equal(x.grad, expected)


def test_kernels_can_be_disabled_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = build_layer("gru"), random_input().requires_grad_()
    layer(x)
    assert layer.backend == "compiled"
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    layer(x)
    assert layer.backend == "aten"


def test_a_scan_that_cannot_be_compiled_warns_once_and_uses_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cell: object, is_backward: bool) -> None:
        raise RuntimeError("first line\ncannot select")

    monkeypatch.setattr(compiled_scan.CompiledCell, "get_loop", fail)
    monkeypatch.setattr(scan_module, "_failed_kernels", set())
    x = random_input()
    for name, backend in (("gru", "aten"), ("gru reset before", "reference")):
        bidirectional = Bidirectional(build_layer(name), build_layer(name))
        with pytest.warns(UserWarning, match="gru with 16 units cannot run here.*cannot select") as recorded_warnings:
            outputs, _ = bidirectional(x)
        assert len(recorded_warnings) == 1
        assert recorded_warnings[0].filename == recurrent.__file__
        assert bidirectional.forward_layer.backend == bidirectional.backward_layer.backend == backend
        torch.testing.assert_close(outputs[..., :16], run_reference(bidirectional.forward_layer, x))


# --- recording --------------------------------------------------------------------------------------------------------


@each_cell
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "padded"])
def test_both_directions_record_the_gates_of_the_kernel(
    name: str, lengths: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bidirectional, x = Bidirectional(build_layer(name), build_layer(name)).double(), random_input().double()
    with monkeypatch.context() as patch, record(bidirectional, live=True) as reference_recording:
        patch.setenv("SEQWISE_KERNELS", "off")
        bidirectional(x, None, lengths)
    monkeypatch.setattr(recurrent, "scan_reference", None)  # the reference implementation does not run
    with record(bidirectional) as recording:
        bidirectional(x, None, lengths)
    assert bidirectional.backward_layer.backend == "compiled"
    assert set(recording) == set(reference_recording)
    for gate in recording:
        torch.testing.assert_close(recording[gate], reference_recording[gate].detach(), atol=1e-12, rtol=1e-12)
