"""CUDA graphs: gradients of batches of one shape are captured once and replayed with a single launch.

A small model keeps a GPU busy for less time than its kernels take to launch one by one. A captured graph repeats the
same kernels on the same memory, into which the new batch is copied first; no Python runs. So it is replayed only where
Python would do the same again: for a batch and a state of the same shapes, with the same weights, buffers and
attributes in the same modules, and while no activations are recorded. A model that synchronises with the GPU, draws
random numbers on the CPU or assigns to its own attributes is never captured. Results are identical to the bit. A list
or a global variable that the model changes in place is not detected.

This module knows nothing of losses or optimisers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from seqwise.backbones.states import ModelState, flatten, get_structure, map_state
from seqwise.data.batch import Batch
from seqwise.kernels.cuda_graph import CudaGraph, no_garbage_collection, replace_generator_state
from seqwise.kernels.recurrence.availability import get_disabled_reason
from seqwise.kernels.recurrence.cell_spec import allows_tf32
from seqwise.layers.record import is_recording

# (batch, state, scale) → (summed loss, state after the batch); adds the gradients of loss · scale to `.grad`.
GradientFunction = Callable[[Batch, ModelState, Tensor], tuple[Tensor, ModelState]]

WARMUP_CALLS = 2  # per shape, before it is checked whether it can be captured
MAX_CHECKS = 8  # per shape, besides the first; there is one whenever the model has changed
MAX_GRAPHS = 8
COMPARABLE_TYPES = (bool, int, float, str, type(None))
SYNC_ERROR = "synchronizing CUDA operation"  # part of PyTorch's message
HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
GENERATOR_TYPES = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class ModelSignature(NamedTuple):
    """A key that changes with any attribute or tensor of a model."""

    key: Hashable
    objects: list[object]  # referenced here, so that no other object gets their ids, which are in the key


@dataclass
class ShapeHistory:
    """Counts of the calls with batches of one shape."""

    num_calls: int = 0
    num_checks: int = 0
    checked_signature: int = 0  # hash of the signature at the last check


class GraphReplay:
    """Computes gradients as `compute` does, replaying a CUDA graph where one was captured."""

    def __init__(
        self,
        compute: GradientFunction,
        model: nn.Module,
        device: torch.device,
        log: Callable[[str], None] = lambda _: None,
        enabled: bool = True,
    ):
        self.compute, self.model, self.device, self.log = compute, model, device, log
        self.create_graph: Callable[[], CudaGraph] | None = None
        if enabled and device.type == "cuda":
            self.create_graph = partial(CudaGraph, device, torch.cuda.graph_pool_handle())
        self.disabled_reason = ""
        self.graphs: dict[Hashable, CapturedGradients] = {}
        self._history: dict[Hashable, ShapeHistory] = {}

    def disable(self, reason: str) -> None:
        """Frees all graphs and captures no more."""
        self.disabled_reason = reason
        self.graphs, self._history = {}, {}

    @property
    def holds_memory(self) -> bool:
        """Whether graphs hold memory that `release_memory` would free."""
        return bool(self.graphs)

    def release_memory(self) -> None:
        """Frees all graphs because memory has run out."""
        self.disable("out of memory")
        self.log("out of memory: CUDA graphs are freed; training continues without them.")

    def __call__(self, batch: Batch, state: ModelState, scale: Tensor) -> tuple[Tensor, ModelState]:
        """Returns the same values as `compute`, and sets the same gradients."""
        inputs = batch, state, scale
        key = self._build_key(batch, state)
        if key is None:
            return self.compute(*inputs)
        history, graph = self._history.setdefault(key, ShapeHistory()), self.graphs.get(key)
        history.num_calls += 1
        is_full = graph is None and len(self.graphs) >= MAX_GRAPHS
        if history.num_calls <= WARMUP_CALLS or history.num_checks > MAX_CHECKS or is_full:
            return self.compute(*inputs)
        signature = compute_signature(self.model)
        if signature is None:
            return self.compute(*inputs)
        if graph is not None and graph.signature.key == signature.key:
            return graph.replay(*inputs)
        if history.checked_signature != hash(signature.key):
            self.graphs.pop(key, None)
            history.checked_signature = hash(signature.key)
            history.num_checks += 1
            return self._compute_and_check(signature, *inputs)
        graph = self._capture(signature, *inputs)
        if graph is None:
            return self.compute(*inputs)
        self.graphs[key] = graph
        return graph.replay(*inputs)

    def _build_key(self, batch: Batch, state: ModelState) -> Hashable | None:
        """Returns a key of the shapes and of PyTorch's settings; None if nothing may be replayed."""
        if self.create_graph is None or self.disabled_reason:
            return None
        if is_recording() or get_disabled_reason() or torch._C._len_torch_dispatch_stack():
            return None
        batch_key = build_batch_key(batch)
        return None if batch_key is None else (batch_key, build_state_key(state), get_torch_settings())

    def _compute_and_check(self, signature: ModelSignature, *inputs: Any) -> tuple[Tensor, ModelState]:
        """Computes without a graph, and disables replay if the computation cannot be captured."""
        random_states = RandomStates(self.device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        try:
            with forbid_synchronization(self.device):
                results = self.compute(*inputs)
        except RuntimeError as error:
            if SYNC_ERROR not in str(error):
                raise
            self.disable("it waits for the GPU")
        else:
            new_signature = compute_signature(self.model)
            if new_signature is None or new_signature.key != signature.key:
                self.disable("the model changes itself")
            elif random_states.has_host_changed() or any(isinstance(v, GENERATOR_TYPES) for v in signature.objects):
                self.disable("it draws random numbers on the CPU, or with a generator of its own")
            return results
        for buffer, saved_buffer in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(saved_buffer)
        self._reset(random_states)
        return self.compute(*inputs)

    def _capture(self, signature: ModelSignature, *inputs: Any) -> CapturedGradients | None:
        """Returns the captured graph; on failure disables replay and returns None."""
        assert self.create_graph is not None
        random_states = RandomStates(self.device)
        problem = "there is too little memory"
        if has_memory_for_graph(self.device, len(self.graphs)):
            try:
                return CapturedGradients(self.create_graph(), self, signature, *inputs)
            except Exception as error:  # the gradients can still be computed without a graph
                cause: BaseException = error
            while cause.__context__ is not None:
                cause = cause.__context__
            if not isinstance(cause, Exception):  # such as KeyboardInterrupt
                raise cause
            problem = (str(cause).strip() or "no reason given").splitlines()[0].rstrip(".")
            random_states.replace_device_state()
        self.disable(problem)
        self.log(f"a CUDA graph could not be captured ({problem}); training continues without graphs.")
        self._reset(random_states)
        return None

    def _reset(self, random_states: RandomStates) -> None:
        """Clears the gradients and restores the random generators after a failed attempt."""
        for parameter in self.model.parameters():
            parameter.grad = None
        random_states.restore()


class CapturedGradients:
    """A captured graph, and the tensors it reads and writes."""

    def __init__(self, graph: CudaGraph, replay: GraphReplay, signature: ModelSignature, *inputs: Any):
        self.graph, self.signature, self.parameters = graph, signature, list(replay.model.parameters())
        batch, state, scale = inputs
        batch, state, scale = batch.map_tensors(lambda _, t: t.clone()), map_state(torch.clone, state), scale.clone()
        self.inputs = list_tensors(batch, state, scale)
        for parameter in self.parameters:
            parameter.grad = None
        with no_garbage_collection():
            self.loss, self.next_state = graph.capture(lambda: replay.compute(batch, state, scale))
        self.gradients = [parameter.grad for parameter in self.parameters]

    def replay(self, batch: Batch, state: ModelState, scale: Tensor) -> tuple[Tensor, ModelState]:
        """Copies new inputs and replays. The next replay overwrites gradients and loss; the state is a copy."""
        for target, value in zip(self.inputs, list_tensors(batch, state, scale), strict=True):
            target.copy_(value)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.loss, map_state(torch.clone, self.next_state)


# Keys of what must be the same for a graph to be replayed


def get_torch_settings() -> Hashable:
    """Returns the settings of PyTorch that change results."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        allows_tf32(),
    )


def build_batch_key(batch: Batch) -> Hashable | None:
    """Returns type, shapes and other values of a batch; None if a value cannot be compared.

    The positions of its sequences in the data are left out: only error messages use them.
    """
    key: list[Any] = [type(batch)]
    for name, value in vars(batch).items():
        if not isinstance(value, (Tensor, *COMPARABLE_TYPES)):
            return None
        if name != "positions":
            key.append(build_tensor_key(value) if isinstance(value, Tensor) else value)
    return tuple(key)


def build_state_key(state: ModelState) -> Hashable:
    return str(get_structure(state)), *map(build_tensor_key, flatten(state).values())


def build_tensor_key(tensor: Tensor) -> Hashable:
    return tensor.shape, tensor.dtype, tensor.device


def compute_signature(model: nn.Module) -> ModelSignature | None:
    """Returns the attributes of all modules by identity, and the addresses of all tensors; None if there are hooks.

    A hook runs Python code, which a graph cannot repeat. A tensor hook that only launches kernels may have the
    attribute `repeatable`. A module may list attributes that a call writes and no call reads in
    `diagnostic_attributes`.
    """
    if any(getattr(global_hooks, f"_global{table}", None) for table in HOOK_TABLES):
        return None
    objects: list[Any] = []
    tensors: list[Tensor] = []
    modules: list[Any] = [model]  # not `modules()`, which builds names and takes longer than all of this
    visited = {id(None)}
    for module in modules:
        if id(module) in visited:
            continue
        visited.add(id(module))
        attributes = vars(module)
        if isinstance(module, torch.jit.ScriptModule) or any(attributes[table] for table in HOOK_TABLES):
            return None
        objects.append(type(module))
        tables = [attributes[table].values() for table in MODULE_TABLES]
        if diagnostic := getattr(type(module), "diagnostic_attributes", None):
            attributes = {name: value for name, value in attributes.items() if name not in diagnostic}
        objects.extend(chain(attributes.values(), *tables))
        tensors.extend(tensor for tensor in chain(*tables[:2]) if tensor is not None)
        modules.extend(tables[2])
    addresses: list[Hashable] = []
    for tensor in tensors:
        if tensor._backward_hooks:
            hooks = list(tensor._backward_hooks.values())
            if not all(getattr(hook, "repeatable", False) for hook in hooks):
                return None
            objects.extend(hooks)
        if getattr(tensor, "_post_accumulate_grad_hooks", None):
            return None
        addresses.append((tensor.data_ptr(), tensor.requires_grad))
    return ModelSignature((tuple(map(id, objects)), tuple(addresses), RandomStates.num_replaced), objects)


def list_tensors(batch: Batch, state: ModelState, scale: Tensor) -> list[Tensor]:
    """Returns all tensors of the inputs in a fixed order."""
    tensors = [tensor for name, tensor in batch.tensors().items() if name != "positions"]
    return [*tensors, *flatten(state).values(), scale]


# Random generators, synchronisation and memory


@contextmanager
def forbid_synchronization(device: torch.device) -> Iterator[None]:
    """Raises an error that contains `SYNC_ERROR` where the block would wait for the GPU."""
    if device.type != "cuda":
        yield
        return
    previous_mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(previous_mode)


def has_memory_for_graph(device: torch.device, num_graphs: int) -> bool:
    """Returns whether one more graph fits beside the existing ones, with room for a computation without a graph."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    peak = torch.cuda.max_memory_allocated(device)
    return (num_graphs + 2) * peak <= free + torch.cuda.memory_reserved(device)


class RandomStates:
    """The states of the random generators of the CPU and of the device."""

    num_replaced: ClassVar[int] = 0  # calls of `replace_device_state` in this process

    def __init__(self, device: torch.device):
        self.device, self.host_states = device, get_host_states()
        self.device_state = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def has_host_changed(self) -> bool:
        """Returns whether random numbers were drawn on the CPU since the states were saved."""
        (torch_state, *others), (new_torch_state, *new_others) = self.host_states, get_host_states()
        return not torch.equal(torch_state, new_torch_state) or others != new_others

    def restore(self) -> None:
        torch_state, python_state, (name, keys, *others) = self.host_states
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *others))
        if self.device_state is not None:
            torch.cuda.set_rng_state(self.device_state, self.device)

    def replace_device_state(self) -> None:
        """Replaces the state object of the device's generator after a failed capture.

        Graphs that were captured before use the old object and must not be replayed, which is why `num_replaced` is
        part of a model's signature.
        """
        if self.device_state is None:
            return
        replace_generator_state(self.device)
        RandomStates.num_replaced += 1


def get_host_states() -> tuple[Tensor, Any, tuple[Any, ...]]:
    """Returns the states of PyTorch's CPU generator, of Python's `random` and of `numpy.random`."""
    name, keys, *others = tuple(np.random.get_state(legacy=True))
    return torch.default_generator.get_state(), random.getstate(), (name, np.asarray(keys).tobytes(), *others)
