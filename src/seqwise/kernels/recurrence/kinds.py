"""What a scan is of, in plain values: the kind of cell and, for each direction, its tensors. It knows no modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Kind:
    """A cell: "rnn", "lstm" or "gru", with the settings that concern it."""

    name: str
    activation: str = "tanh"
    reset: str = "after"
    update: str = "keeps"
    layer_norm: bool = False


def scan_dtype(x: Tensor) -> torch.dtype:
    """The type in which x is scanned: autocast's where it applies, which is not to float64."""
    device = x.device.type
    if x.dtype == torch.float64 or device == "meta" or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


def allows_tf32() -> bool:
    """May recurrent layers multiply float32 in tf32? As cuDNN does, by PyTorch's own setting."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the newer setting is in use
        return bool(torch.backends.cudnn.rnn.fp32_precision == "tf32")  # type: ignore[attr-defined]


class Projection(NamedTuple):
    """W x + b, as a `Direction` may project its input. Kernels then multiply with W as it suits them."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Direction(NamedTuple):
    """One scan over the steps: how an input becomes its part of the gates, what it meets there, and the state before.

    `project` makes (…, blocks·U) of (…, D). Its result is overwritten in memory, so a `project` whose output autograd
    has saved would give wrong gradients. These `vectors` stand beside the matrix:

        gru, reset after       bias_hidden (U)
        rnn, layer norm           norm.weight, norm.bias (U)
        lstm, layer norm          hidden_norm.weight, .bias (4U), cell_norm.weight, .bias (U)
        gru, layer norm           gates_norm.weight, .bias (2U), candidate_norm.weight, .bias (U)
    """

    project: Callable[[Tensor], Tensor]
    weight_hidden: Tensor
    vectors: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    reverse: bool = False  # each row is read from its last step to its first
