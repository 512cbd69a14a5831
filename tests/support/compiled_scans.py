"""Cells, inputs, and the compiled and the reference scan of them, for the tests of the compiled recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqwise.config import RecurrentSettings
from seqwise.kernels.recurrence.cpu.compiled import CellSpec, Projection, SequencePacking, scan
from seqwise.layers import cells
from seqwise.layers.recurrent import build_step_mask, reverse_steps
from seqwise.layers.scan import build_direction, scan_reference, zero_padding

CELL_SPECS = [
    *(
        CellSpec("rnn", activation=name, layer_norm=layer_norm)
        for name in cells.ACTIVATIONS
        for layer_norm in (False, True)
    ),
    *(CellSpec("lstm", layer_norm=layer_norm) for layer_norm in (False, True)),
    CellSpec("lstm", capped=True),
    *(
        CellSpec("gru", reset=reset, update=update, layer_norm=layer_norm)
        for reset, update, layer_norm in cells.GRU_CELLS
    ),
]
PLAIN = [CellSpec("rnn"), CellSpec("rnn", activation="relu"), CellSpec("lstm"), CellSpec("gru")]
# batch, time, inputs, units; units: less than a SIMD vector, one vector, an odd number, and panels of every width
SHAPES = [(1, 1, 3, 5), (3, 4, 5, 16), (7, 5, 4, 37), (2, 3, 21, 170)]
each_cell_spec = pytest.mark.parametrize("spec", CELL_SPECS, ids=lambda spec: "-".join(map(str, vars(spec).values())))


def build_cell(spec: CellSpec, inputs: int, units: int, dtype: torch.dtype) -> cells.Cell:
    """Returns a cell with no parameter at its usual zero or one."""
    torch.manual_seed(1)
    settings = RecurrentSettings(
        activation=spec.activation,
        reset=spec.reset,
        update=spec.update,
        layer_norm=spec.layer_norm,
        cap_input_gate=spec.capped,
    )
    cell = cells.make_cell(spec.name, inputs, units, settings)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.5 / math.sqrt(units) if parameter.dim() == 2 else 0.5)
    return cell.to(dtype)


def get_vectors(cell: cells.Cell) -> tuple[Tensor, ...]:
    """Returns the parameters besides the matrices, in the order of `Direction.vector_parameters`."""
    norms = {
        cells.LayerNormRNNCell: ["norm"],
        cells.LayerNormLSTMCell: ["hidden_norm", "cell_norm"],
        cells.LayerNormGRUCell: ["gates_norm", "candidate_norm"],
    }
    for cell_class, names in norms.items():
        if isinstance(cell, cell_class):
            modules = [cell.get_submodule(name) for name in names]
            return tuple(part for norm in modules for part in (norm.weight, norm.bias))
    return (cell.bias_hidden,) if isinstance(cell, cells.GRUCell) else ()


def build_projection(cell: cells.Cell) -> Callable[[Tensor], Tensor]:
    """Returns the input product as part of the scan, or the cell's own projection if it normalises the product."""
    normalised = (cells.LayerNormLSTMCell, cells.LayerNormGRUCell)
    return cell.project if isinstance(cell, normalised) else Projection(cell.weight_input, cell.bias)


def draw_inputs(
    spec: CellSpec, batch: int, time: int, inputs: int, units: int, dtype: torch.dtype
) -> tuple[Tensor, list[Tensor]]:
    """Returns an input and a state that require gradients."""
    torch.manual_seed(2)
    x = torch.randn(batch, time, inputs, dtype=dtype, requires_grad=True)
    count = 2 if spec.name == "lstm" else 1
    return x, [torch.randn(batch, units, dtype=dtype, requires_grad=True) for _ in range(count)]


def run_compiled(
    spec: CellSpec, cell: cells.Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None, reverse: bool
):
    direction = build_direction(cell, cell.weight_hidden, tuple(state), reverse)
    outputs, (after,), _ = scan(spec, x, [direction], SequencePacking(len(x), x.shape[1], lengths))
    return [outputs, *after]


def run_reference(cell: cells.Cell, x: Tensor, state: list[Tensor], lengths: Tensor | None, reverse: bool):
    valid = build_step_mask(x, cell.inputs, lengths)
    x = zero_padding(reverse_steps(x, lengths) if reverse else x, valid)
    outputs, after = scan_reference(cell, x, tuple(state), cell.weight_hidden, valid)
    return [reverse_steps(outputs, lengths) if reverse else outputs, *after]


def compute_gradients(results: list[Tensor], leaves: list[Tensor], retain_graph: bool = False) -> list[Tensor]:
    """Returns the gradients of one random weighted sum of all results; zero for a leaf that has none."""
    torch.manual_seed(3)
    weights = [torch.randn(each.shape, dtype=each.dtype) for each in results]
    gradients = torch.autograd.grad(results, leaves, weights, allow_unused=True, retain_graph=retain_graph)
    return [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(gradients, leaves, strict=True)]
