"""What a scan computes, without modules: the cell and, for each direction, its tensors. It knows nothing of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class CellSpec:
    """A cell: "rnn", "lstm" or "gru", with the settings that concern it.

    reset: whether the GRU's reset gate acts "after" or "before" the recurrent product. update: whether its update gate
    "keeps" the old state, h = z h + (1 − z) n, or "replaces" it, h = (1 − z) h + z n. capped: whether the LSTM's input
    gate is at most 1 − f.
    """

    name: str
    activation: str = "tanh"
    reset: str = "after"
    update: str = "keeps"
    layer_norm: bool = False
    capped: bool = False


def get_scan_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype in which x is scanned: autocast's if it is enabled, except for float64."""
    device = x.device.type
    if x.dtype == torch.float64 or device == "meta" or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


def allows_tf32() -> bool:
    """Returns whether recurrent layers may multiply float32 in TF32: PyTorch's own setting for cuDNN."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the newer setting is in use
        return bool(torch.backends.cudnn.rnn.fp32_precision == "tf32")  # type: ignore[attr-defined]


class Projection(NamedTuple):
    """W x + b, as a `Direction` may project its input. Kernels may compute this product themselves."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class NormalizedProjection(NamedTuple):
    """LN(W x) + b, with one norm over all of W x or several norms over parts of it."""

    weight: Tensor
    norm_parameters: tuple[Tensor, ...]  # gain and bias of each norm
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        gains, biases = self.norm_parameters[::2], self.norm_parameters[1::2]
        parts = F.linear(x, self.weight).split([len(gain) for gain in gains], dim=-1)
        norms = [F.layer_norm(part, gain.shape, gain, bias) for part, gain, bias in zip(parts, gains, biases)]
        y = norms[0] if len(norms) == 1 else torch.cat(norms, dim=-1)
        return y if self.bias is None else y + self.bias


class Direction(NamedTuple):
    """One direction of a scan.

    `project` returns (…, blocks·U) for (…, D); a block is a gate or the candidate. Its result is overwritten in memory,
    so a `project` whose output autograd has saved would give wrong gradients. For second derivatives it is called
    again, in the backward pass, and must return the same. The `vector_parameters` of each cell, in their order (other
    cells have none):

        gru, reset after       bias_hidden (U)
        layer-norm rnn         norm.weight, norm.bias (U)
        layer-norm lstm        hidden_norm.weight, .bias (4U), cell_norm.weight, .bias (U)
        layer-norm gru         gates_norm.weight, .bias (2U), candidate_norm.weight, .bias (U)
    """

    project: Callable[[Tensor], Tensor]  # the product with the input, and its bias
    weight_hidden: Tensor  # (blocks·U, U), the recurrent weight
    vector_parameters: tuple[Tensor, ...]  # biases and norms of the step itself
    state: tuple[Tensor, ...]  # the initial state: (h,) or (h, c), each (B, U)
    reverse: bool = False  # whether each sequence is read from its last step to its first
    state_mask: Tensor | None = None  # (B, U), factors of h in the recurrent product; kernels of the LSTM on a GPU only
