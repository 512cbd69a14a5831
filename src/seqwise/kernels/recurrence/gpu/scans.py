"""`Scan`: a recurrent cell over all steps by the persistent kernels, with its gradient. Importing this imports triton.

`Scan` has what all cells share: buffers, launches, and the autograd function; its subclasses are in `cell_scans.py`.
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
    """What a scan computes from, with all directions stacked."""

    gates: Tensor  # (N, D, G·U): the projected inputs; their memory is overwritten by the gates that are saved
    weight_hidden: Tensor  # (D, G·U, U)
    vector_parameters: Sequence[Tensor]  # (D, …) each, in the order of `Direction.vector_parameters`
    states: Sequence[Tensor]  # (B, D, U) each, before the first step: h, and c of an LSTM
    layout: PackedLayout
    recompute_gates: Callable[[], Tensor] | None = None  # projects the inputs again, for second derivatives
    state_mask: Tensor | None = None  # (B, D, U), factors of h in the recurrent product, of an LSTM


class NormSizes(NamedTuple):
    """How many numbers the kernels of a cell with layer normalisation save and exchange."""

    saved: int  # statistics per packed row
    exchanged_forward: int  # numbers per sequence that programs exchange for the norms of a forward step
    exchanged_backward: int  # the same for a backward step
    summed_grads: int  # vectors (U,) of gradients of gains and biases that the backward kernel adds up


@dataclass
class ScanTensors:
    """The tensors of a forward pass; a backward pass adds the last three."""

    layout: PackedLayout
    gates: Tensor
    weight_hidden: Tensor
    vector_parameters: Sequence[Tensor]
    hidden: Tensor  # (B + N + B, D, U), the state buffer of h
    cell: Any  # (B + N + B, D, U), the state buffer of c; None for other cells than the LSTM
    statistics: Any  # (N, D, …), of the norms; None without norms
    state_mask: Any = None  # as in `ScanInputs`; `hidden` then has the masked states
    outputs: Any = None  # (N, D, U), the states after each step; None without a mask: they are in `hidden`
    grad_outputs: Tensor | None = None
    grad_final_states: Sequence[Tensor | None] = ()
    needs_grad: Sequence[bool] = ()  # for gates, weight_hidden, each vector parameter and each state

    @cached_property
    def previous_states(self) -> list[Tensor]:
        """For each direction, the states before each step, (N, U)."""
        return self.layout.select_previous_states(self.hidden)

    def get_outputs(self) -> Tensor:
        """Returns the states after each step, (N, D, U)."""
        return self.select_rows(self.hidden) if self.outputs is None else self.outputs

    def select_rows(self, states: Tensor) -> Tensor:
        """Returns the states after each step, (N, D, U), from a state buffer."""
        return states[self.layout.batch_size : self.layout.batch_size + self.layout.num_rows]

    @torch.no_grad()
    def compute_products(self) -> Tensor:
        """Returns W h_{t−1} of all steps, (N, D, G·U), where W is the recurrent weight."""
        products = self.weight_hidden.new_empty(len(self.previous_states[0]), *self.weight_hidden.shape[:2])
        for direction, states in enumerate(self.previous_states):
            torch.mm(states, self.weight_hidden[direction].mT, out=products[:, direction])
        return products

    def compute_grad_weight_hidden(self, grad_products: Tensor) -> Tensor | None:
        """Returns the gradient of the recurrent weight, one product over all steps, given the gradients of W h_{t−1},
        (N, D, G·U); None if it is not needed."""
        return multiply_over_rows(grad_products, self.previous_states) if self.needs_grad[1] else None


class Scan:
    """The forward and backward kernels of one cell, with its compile-time constants.

    With `layer_norm` the kernels take one tensor of all gains and one of all biases, in float32.
    """

    forward_kernel: Any
    backward_kernel: Any
    own_units = UNITS_PER_PROGRAM  # units of a program of the forward kernel
    needs_gates = True  # whether the backward pass without norms needs the gates
    has_cell = False  # whether the state has a cell c, as in an LSTM
    has_ring = True  # whether programs of the backward pass exchange partial sums
    norm_sizes: NormSizes
    cell_name: str
    reset = "after"
    norm_widths: tuple[int, ...]  # blocks of U units that each norm of a step covers

    def __init__(self, layer_norm: bool = False, **constants: Any):
        self.norm = self.norm_sizes if layer_norm else None
        self.saves_gates = layer_norm or self.needs_gates  # they overwrite the projected inputs
        self.constants = constants

    def run(self, inputs: ScanInputs, should_record: bool = False) -> tuple[Tensor, tuple[Tensor, ...], Activations]:
        """Returns the outputs (T, B, D, U), or (N, D, U) if sequences differ in length, the final states (B, D, U)
        and, with `should_record`, the activations (N, D, U) by name.

        The kernel writes the gates if a gradient is needed or with `should_record`; otherwise only the states.
        """
        gates, weight_hidden, parameters, states, layout, recompute_gates, state_mask = inputs
        if self.norm is None:
            kernel_parameters = [parameter.to(gates.dtype) for parameter in parameters]
        else:  # gains and biases alternate
            kernel_parameters = [torch.cat([*parameters[start::2]], dim=-1).float() for start in (0, 1)]
        arguments = gates, weight_hidden, *kernel_parameters, *states
        if needs_grad(*arguments):
            tensors_out: list[ScanTensors] = []
            outputs, *final_states = _ScanFunction.apply(
                self, layout, tensors_out, recompute_gates, state_mask, len(states), *arguments
            )
            tensors = tensors_out[0]
        else:
            tensors, final_states = self.launch_forward(
                inputs._replace(vector_parameters=kernel_parameters), should_record
            )
            outputs = layout.split_steps(tensors.get_outputs())
        if not should_record:
            return outputs, tuple(final_states), {}
        tensors.gates, tensors.vector_parameters = gates.detach(), parameters
        return outputs, tuple(final_states), self.get_activations(tensors)

    def launch_forward(self, inputs: ScanInputs, should_save: bool) -> tuple[ScanTensors, list[Tensor]]:
        """Launches the forward kernel; returns its tensors and the final states.

        With `should_save` it also writes what `ScanTensors` holds besides the states.
        """
        gates, weight_hidden, parameters, states, layout, _, state_mask = inputs
        directions, _, units = weight_hidden.shape
        programs = -(-units // self.own_units)
        hidden = allocate_unwritten(layout.get_state_shape(units), gates.dtype, gates.device)
        final_states = [torch.empty_like(state) for state in states]
        cell: Any = None
        statistics: Any = None
        outputs: Any = None
        if self.has_cell:
            cell = gates.new_empty(layout.get_state_shape(units)) if should_save else states[-1]
        arguments = {**self.constants, **self.get_extra_arguments(inputs)}
        if self.norm is not None:
            shape = layout.num_rows * should_save, directions, self.norm.saved
            statistics = gates.new_empty(shape, dtype=torch.float32)
            arguments |= {"gains": parameters[0], "biases": parameters[1], "statistics": statistics}
        if state_mask is not None:
            outputs = gates.new_empty(layout.num_rows, directions, units)
            arguments |= {"state_mask": state_mask, "outputs": outputs}
        for first_sequence, tiling, options in iterate_launches(gates, layout, units, self.own_units):
            if self.norm is not None:
                num_exchanged = self.norm.exchanged_forward
                arguments |= _build_norm_arguments(tiling, programs, directions, num_exchanged, gates.device)
            self.forward_kernel[(programs, tiling.batch_groups, directions)](
                gates, weight_hidden, *states, hidden, *([cell] if self.has_cell else []), *final_states,
                layout.lengths, layout.step_offsets, *layout.kernel_scalars, first_sequence,
                SAVE=should_save and self.saves_gates, **arguments, **options,
            )  # fmt: skip
        hidden = hidden.view(gates.dtype)
        tensors = ScanTensors(
            layout, gates, weight_hidden, parameters, hidden, cell, statistics, state_mask, outputs
        )  # fmt: skip
        return tensors, final_states

    def launch_backward(self, saved: ScanTensors, *tensors: Any, **norm_tensors: Any) -> tuple[list[Tensor], Tensor]:
        """Launches the backward kernel, whose first arguments are `tensors`. Returns the gradients of the initial
        states, and the gradients of gains and biases (D, summed_grads·U), empty without norms."""
        layout, hidden = saved.layout, saved.hidden
        _, directions, units = hidden.shape
        grad_outputs, strides = layout.prepare_grad_outputs(saved.grad_outputs, hidden)
        grad_final_states = [None if grad is None else grad.contiguous() for grad in saved.grad_final_states]
        grad_states = [hidden.new_empty(layout.batch_size, directions, units) for _ in grad_final_states]
        grad_norms = hidden.new_empty(0, 0)
        for first_sequence, tiling, options in iterate_launches(hidden, layout, units, self.own_units):
            blocks, groups, ring = tiling.unit_blocks, tiling.batch_groups, []
            arguments: dict[str, Any] = {**self.constants, **norm_tensors}
            if saved.state_mask is not None:
                arguments["state_mask"] = saved.state_mask
            if self.has_ring:
                shape = KernelConfig.rounds, directions, groups, blocks, WEIGHT_ROWS, tiling.batch_tile
                ring = [allocate_unwritten(shape, torch.float32, hidden.device)]
            if self.norm is not None:
                if not len(grad_norms):
                    sizes = directions, -(-layout.batch_size // tiling.batch_tile), self.norm.summed_grads * units
                    grad_norms = hidden.new_empty(sizes, dtype=torch.float32)
                num_exchanged = self.norm.exchanged_backward
                arguments |= _build_norm_arguments(tiling, blocks, directions, num_exchanged, hidden.device)
                arguments["grad_norms"] = grad_norms
            options = self.adapt_backward_options(options, units, hidden)
            self.backward_kernel[(blocks, groups, directions)](
                *tensors, grad_outputs, *grad_final_states, *grad_states, layout.lengths, layout.step_offsets, *ring,
                *strides, *layout.kernel_scalars, first_sequence, **arguments, **options,
            )  # fmt: skip
        return grad_states, grad_norms.sum(1)

    def launch_backward_with_products(
        self, saved: ScanTensors, states: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:
        """Runs the backward pass of a gated cell with norms: returns the gradients of the projected inputs, of the
        recurrent weight, of norms, and of the initial states.

        The recurrent products are not saved but computed once more, for all steps at once. `states` is the state
        buffer that the kernel reads.
        """
        gates, products, (gains, biases) = saved.gates, saved.compute_products(), saved.vector_parameters
        grad_products = allocate_unwritten(gates.shape, gates.dtype, gates.device)
        grad_states, grad_norms = self.launch_backward(
            saved, gates, saved.weight_hidden, grad_products, states,
            products=products, gains=gains, biases=biases, statistics=saved.statistics,
        )  # fmt: skip
        grad_gates = products  # the kernel has overwritten them
        grad_weight_hidden = saved.compute_grad_weight_hidden(grad_products.view(gates.dtype))
        return grad_gates, grad_weight_hidden, grad_norms, grad_states

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        """Returns further arguments of the forward kernel, by name."""
        return {}

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        """Returns the options of the backward kernel, given the options of the forward kernel."""
        return options

    def backward(self, saved: ScanTensors) -> Gradients:
        """Returns the gradients of gates, recurrent weight, vector parameters and initial states."""
        raise NotImplementedError

    def differentiate_reference(
        self, layout: PackedLayout, inputs: Sequence[Tensor], num_states: int, gradients: Sequence[Tensor | None],
        state_mask: Tensor | None = None,
    ) -> Gradients:  # fmt: skip
        """Returns the gradients of `inputs` by the reference implementation: autograd can differentiate them again.

        `inputs` are gates, recurrent weight, vector parameters and states; `gradients` belong to outputs and final
        states.
        """
        offsets = [t * layout.batch_size for t in range(layout.num_steps + 1)]
        offsets = offsets if layout.step_offsets is None else layout.step_offsets.tolist()

        def run(gates: Tensor, weight_hidden: Tensor, *others: Tensor) -> list[Tensor]:
            parameters, states = others[:-num_states], others[-num_states:]
            if self.norm is not None:  # gains and biases of all norms → gain and bias of each
                sizes = [width * weight_hidden.shape[2] for width in self.norm_widths]
                parts = [parameter.split(sizes, dim=-1) for parameter in parameters]
                parameters = tuple(part for pair in zip(*parts, strict=True) for part in pair)
            results = []
            for d, is_reversed in enumerate(layout.reverse):
                outputs, final_states = scan_packed(
                    self.spec, gates[:, d], weight_hidden[d], [parameter[d] for parameter in parameters],
                    [state[:, d] for state in states], offsets, is_reversed,
                    None if state_mask is None else state_mask[:, d],
                )  # fmt: skip
                outputs = outputs if layout.has_lengths else outputs.unflatten(0, (layout.num_steps, -1))
                results.append([outputs, *final_states])
            return [torch.stack(parts, dim=-2) for parts in zip(*results, strict=True)]

        return tuple(differentiate(run, inputs, gradients))

    @cached_property
    def spec(self) -> CellSpec:
        """The cell."""
        update = "replaces" if self.constants.get("UPDATE_REPLACES") else "keeps"
        activation = self.constants.get("ACTIVATION", "tanh")
        is_capped = bool(self.constants.get("CAPPED"))
        return CellSpec(self.cell_name, activation, self.reset, update, self.norm is not None, is_capped)

    def get_activations(self, tensors: ScanTensors) -> Activations:
        """Returns the activations (N, D, …) by name, from what the forward kernel saved."""
        return {}


class _ScanFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scan: Scan, layout: PackedLayout, tensors_out: list[ScanTensors],
        recompute_gates: Callable[[], Tensor] | None, state_mask: Tensor | None, num_states: int, *inputs: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Runs the scan; appends its tensors to `tensors_out`, since autograd passes on the results only."""
        gates, weight_hidden, *parameters = inputs[:-num_states]
        scan_inputs = ScanInputs(
            gates, weight_hidden, parameters, inputs[-num_states:], layout, state_mask=state_mask
        )  # fmt: skip
        tensors, final_states = scan.launch_forward(scan_inputs, should_save=True)
        tensors_out.append(tensors)
        saved_gates = gates if scan.saves_gates else None
        saved = tensors.hidden, tensors.cell, tensors.statistics, state_mask
        ctx.save_for_backward(saved_gates, *saved, *inputs[1:])
        ctx.scan, ctx.layout, ctx.recompute_gates, ctx.num_states = scan, layout, recompute_gates, num_states
        ctx.set_materialize_grads(False)
        return layout.split_steps(tensors.get_outputs()), *final_states

    @staticmethod
    def backward(ctx: Any, grad_outputs: Tensor | None, *grad_final_states: Tensor | None) -> Gradients:
        gates, hidden, cell, statistics, state_mask, *inputs = ctx.saved_tensors
        layout, no_gradients = ctx.layout, (None,) * 6  # of the arguments before the inputs
        if torch.is_grad_enabled():  # inside a backward pass: create_graph=True
            inputs = [ctx.recompute_gates(), *inputs]  # the forward kernel has overwritten the gates
            gradients = grad_outputs, *grad_final_states
            second = ctx.scan.differentiate_reference(layout, inputs, ctx.num_states, gradients, state_mask)
            return *no_gradients, *second
        weight_hidden, *parameters = inputs[: -ctx.num_states]
        forward_tensors = layout, gates, weight_hidden, parameters, hidden, cell, statistics, state_mask, None
        saved = ScanTensors(*forward_tensors, grad_outputs, grad_final_states, ctx.needs_input_grad[6:])
        return *no_gradients, *ctx.scan.backward(saved)


def _build_norm_arguments(
    tiling: Tiling, programs: int, directions: int, num_exchanged: int, device: torch.device
) -> dict[str, Any]:
    """Returns a ring buffer for the numbers that programs exchange (`layer_norm.py`), and the number of programs."""
    shape = KernelConfig.rounds, directions * tiling.batch_groups, programs, tiling.batch_tile, num_exchanged
    ring = allocate_unwritten(shape, torch.float32, device)
    return {"statistics_ring": ring, "NUM_PROGRAMS": triton.next_power_of_2(programs)}
