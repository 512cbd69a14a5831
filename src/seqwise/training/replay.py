"""Gradients of batches of one shape, recorded once and replayed: a GPU is then told of hundreds of kernels in one call.

A small model keeps a GPU busy for less time than it takes to launch its kernels one by one. What a recorded computation
did to tensors is done again, in the same memory, with what was copied there; nothing of Python runs. So it is replayed
only where Python would do the same again: for a batch and a carry of the same shapes, weights in the same places,
nobody looking inside, and modules whose own numbers, hooks and functions are as they were. Where the computation waits
for the GPU in between, or draws random numbers on the CPU, it is not recorded. Results are the same to the bit.

It knows nothing of losses and of optimisers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from seqwise.backbones.states import Carry, flatten, map_carry, structure
from seqwise.data.batch import Rows
from seqwise.kernels.recurrence.availability import switch
from seqwise.layers.record import watched

WARM = 2  # updates of a shape before it is looked at closely; the one after is recorded
MOST = 8  # shapes that are recorded
ROOM = 2  # a recorded computation keeps its memory, and others need as much: so many times the most there was
PLAIN = (bool, int, float, str, type(None))
LEFT_OUT = ("positions", "fresh")  # of a batch: no model looks at them

# Rows, their carry and a factor → the loss and the carry after them; gradients times the factor are left in `.grad`.
Compute = Callable[[Rows, Carry, Tensor], tuple[Tensor, Carry]]


class Graph(Protocol):
    """Work of a GPU that can be done again."""

    def record(self, work: Callable[[], tuple[Tensor, Carry]]) -> tuple[Tensor, Carry]:
        """Where the results will be. They are there after the first replay."""
        ...

    def replay(self) -> None: ...


class Replay:
    """Computes gradients, and records what it computes again and again."""

    def __init__(
        self, compute: Compute, model: nn.Module, device: torch.device, graph: Callable[[], Graph] | None = None
    ):
        self.compute, self.model, self.device = compute, model, device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.graph = graph or (partial(CudaGraph, device) if device.type == "cuda" else None)
        self.refused = ""  # why nothing is recorded any more
        self.forget()

    def forget(self) -> None:
        """Give the memory back."""
        self._met: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, Recorded] = {}

    def __call__(self, rows: Rows, carry: Carry, factor: Tensor) -> tuple[Tensor, Carry]:
        """The same as `compute`."""
        key = self._key(rows, carry)
        if key is None:
            return self.compute(rows, carry, factor)
        if (found := self._recorded.get(key)) is None:
            self._met[key] += 1
            if self._met[key] <= WARM or len(self._recorded) >= MOST:
                return self.compute(rows, carry, factor)
            if self._met[key] == WARM + 1:
                return self._rehearsed(rows, carry, factor)
            found = self._record(rows, carry, factor)
            if found is None:
                return self.compute(rows, carry, factor)
            self._recorded[key] = found
        return found.replay(rows, carry, factor)

    def _key(self, rows: Rows, carry: Carry) -> Hashable | None:
        """What must be the same for a replay; None where there is none to come."""
        if self.graph is None or self.refused or watched() or switch():
            return None
        if (kind := kind_of(rows)) is None:
            return None
        places = tuple(parameter.data_ptr() for parameter in self.parameters)
        return kind, structure_of(carry), manner_of(self.model)[0], places

    def _rehearsed(self, rows: Rows, carry: Carry, factor: Tensor) -> tuple[Tensor, Carry]:
        """Computed as usual; but it is noticed if that cannot be recorded."""
        states = states_of(self.device)
        try:
            with refusing_to_wait(self.device):
                done = self.compute(rows, carry, factor)
        except RuntimeError as error:
            if WAITS not in str(error):
                raise
            self.refused = "it waits for the GPU"
        if self.refused:
            self._again(states)
            return self.compute(rows, carry, factor)
        if not torch.equal(states[0], torch.default_generator.get_state()):
            self.refused = "it draws random numbers on the CPU"
        return done

    def _record(self, rows: Rows, carry: Carry, factor: Tensor) -> Recorded | None:
        if not has_room(self.device):
            self.refused = "there is too little memory"
            return None
        states = states_of(self.device)
        assert self.graph is not None
        try:
            return Recorded(self.compute, self.model, self.parameters, self.graph(), rows, carry, factor)
        except RuntimeError as error:
            self.refused = (str(error).strip() or "no reason given").splitlines()[0]
        self._again(states)
        return None

    def _again(self, states: tuple[Tensor, ...]) -> None:
        """As if nothing had been tried."""
        for parameter in self.parameters:
            parameter.grad = None
        torch.default_generator.set_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], self.device)


class Recorded:
    """One computation, and the memory it reads and writes."""

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        parameters: Sequence[Tensor],
        graph: Graph,
        rows: Rows,
        carry: Carry,
        factor: Tensor,
    ):
        self.parameters, self.graph = parameters, graph
        self.kept = manner_of(model)[1]  # while they are there, no other object has their id
        rows, carry, factor = rows.mapped(lambda _, t: t.clone()), map_carry(torch.clone, carry), factor.clone()
        self.given = [*inputs_of(rows, carry), factor]
        for parameter in parameters:
            parameter.grad = None
        self.loss, self.after = graph.record(lambda: compute(rows, carry, factor))
        self.gradients = [parameter.grad for parameter in parameters]

    def replay(self, rows: Rows, carry: Carry, factor: Tensor) -> tuple[Tensor, Carry]:
        """Gradients and loss are good until the next replay; the carry is a copy."""
        for place, value in zip(self.given, [*inputs_of(rows, carry), factor], strict=True):
            place.copy_(value)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.loss, map_carry(torch.clone, self.after)


class CudaGraph:
    """PyTorch's, which stays on the stream it records where something goes wrong; this does not."""

    def __init__(self, device: torch.device):
        self.device, self.graph = device, torch.cuda.CUDAGraph()

    def record(self, work: Callable[[], tuple[Tensor, Carry]]) -> tuple[Tensor, Carry]:
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            try:
                with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                    return work()
            finally:
                torch.cuda.set_stream(stream)

    def replay(self) -> None:
        with torch.cuda.device(self.device):
            self.graph.replay()


# What must be the same


def kind_of(rows: Rows) -> Hashable | None:
    """Type, shapes and other values of a batch; None where it holds something that cannot be compared."""
    found: list[Any] = [type(rows)]
    for name, value in vars(rows).items():
        if name in LEFT_OUT:
            continue
        if not isinstance(value, (Tensor, *PLAIN)):
            return None
        found.append(shape_of(value) if isinstance(value, Tensor) else value)
    return tuple(found)


def structure_of(carry: Carry) -> Hashable:
    return str(structure(carry)), *map(shape_of, flatten(carry).values())


def shape_of(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.device


def manner_of(model: nn.Module) -> tuple[Hashable, list[object]]:
    """What Python would look at: the attributes of all modules, and how many hooks they have. Numbers are compared by
    value, other objects, which are listed as well, by identity."""
    found: list[Hashable] = []
    objects: list[object] = []
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, PLAIN):
                found.append(value)
            else:
                found.append((id(value), len(value)) if isinstance(value, dict) else id(value))
                objects.append(value)
    return tuple(found), objects


def inputs_of(rows: Rows, carry: Carry) -> list[Tensor]:
    return [*(t for name, t in rows.tensors().items() if name not in LEFT_OUT), *flatten(carry).values()]


# What the machine says

WAITS = "synchronizing CUDA operation"


@contextmanager
def refusing_to_wait(device: torch.device) -> Iterator[None]:
    """An error, with `WAITS` in it, where something in the block would wait for the GPU."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def states_of(device: torch.device) -> tuple[Tensor, ...]:
    """Of the random generators."""
    own = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return torch.default_generator.get_state(), *own


def has_room(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return ROOM * torch.cuda.max_memory_allocated(device) <= free + torch.cuda.memory_reserved(device)
