"""Compiled scans at their limits: threads, tensors without gradients, extreme values, refused inputs."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial

import pytest
import torch
from compiled_scans import (
    PLAIN,
    build_cell,
    build_projection,
    compute_gradients,
    draw_inputs,
    each_cell_spec,
    get_vectors,
    run_compiled,
    run_reference,
)
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.kernels.recurrence.cpu import compiled, linear
from seqwise.kernels.recurrence.cpu import scan as compiled_scan
from seqwise.kernels.recurrence.cpu.compiled import (
    CellSpec,
    Direction,
    Projection,
    SequencePacking,
    get_compiler_problem,
    is_faster_than_aten,
    is_supported,
    scan,
)
from seqwise.kernels.recurrence.cpu.linear import PackedWeight, multiply_transposed

# --- threads ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def plans(monkeypatch):
    """The plans that are created; threads share even the smallest work."""
    created = []

    class RecordedPlan(compiled_scan.ScanPlan):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            created.append(self)

    monkeypatch.setattr(compiled, "ScanPlan", RecordedPlan)
    monkeypatch.setattr(compiled_scan, "MIN_THREADED_WORK", 0)
    monkeypatch.setattr(linear, "MIN_THREADED_WORK", 0)
    return created


@pytest.mark.parametrize("openmp", [True, False])
@pytest.mark.parametrize("batch", [3, 9])
@each_cell_spec
def test_results_do_not_depend_on_the_number_of_threads(spec, batch, openmp, threads, plans, monkeypatch):
    if not openmp:
        monkeypatch.setattr("seqwise.kernels.recurrence.cpu.threads._find_openmp", lambda: None)
    cell = build_cell(spec, 21, 37, torch.float32)
    x, state = draw_inputs(spec, batch, 7, 21, 37, torch.float32)
    lengths = torch.arange(batch) * 5 % 8
    # PyTorch's own products and norms may depend on threads: inputs that the cell itself projects are projected once.
    project = build_projection(cell)
    leaves = [x, *state, cell.weight_hidden, *get_vectors(cell)]
    if isinstance(project, Projection):
        leaves += [part for part in project if part is not None]
    else:
        gates = cell.project(SequencePacking(batch, 7, lengths).pack(x)).detach().requires_grad_()

        def project(rows: Tensor) -> Tensor:
            return gates.clone()

        leaves = [gates, *leaves[1:]]
    direction = Direction(project, cell.weight_hidden, get_vectors(cell), tuple(state))
    results = []
    for count in range(1, 6):
        threads(count)
        outputs, (last_state,), _ = scan(spec, x, [direction], SequencePacking(batch, 7, lengths))
        results.append([outputs, *last_state, *compute_gradients([outputs, *last_state], leaves)])
    assert [plan.workers for plan in plans] == [min(count, batch) for count in range(1, 6)]
    for result in results[1:]:
        assert all(torch.equal(expected, actual) for expected, actual in zip(results[0], result, strict=True))


def test_threads_split_directions_and_sequences(threads, plans):
    spec = CellSpec("gru")
    cell = build_cell(spec, 5, 24, torch.float64)
    x, state = draw_inputs(spec, 6, 7, 5, 24, torch.float64)
    lengths = torch.tensor([7, 0, 3, 7, 1, 5])
    direction = Direction(Projection(cell.weight_input, cell.bias), cell.weight_hidden, get_vectors(cell), tuple(state))
    threads(4)
    outputs, _, _ = scan(spec, x, [direction, direction._replace(reverse=True)], SequencePacking(6, 7, lengths))
    assert plans[0].workers == 2
    forward, backward = (run_reference(cell, x, state, lengths, reverse)[0] for reverse in (False, True))
    torch.testing.assert_close(outputs, torch.cat([forward, backward], 2), atol=1e-13, rtol=1e-13)


def test_concurrent_first_calls_compile_once(monkeypatch):
    """All cells call the same compiled product, whose machine code stays referenced."""
    script = """
import gc, threading, torch
from seqwise.kernels.recurrence.cpu.scan import get_compiled_cell
from seqwise.kernels.recurrence.cpu.product import compile_products
from seqwise.kernels.recurrence.cell_spec import CellSpec
specs = [CellSpec("rnn"), CellSpec("lstm"), CellSpec("gru"), CellSpec("gru", reset="before")]
start, cells = threading.Barrier(4), {}
def build(spec):
    start.wait()
    cells[spec] = get_compiled_cell(spec, torch.float32), compile_products("float")
threads = [threading.Thread(target=build, args=(spec,)) for spec in specs]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len({id(functions) for _, functions in cells.values()}))
print(len({cell.matmul.address for cell, _ in cells.values()}))
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["1", "1"]


# --- gradients and memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("differentiable", ["weight", "bias", "matrix", "input", "state", "vector"])
def test_only_tensors_that_require_gradients_get_them(differentiable):
    torch.manual_seed(0)
    shapes = {"weight": (15, 3), "bias": (15,), "matrix": (15, 5), "input": (2, 4, 3), "state": (2, 5), "vector": (5,)}
    parts = {name: torch.randn(shape) for name, shape in shapes.items()}
    parts[differentiable].requires_grad_()
    project = Projection(parts["weight"], parts["bias"])
    direction = Direction(project, parts["matrix"], (parts["vector"],), (parts["state"],))
    outputs, _, _ = scan(CellSpec("gru"), parts["input"], [direction], SequencePacking(2, 4))
    outputs.sum().backward()
    assert [name for name, part in parts.items() if part.grad is not None] == [differentiable]
    assert parts[differentiable].grad.any()


def test_a_non_contiguous_input_weight_gets_its_gradient():
    spec = CellSpec("lstm")
    cell = build_cell(spec, 3, 5, torch.float32)
    x, state = draw_inputs(spec, 2, 4, 3, 5, torch.float32)
    non_contiguous = cell.weight_input.detach().t().contiguous().t().requires_grad_()
    gradients = []
    for weight in (cell.weight_input, non_contiguous):
        direction = Direction(Projection(weight, cell.bias), cell.weight_hidden, (), tuple(state))
        gradients.append(compute_gradients([scan(spec, x, [direction], SequencePacking(2, 4))[0]], [weight])[0])
    assert torch.equal(*gradients)


def test_products_reject_rows_that_are_not_contiguous():
    x = torch.randn(4, 3)
    with pytest.raises(AssertionError, match="contiguous"):
        multiply_transposed(x, x, torch.empty(3, 3).t())
    with pytest.raises(AssertionError, match="contiguous"):
        PackedWeight(torch.randn(4, 2), transposed=False).multiply_rows(x.t())


@pytest.mark.parametrize("spec", PLAIN, ids=str)
def test_the_projection_of_an_input_of_width_zero_is_the_bias(spec):
    cell = build_cell(spec, 1, 20, torch.float32)
    cell.inputs, cell.weight_input = 0, nn.Parameter(torch.empty(cell.blocks * 20, 0))
    x, state = draw_inputs(spec, 3, 4, 0, 20, torch.float32)
    garbage = [torch.full((12, cell.blocks * 20), math.nan) for _ in range(4)]
    del garbage  # memory that is not written would show up as NaN
    leaves = [*state, cell.bias, cell.weight_hidden]
    all_results = []
    for run in (partial(run_compiled, spec), run_reference):
        results = run(cell, x, state, None, reverse=False)
        all_results.append([*results, *compute_gradients(results, leaves)])
    for actual, expected in zip(*all_results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


# --- activations -----------------------------------------------------------------------------------------------------


def apply_activation(name: str, x: Tensor) -> Tensor:
    from seqwise.kernels.recurrence.cpu.code import Code
    from seqwise.kernels.recurrence.cpu.equations import ACTIVATIONS

    code = Code(linear.PRECISIONS[x.dtype])
    with code.function("apply", 3) as (source, target, width):
        for u in code.loop_over_vectors(width):
            code.store(ACTIVATIONS[name][0](code.load(source, u)), target, u)
    out = torch.empty_like(x)
    code.build()["apply"](x.data_ptr(), out.data_ptr(), len(x))
    return out


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "relu", "identity"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_activations_are_accurate_everywhere(name, dtype, tolerance):
    lowest = -87.0 if dtype == torch.float32 else -708.0
    magnitudes = torch.logspace(-37, 1.9, 2001, dtype=torch.float64)
    x = torch.cat([magnitudes, -magnitudes, torch.linspace(lowest, -lowest, 4001, dtype=torch.float64)]).to(dtype)
    expected = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "identity": lambda a: a}[name](
        x.double()
    )
    error = (apply_activation(name, x).double() - expected).abs()
    assert (error <= tolerance * expected.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_of_extreme_values_saturate(dtype):
    tiny = torch.finfo(dtype).smallest_normal / 4  # denormal
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, tiny, -tiny, 1e30, -1e30, -800.0], dtype=dtype)
    nan = math.nan
    for name, expected in {
        "sigmoid": [1, 0, nan, 0.5, 0.5, 0.5, 1, 0, 0],
        "tanh": [1, -1, nan, 0, tiny, -tiny, 1, -1, -1],
        "relu": [math.inf, 0, nan, 0, tiny, 0, 1e30, 0, 0],
    }.items():
        torch.testing.assert_close(
            apply_activation(name, x), torch.tensor(expected, dtype=dtype), rtol=0, atol=0, equal_nan=True
        )


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        CellSpec("lsmt"),
        CellSpec("gru", reset="before", layer_norm=True),
        CellSpec("rnn", activation="silu"),
        CellSpec("gru", update="?"),
    ],
)
def test_an_unknown_cell_specification_is_rejected(spec):
    with pytest.raises(UsageError, match="no compiled scan of"):
        compiled_scan.build_equation(spec)


def test_tensors_of_another_dtype_device_or_shape_are_rejected():
    """Compiled code would read and write outside of them."""
    torch.manual_seed(0)
    valid = Direction(
        Projection(torch.randn(15, 3), torch.randn(15)), torch.randn(15, 5), (torch.randn(5),), (torch.randn(2, 5),)
    )
    x, packing = torch.randn(2, 4, 3), SequencePacking(2, 4)
    scan(CellSpec("gru"), x, [valid], packing)
    weight, bias = valid.project
    mixed = [
        (x.double(), valid),
        (x, valid._replace(weight_hidden=valid.weight_hidden.double())),
        (x, valid._replace(vector_parameters=(valid.vector_parameters[0].bfloat16(),))),
        (x, valid._replace(state=(valid.state[0].to("meta"),))),
        (x, valid._replace(project=Projection(weight.to("meta"), bias))),
        (x, valid._replace(project=lambda rows: torch.randn(8, 15, dtype=torch.float64))),
    ]
    for inputs, direction in mixed:
        with pytest.raises(UsageError, match=r"float.* on "):
            scan(CellSpec("gru"), inputs, [direction], packing)
    sizes = [
        (x[:1], [valid]),
        (x[:, :3], [valid]),
        (x[..., :2], [valid]),
        (x, [valid._replace(weight_hidden=torch.randn(12, 4))]),
        (x, [valid._replace(vector_parameters=())]),
        (x, [valid._replace(vector_parameters=(torch.randn(4),))]),
        (x, [valid._replace(state=(torch.randn(3, 5),))]),
        (x, [valid._replace(state=valid.state * 2)]),
        (x, [valid._replace(project=Projection(weight, torch.randn(14)))]),
        (x, [valid, valid._replace(weight_hidden=torch.randn(18, 6))]),
        (x, [valid._replace(project=lambda rows: torch.randn(7, 15))]),
    ]
    for inputs, directions in sizes:
        with pytest.raises(UsageError, match=r"expected .* received"):
            scan(CellSpec("gru"), inputs, directions, packing)


# --- when it is used -------------------------------------------------------------------------------------------------


def test_float_tensors_on_cpus_outside_autocast_are_supported():
    x = torch.zeros(2, 3, 4)
    assert is_supported(x)
    assert is_supported(x.double())
    assert not is_supported(x.bfloat16())
    assert not is_supported(torch.zeros(2, 3, 4, device="meta"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_supported(x)


def test_aten_computes_single_steps_and_shapes_where_onednn_is_as_fast(threads):
    threads(2)
    lstm, gru = CellSpec("lstm"), CellSpec("gru")
    batch = torch.empty(64, 128, 256)
    assert is_faster_than_aten(gru, batch, 256)
    assert not is_faster_than_aten(gru, batch[:1, :1], 256)
    assert is_faster_than_aten(lstm, batch, 256)
    assert is_faster_than_aten(lstm, batch, 650)
    assert is_faster_than_aten(lstm, batch[:1, :32], 650)
    assert not is_faster_than_aten(lstm, batch[:1], 650)  # one sequence for two threads
    with torch.no_grad():
        assert is_faster_than_aten(gru, batch[:8, :8], 256)
        assert not is_faster_than_aten(gru, batch[:1, :8], 256)  # the weights are not worth rearranging
        assert not is_faster_than_aten(lstm, batch, 256)
        assert is_faster_than_aten(lstm, batch, 100)
        assert is_faster_than_aten(lstm, batch, 170)
        assert not is_faster_than_aten(lstm, batch[:1], 170)
        assert is_faster_than_aten(lstm, batch, 256, is_padded=True)
        assert is_faster_than_aten(lstm, batch, 256, directions=2)


def test_a_machine_that_cannot_compile_is_reported(monkeypatch):
    assert get_compiler_problem() is None

    def fail() -> bool:
        raise RuntimeError("no target")

    monkeypatch.setattr(compiled, "_is_product_correct", fail)
    assert "no target" in compiled.find_compiler_problem()
    monkeypatch.setattr(compiled, "_is_product_correct", lambda: False)
    assert "computes wrong results" in compiled.find_compiler_problem()


def test_the_compiler_check_does_not_depend_on_the_mode_of_pytorch():
    with torch.device("meta"):
        assert compiled.find_compiler_problem() is None
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert compiled.find_compiler_problem() is None
    finally:
        torch.set_default_dtype(before)


def test_llvm_is_imported_only_when_needed():
    script = (
        "import sys, seqwise.kernels.recurrence.cpu.compiled; print('llvmlite' in sys.modules, 'numba' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]
