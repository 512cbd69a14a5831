"""`States`: what crosses from backbones to heads, and the carry that links one piece of a sequence to the next.

A carry is `None`, a tensor whose first dimension is the batch, or a nested tuple of carries. It knows nothing of
which model made it, so that it can be cut into micro-batches, gathered over processes and saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ModelState = Any  # None | Tensor | tuple[Carry, ...]


@dataclass(frozen=True)
class States:
    """One vector per position, and what the next piece of the same sequences needs to know."""

    vectors: Tensor  # (B, T, D)
    carry: ModelState = None


def map_state(function: Callable[[Tensor], Tensor], carry: ModelState) -> ModelState:
    """The same carry with `function` applied to each tensor."""
    if carry is None:
        return None
    if isinstance(carry, Tensor):
        return function(carry)
    return tuple(map_state(function, part) for part in carry)


def detach(carry: ModelState) -> ModelState:
    """The carry without its history: truncated backpropagation stops here."""
    return map_state(Tensor.detach, carry)


def join_rows(carries: list[ModelState]) -> ModelState:
    """Carries of consecutive rows as one."""
    first = carries[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(carries)
    return tuple(join_rows(list(parts)) for parts in zip(*carries))


def flatten(carry: ModelState, name: str = "carry") -> dict[str, Tensor]:
    """Tensors under dotted names, for saving."""
    if carry is None:
        return {}
    if isinstance(carry, Tensor):
        return {name: carry}
    return {key: value for i, part in enumerate(carry) for key, value in flatten(part, f"{name}.{i}").items()}


def structure(carry: ModelState) -> Any:
    """The nesting of a carry as plain data: what `unflatten` needs besides the tensors."""
    if carry is None:
        return None
    return "tensor" if isinstance(carry, Tensor) else [structure(part) for part in carry]


def unflatten(shape: Any, tensors: dict[str, Tensor], name: str = "carry") -> ModelState:
    """Inverse of `flatten`."""
    if shape is None:
        return None
    if shape == "tensor":
        return tensors[name]
    return tuple(unflatten(part, tensors, f"{name}.{i}") for i, part in enumerate(shape))
