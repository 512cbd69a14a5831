"""What a model costs on this machine: time, saved activations, and operations as PyTorch's profiler counts them.

Inputs are random, see `cost_inputs.py`. Nothing of the model changes, nor does the random state.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seqwise.layers.positions import LearnedPositions
from seqwise.layers.record import record
from seqwise.lens.cost_inputs import build_call, build_shared_call
from seqwise.lens.cost_models import CountedModel
from seqwise.lens.subject import evaluation_mode
from seqwise.tasks.inspection import get_device

MIN_REPEATS, MAX_REPEATS = 5, 30  # timed calls of one size
MIN_SECONDS, MAX_SECONDS = 0.1, 1.0  # time for the calls of one size; a size whose first call takes longer is the last
MIN_CPU_SHARE = 0.85  # below it, other processes distort the times
MAX_VALUES = 1 << 27  # activations, above which the memory of a length is not measured


# Time


@dataclass(frozen=True)
class Timing:
    """Seconds of calls that were repeated."""

    median: float
    minimum: float
    cpu_share: float  # of the time during which this thread ran; for the rest it waited for a processor


def measure_call(counted: CountedModel, call: Callable[[], Any]) -> Timing:
    """Returns the time of a call without gradients, after one that warms up."""
    device = get_device(counted.module)

    def run() -> float:
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    with evaluation_mode(counted.module), torch.no_grad():
        run()
        started_at, cpu_started_at = time.perf_counter(), time.thread_time()
        samples = [run()]
        while samples[0] <= MAX_SECONDS and len(samples) < MAX_REPEATS:
            if len(samples) >= MIN_REPEATS and sum(samples) >= MIN_SECONDS:
                break
            samples.append(run())
        elapsed, cpu_elapsed = time.perf_counter() - started_at, time.thread_time() - cpu_started_at
    is_cpu = device.type == "cpu"
    return Timing(statistics.median(samples), min(samples), cpu_elapsed / elapsed if is_cpu else 1.0)


def measure_times(counted: CountedModel, lengths: Sequence[int]) -> dict[int, Timing]:
    """Returns the time of reading one sequence of each length, up to one that takes too long."""
    times: dict[int, Timing] = {}
    for length in lengths:
        times[length] = measure_call(counted, build_call(counted, length))
        if times[length].median > MAX_SECONDS:
            break
    return times


def measure_reuse(counted: CountedModel, length: int, numbers: Sequence[int]) -> tuple[list[Timing], list[Timing]]:
    """Returns the times of several targets over one source: encoded once, and encoded again for each target."""
    shared = [measure_call(counted, build_shared_call(counted, length, number)) for number in numbers]
    repeated = [measure_call(counted, build_call(counted, length, number)) for number in numbers]
    return shared, repeated


def list_measurable(counted: CountedModel, lengths: Sequence[int]) -> list[int]:
    """Returns the lengths that the model itself can read, at least one; a forecast has one length."""
    if counted.fixed_target is not None and counted.trained is not None:
        module: Any = counted.module
        return [-(-counted.trained.settings.forecast.lookback // module.encoder.patch_size)]
    limit = find_position_limit(counted)
    return list(lengths) if limit is None else [length for length in lengths if length <= limit] or [limit]


def find_position_limit(counted: CountedModel) -> int | None:
    """Returns the length at which learned positions end; None if the model has none."""
    parts = [each for each in counted.module.modules() if isinstance(each, LearnedPositions)]
    if counted.fixed_source is not None:  # those of the image have their own length
        parts = [each for each in parts if each.max_length != counted.fixed_source]
    return min((each.max_length for each in parts), default=None)


def describe_load(timings: Sequence[Timing]) -> str | None:
    """Returns a sentence if the measurements had to wait for a processor, or None."""
    share = statistics.median([each.cpu_share for each in timings]) if timings else 1.0
    if share >= MIN_CPU_SHARE:
        return None
    return (
        f"The machine was busy: the measurements had a processor for {share:.0%} of the time, "
        "so times may be longer than on an idle one."
    )


# Operations


def profile_operations(counted: CountedModel, length: int, batch_size: int = 1) -> int:
    """Returns the operations of one call as PyTorch's profiler counts them.

    A live recording runs the reference implementations, because the profiler does not see inside fused kernels.
    """
    call = build_call(counted, length, batch_size)
    mapping: dict[Any, Any] = {torch.ops.aten.mv: lambda matrix, vector, **_: 2 * matrix[0] * matrix[1]}
    counter = FlopCounterMode(display=False, custom_mapping=mapping)
    module = counted.module
    with evaluation_mode(module), torch.no_grad(), warnings.catch_warnings(action="ignore"):  # none may be recorded
        with record(module, live=True, transform=lambda name, value: None), counter:
            call()
    return int(counter.get_total_flops())


# Memory


def measure_activations(counted: CountedModel, length: int, batch_size: int = 1) -> int:
    """Returns the bytes that a call keeps for the gradient; each storage counts once.

    Of two calls in a row, the second keeps what the first keeps as well, such as weights and inputs, and its own.
    """
    call = build_call(counted, length, batch_size)
    with evaluation_mode(counted.module), torch.enable_grad():
        first, first_result = list_saved(call)
        second, second_result = list_saved(call)
    total = sum(storage.nbytes() for address, storage in second.items() if address not in first)
    del first_result, second_result  # alive until here, so that no address is used twice
    return total


def list_saved(call: Callable[[], Any]) -> tuple[dict[int, Any], Any]:
    """Returns the storages that a call keeps for the gradient by their address, and its result."""
    saved: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.numel():
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()
    for node in list_nodes(result):
        for value in getattr(node, "__dict__", {}).values():  # of functions that keep tensors by themselves
            for tensor in value if isinstance(value, tuple) else (value,):
                if isinstance(tensor, Tensor):
                    keep(tensor)
    return saved, result


def list_nodes(result: Any) -> list[Any]:
    """Returns the nodes of the autograd graph of a result."""
    tensors = [each for each in list_tensors(result) if each.grad_fn is not None]
    waiting, found = [tensor.grad_fn for tensor in tensors], {}
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in found:
            found[id(node)] = node
            waiting += [each for each, _ in node.next_functions]
    return list(found.values())


def list_tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from list_tensors(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from list_tensors(getattr(value, each.name))
