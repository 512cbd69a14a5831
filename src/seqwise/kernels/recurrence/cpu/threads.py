"""`run_on_threads`: calls a compiled function on several threads. It knows nothing of what the function computes.

The threads are PyTorch's own OpenMP threads if they can be found: after a matrix product they are still spinning, so a
second pool of threads would have to wait for their cores. Otherwise they are Python's; compiled code runs without the
global interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import torch

from seqwise.kernels.recurrence.cpu.code import Code, CompiledFunction
from seqwise.kernels.recurrence.decorators import thread_safe_cache


def run_on_threads(function: CompiledFunction, argument_lists: Sequence[Sequence[int]], threads: int) -> None:
    """Calls `function` with the address of each list of integers. Returns when all calls are done."""
    if not argument_lists:
        return
    integers = array("q", argument_lists[0] if len(argument_lists) == 1 else chain.from_iterable(argument_lists))
    run_calls(function, integers, len(argument_lists), threads)


def run_calls(function: CompiledFunction, integers: array[int], num_calls: int, threads: int) -> None:
    """The same for lists of equal length that already follow each other in an array of 64-bit integers."""
    first_address, list_bytes = integers.buffer_info()[0], 8 * len(integers) // num_calls
    addresses = range(first_address, first_address + num_calls * list_bytes, list_bytes)
    threads = min(threads, num_calls)
    if threads == 1:
        _call_with_addresses(function, addresses)
    elif (run_on_openmp := _find_openmp()) is not None:
        run_on_openmp(function.address, first_address, list_bytes, num_calls, threads)
    else:
        shares = [addresses[worker::threads] for worker in range(threads)]
        list(_get_thread_pool(os.getpid()).map(_call_with_addresses, [function] * threads, shares))


def _call_with_addresses(function: CompiledFunction, addresses: Sequence[int]) -> None:
    for address in addresses:
        function(address)


@thread_safe_cache
def _get_thread_pool(process_id: int) -> ThreadPoolExecutor:
    """Returns one pool per process, since a fork does not copy threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="seqwise-scan")


@thread_safe_cache
def _find_openmp() -> Callable[[int, int, int, int, int], None] | None:
    """Returns a function that makes calls on the threads of the OpenMP library that PyTorch has loaded, or None.

    It uses GCC's interface, `GOMP_parallel`, which LLVM's library has too.
    """
    if "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        parallel = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    worker = _compile_worker()

    def run_on_openmp(function: int, first_address: int, list_bytes: int, num_calls: int, threads: int) -> None:
        arguments = array("q", [function, first_address, list_bytes, num_calls, 0])
        parallel(worker.address, arguments.buffer_info()[0], threads, 0)

    return run_on_openmp


def _compile_worker() -> CompiledFunction:
    """Compiles the function of each thread: it takes the next call from a shared counter until none is left.

    A thread that sleeps needs up to 0.1 ms to wake up; meanwhile the others work. OpenMP may also start fewer threads
    than requested.
    """
    code = Code("float")
    with code.function("worker", 1) as (arguments,):
        function, first_address, list_bytes, num_calls = (code.load_int(arguments, index) for index in range(4))
        with code.shared_loop(arguments + 4 * 8, num_calls) as index:
            code.call(function, first_address + index * list_bytes)
    return code.build()["worker"]
