"""Recurrent scans by the persistent kernels, as functions with a gradient. Importing this imports triton.

`Scan` is what all cells share: memory, launches, and the link to autograd. A subclass names the kernels of one cell and
says what its backward pass needs besides: products over all steps at once, which PyTorch computes.

Tensors of D directions, N packed rows (`layout.py`), B sequences, U units and G gates:

    gates (N, D, G·U)           the projected inputs; their memory is overwritten by the gates that are saved
    weight (D, G·U, U)          the recurrent matrices
    vectors (D, …)              what else the cell has, in the order of `Direction.vectors`
    states, last (B, D, U)      before the first and after the last step: h, and c of an LSTM
    outputs                     (T, B, D, U), or (N, D, U) where sequences differ in length

This module knows nothing of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from seqwise.kernels.recurrence.first_order import first_order
from seqwise.kernels.recurrence.gpu import gru, gru_reset_before, lstm, rnn
from seqwise.kernels.recurrence.gpu.launch import (
    ROUNDS,
    UNITS_PER_PROGRAM,
    WEIGHT_ROWS,
    allocate_ring,
    allocate_statistics_ring,
    build_quarter_options,
    iterate_launches,
    needs_grad,
)
from seqwise.kernels.recurrence.gpu.layout import PackedLayout, allocate_unwritten, multiply_over_rows

PADDING = 32  # the GRU's gradients are padded to a multiple: whole quarters that begin at eight 16-bit numbers

Activations = dict[str, Tensor]
Gradients = tuple[Tensor | None, ...]


class Buffers(NamedTuple):
    """What a forward pass writes: all states (B + N + B, D, U) with the initial ones, the last states, all cells of an
    LSTM, and the statistics of norms (N, D, …)."""

    hidden: Tensor
    last: tuple[Tensor, ...]
    cell: Tensor | None = None
    statistics: Tensor | None = None


class ForwardTensors(NamedTuple):
    """What the gates are read from after a forward pass that saved them."""

    layout: PackedLayout
    gates: Tensor
    weight: Tensor
    vectors: Sequence[Tensor]
    buffers: Buffers

    def select_rows(self, states: Tensor) -> Tensor:
        """Of the states (B + N + B, D, U), those after each step, (N, D, U)."""
        return states[self.layout.batch_size : self.layout.batch_size + self.layout.num_rows]

    def compute_products(self) -> Tensor:
        return compute_recurrent_products(self.weight, self.layout.select_previous(self.buffers.hidden))


class BackwardInputs(NamedTuple):
    """What a backward pass gets: tensors of the forward pass, gradients of outputs and last states, and for gates,
    weight, vectors and states whether their gradient is needed."""

    layout: PackedLayout
    gates: Tensor
    weight: Tensor
    vectors: Sequence[Tensor]
    hidden: Tensor
    cell: Tensor
    statistics: Tensor
    grad_outputs: Tensor | None
    grad_last: Sequence[Tensor | None]
    needs_grad: Sequence[bool]

    def compute_weight_grad(self, grad_products: Tensor) -> Tensor | None:
        """The gradient of the weight from those of W h_{t−1}, (N, D, G·U), as one product over all steps."""
        if not self.needs_grad[1]:
            return None
        return multiply_over_rows(grad_products, self.layout.select_previous(self.hidden))


class Scan:
    """The forward and backward kernels of one cell, with its compile-time constants."""

    forward_kernel: Any
    backward_kernel: Any
    own_units = UNITS_PER_PROGRAM
    saves_gates = True  # for the backward pass, in the memory of the projected inputs
    has_cell = False
    num_statistics = 0  # numbers per packed row that the norms save
    forward_numbers = 0  # numbers per sequence that the programs of a norm exchange in a step
    backward_numbers = 0
    num_norm_grads = 0  # vectors (U,) of gradients of gains and biases that the backward kernel adds up
    has_ring = True  # whether programs of the backward pass exchange partial sums

    def __init__(self, **constants: Any):
        self.constants = constants

    def run(
        self,
        gates: Tensor,
        weight: Tensor,
        vectors: Sequence[Tensor],
        states: Sequence[Tensor],
        layout: PackedLayout,
        record: bool = False,
    ) -> tuple[Tensor, tuple[Tensor, ...], Activations]:
        """Return the outputs, the last states and, with `record`, every gate (N, D, U) by its name.

        The gates are written where a gradient is needed or with `record`; else only the states are.
        """
        prepared = self.prepare_vectors(vectors, gates.dtype)
        if needs_grad(gates, weight, *prepared, *states):
            written: list[Buffers] = []
            outputs, *last = _ScanFunction.apply(self, layout, written, len(states), gates, weight, *prepared, *states)
            buffers = written[0]
        else:
            buffers = self.launch_forward(gates, weight, prepared, states, layout, record)
            outputs, last = layout.select_outputs(buffers.hidden), list(buffers.last)
        if not record:
            return outputs, tuple(last), {}
        tensors = ForwardTensors(layout, gates.detach(), weight, vectors, buffers)
        return outputs, tuple(last), self.get_activations(tensors)

    def launch_forward(
        self,
        gates: Tensor,
        weight: Tensor,
        vectors: Sequence[Tensor],
        states: Sequence[Tensor],
        layout: PackedLayout,
        save: bool,
    ) -> Buffers:
        directions, _, units = weight.shape
        programs = -(-units // self.own_units)
        hidden = allocate_unwritten(layout.state_shape(units), gates.dtype, gates.device)
        last = tuple(torch.empty_like(state) for state in states)
        cell = statistics = None
        if self.has_cell:
            cell = gates.new_empty(layout.state_shape(units)) if save else states[-1]
        if self.num_statistics:
            shape = layout.num_rows * save, directions, self.num_statistics
            statistics = gates.new_empty(shape, dtype=torch.float32)
        memory = [part for part in (cell, self.allocate_extra(gates, layout, units), statistics) if part is not None]
        constants = {**self.constants, "SAVE": save} if self.saves_gates else self.constants
        if self.num_statistics:
            constants = constants | _norm_constants(programs)
        for first, tiling, options in iterate_launches(gates, layout, units, self.own_units):
            rings = []
            if self.num_statistics:
                numbers = self.forward_numbers
                rings = [allocate_statistics_ring(tiling, programs, directions, numbers, gates.device)]
            self.forward_kernel[(programs, tiling.batch_groups, directions)](
                gates, weight, *vectors, *states, hidden, *memory, *last, *layout.kernel_tensors, *rings,
                *layout.kernel_scalars, first, **constants, **options,
            )  # fmt: skip
        return Buffers(hidden.view(gates.dtype), last, cell, statistics)

    def launch_backward(self, saved: BackwardInputs, *tensors: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Launch the backward kernel, whose first arguments are `tensors`. Return the gradients of the initial states,
        and those of gains and biases (D, num_norm_grads·U)."""
        layout, hidden = saved.layout, saved.hidden
        _, directions, units = hidden.shape
        grad_outputs, strides = layout.prepare_grad_outputs(saved.grad_outputs, hidden)
        last = [None if grad is None else grad.contiguous() for grad in saved.grad_last]
        initial = [hidden.new_empty(layout.batch_size, directions, units) for _ in last]
        grad_norms: list[Tensor] = []
        for first, tiling, options in iterate_launches(hidden, layout, units, self.own_units):
            rings, constants, blocks = [], dict(self.constants), tiling.unit_blocks
            if self.has_ring:
                rings.append(allocate_ring(tiling, directions, hidden.device))
                constants["ROUNDS"] = ROUNDS
            if self.num_norm_grads:
                numbers = self.backward_numbers
                rings.append(allocate_statistics_ring(tiling, blocks, directions, numbers, hidden.device))
                constants |= _norm_constants(blocks)
                if not grad_norms:
                    groups = -(-layout.batch_size // tiling.batch_tile)
                    shape = directions, groups, self.num_norm_grads * units
                    grad_norms.append(hidden.new_empty(shape, dtype=torch.float32))
            options = self.adapt_backward_options(options, units, hidden)
            self.backward_kernel[(blocks, tiling.batch_groups, directions)](
                *tensors, grad_outputs, *last, *initial, *grad_norms, *layout.kernel_tensors, *rings, *strides,
                *layout.kernel_scalars, first, **constants, **options,
            )  # fmt: skip
        return initial, grad_norms[0].sum(1) if grad_norms else None

    # What differs between cells

    def prepare_vectors(self, vectors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
        """The vectors as the kernels take them."""
        return vectors

    def allocate_extra(self, gates: Tensor, layout: PackedLayout, units: int) -> Tensor | None:
        """Further memory in which the forward kernel publishes values."""
        return None

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        return options

    def backward(self, saved: BackwardInputs) -> Gradients:
        """Return the gradients of gates, weight, vectors and initial states."""
        raise NotImplementedError

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        """Every gate by its name, from what the forward kernel saved."""
        return {}


class _ScanFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scan: Scan,
        layout: PackedLayout,
        written: list[Buffers],
        num_states: int,
        gates: Tensor,
        weight: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        vectors, states = tensors[:-num_states], tensors[-num_states:]
        buffers = scan.launch_forward(gates, weight, vectors, states, layout, True)
        written.append(buffers)
        saved_gates = gates if scan.saves_gates else None
        ctx.save_for_backward(saved_gates, weight, buffers.hidden, buffers.cell, buffers.statistics, *vectors)
        ctx.scan, ctx.layout = scan, layout
        ctx.set_materialize_grads(False)
        return layout.select_outputs(buffers.hidden), *buffers.last

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_outputs: Tensor | None, *grad_last: Tensor | None) -> Gradients:
        gates, weight, hidden, cell, statistics, *vectors = ctx.saved_tensors
        needs = ctx.needs_input_grad[4:]
        saved = BackwardInputs(
            ctx.layout, gates, weight, vectors, hidden, cell, statistics, grad_outputs, grad_last, needs
        )
        return None, None, None, None, *ctx.scan.backward(saved)


class RNNScan(Scan):
    """The simple recurrent network; constant: ACTIVATION. The inputs are only read, and not saved."""

    forward_kernel, backward_kernel = rnn.rnn_forward, rnn.rnn_backward
    own_units = WEIGHT_ROWS  # one matrix: a unit is one row
    saves_gates, has_ring = False, False

    def backward(self, saved: BackwardInputs) -> Gradients:
        hidden, units = saved.hidden, saved.weight.shape[2]
        shape = saved.layout.num_rows, len(saved.layout.reverse), units
        grad_inputs = allocate_unwritten(shape, hidden.dtype, hidden.device)
        initial, _ = self.launch_backward(saved, saved.weight, hidden, grad_inputs)
        grad_inputs = grad_inputs.view(hidden.dtype)
        grad_weight = saved.compute_weight_grad(grad_inputs)
        return grad_inputs, grad_weight, *initial


class LSTMScan(Scan):
    forward_kernel, backward_kernel = lstm.lstm_forward, lstm.lstm_backward
    has_cell = True

    def backward(self, saved: BackwardInputs) -> Gradients:
        gates = saved.gates
        grad_gates = allocate_unwritten(gates.shape, gates.dtype, gates.device)
        initial, _ = self.launch_backward(saved, gates, saved.weight, grad_gates, saved.cell)
        grad_gates = grad_gates.view(gates.dtype)
        grad_weight = saved.compute_weight_grad(grad_gates)
        return grad_gates, grad_weight, *initial

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        return get_lstm_activations(tensors)


class GRUScan(Scan):
    """The GRU with the reset gate after the product; vector: bias (D, U), which r multiplies; constant:
    UPDATE_REPLACES."""

    forward_kernel, backward_kernel = gru.gru_forward, gru.gru_backward

    def prepare_vectors(self, vectors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
        return [vector.to(dtype) for vector in vectors]

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        padded = _padded_units(units)
        quarters = build_quarter_options(options["config"], 3 * padded, 1, hidden.dtype.itemsize, hidden.device)
        return {**options, **quarters, "PADDED_UNITS": padded}

    def backward(self, saved: BackwardInputs) -> Gradients:
        gates, weight, (bias,), hidden = saved.gates, saved.weight, saved.vectors, saved.hidden
        directions, _, units = weight.shape
        grad_gates, previous = _allocate_padded_grads(gates), saved.layout.select_previous(hidden)
        # What r multiplied is cheaper to compute once more, for all steps at once, than to save.
        candidate = gates.new_empty(saved.layout.num_rows, directions, units)
        for n, states in enumerate(previous):
            torch.addmm(bias[n], states, weight[n, 2 * units :].mT, out=candidate[:, n])
        initial, _ = self.launch_backward(saved, gates, _pad_weight(weight), hidden, candidate, grad_gates)
        grad_gates = _remove_padding(grad_gates, gates)
        grad_weight = multiply_over_rows(grad_gates, previous) if saved.needs_grad[1] else None
        grad_bias = grad_gates[..., 2 * units :].sum(0).to(bias.dtype) if saved.needs_grad[2] else None
        grad_gates[..., 2 * units :] = candidate  # now the gradient of n's projected input, which r does not multiply
        return grad_gates, grad_weight, grad_bias, *initial

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        return get_gru_activations(tensors)


class ResetBeforeGRUScan(GRUScan):
    """The GRU with the reset gate before the product, which has no bias of its own."""

    forward_kernel = gru_reset_before.gru_reset_before_forward
    backward_kernel = gru_reset_before.gru_reset_before_backward

    def allocate_extra(self, gates: Tensor, layout: PackedLayout, units: int) -> Tensor | None:
        return allocate_unwritten((layout.num_rows, len(layout.reverse), units), gates.dtype, gates.device)

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        padded = _padded_units(units)
        quarters = build_quarter_options(options["config"], padded, 3, hidden.dtype.itemsize, hidden.device)
        return {**options, **quarters, "PADDED_UNITS": padded}

    def backward(self, saved: BackwardInputs) -> Gradients:
        gates, weight, hidden = saved.gates, saved.weight, saved.hidden
        units = weight.shape[2]
        grad_gates, grad_weight = _allocate_padded_grads(gates), None
        initial, _ = self.launch_backward(saved, gates, _pad_weight(weight), hidden, grad_gates)
        grad_gates = _remove_padding(grad_gates, gates)
        if saved.needs_grad[1]:
            previous = saved.layout.select_previous(hidden)
            reset_hidden = [gates[:, n, :units] * states for n, states in enumerate(previous)]
            grad_gates_weight = multiply_over_rows(grad_gates[..., : 2 * units], previous)
            grad_candidate_weight = multiply_over_rows(grad_gates[..., 2 * units :], reset_hidden)
            grad_weight = torch.cat((grad_gates_weight, grad_candidate_weight), dim=1)
        return grad_gates, grad_weight, *initial


@torch.no_grad()
def compute_recurrent_products(weight: Tensor, previous: Sequence[Tensor]) -> Tensor:
    """W h_{t−1} of matrices (D, A, U) and the states before each step, (N, U) for each direction: (N, D, A)."""
    products = weight.new_empty(len(previous[0]), *weight.shape[:2])
    for direction, states in enumerate(previous):
        torch.mm(states, weight[direction].mT, out=products[:, direction])
    return products


def _norm_constants(programs: int) -> dict[str, int]:
    return {"NUM_PROGRAMS": triton.next_power_of_2(programs), "ROUNDS": ROUNDS}


def get_lstm_activations(tensors: ForwardTensors) -> Activations:
    assert tensors.buffers.cell is not None
    i, f, g, o = tensors.gates.chunk(4, dim=-1)
    cell, hidden = tensors.select_rows(tensors.buffers.cell), tensors.select_rows(tensors.buffers.hidden)
    return {"input": i, "forget": f, "candidate": g, "output": o, "cell": cell, "hidden": hidden}


def get_gru_activations(tensors: ForwardTensors) -> Activations:
    r, z, n = tensors.gates.chunk(3, dim=-1)
    return {"reset": r, "update": z, "candidate": n, "hidden": tensors.select_rows(tensors.buffers.hidden)}


def _padded_units(units: int) -> int:
    return -(-units // PADDING) * PADDING


def _allocate_padded_grads(gates: Tensor) -> Tensor:
    """Memory for the gradients of the gates (N, D, 3U), as (N, D, 3, V) with zeros from U to V."""
    units = gates.shape[-1] // 3
    grads = allocate_unwritten((*gates.shape[:2], 3, _padded_units(units)), gates.dtype, gates.device)
    grads[..., units:] = 0
    return grads


def _remove_padding(grads: Tensor, gates: Tensor) -> Tensor:
    return grads.view(gates.dtype)[..., : gates.shape[-1] // 3].reshape(gates.shape)


def _pad_weight(weight: Tensor) -> Tensor:
    """(D, 3U, U) → (D, 3V, U) with rows of zeros; the same tensor where U is V."""
    units = weight.shape[2]
    if units % PADDING == 0:
        return weight
    return F.pad(weight.unflatten(1, (3, units)), (0, 0, 0, -units % PADDING)).flatten(1, 2)
