"""Captures and replays CUDA graphs. It knows nothing of what they compute."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class CudaGraph:
    """A `torch.cuda.CUDAGraph` whose capture restores the current stream even if it fails.

    Graphs that never run at the same time may share a memory `pool`.
    """

    def __init__(self, device: torch.device, pool: Any = None):
        self.device, self.pool, self.graph = device, pool, torch.cuda.CUDAGraph()

    def capture(self, work: Callable[[], Result]) -> Result:
        """Captures the operations of `work`, which are not run; returns its result."""
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


class ShortLivedCudaGraph:
    """A graph that is replayed only some hundred times, so that capturing it must be quick.

    `torch.cuda.graph` waits for the GPU and frees cached memory before a capture; here neither is done. `warm_up` runs
    the work on the stream of the capture first, so that cuBLAS has its workspace there and kernels are loaded.
    """

    def __init__(self, device: torch.device):
        self.device, self.stream, self.graph = device, _get_capture_stream(device), torch.cuda.CUDAGraph()

    def warm_up(self, work: Callable[[], Result]) -> Result:
        """Runs the work on the stream of the capture."""
        with self._use_capture_stream():
            return work()

    def capture(self, work: Callable[[], Result]) -> Result:
        """Captures the operations of `work`, which are not run; returns its result."""
        with self._use_capture_stream():
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                return work()
            finally:
                self.graph.capture_end()

    def replay(self) -> None:
        with torch.cuda.device(self.device):
            self.graph.replay()

    @contextmanager
    def _use_capture_stream(self) -> Iterator[None]:
        """Makes the capture's stream current inside the block, between all earlier and all later work."""
        current = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(current)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            current.wait_stream(self.stream)


@cache
def _get_capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Returns one stream per device, because PyTorch keeps a workspace of cuBLAS for every stream."""
    return torch.cuda.Stream(device)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pauses Python's cyclic garbage collector inside the block.

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
    """Gives the device's random generator a new state, since PyTorch treats that of a failed capture as captured."""
    index = torch.cuda.current_device() if device.index is None else device.index
    state = torch.Generator(device).graphsafe_get_state()
    torch.cuda.default_generators[index].graphsafe_set_state(state)
