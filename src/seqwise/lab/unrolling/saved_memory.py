"""`SavedMemory`: the bytes of activations that autograd keeps for the backward pass.

It counts tensors, not the memory of the process, so the result is exact and the same on every machine.
"""

from __future__ import annotations

import weakref
from collections import Counter

from torch import Tensor, nn


class SavedTensor:
    """What autograd keeps in place of a tensor, so that its release can be noticed."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


class SavedMemory:
    """Counts the bytes of tensors that autograd saves, each storage once, without the parameters of a layer."""

    def __init__(self, layer: nn.Module):
        self.parameters = {each.untyped_storage().data_ptr() for each in layer.parameters()}
        self.uses: Counter[int] = Counter()
        self.current = self.peak = 0

    def pack(self, tensor: Tensor) -> Tensor | SavedTensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self.parameters:
            return tensor
        holder = SavedTensor(tensor)
        self.current += 0 if self.uses[storage.data_ptr()] else storage.nbytes()
        self.uses[storage.data_ptr()] += 1
        self.peak = max(self.peak, self.current)
        weakref.finalize(holder, self.release, storage.data_ptr(), storage.nbytes())
        return holder

    def unpack(self, saved: Tensor | SavedTensor) -> Tensor:
        return saved.tensor if isinstance(saved, SavedTensor) else saved

    def release(self, address: int, size: int) -> None:
        self.uses[address] -= 1
        self.current -= 0 if self.uses[address] else size
