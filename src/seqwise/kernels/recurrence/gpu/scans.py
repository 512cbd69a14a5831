"""Recurrent scans by the persistent kernels, as functions with a gradient. Importing this imports triton.

`Scan` is what all cells share: memory, launches, and the link to autograd. A subclass names the kernels of one cell and
says what its backward pass needs besides: products over all steps at once, which PyTorch computes. Shapes: D
directions, N packed rows (`layout.py`), B sequences, U units and G gates. This module knows nothing of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from seqwise.kernels.recurrence.decorators import first_order
from seqwise.kernels.recurrence.gpu import gru, lstm, rnn
from seqwise.kernels.recurrence.gpu.launch import (
    UNITS_PER_PROGRAM,
    WEIGHT_ROWS,
    KernelConfig,
    Tiling,
    build_quarter_options,
    iterate_launches,
    needs_grad,
)
from seqwise.kernels.recurrence.gpu.layer_norm import EPSILON
from seqwise.kernels.recurrence.gpu.layout import PackedLayout, allocate_unwritten, multiply_over_rows

PADDING = 32  # the GRU's gradients are padded to a multiple of it: quarters then start at multiples of eight numbers

Activations = dict[str, Tensor]
Gradients = tuple[Tensor | None, ...]


class ScanInputs(NamedTuple):
    gates: Tensor  # (N, D, G·U), the projected inputs; their memory is overwritten by the gates that are saved
    weight: Tensor  # (D, G·U, U), the recurrent matrices
    vectors: Sequence[Tensor]  # (D, …), what else the cell has, in the order of `Direction.vectors`
    states: Sequence[Tensor]  # (B, D, U), before the first step: h, and c of an LSTM
    layout: PackedLayout


class NormSizes(NamedTuple):
    saved: int  # numbers that the norms of a cell save per packed row
    forward: int  # numbers per sequence that the programs of a norm exchange in a step
    backward: int
    grads: int  # vectors (U,) of gradients of gains and biases that the backward kernel adds up


@dataclass
class ScanTensors:
    """The tensors of a forward pass: all states (B + N + B, D, U) with the initial ones, all cells of an LSTM, the
    statistics of norms (N, D, …). In a backward pass also the gradients of outputs and last states, and for gates,
    weight, vectors and states whether their gradient is needed."""

    layout: PackedLayout
    gates: Tensor
    weight: Tensor
    vectors: Sequence[Tensor]
    hidden: Tensor
    cell: Any  # None for other cells
    statistics: Any  # None without norms
    grad_outputs: Tensor | None = None
    grad_last: Sequence[Tensor | None] = ()
    needs_grad: Sequence[bool] = ()

    @cached_property
    def previous_states(self) -> list[Tensor]:
        """Of each direction the states before each step, (N, U)."""
        return self.layout.select_previous_states(self.hidden)

    def select_rows(self, states: Tensor) -> Tensor:
        """Of the states (B + N + B, D, U), those after each step, (N, D, U)."""
        return states[self.layout.batch_size : self.layout.batch_size + self.layout.num_rows]

    @torch.no_grad()
    def compute_products(self) -> Tensor:
        """W h_{t−1}, (N, D, G·U)"""
        products = self.weight.new_empty(len(self.previous_states[0]), *self.weight.shape[:2])
        for direction, states in enumerate(self.previous_states):
            torch.mm(states, self.weight[direction].mT, out=products[:, direction])
        return products

    def compute_weight_grad(self, grad_products: Tensor) -> Tensor | None:
        """The gradient of the weight from those of W h_{t−1}, (N, D, G·U), as one product over all steps."""
        return multiply_over_rows(grad_products, self.previous_states) if self.needs_grad[1] else None


class Scan:
    """The forward and backward kernels of one cell, with its compile-time constants.

    With `layer_norm` the kernels take all gains one after another, and all biases, in float32.
    """

    forward_kernel: Any
    backward_kernel: Any
    own_units = UNITS_PER_PROGRAM
    needs_gates = True  # whether the backward pass without norms needs the gates
    has_cell = False
    has_ring = True  # whether programs of the backward pass exchange partial sums
    norm_sizes: NormSizes

    def __init__(self, layer_norm: bool = False, **constants: Any):
        self.norm = self.norm_sizes if layer_norm else None
        self.saves_gates = layer_norm or self.needs_gates  # in the memory of the projected inputs
        self.constants = constants

    def run(self, inputs: ScanInputs, record: bool = False) -> tuple[Tensor, tuple[Tensor, ...], Activations]:
        """Return the outputs (T, B, D, U), or (N, D, U) where sequences differ in length, the last states (B, D, U)
        and, with `record`, every gate (N, D, U) by its name.

        The gates are written where a gradient is needed or with `record`; else only the states are.
        """
        gates, weight, vectors, states, layout = inputs
        if self.norm is None:
            kernel_vectors = [vector.to(gates.dtype) for vector in vectors]
        else:
            kernel_vectors = [torch.cat([*vectors[first::2]], dim=-1).float() for first in (0, 1)]  # gains, biases
        arguments = gates, weight, *kernel_vectors, *states
        if needs_grad(*arguments):
            results: list[ScanTensors] = []
            outputs, *last = _ScanFunction.apply(self, layout, results, len(states), *arguments)
            tensors = results[0]
        else:
            tensors, last = self.launch_forward(inputs._replace(vectors=kernel_vectors), record)
            outputs = layout.select_outputs(tensors.hidden)
        if not record:
            return outputs, tuple(last), {}
        tensors.gates, tensors.vectors = gates.detach(), vectors
        return outputs, tuple(last), self.get_activations(tensors)

    def launch_forward(self, inputs: ScanInputs, save: bool) -> tuple[ScanTensors, list[Tensor]]:
        """Return the tensors of the forward pass and the last states."""
        gates, weight, vectors, states, layout = inputs
        directions, _, units = weight.shape
        programs = -(-units // self.own_units)
        hidden = allocate_unwritten(layout.state_shape(units), gates.dtype, gates.device)
        last = [torch.empty_like(state) for state in states]
        cell: Any = None
        statistics: Any = None
        if self.has_cell:
            cell = gates.new_empty(layout.state_shape(units)) if save else states[-1]
        arguments = {**self.constants, **self.get_extra_arguments(inputs)}
        if self.norm is not None:
            shape = layout.num_rows * save, directions, self.norm.saved
            statistics = gates.new_empty(shape, dtype=torch.float32)
            arguments |= {"gains": vectors[0], "biases": vectors[1], "statistics": statistics}
        for first, tiling, options in iterate_launches(gates, layout, units, self.own_units):
            if self.norm is not None:
                arguments |= _norm_arguments(tiling, programs, directions, self.norm.forward, gates.device)
            self.forward_kernel[(programs, tiling.batch_groups, directions)](
                gates, weight, *states, hidden, *([cell] if self.has_cell else []), *last,
                layout.lengths, layout.step_offsets, *layout.kernel_scalars, first,
                SAVE=save and self.saves_gates, **arguments, **options,
            )  # fmt: skip
        return ScanTensors(layout, gates, weight, vectors, hidden.view(gates.dtype), cell, statistics), last

    def launch_backward(self, saved: ScanTensors, *tensors: Any, **norm_tensors: Any) -> tuple[list[Tensor], Tensor]:
        """Launch the backward kernel, whose first arguments are `tensors`. Return the gradients of the initial states,
        and those of gains and biases (D, grads·U), empty without norms."""
        layout, hidden = saved.layout, saved.hidden
        _, directions, units = hidden.shape
        grad_outputs, strides = layout.prepare_grad_outputs(saved.grad_outputs, hidden)
        grad_last = [None if grad is None else grad.contiguous() for grad in saved.grad_last]
        grad_initial = [hidden.new_empty(layout.batch_size, directions, units) for _ in grad_last]
        grad_norms = hidden.new_empty(0, 0)
        for first, tiling, options in iterate_launches(hidden, layout, units, self.own_units):
            blocks, groups, ring = tiling.unit_blocks, tiling.batch_groups, []
            arguments: dict[str, Any] = {**self.constants, **norm_tensors}
            if self.has_ring:
                shape = KernelConfig.rounds, directions, groups, blocks, WEIGHT_ROWS, tiling.batch_tile
                ring = [allocate_unwritten(shape, torch.float32, hidden.device)]
            if self.norm is not None:
                if not len(grad_norms):
                    sizes = directions, -(-layout.batch_size // tiling.batch_tile), self.norm.grads * units
                    grad_norms = hidden.new_empty(sizes, dtype=torch.float32)
                arguments |= _norm_arguments(tiling, blocks, directions, self.norm.backward, hidden.device)
                arguments["grad_norms"] = grad_norms
            options = self.adapt_backward_options(options, units, hidden)
            self.backward_kernel[(blocks, groups, directions)](
                *tensors, grad_outputs, *grad_last, *grad_initial, layout.lengths, layout.step_offsets, *ring,
                *strides, *layout.kernel_scalars, first, **arguments, **options,
            )  # fmt: skip
        return grad_initial, grad_norms.sum(1)

    def launch_backward_with_products(
        self, saved: ScanTensors, states: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:
        """The backward pass of a gated cell with norms: gradients of the projected inputs, of the weight, of norms, and
        of the initial states. The recurrent products are not saved but computed once more, for all steps at once."""
        gates, products = saved.gates, saved.compute_products()
        grad_products = allocate_unwritten(gates.shape, gates.dtype, gates.device)
        grad_initial, grad_norms = self.launch_backward(
            saved, gates, saved.weight, grad_products, states,
            products=products, gains=saved.vectors[0], biases=saved.vectors[1], statistics=saved.statistics,
        )  # fmt: skip
        return products, saved.compute_weight_grad(grad_products.view(gates.dtype)), grad_norms, grad_initial

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        """Further arguments of the forward kernel, by name."""
        return {}

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        return options

    def backward(self, saved: ScanTensors) -> Gradients:
        """Return the gradients of gates, weight, vectors and initial states."""
        raise NotImplementedError

    def get_activations(self, tensors: ScanTensors) -> Activations:
        """Every gate by its name, from what the forward kernel saved."""
        return {}


class _ScanFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scan: Scan, layout: PackedLayout, results: list[ScanTensors], num_states: int, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        gates, weight, *vectors = inputs[:-num_states]
        tensors, last = scan.launch_forward(ScanInputs(gates, weight, vectors, inputs[-num_states:], layout), True)
        results.append(tensors)
        saved_gates = gates if scan.saves_gates else None
        ctx.save_for_backward(saved_gates, weight, tensors.hidden, tensors.cell, tensors.statistics, *vectors)
        ctx.scan, ctx.layout = scan, layout
        ctx.set_materialize_grads(False)
        return layout.select_outputs(tensors.hidden), *last

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_outputs: Tensor | None, *grad_last: Tensor | None) -> Gradients:
        gates, weight, hidden, cell, statistics, *vectors = ctx.saved_tensors
        forward_tensors = ctx.layout, gates, weight, vectors, hidden, cell, statistics
        saved = ScanTensors(*forward_tensors, grad_outputs, grad_last, ctx.needs_input_grad[4:])
        return None, None, None, None, *ctx.scan.backward(saved)


class RNNScan(Scan):
    """The simple recurrent network; constant: ACTIVATION. The plain one only reads the inputs and does not save them;
    with a norm their memory takes the pre-activations."""

    forward_kernel, backward_kernel = rnn.rnn_forward, rnn.rnn_backward
    own_units = WEIGHT_ROWS  # one matrix: a unit is one row
    needs_gates = has_ring = False
    norm_sizes = NormSizes(saved=2, forward=2, backward=2, grads=2)

    def backward(self, saved: ScanTensors) -> Gradients:
        hidden, shape = saved.hidden, (saved.layout.num_rows, *saved.weight.shape[::2])
        grad_inputs = allocate_unwritten(shape, hidden.dtype, hidden.device)
        norm_tensors: dict[str, Any] = {}
        if self.norm is not None:
            norm_tensors = {"inputs": saved.gates, "gains": saved.vectors[0], "statistics": saved.statistics}
        grad_initial, grad_norms = self.launch_backward(saved, saved.weight, hidden, grad_inputs, **norm_tensors)
        grad_inputs = grad_inputs.view(hidden.dtype)
        grad_vectors = grad_norms.chunk(2, dim=-1) if self.norm is not None else ()
        return grad_inputs, saved.compute_weight_grad(grad_inputs), *grad_vectors, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        if self.norm is None:
            return {}
        norm = _layer_norm(tensors.gates, *tensors.vectors)
        return {"preactivation": tensors.gates, "norm.norm": norm, "hidden": tensors.select_rows(tensors.hidden)}


class LSTMScan(Scan):
    forward_kernel, backward_kernel = lstm.lstm_forward, lstm.lstm_backward
    has_cell = True
    norm_sizes = NormSizes(saved=4, forward=2, backward=8, grads=6)

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units = saved.gates, saved.weight.shape[2]
        if self.norm is None:
            grad_gates = allocate_unwritten(gates.shape, gates.dtype, gates.device)
            grad_initial, _ = self.launch_backward(saved, gates, saved.weight, grad_gates, saved.cell)
            grad_gates = grad_gates.view(gates.dtype)
            return grad_gates, saved.compute_weight_grad(grad_gates), *grad_initial
        grad_gates, grad_weight, grad_norms, grad_initial = self.launch_backward_with_products(saved, saved.cell)
        grad_gains, grad_cell_bias = grad_norms.split([5 * units, units], dim=-1)
        grad_biases = torch.cat([grad_gates.sum(0, dtype=torch.float32), grad_cell_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        i, f, g, o = tensors.gates.chunk(4, dim=-1)
        cell, hidden = tensors.select_rows(tensors.cell), tensors.select_rows(tensors.hidden)
        activations = {"input": i, "forget": f, "candidate": g, "output": o, "cell": cell, "hidden": hidden}
        if self.norm is not None:
            activations["hidden_norm.norm"] = _layer_norm(tensors.compute_products(), *tensors.vectors[:2])
            activations["cell_norm.norm"] = _layer_norm(cell, *tensors.vectors[2:])
        return activations


class GRUScan(Scan):
    """The GRU with the reset gate after the product; vector: bias (D, U), which r multiplies; constant:
    UPDATE_REPLACES. Its gradients are padded to V units, the next multiple of `PADDING`."""

    forward_kernel, backward_kernel = gru.gru_forward, gru.gru_backward
    matrices = 1  # that the backward kernel multiplies one after another

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        return {"bias": inputs.vectors[0]}

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        padded_units = units + -units % PADDING
        columns, size = 3 * padded_units // self.matrices, hidden.dtype.itemsize
        quarters = build_quarter_options(options["config"], columns, self.matrices, size, hidden.device)
        return {**options, **quarters, "PADDED_UNITS": padded_units}

    def launch_backward_padded(self, saved: ScanTensors, *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the gradients of the gates (N, D, 3U) and of the initial states. The kernel takes the weight as
        (D, 3V, U) with rows of zeros, and gradients (N, D, 3, V) with zeros from U to V."""
        gates, weight, units = saved.gates, saved.weight, saved.weight.shape[2]
        num_padding = -units % PADDING
        if num_padding:
            weight = F.pad(weight.unflatten(1, (3, units)), (0, 0, 0, num_padding)).flatten(1, 2)
        grads = allocate_unwritten((*gates.shape[:2], 3, units + num_padding), gates.dtype, gates.device)
        grads[..., units:] = 0
        grad_initial, _ = self.launch_backward(saved, gates, weight, saved.hidden, grads, *tensors)
        return grads.view(gates.dtype)[..., :units].reshape(gates.shape), grad_initial

    def backward(self, saved: ScanTensors) -> Gradients:
        weight, (bias,) = saved.weight, saved.vectors
        directions, _, units = weight.shape
        # What r multiplied is cheaper to compute once more, for all steps at once, than to save.
        candidate = saved.gates.new_empty(saved.layout.num_rows, directions, units)
        for n, states in enumerate(saved.previous_states):
            torch.addmm(bias[n], states, weight[n, 2 * units :].mT, out=candidate[:, n])
        grad_gates, grad_initial = self.launch_backward_padded(saved, candidate)
        grad_weight = saved.compute_weight_grad(grad_gates)
        grad_bias = grad_gates[..., 2 * units :].sum(0).to(bias.dtype) if saved.needs_grad[2] else None
        grad_gates[..., 2 * units :] = candidate  # now the gradient of n's projected input, which r does not multiply
        return grad_gates, grad_weight, grad_bias, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        r, z, n = tensors.gates.chunk(3, dim=-1)
        return {"reset": r, "update": z, "candidate": n, "hidden": tensors.select_rows(tensors.hidden)}


class ResetBeforeGRUScan(GRUScan):
    """The GRU with the reset gate before the product, which has no bias of its own."""

    backward_kernel = gru.gru_reset_before_backward
    matrices = 3

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        gates, shape = inputs.gates, (inputs.layout.num_rows, *inputs.weight.shape[::2])
        return {"reset_hidden": allocate_unwritten(shape, gates.dtype, gates.device)}

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units, grad_weight = saved.gates, saved.weight.shape[2], None
        grad_gates, grad_initial = self.launch_backward_padded(saved)
        if saved.needs_grad[1]:
            reset_hidden = [gates[:, n, :units] * states for n, states in enumerate(saved.previous_states)]
            grad_gates_weight = multiply_over_rows(grad_gates[..., : 2 * units], saved.previous_states)
            grad_candidate_weight = multiply_over_rows(grad_gates[..., 2 * units :], reset_hidden)
            grad_weight = torch.cat((grad_gates_weight, grad_candidate_weight), dim=1)
        return grad_gates, grad_weight, *grad_initial


class LayerNormGRUScan(GRUScan):
    """The GRU with layer normalisation; constant: UPDATE_REPLACES."""

    backward_kernel = gru.layer_norm_gru_backward
    norm_sizes = NormSizes(saved=4, forward=4, backward=4, grads=4)
    get_extra_arguments = Scan.get_extra_arguments
    adapt_backward_options = Scan.adapt_backward_options

    def backward(self, saved: ScanTensors) -> Gradients:
        units = saved.weight.shape[2]
        grad_gates, grad_weight, grad_norms, grad_initial = self.launch_backward_with_products(saved, saved.hidden)
        grad_gains, grad_candidate_bias = grad_norms.split([3 * units, units], dim=-1)
        grad_gate_biases = grad_gates[..., : 2 * units].sum(0, dtype=torch.float32)
        grad_biases = torch.cat([grad_gate_biases, grad_candidate_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        activations, products = super().get_activations(tensors), tensors.compute_products()
        units = tensors.weight.shape[2]
        activations["gates_norm.norm"] = _layer_norm(products[..., : 2 * units], *tensors.vectors[:2])
        activations["candidate_norm.norm"] = _layer_norm(products[..., 2 * units :], *tensors.vectors[2:])
        return activations


def _norm_arguments(
    tiling: Tiling, programs: int, directions: int, numbers: int, device: torch.device
) -> dict[str, Any]:
    """A ring buffer for the numbers that programs exchange (`layer_norm.py`), and how many programs do."""
    shape = KernelConfig.rounds, directions * tiling.batch_groups, programs, tiling.batch_tile, numbers
    ring = allocate_unwritten(shape, torch.float32, device)
    return {"statistics_ring": ring, "NUM_PROGRAMS": triton.next_power_of_2(programs)}


@torch.no_grad()
def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Layer normalisation of x (N, D, …), each direction with its own gain and bias."""
    return (F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value) * gain + bias).to(x.dtype)
