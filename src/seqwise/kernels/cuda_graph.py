"""Capturing and replaying CUDA graphs. It knows nothing of what they compute."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class CudaGraph:
    """A `torch.cuda.CUDAGraph` that returns to the current stream also when the capture fails.

    Graphs that never run at the same time may share a memory `pool`.
    """

    def __init__(self, device: torch.device, pool: Any = None):
        self.device, self.pool, self.graph = device, pool, torch.cuda.CUDAGraph()

    def capture(self, work: Callable[[], Result]) -> Result:
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            try:
                with torch.cuda.graph(self.graph, pool=self.pool, capture_error_mode="thread_local"):
                    return work()
            finally:
                torch.cuda.set_stream(stream)

    def replay(self) -> None:
        with torch.cuda.device(self.device):
            self.graph.replay()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause Python's cyclic garbage collector inside the block.

    A collection may destroy a CUDA graph that is part of a reference cycle. CUDA forbids that while another graph is
    captured, and the capture fails (https://github.com/pytorch/pytorch/pull/161037).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def replace_generator_state(device: torch.device) -> None:
    """Give the generator of the device a new state object: PyTorch treats that of a failed capture as captured."""
    index = torch.cuda.current_device() if device.index is None else device.index
    state = torch.Generator(device).graphsafe_get_state()
    torch.cuda.default_generators[index].graphsafe_set_state(state)
