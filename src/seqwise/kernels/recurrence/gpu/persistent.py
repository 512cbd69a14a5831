"""Recurrent scans on a GPU by persistent kernels. Importing this imports triton.

    packing = SequencePacking(B, T, lengths, device)
    inputs = prepare_inputs(x, [Direction(project, weight_hidden, (), (h, c))], packing)
    outputs, last, activations = run_scan(CellSpec("lstm"), inputs, packing)

One or two directions run at the same time. `is_faster_than_cudnn` says where the kernels are faster; whether
the machine has what they need is checked in `availability.py`. This module knows nothing of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.cell_spec import CellSpec, Direction, Projection, scan_dtype
from seqwise.kernels.recurrence.gpu import cell_scans
from seqwise.kernels.recurrence.gpu.launch import TRITON_DTYPES, Tiling, choose_tiling, needs_grad
from seqwise.kernels.recurrence.gpu.layout import PackedLayout
from seqwise.kernels.recurrence.gpu.scans import Activations, Scan, ScanInputs
from seqwise.kernels.recurrence.packing import SequencePacking, time_first

_verified_launches: set[tuple[Any, ...]] = set()  # whose backward kernel was launched once

States = tuple[Tensor, ...]


@cache
def get_scan(spec: CellSpec) -> Scan:
    """The `Scan` with the kernels of a cell."""
    if spec.name == "rnn":
        return cell_scans.RNNScan(spec.layer_norm, ACTIVATION=spec.activation)
    if spec.name == "lstm":
        return cell_scans.LSTMScan(spec.layer_norm)
    gru = cell_scans.ResetBeforeGRUScan if spec.reset == "before" else cell_scans.GRUScan
    gru = cell_scans.LayerNormGRUScan if spec.layer_norm else gru
    return gru(spec.layer_norm, UPDATE_REPLACES=spec.update == "replaces")


def is_supported(spec: CellSpec, x: Tensor, units: int, directions: int) -> bool:
    """Whether the kernels can run this batch."""
    dtype = scan_dtype(x)
    if len(x) == 0 or dtype not in TRITON_DTYPES:
        return False
    return _choose_tiling(spec, len(x), dtype, x.device, units, directions) is not None


def is_faster_than_cudnn(spec: CellSpec, x: Tensor, units: int, directions: int) -> bool:
    """Whether the kernels are expected to beat cuDNN: where the matrix stays on chip and one launch takes all
    sequences.

    Not measured for T = 1; cuDNN is expected to be slower there, since it copies non-contiguous weights at every call.
    """
    tiling = _choose_tiling(spec, len(x), scan_dtype(x), x.device, units, directions)
    return tiling is not None and tiling.is_weight_resident and tiling.batch_capacity >= len(x)


def prepare_inputs(x: Tensor, directions: Sequence[Direction], packing: SequencePacking) -> ScanInputs:
    """Pack and project x (B, T, D), and stack the tensors of all directions."""
    dtype = scan_dtype(x)
    x = packing.pack(x) if packing.is_padded else time_first(x).flatten(0, 1)
    all_states = zip(*(direction.state for direction in directions))
    states = [_stack([part.to(dtype) for part in parts], 1) for parts in all_states]
    project = partial(_project, x, [direction.project for direction in directions], dtype)
    return ScanInputs(
        project(),
        _stack([direction.weight_hidden.to(dtype) for direction in directions], 0),
        [_stack(list(group), 0) for group in zip(*(direction.vectors for direction in directions), strict=True)],
        [packing.sort(state) if packing.is_padded else state for state in states],
        PackedLayout.from_packing(packing, tuple(direction.reverse for direction in directions)),
        project,
    )


def run_scan(
    spec: CellSpec, inputs: ScanInputs, packing: SequencePacking, record: bool = False
) -> tuple[Tensor, list[States], list[Activations]]:
    """Return the outputs (B, T, directions · U), zero in the padding; for each direction the state after each
    sequence's last step and, with `record`, every activation by its name, (B, T, …)."""
    outputs, last, activations = get_scan(spec).run(inputs, record)
    batch_outputs = packing.unpack(outputs.flatten(1)) if packing.is_padded else outputs.flatten(2).transpose(0, 1)
    last = tuple(packing.unsort(part) for part in last)
    directions = range(len(inputs.layout.reverse))
    recorded_activations = [
        {name: packing.unpack(value[:, n]) for name, value in activations.items()} for n in directions
    ]
    return batch_outputs, [tuple(part[:, n] for part in last) for n in directions], recorded_activations


def verify_backward_launch(spec: CellSpec, inputs: ScanInputs) -> None:
    """Run one step forward and backward, the first time that gradients are needed for a shape, so that a backward
    kernel that this machine cannot launch is found while another backend can still be used."""
    gates, units, layout = inputs.gates, inputs.weight.shape[-1], inputs.layout
    tiling = _choose_tiling(spec, layout.batch_size, gates.dtype, gates.device, units, len(layout.reverse))
    key = spec, units, tiling, layout.has_lengths, gates.dtype, gates.device
    if key in _verified_launches or not needs_grad(gates, inputs.weight, *inputs.vectors, *inputs.states):
        return
    with torch.enable_grad():
        step_gates = gates.new_zeros(layout.batch_size, *gates.shape[1:], requires_grad=True)
        vectors, states = ([part.detach() for part in parts] for parts in (inputs.vectors, inputs.states))
        step_inputs = ScanInputs(step_gates.clone(), inputs.weight.detach(), vectors, states, layout.with_one_step())
        outputs, *_ = get_scan(spec).run(step_inputs)
        torch.autograd.grad(outputs, step_gates, torch.zeros_like(outputs))
    _verified_launches.add(key)


def is_launch_failure(error: Exception) -> bool:
    """Whether the error is a failed compilation or launch, not a wrong argument."""
    launch_errors = (triton.CompilationError, triton.OutOfResources, triton.runtime.errors.PTXASError)
    return isinstance(error, launch_errors) or "Triton Error" in str(error)


def _stack(tensors: list[Tensor], dim: int) -> Tensor:
    return tensors[0].unsqueeze(dim).contiguous() if len(tensors) == 1 else torch.stack(tensors, dim)


def _project(x: Tensor, projections: Sequence[Callable[[Tensor], Tensor]], dtype: torch.dtype) -> Tensor:
    """x (N, D) → (N, directions, …), in one product where possible."""
    linear = [project for project in projections if isinstance(project, Projection)]
    weights = [project.weight for project in linear]
    biases = [project.bias for project in linear if project.bias is not None]
    if len(biases) < len(projections):  # not all of them are products with a bias
        return _stack([project(x).to(dtype) for project in projections], 1)
    weight, bias = (parts[0] if len(parts) == 1 else torch.cat(parts) for parts in (weights, biases))
    projected_inputs = _ProjectInputs.apply(x.to(dtype), weight.to(dtype), bias.to(dtype))
    return projected_inputs.unflatten(1, (len(projections), -1))


class _ProjectInputs(torch.autograd.Function):
    """x (N, D), weight (G, D), bias (G,), all of one dtype → W x + b (N, G), with little memory for the gradient of b.

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


def _choose_tiling(
    spec: CellSpec, batch_size: int, dtype: torch.dtype, device: torch.device, units: int, directions: int
) -> Tiling | None:
    return choose_tiling(units, get_scan(spec).own_units, batch_size, directions, dtype.itemsize, device)
