"""The states of all random generators: saved before a computation is tried, and restored if it is not used."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor


class RandomStates:
    """The states of the random generators of the CPU and of the device."""

    num_replaced: ClassVar[int] = 0  # calls of `replace_device_state` in this process

    def __init__(self, device: torch.device):
        self.device, self.host = device, get_host_states()
        self.own = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def have_changed(self) -> bool:
        """Return whether random numbers were drawn on the CPU since."""
        (tensor, *others), (tensor_now, *others_now) = self.host, get_host_states()
        return not torch.equal(tensor, tensor_now) or others != others_now

    def restore(self) -> None:
        tensor, python, (kind, numbers, *rest) = self.host
        torch.default_generator.set_state(tensor)
        random.setstate(python)
        np.random.set_state((kind, np.frombuffer(numbers, np.uint32), *rest))
        if self.own is not None:
            torch.cuda.set_rng_state(self.own, self.device)

    def replace_device_state(self) -> None:
        """Give the generator of the device a new state object after a failed capture.

        PyTorch would still treat the old one as being captured. Graphs captured before draw from the old one and must
        not be replayed, which is why `num_replaced` is part of a model's signature.
        """
        if self.own is None:
            return
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        state = torch.Generator(self.device).graphsafe_get_state()
        torch.cuda.default_generators[index].graphsafe_set_state(state)
        RandomStates.num_replaced += 1


def get_host_states() -> tuple[Tensor, Any, tuple[Any, ...]]:
    """Return the states of the generators of PyTorch's CPU, of Python and of NumPy."""
    kind, numbers, *rest = tuple(np.random.get_state(legacy=True))
    return torch.default_generator.get_state(), random.getstate(), (kind, np.asarray(numbers).tobytes(), *rest)
