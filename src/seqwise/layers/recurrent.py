"""Recurrent layers: one cell over time, stacked layers, and two layers that read in opposite directions.

They know nothing of tokens, nor of what a state is used for. The scans over time are in `scan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.cells import Cell, LSTMCell, State
from seqwise.layers.dropout import build_dropout, draw_mask, drop_weights
from seqwise.layers.norm import LayerNorm
from seqwise.layers.record import is_recorded, is_recorded_live, record_value
from seqwise.layers.scan import (
    FUSED,
    ScanResult,
    build_direction,
    choose_backend,
    get_cell_spec,
    scan_aten,
    scan_fused,
    scan_reference,
    zero_padding,
)

META = torch.empty(0, device="meta")  # tensors made like this one have a shape and no memory


class Recurrent(nn.Module):
    """One cell over time. The cell is registered under its own name, so that values are named `layer.0.lstm.forget`."""

    diagnostic_attributes = ("backend",)  # written by a call, read by no other; see training/replay.py

    def __init__(self, cell: Cell, weight_dropout: float = 0.0, state_dropout: float = 0.0):
        super().__init__()
        if state_dropout and not isinstance(cell, LSTMCell):
            problem = (
                f"state dropout needs a cell whose state enters a matrix product only, an LSTM; received {cell.name}."
            )
            raise UsageError(problem, fix="Use --recurrent.weight-dropout.")
        self.name, self.units = cell.name, cell.units
        self.weight_dropout, self.state_dropout = weight_dropout, state_dropout
        self.backend: str | None = None  # of the last call: "triton", "compiled", "aten" or "reference"
        self.add_module(cell.name, cell)

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Returns the outputs (B, T, U) of x (B, T, D), zero in the padding, and the state after each sequence's last
        valid step."""
        cell = self.cell
        is_valid = build_step_mask(x, cell.inputs, lengths)
        state_mask = self.draw_state_mask(x)
        backend = "reference" if is_recorded_live(cell) else choose_backend(cell, x, lengths, 1, state_mask is not None)
        if backend in FUSED:
            result = _scan_directions(backend, [self], x, [state], lengths, is_valid, [state_mask])
            if result is not None:
                return result.outputs, result.final_states[0]
            # Another one, now that the kernel is known to fail.
            backend = choose_backend(cell, x, lengths, 1, state_mask is not None)
        self._set_backend(backend)
        initial_state, weight_hidden = self.get_initial_state(x, state), self.get_weight_hidden()
        x = zero_padding(x, is_valid)  # a NaN in the padding would reach the gradients
        if backend == "reference":
            return scan_reference(cell, x, initial_state, weight_hidden, is_valid, state_mask)
        if is_recorded(cell):
            self.record_activations({}, x, initial_state, weight_hidden, is_valid)
        return scan_aten(cell, x, initial_state, weight_hidden, lengths)

    def _set_backend(self, backend: str) -> None:
        if self.backend != backend:  # assigning an attribute of a module is slow
            self.backend = backend

    def get_initial_state(self, x: Tensor, state: State | None, backend: str = "reference") -> State:
        """Returns `state`, or zeros if it is None, in the dtype of x (GPU kernels convert it themselves).

        Raises `UsageError` for a state of another size or device, because kernels would access memory outside of it.
        """
        zeros = self.cell.start(x.shape[0], x if state is None else META)
        if state is None:
            return zeros
        expected = [(tuple(part.shape), x.device) for part in zeros]
        received = [(tuple(part.shape), part.device) for part in state]
        if received != expected:
            texts = [" and ".join(f"{shape} on {device}" for shape, device in part) for part in (expected, received)]
            raise UsageError(f"expected a state of {texts[0]}, received {texts[1] or 'nothing'}.")
        return state if backend == "triton" else tuple(part.to(x.dtype) for part in state)

    def get_weight_hidden(self) -> Tensor:
        """Returns the recurrent matrix for one scan; in training with weight dropout, one mask for all steps."""
        return drop_weights(self.cell.weight_hidden, self.weight_dropout, self.training)

    @property
    def drops_state(self) -> bool:
        """Whether the state is dropped now: in training, with state dropout."""
        return self.training and self.state_dropout > 0

    def draw_state_mask(self, x: Tensor) -> Tensor | None:
        """Returns the factors (B, U) of the state in all recurrent products of a scan; None without state dropout."""
        return draw_mask(x, (x.shape[0], self.units), self.state_dropout) if self.drops_state else None

    def record_activations(
        self,
        activations: dict[str, Tensor],
        x: Tensor,
        state: State,
        weight_hidden: Tensor,
        is_valid: Tensor | None,
    ) -> None:
        """Records the activations that a kernel has returned; if some are missing, the reference scan records all."""
        cell = self.cell
        with torch.no_grad():
            x = zero_padding(x, is_valid)
            if not set(cell.gates) <= set(activations):
                scan_reference(cell, x, tuple(part.to(x.dtype) for part in state), weight_hidden, is_valid)
                return
            if any(isinstance(child, LayerNorm) for child in cell.children()):
                cell.project(x)  # records the norms of the input
        for name in cell.gates:
            record_value(cell, name, zero_padding(activations[name], is_valid))

    @property
    def cell(self) -> Cell:
        return self._modules[self.name]  # type: ignore[return-value]

    def extra_repr(self) -> str:
        parts = [f"backend={self.backend}"] if self.backend else []
        rates = {"weight_dropout": self.weight_dropout, "state_dropout": self.state_dropout}
        parts += [f"{name}={rate}" for name, rate in rates.items() if rate]
        return ", ".join(parts)


class StackedRecurrent(nn.Module):
    """Layers on top of each other, dropout between them. The state is a tuple with one entry per layer.

    With `sum_layers` the output is the sum of the outputs of all layers, which gives each of them a short path to the
    loss (Melis et al. 2020, "Mogrifier LSTM").
    """

    def __init__(
        self, layers: Sequence[nn.Module], dropout: float = 0.0, sum_layers: bool = False, variational: bool = True
    ):
        super().__init__()
        self.layer = nn.ModuleList(layers)
        self.dropout, self.sum_layers = build_dropout(dropout, variational), sum_layers
        self.units = self.layer[-1].units
        widths: list[Any] = [layer.units for layer in self.layer]
        if sum_layers and len(set(widths)) > 1:
            problem = f"outputs of layers can be added if all have the same width; received {widths}."
            raise UsageError(problem, fix="Leave out --recurrent.sum-layers or --recurrent.last-width.")

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, tuple[Any, ...]]:
        """Returns the outputs (B, T, U) for x (B, T, D), and the states of all layers."""
        states, outputs = [], []
        for index, layer in enumerate(self.layer):
            x = self.dropout(x) if index else x
            x, layer_state = layer(x, None if state is None else state[index], lengths)
            states.append(layer_state)
            outputs.append(x)
        return sum(outputs[1:], outputs[0]) if self.sum_layers else x, tuple(states)


class Bidirectional(nn.Module):
    """Two layers that read in opposite directions, outputs concatenated: each output depends on the whole sequence.

    A sequence is reversed within its own length, so the backward layer begins with its last valid step.
    """

    def __init__(self, forward_layer: Recurrent, backward_layer: Recurrent):
        super().__init__()
        self.forward_layer, self.backward_layer = forward_layer, backward_layer
        self.units = forward_layer.units + backward_layer.units

    def forward(self, x: Tensor, state: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, tuple[Any, Any]]:
        """Returns the outputs (B, T, 2U) of x (B, T, D), and the states of the forward and of the backward layer."""
        forward_state, backward_state = (None, None) if state is None else state
        layers, cells = [self.forward_layer, self.backward_layer], [self.forward_layer.cell, self.backward_layer.cell]
        forward_shape, backward_shape = ((get_cell_spec(cell), cell.inputs, cell.units) for cell in cells)
        if forward_shape == backward_shape and not any(map(is_recorded_live, cells)):
            is_valid = build_step_mask(x, cells[0].inputs, lengths)
            backend = choose_backend(cells[0], x, lengths, 2, self.forward_layer.drops_state)
            states = [forward_state, backward_state]
            if backend in FUSED:
                masks = [layer.draw_state_mask(x) for layer in layers]
                result = _scan_directions(backend, layers, x, states, lengths, is_valid, masks)
                if result is not None:
                    return result.outputs, (result.final_states[0], result.final_states[1])
        outputs, forward_state = self.forward_layer(x, forward_state, lengths)
        reversed_outputs, backward_state = self.backward_layer(reverse_steps(x, lengths), backward_state, lengths)
        outputs = torch.cat([outputs, reverse_steps(reversed_outputs, lengths)], dim=-1)
        return outputs, (forward_state, backward_state)


def _scan_directions(
    backend: str,
    layers: Sequence[Recurrent],
    x: Tensor,
    states: Sequence[State | None],
    lengths: Tensor | None,
    is_valid: Tensor | None,
    state_masks: Sequence[Tensor | None],
) -> ScanResult | None:
    """Scans x in one or two directions, the second reversed, by one kernel; returns None if it cannot be launched."""
    directions = [
        build_direction(
            layer.cell, layer.get_weight_hidden(), layer.get_initial_state(x, state, backend), index == 1, mask
        )
        for index, (layer, state, mask) in enumerate(zip(layers, states, state_masks, strict=True))
    ]
    should_record = any(is_recorded(layer.cell) for layer in layers)
    result = scan_fused(backend, layers[0].cell, x, directions, lengths, should_record)
    if result is None:
        return None
    for index, (layer, direction) in enumerate(zip(layers, directions, strict=True)):
        layer._set_backend(backend)
        if is_recorded(layer.cell):
            inputs, activations = x, result.activations[index]
            if direction.reverse:  # kernels return activations in the order of x, a layer records them as it reads
                inputs = reverse_steps(x, lengths)
                activations = {name: reverse_steps(value, lengths) for name, value in activations.items()}
            layer.record_activations(activations, inputs, direction.state, direction.weight_hidden, is_valid)
    return result


def build_step_mask(x: Tensor, inputs: int, lengths: Tensor | None) -> Tensor | None:
    """Returns the mask (B, T) of steps that are no padding, or None without lengths.

    Raises `UsageError` if x is not (B, T > 0, inputs), or the lengths do not fit.
    """
    if x.dim() != 3 or x.shape[1] == 0 or x.shape[2] != inputs:
        raise UsageError(f"expected vectors (batch, time > 0, {inputs}), received {tuple(x.shape)}.")
    if lengths is None:
        return None
    if lengths.shape != x.shape[:1]:
        raise UsageError(f"expected one length per sequence, ({len(x)},), received {tuple(lengths.shape)}.")
    if lengths.device.type == "cpu" and not bool(((lengths >= 0) & (lengths <= x.shape[1])).all()):
        raise UsageError(f"expected lengths from 0 to {x.shape[1]}, received {lengths.tolist()}.")
    return torch.arange(x.shape[1], device=x.device) < lengths.to(x.device)[:, None]


def reverse_steps(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Returns x (B, T, D) with each sequence's valid steps in reverse order; its padding stays at the end."""
    if lengths is None:
        return x.flip(1)
    steps, length = torch.arange(x.shape[1], device=x.device), lengths.to(x.device)[:, None]
    reversed_steps = torch.where(steps < length, length - 1 - steps, steps)
    return x.gather(1, reversed_steps[..., None].expand_as(x))
