"""Runs a recurrent cell step by step, with some of its values replaced: a gate forced to 0, or a path cut.

The cells of this package pass every value of a step through a function `record(name, value)` and continue with what it
returns (`seqwise.layers.cells`), so a value can be replaced without changing the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seqwise.layers.cells import Cell, State

Replacement = float | Callable[[Tensor], Tensor]


def build_record(
    values: dict[str, list[Tensor]], replace: Mapping[str, Replacement]
) -> Callable[[str, Tensor], Tensor]:
    """Returns a function `record` for a cell's step that replaces some values and appends all of them to `values`."""

    def record(name: str, value: Tensor) -> Tensor:
        if name in replace:
            new = replace[name]
            value = new(value) if callable(new) else torch.full_like(value, new)
        values.setdefault(name, []).append(value)
        return value

    return record


def unroll(
    cell: Cell, x: Tensor, state: State | None = None, replace: Mapping[str, Replacement] | None = None
) -> tuple[dict[str, Tensor], State]:
    """Runs a cell over x (B, T, D); returns each value of its equations by name, (B, T, U), and the last state.

    replace: name of a value → the number that takes its place, or a function of the value, such as `torch.detach`
    """
    values: dict[str, list[Tensor]] = {}
    record = build_record(values, replace or {})
    state = cell.start(len(x), x) if state is None else state
    for x_t in cell.project(x).unbind(1):
        state = cell.step(x_t, state, cell.weight_hidden, record)
    return {name: torch.stack(steps, dim=1) for name, steps in values.items()}, state


def step(cell: Cell, x: Tensor, state: State, replace: Mapping[str, Replacement] | None = None) -> State:
    """Runs one step of a cell from x (B, D) and a state; see `unroll`."""
    return cell.step(cell.project(x), state, cell.weight_hidden, build_record({}, replace or {}))


def compute_derivatives(
    cell: Cell, x: Tensor, replace: Mapping[str, Replacement] | None = None, part: int = 0
) -> Tensor:
    """Returns ∂s_T/∂s_k of one sequence x (1, T, D) for k = 0 … T − 1, as (T, U, U); s is h, or c with `part` 1.

    These are total derivatives, through everything that the later steps compute, by automatic differentiation.
    """
    state = tuple(each.requires_grad_() for each in cell.start(1, x))
    states = []
    record = build_record({}, replace or {})
    for x_t in cell.project(x).unbind(1):
        states.append(state[part])
        state = cell.step(x_t, state, cell.weight_hidden, record)
    rows = torch.eye(cell.units, dtype=x.dtype)[:, None]  # one gradient for each unit of s_T
    gradients = torch.autograd.grad(state[part], states, rows, is_grads_batched=True)
    return torch.stack([each[:, 0] for each in gradients])


def compute_norms(matrices: Tensor) -> Tensor:
    """Returns the Frobenius norm of matrices (…, U, U) divided by √U, so that an identity has norm 1."""
    return matrices.square().sum((-2, -1)).div(matrices.shape[-1]).sqrt()
