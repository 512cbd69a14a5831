"""`BackboneOutput`: what backbones return, and functions on the state that is part of it.

The state of a backbone is None, a tensor whose first dimension is the batch, or a nested tuple of states. The functions
here do not know which model returned it, so a state can be split into micro-batches, gathered over processes and saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ModelState = Any  # None | Tensor | tuple[ModelState, ...]
CHECKPOINT_PREFIX = "carry"  # part of the checkpoint format: "carry.0", "carry.1", …


@dataclass(frozen=True)
class BackboneOutput:
    """One vector per position, and the state from which the next segment of the same sequences continues."""

    vectors: Tensor  # (B, T, D)
    state: ModelState = None


def map_state(function: Callable[..., Tensor], *states: ModelState) -> ModelState:
    """Applies `function` to each tensor of a state, or to the corresponding tensors of several states."""
    if states[0] is None:
        return None
    if isinstance(states[0], Tensor):
        return function(*states)
    return tuple(map_state(function, *parts) for parts in zip(*states, strict=True))


def detach(state: ModelState) -> ModelState:
    """Returns the state without its autograd history: truncated backpropagation stops here."""
    return map_state(Tensor.detach, state)


def concat_states(states: list[ModelState]) -> ModelState:
    """Concatenates the states of parts of a batch along the batch dimension."""
    return map_state(lambda *parts: torch.cat(parts), *states)


def flatten(state: ModelState, name: str = CHECKPOINT_PREFIX) -> dict[str, Tensor]:
    """Returns the tensors of a state under dotted names, for saving."""
    if state is None:
        return {}
    if isinstance(state, Tensor):
        return {name: state}
    return {key: value for i, part in enumerate(state) for key, value in flatten(part, f"{name}.{i}").items()}


def get_structure(state: ModelState) -> Any:
    """Returns the nesting of a state as plain data: what `unflatten` needs besides the tensors."""
    if state is None:
        return None
    return "tensor" if isinstance(state, Tensor) else [get_structure(part) for part in state]


def unflatten(structure: Any, tensors: dict[str, Tensor], name: str = CHECKPOINT_PREFIX) -> ModelState:
    """Returns the state that `flatten` turned into tensors and `get_structure` into a structure."""
    if structure is None:
        return None
    if structure == "tensor":
        return tensors[name]
    return tuple(unflatten(part, tensors, f"{name}.{i}") for i, part in enumerate(structure))
