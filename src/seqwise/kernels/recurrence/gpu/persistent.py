"""Recurrent scans on a GPU by persistent kernels. Importing this imports triton.

    packing = SequencePacking(B, T, lengths, device)
    inputs = prepare_inputs(x, [Direction(project, weight_hidden, (), (h, c))], packing)
    outputs, final_states, activations = run_scan(CellSpec("lstm"), inputs, packing)

One or two directions run at the same time. `is_faster_than_cudnn` says where the kernels are faster; whether
the machine has what they need is checked in `availability.py`. This module knows nothing of layers.

Shapes: B sequences, T steps, N packed rows (`layout.py`), D input features, U units and G gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, Projection, get_scan_dtype
from seqwise.kernels.recurrence.gpu import cell_scans
from seqwise.kernels.recurrence.gpu.launch import TRITON_DTYPES, Tiling, choose_precision, choose_tiling, needs_grad
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import Activations, Scan, ScanInputs
from seqwise.kernels.recurrence.packing import SequencePacking, to_time_first

_verified_launches: set[tuple[Any, ...]] = set()  # what `verify_backward_launch` has launched already

State = tuple[Tensor, ...]  # (h,) or (h, c), each (B, U)


@cache
def get_scan(spec: CellSpec) -> Scan:
    """Returns the `Scan` with the kernels of a cell."""
    if spec.name == "rnn":
        return cell_scans.RNNScan(spec.layer_norm, ACTIVATION=spec.activation)
    if spec.name == "lstm":
        return cell_scans.LSTMScan(spec.layer_norm, CAPPED=spec.capped)
    scan_class = cell_scans.GRUScan
    if spec.layer_norm:  # its reset gate acts after the recurrent product
        scan_class = cell_scans.LayerNormGRUScan
    elif spec.reset == "before":
        scan_class = cell_scans.ResetBeforeGRUScan
    # A compile-time constant of the kernels: h = (1 − z) h + z n instead of z h + (1 − z) n.
    return scan_class(spec.layer_norm, UPDATE_REPLACES=spec.update == "replaces")


def is_supported(spec: CellSpec, x: Tensor, units: int, directions: int) -> bool:
    """Returns whether the kernels can run this batch."""
    dtype = get_scan_dtype(x)
    if len(x) == 0 or dtype not in TRITON_DTYPES:
        return False
    return _get_tiling(spec, len(x), dtype, x.device, units, directions) is not None


def is_faster_than_cudnn(spec: CellSpec, x: Tensor, units: int, directions: int) -> bool:
    """Returns whether the kernels are expected to be faster than cuDNN: if the recurrent weight stays on chip and one
    launch takes all sequences.

    Not measured for T = 1; cuDNN is expected to be slower there, since it copies non-contiguous weights at every call.
    """
    tiling = _get_tiling(spec, len(x), get_scan_dtype(x), x.device, units, directions)
    return tiling is not None and tiling.is_weight_resident and tiling.batch_capacity >= len(x)


def prepare_inputs(x: Tensor, directions: Sequence[Direction], packing: SequencePacking) -> ScanInputs:
    """Packs and projects x (B, T, D), and stacks the tensors of all directions, which all have a state mask or none."""
    dtype = get_scan_dtype(x)
    x = packing.pack(x) if packing.is_padded else to_time_first(x).flatten(0, 1)
    all_states = zip(*(direction.state for direction in directions))
    states = [_stack([state.to(dtype) for state in by_direction], 1) for by_direction in all_states]
    all_parameters = zip(*(direction.vector_parameters for direction in directions), strict=True)
    project = partial(_project, x, [direction.project for direction in directions], dtype)
    masks = [direction.state_mask.to(dtype) for direction in directions if direction.state_mask is not None]
    state_mask = _stack(masks, 1) if masks else None
    return ScanInputs(
        project(),
        _stack([direction.weight_hidden.to(dtype) for direction in directions], 0),
        [_stack(list(by_direction), 0) for by_direction in all_parameters],
        [packing.sort(state) if packing.is_padded else state for state in states],
        PackedLayout.from_packing(packing, tuple(direction.reverse for direction in directions)),
        recompute_gates=project,
        state_mask=packing.sort(state_mask) if state_mask is not None and packing.is_padded else state_mask,
    )


def run_scan(
    spec: CellSpec, inputs: ScanInputs, packing: SequencePacking, should_record: bool = False
) -> tuple[Tensor, list[State], list[Activations]]:
    """Returns the outputs (B, T, directions · U), zero in the padding; for each direction the final state, after each
    sequence's last step; and with `should_record`, for each direction, the activations (B, T, …) by name."""
    outputs, final_states, stacked_activations = get_scan(spec).run(inputs, should_record)
    # (N, directions, U), or (T, B, directions, U) without padding → (B, T, directions · U)
    batch_outputs = packing.unpack(outputs.flatten(1)) if packing.is_padded else outputs.flatten(2).transpose(0, 1)
    final_states = tuple(packing.unsort(state) for state in final_states)
    directions = range(len(inputs.layout.reverse))
    activations = [
        {name: packing.unpack(value[:, d]) for name, value in stacked_activations.items()} for d in directions
    ]
    return batch_outputs, [tuple(state[:, d] for state in final_states) for d in directions], activations


def verify_backward_launch(spec: CellSpec, inputs: ScanInputs) -> None:
    """Runs one step forward and backward, the first time that gradients are needed for a shape, so that a backward
    kernel that this machine cannot launch is found while another backend can still be used."""
    projected, weight_hidden, parameters, states, layout, _, state_mask = (
        inputs  # projected: W x + b, (N, directions, G·U)
    )
    units, dtype, device = weight_hidden.shape[-1], projected.dtype, projected.device
    tiling = _get_tiling(spec, layout.batch_size, dtype, device, units, len(layout.reverse))
    key = spec, units, tiling, layout.has_lengths, state_mask is None, dtype, device, choose_precision(dtype)
    if key in _verified_launches or not needs_grad(projected, weight_hidden, *parameters, *states):
        return
    with torch.enable_grad():
        step = projected.new_zeros(layout.batch_size, *projected.shape[1:], requires_grad=True)
        parameters, states = ([tensor.detach() for tensor in tensors] for tensors in (parameters, states))
        # A copy, since the kernel overwrites the projected inputs by the gates.
        step_inputs = ScanInputs(
            step.clone(), weight_hidden.detach(), parameters, states, layout.with_one_step(), state_mask=state_mask
        )  # fmt: skip
        outputs, *_ = get_scan(spec).run(step_inputs)
        torch.autograd.grad(outputs, step, torch.zeros_like(outputs))
    _verified_launches.add(key)


def is_launch_failure(error: Exception) -> bool:
    """Returns whether the error is a failed compilation or launch, not a wrong argument."""
    launch_errors = (triton.CompilationError, triton.OutOfResources, triton.runtime.errors.PTXASError)
    return isinstance(error, launch_errors) or "Triton Error" in str(error)


def _stack(tensors: list[Tensor], dim: int) -> Tensor:
    return tensors[0].unsqueeze(dim).contiguous() if len(tensors) == 1 else torch.stack(tensors, dim)


def _project(x: Tensor, projections: Sequence[Callable[[Tensor], Tensor]], dtype: torch.dtype) -> Tensor:
    """Projects x (N, D) for each direction: (N, directions, …). If all are linear with a bias, it is one product."""
    weights = [project.weight for project in projections if isinstance(project, Projection)]
    biases = [project.bias for project in projections if isinstance(project, Projection) and project.bias is not None]
    if len(biases) < len(projections):
        return _stack([project(x).to(dtype) for project in projections], 1)
    weight, bias = (tensors[0] if len(tensors) == 1 else torch.cat(tensors) for tensors in (weights, biases))
    projected_inputs = _ProjectInputs.apply(x.to(dtype), weight.to(dtype), bias.to(dtype))
    return projected_inputs.unflatten(1, (len(projections), -1))


class _ProjectInputs(torch.autograd.Function):
    """W x + b, (N, R), of x (N, D), weight (R, D) and bias (R,), whose gradient needs little memory. All have one
    dtype. The rows of the weight are those of all directions: R = directions · G·U.

    PyTorch's sum over all steps allocates a workspace of 138 MB on an H200, whatever their number. In 16 bits a
    product with ones is as accurate as the product that gives the gradient of the weight. In float32 the gradients
    are summed, since products may be in TF32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_bias = None
        if needs_bias and grad_output.dtype == torch.float32:
            grad_bias = grad_output.sum(0)
        elif needs_bias:
            grad_bias = (grad_output.new_ones(1, len(grad_output)) @ grad_output)[0]
        return grad_output @ weight if needs_x else None, grad_output.mT @ x if needs_weight else None, grad_bias


def _get_tiling(
    spec: CellSpec, batch_size: int, dtype: torch.dtype, device: torch.device, units: int, directions: int
) -> Tiling | None:
    """Returns the tiling of a cell's kernels; None if they cannot run."""
    own_units, precision = get_scan(spec).own_units, choose_precision(dtype)
    return choose_tiling(units, own_units, batch_size, directions, dtype.itemsize, device, precision)
