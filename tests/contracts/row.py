"""One row of the layer contract table: what the shared checks need to know of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Row:
    """`run(layer, x, lengths)` gives outputs (B, T, …); the other entries say what else the layer promises."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]  # float (B, T, D), or int64 ids (B, T)
    run: Callable[[Any, Tensor, Tensor | None], Tensor]
    compare_by_hand: Callable[[], tuple[Tensor, Tensor]]  # (result of the layer, expected)
    compare_with_torch: Callable[[], tuple[Tensor, Tensor]] | None = (
        None  # (result of the layer, of PyTorch's on the same weights)
    )
    run_with_state: Callable[[Any, Tensor, Any], tuple[Tensor, Any]] | None = (
        None  # (layer, x, state) → (outputs, state)
    )
    causal: bool = False  # an output depends on no later input
    pads: bool = True  # takes lengths; padding changes nothing
    records: tuple[str, ...] = ()  # dotted names that `record(layer)` must contain
