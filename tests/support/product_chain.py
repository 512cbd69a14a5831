"""Measures the longest chain of matrix products in a call, each of which needs the result of the one before."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seqwise.layers.record import record
from seqwise.lens.subject import evaluation_mode

aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.convolution}


class ChainMode(TorchDispatchMode):
    """Knows for each storage how many products lead to it. Views share their storage."""

    def __init__(self) -> None:
        super().__init__()
        self.depths: dict[int, int] = {}
        self.storages: list[Any] = []  # kept alive, so that no address is used twice

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = function(*args, **(kwargs or {}))
        depth = max((self.depths.get(key(tensor), 0) for tensor in list_tensors((args, kwargs))), default=0)
        for tensor in list_tensors(outputs):
            self.storages.append(tensor.untyped_storage())
            new_depth = depth + (function.overloadpacket in PRODUCTS)
            self.depths[key(tensor)] = max(self.depths.get(key(tensor), 0), new_depth)
        return outputs


def key(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def list_tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor) and value.numel()]


def measure_chain(module: nn.Module, call: Callable[[], Any]) -> int:
    """Returns the length of the longest chain; a live recording runs the reference implementations."""
    with evaluation_mode(module), torch.no_grad(), warnings.catch_warnings(action="ignore"):  # none may be recorded
        with record(module, live=True, transform=lambda name, value: None), ChainMode() as mode:
            call()
    return max(mode.depths.values())
