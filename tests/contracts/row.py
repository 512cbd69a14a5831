"""One row of the table of layer contracts: what the shared checks need to know about a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Row:
    """`run(layer, x, lengths)` returns outputs (B, T, …); the optional fields say what else the layer guarantees."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]  # float (B, T, D), or int64 ids (B, T)
    run: Callable[[Any, Tensor, Tensor | None], Tensor]
    compare_by_hand: Callable[[], tuple[Tensor, Tensor]]  # (result of the layer, expected)
    # (result of the layer, result of PyTorch's layer with the same weights)
    compare_with_torch: Callable[[], tuple[Tensor, Tensor]] | None = None
    # (layer, x, state) → (outputs, state)
    run_with_state: Callable[[Any, Tensor, Any], tuple[Tensor, Any]] | None = None
    causal: bool = False  # an output depends on no later input
    supports_padding: bool = True  # takes lengths; padding changes nothing
    records: tuple[str, ...] = ()  # dotted names that `record(layer)` must contain
