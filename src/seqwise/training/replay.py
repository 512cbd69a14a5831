"""Gradients of batches of one shape, recorded once and replayed: a GPU is then told of hundreds of kernels in one call.

A small model keeps a GPU busy for less time than it takes to launch its kernels one by one. What a recorded computation
did to tensors is done again, in the same memory, with what was copied there; nothing of Python runs. So it is replayed
only where Python is expected to do the same again: for a batch and a carry of the same shapes, with the same weights,
buffers and attributes in the same modules, and nobody looking inside. Where the computation waits for the GPU in
between, draws random numbers on the CPU or assigns attributes of the model, it is not recorded. Results are the same to
the bit. What is not seen: a list or a global that is changed in place.

It knows nothing of losses and of optimisers.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as everywhere

from seqwise.backbones.states import ModelState, flatten, map_state, structure
from seqwise.data.batch import Batch
from seqwise.kernels.recurrence.availability import switch
from seqwise.kernels.recurrence.kinds import allows_tf32
from seqwise.layers.record import watched

WARM = 2  # updates of a shape before it is looked at closely
TRIES = 8  # looks at a shape: one, and one more whenever the model has become another
MOST = 8  # shapes that are recorded
PLAIN = (bool, int, float, str, type(None))
WAITS = "synchronizing CUDA operation"  # in PyTorch's error
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PARTS = ("_parameters", "_buffers", "_modules")
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)

# Rows, their carry and a factor → the loss and the carry after them; gradients times the factor are left in `.grad`.
Compute = Callable[[Batch, ModelState, Tensor], tuple[Tensor, ModelState]]


class Graph(Protocol):
    """Work of a GPU that can be done again."""

    def record(self, work: Callable[[], tuple[Tensor, ModelState]]) -> tuple[Tensor, ModelState]:
        """Where the results will be. They are there after the first replay."""
        ...

    def replay(self) -> None: ...


class Manner(NamedTuple):
    """What Python would look at in a model, as a key. While `kept` are there, no other objects have their ids."""

    key: Hashable
    kept: list[object]


@dataclass
class Shape:
    """What is known of batches of one shape."""

    met: int = 0
    tries: int = 0
    manner: int = 0  # hash of the last that was tried


class Replay:
    """Computes gradients, and records what it computes again and again."""

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        device: torch.device,
        log: Callable[[str], None] = lambda _: None,
    ):
        self.compute, self.model, self.device, self.log = compute, model, device, log
        self.graph: Callable[[], Graph] | None = None
        if device.type == "cuda":
            self.graph = partial(CudaGraph, device, torch.cuda.graph_pool_handle())
        self.refused = ""  # why nothing is recorded any more
        self._shapes: dict[Hashable, Shape] = {}
        self.recorded: dict[Hashable, Recorded] = {}

    def give_up(self, reason: str) -> bool:
        """Give the memory back and record nothing more; False if there was nothing to give."""
        held, self.refused = bool(self.recorded), reason
        self._shapes, self.recorded = {}, {}
        return held

    def __call__(self, rows: Batch, carry: ModelState, factor: Tensor) -> tuple[Tensor, ModelState]:
        """The same as `compute`."""
        given = rows, carry, factor
        name = self._name(rows, carry)
        if name is None:
            return self.compute(*given)
        shape, found = self._shapes.setdefault(name, Shape()), self.recorded.get(name)
        shape.met += 1
        if shape.met <= WARM or shape.tries > TRIES or (found is None and len(self.recorded) >= MOST):
            return self.compute(*given)
        manner = manner_of(self.model)
        if manner is None:
            return self.compute(*given)
        if found is not None and found.manner.key == manner.key:
            return found.replay(*given)
        if shape.manner != hash(manner.key):
            self.recorded.pop(name, None)
            shape.manner, shape.tries = hash(manner.key), shape.tries + 1
            return self._rehearsed(manner, *given)
        found = self._record(manner, *given)
        if found is None:
            return self.compute(*given)
        self.recorded[name] = found
        return found.replay(*given)

    def _name(self, rows: Batch, carry: ModelState) -> Hashable | None:
        """Of the shape, and how PyTorch is set; None where nothing is to be replayed."""
        if self.graph is None or self.refused or watched() or switch() or torch._C._len_torch_dispatch_stack():
            return None
        kind = kind_of(rows)
        return None if kind is None else (kind, structure_of(carry), ways())

    def _rehearsed(self, manner: Manner, *given: Any) -> tuple[Tensor, ModelState]:
        """Computed as usual; but it is noticed if that cannot be recorded."""
        draws, buffers = Draws(self.device), [buffer.clone() for buffer in self.model.buffers()]
        try:
            with refusing_to_wait(self.device):
                done = self.compute(*given)
        except RuntimeError as error:
            if WAITS not in str(error):
                raise
            self.give_up("it waits for the GPU")
        else:
            after = manner_of(self.model)
            if after is None or after.key != manner.key:
                self.give_up("the model changes itself")
            elif draws.changed() or any(isinstance(one, GENERATORS) for one in manner.kept):
                self.give_up("it draws random numbers on the CPU, or with a generator of its own")
            return done
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        self._again(draws)
        return self.compute(*given)

    def _record(self, manner: Manner, *given: Any) -> Recorded | None:
        assert self.graph is not None
        draws, problem = Draws(self.device), "there is too little memory"
        if has_room(self.device, len(self.recorded)):
            try:
                return Recorded(self.compute, self.model, manner, self.graph(), *given)
            except Exception as error:  # there is another way to the same result
                cause = first_of(error)
            if not isinstance(cause, Exception):  # somebody wants to stop
                raise cause
            problem = (str(cause).strip() or "no reason given").splitlines()[0].rstrip(".")
            draws.renew()
        self.give_up(problem)
        self.log(f"gradients could not be recorded and are computed one by one: {problem}.")
        self._again(draws)
        return None

    def _again(self, draws: Draws) -> None:
        """Gradients and generators as if nothing had been tried."""
        for parameter in self.model.parameters():
            parameter.grad = None
        draws.restore()


class Recorded:
    """One computation, and the memory it reads and writes."""

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        manner: Manner,
        graph: Graph,
        rows: Batch,
        carry: ModelState,
        factor: Tensor,
    ):
        self.manner, self.graph, self.parameters = manner, graph, list(model.parameters())
        rows, carry, factor = rows.map_tensors(lambda _, t: t.clone()), map_state(torch.clone, carry), factor.clone()
        self.given = [*inputs_of(rows, carry), factor]
        for parameter in self.parameters:
            parameter.grad = None
        with no_garbage_collection():
            self.loss, self.after = graph.record(lambda: compute(rows, carry, factor))
        self.gradients = [parameter.grad for parameter in self.parameters]

    def replay(self, rows: Batch, carry: ModelState, factor: Tensor) -> tuple[Tensor, ModelState]:
        """Gradients and loss are good until the next replay; the carry is a copy."""
        for place, value in zip(self.given, [*inputs_of(rows, carry), factor], strict=True):
            place.copy_(value)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.loss, map_state(torch.clone, self.after)


class CudaGraph:
    """PyTorch's, which stays on the stream it records where something goes wrong; this does not.

    Graphs that never run at the same time may share memory: a `pool`.
    """

    def __init__(self, device: torch.device, pool: Any = None):
        self.device, self.pool, self.graph = device, pool, torch.cuda.CUDAGraph()

    def record(self, work: Callable[[], tuple[Tensor, ModelState]]) -> tuple[Tensor, ModelState]:
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


# What must be the same


def ways() -> Hashable:
    """Settings of PyTorch that change what is computed."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        allows_tf32(),
    )


def kind_of(rows: Batch) -> Hashable | None:
    """Type, shapes and other values of a batch; None where it holds something that cannot be compared.

    Where rows come from is left out: it is for errors.
    """
    found: list[Any] = [type(rows)]
    for name, value in vars(rows).items():
        if not isinstance(value, (Tensor, *PLAIN)):
            return None
        if name != "positions":
            found.append(shape_of(value) if isinstance(value, Tensor) else value)
    return tuple(found)


def structure_of(carry: ModelState) -> Hashable:
    return str(structure(carry)), *map(shape_of, flatten(carry).values())


def shape_of(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.device


def manner_of(model: nn.Module) -> Manner | None:
    """The attributes of all modules by identity, and the places of all tensors. None where somebody has put a hook into
    the model: what it does to Python cannot be replayed. The hooks of tensors may say that they are `repeatable`."""
    if any(getattr(everywhere, f"_global{name}", None) for name in HOOKS):
        return None
    kept: list[Any] = []
    tensors: list[Tensor] = []
    modules: list[Any] = [model]  # `modules()` makes up names for them, which takes longer than all of this
    seen = {id(None)}
    for module in modules:
        if id(module) in seen:
            continue
        seen.add(id(module))
        own = vars(module)
        if isinstance(module, torch.jit.ScriptModule) or any(own[name] for name in HOOKS):
            return None
        kept.append(type(module))
        parts = [own[part].values() for part in PARTS]
        told = getattr(type(module), "told", None)  # attributes that a call leaves for people; no other call reads them
        if isinstance(told, tuple):
            own = {name: value for name, value in own.items() if name not in told}
        kept.extend(chain(own.values(), *parts))
        tensors.extend(tensor for tensor in chain(*parts[:2]) if tensor is not None)
        modules.extend(parts[2])
    places: list[Hashable] = []
    for tensor in tensors:
        if tensor._backward_hooks:
            hooks = list(tensor._backward_hooks.values())
            if not all(getattr(hook, "repeatable", False) for hook in hooks):
                return None
            kept.extend(hooks)
        if getattr(tensor, "_post_accumulate_grad_hooks", None):
            return None
        places.append((tensor.data_ptr(), tensor.requires_grad))
    return Manner((tuple(map(id, kept)), tuple(places), Draws.renewed), kept)


def inputs_of(rows: Batch, carry: ModelState) -> list[Tensor]:
    return [*(tensor for name, tensor in rows.tensors().items() if name != "positions"), *flatten(carry).values()]


def first_of(error: BaseException) -> BaseException:
    """What went wrong before all that went wrong because of it."""
    while error.__context__ is not None:
        error = error.__context__
    return error


# What the machine says


class Draws:
    """Where the random generators stand: those of the CPU, and of the device."""

    renewed: ClassVar[int] = 0  # how often, in this process

    def __init__(self, device: torch.device):
        self.device, self.host = device, _host_draws()
        self.own = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def changed(self) -> bool:
        """Has anybody drawn on the CPU since?"""
        (tensor, *others), (now, *others_now) = self.host, _host_draws()
        return not torch.equal(tensor, now) or others != others_now

    def restore(self) -> None:
        tensor, python, (kind, numbers, *rest) = self.host
        torch.default_generator.set_state(tensor)
        random.setstate(python)
        np.random.set_state((kind, np.frombuffer(numbers, np.uint32), *rest))
        if self.own is not None:
            torch.cuda.set_rng_state(self.own, self.device)

    def renew(self) -> None:
        """Another state for the generator of the device: where recording has failed, the old one is still taken for one
        that is recorded. Whatever was recorded before draws from the old one, and must not be replayed."""
        if self.own is None:
            return
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        state = torch.Generator(self.device).graphsafe_get_state()
        torch.cuda.default_generators[index].graphsafe_set_state(state)
        Draws.renewed += 1


def _host_draws() -> tuple[Tensor, Any, tuple[Any, ...]]:
    kind, numbers, *rest = tuple(np.random.get_state(legacy=True))
    return torch.default_generator.get_state(), random.getstate(), (kind, np.asarray(numbers).tobytes(), *rest)


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


def has_room(device: torch.device, recorded: int) -> bool:
    """For one more that keeps its memory, beside as many as there are, and for whatever is not recorded."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    most = torch.cuda.max_memory_allocated(device)
    return (recorded + 2) * most <= free + torch.cuda.memory_reserved(device)
