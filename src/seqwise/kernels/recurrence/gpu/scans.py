"""Recurrent scans by the persistent kernels, as functions with a gradient. Importing this imports triton.

`Scan` is what all cells share: memory, launches, and the link to autograd; its subclasses are in `cell_scans.py`.
Shapes: D directions, N packed rows (`layout.py`), B sequences, U units and G gates. This module knows nothing of
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.gpu.launch import (
    UNITS_PER_PROGRAM,
    WEIGHT_ROWS,
    KernelConfig,
    Tiling,
    iterate_launches,
    needs_grad,
)
from seqwise.kernels.recurrence.gpu.layout import PackedLayout, allocate_unwritten, multiply_over_rows
from seqwise.kernels.recurrence.reference import scan_packed
from seqwise.kernels.second_derivatives import differentiate

Activations = dict[str, Tensor]
Gradients = tuple[Tensor | None, ...]


class ScanInputs(NamedTuple):
    gates: Tensor  # (N, D, G·U), the projected inputs; their memory is overwritten by the gates that are saved
    weight: Tensor  # (D, G·U, U), the recurrent matrices
    vectors: Sequence[Tensor]  # (D, …), what else the cell has, in the order of `Direction.vectors`
    states: Sequence[Tensor]  # (B, D, U), before the first step: h, and c of an LSTM
    layout: PackedLayout
    project: Callable[[], Tensor] | None = None  # computes `gates` again, for second derivatives


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
    cell_name: str
    reset = "after"
    norm_widths: tuple[int, ...]  # of the norms of a step, in units

    def __init__(self, layer_norm: bool = False, **constants: Any):
        self.norm = self.norm_sizes if layer_norm else None
        self.saves_gates = layer_norm or self.needs_gates  # in the memory of the projected inputs
        self.constants = constants

    def run(self, inputs: ScanInputs, record: bool = False) -> tuple[Tensor, tuple[Tensor, ...], Activations]:
        """Return the outputs (T, B, D, U), or (N, D, U) where sequences differ in length, the last states (B, D, U)
        and, with `record`, every gate (N, D, U) by its name.

        The gates are written where a gradient is needed or with `record`; else only the states are.
        """
        gates, weight, vectors, states, layout, project = inputs
        if self.norm is None:
            kernel_vectors = [vector.to(gates.dtype) for vector in vectors]
        else:
            kernel_vectors = [torch.cat([*vectors[first::2]], dim=-1).float() for first in (0, 1)]  # gains, biases
        arguments = gates, weight, *kernel_vectors, *states
        if needs_grad(*arguments):
            results: list[ScanTensors] = []
            outputs, *last = _ScanFunction.apply(self, layout, results, project, len(states), *arguments)
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
        gates, weight, vectors, states, layout, _ = inputs
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

    def differentiate_reference(
        self, layout: PackedLayout, inputs: Sequence[Tensor], num_states: int, gradients: Sequence[Tensor | None]
    ) -> Gradients:
        """Return the same gradients by the reference implementation: autograd can differentiate them again."""
        offsets = [t * layout.batch_size for t in range(layout.num_steps + 1)]
        offsets = offsets if layout.step_offsets is None else layout.step_offsets.tolist()

        def run(gates: Tensor, weight: Tensor, *others: Tensor) -> list[Tensor]:
            vectors, states = others[:-num_states], others[-num_states:]
            if self.norm is not None:  # gains and biases of all norms → gain and bias of each
                sizes = [width * weight.shape[2] for width in self.norm_widths]
                parts = [vector.split(sizes, dim=-1) for vector in vectors]
                vectors = tuple(part for pair in zip(*parts, strict=True) for part in pair)
            directions = []
            for n, is_reversed in enumerate(layout.reverse):
                start = [state[:, n] for state in states]
                rows, last = scan_packed(
                    self.spec, gates[:, n], weight[n], [vector[n] for vector in vectors], start, offsets, is_reversed
                )
                directions.append([rows if layout.has_lengths else rows.unflatten(0, (layout.num_steps, -1)), *last])
            return [torch.stack(parts, dim=-2) for parts in zip(*directions, strict=True)]

        return tuple(differentiate(run, inputs, gradients))

    @cached_property
    def spec(self) -> CellSpec:
        """The cell."""
        update = "replaces" if self.constants.get("UPDATE_REPLACES") else "keeps"
        activation = self.constants.get("ACTIVATION", "tanh")
        return CellSpec(self.cell_name, activation, self.reset, update, self.norm is not None)

    def get_activations(self, tensors: ScanTensors) -> Activations:
        """Every gate by its name, from what the forward kernel saved."""
        return {}


class _ScanFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scan: Scan, layout: PackedLayout, results: list[ScanTensors],
        project: Callable[[], Tensor] | None, num_states: int, *inputs: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        gates, weight, *vectors = inputs[:-num_states]
        tensors, last = scan.launch_forward(ScanInputs(gates, weight, vectors, inputs[-num_states:], layout), True)
        results.append(tensors)
        saved_gates = gates if scan.saves_gates else None
        saved = tensors.hidden, tensors.cell, tensors.statistics
        ctx.save_for_backward(saved_gates, *saved, *inputs[1:])
        ctx.scan, ctx.layout, ctx.project, ctx.num_states = scan, layout, project, num_states
        ctx.set_materialize_grads(False)
        return layout.select_outputs(tensors.hidden), *last

    @staticmethod
    def backward(ctx: Any, grad_outputs: Tensor | None, *grad_last: Tensor | None) -> Gradients:
        gates, hidden, cell, statistics, *inputs = ctx.saved_tensors
        layout, nothing = ctx.layout, (None,) * 5
        if torch.is_grad_enabled():  # inside a backward pass: create_graph=True
            inputs = [ctx.project(), *inputs]  # the forward kernel has overwritten the gates
            gradients = grad_outputs, *grad_last
            return *nothing, *ctx.scan.differentiate_reference(layout, inputs, ctx.num_states, gradients)
        weight, *vectors = inputs[: -ctx.num_states]
        forward_tensors = layout, gates, weight, vectors, hidden, cell, statistics
        saved = ScanTensors(*forward_tensors, grad_outputs, grad_last, ctx.needs_input_grad[5:])
        return *nothing, *ctx.scan.backward(saved)


def _norm_arguments(
    tiling: Tiling, programs: int, directions: int, numbers: int, device: torch.device
) -> dict[str, Any]:
    """A ring buffer for the numbers that programs exchange (`layer_norm.py`), and how many programs do."""
    shape = KernelConfig.rounds, directions * tiling.batch_groups, programs, tiling.batch_tile, numbers
    ring = allocate_unwritten(shape, torch.float32, device)
    return {"statistics_ring": ring, "NUM_PROGRAMS": triton.next_power_of_2(programs)}
