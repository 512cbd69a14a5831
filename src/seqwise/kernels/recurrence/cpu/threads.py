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

import torch
from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Code, CompiledFunction, Int
from seqwise.kernels.recurrence.decorators import thread_safe_cache


def run_on_threads(function: CompiledFunction, argument_lists: Sequence[Sequence[int]], threads: int) -> None:
    """Calls `function` with the address of each list of integers. Returns when all calls are done."""
    if not argument_lists:
        return
    num_calls, list_bytes = len(argument_lists), 8 * len(argument_lists[0])
    integers = array("q", argument_lists[0] if num_calls == 1 else [value for each in argument_lists for value in each])
    first_address = integers.buffer_info()[0]
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
        library = ctypes.CDLL(None)
        parallel = library.GOMP_parallel
        queries = (library.omp_get_thread_num, library.omp_get_num_threads)
        query_addresses = [ctypes.cast(query, ctypes.c_void_p).value or 0 for query in queries]
    except (AttributeError, OSError, TypeError):
        return None
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    worker = _compile_worker()

    def run_on_openmp(function: int, first_address: int, list_bytes: int, num_calls: int, threads: int) -> None:
        arguments = array("q", [function, first_address, list_bytes, num_calls, *query_addresses])
        parallel(worker.address, arguments.buffer_info()[0], threads, 0)

    return run_on_openmp


def _compile_worker() -> CompiledFunction:
    """Compiles the function of each thread, which makes every n-th call if n threads were started.

    OpenMP may start fewer than requested.
    """
    code, query_type = Code("float"), ir.FunctionType(INT32, []).as_pointer()
    with code.function("worker", 1) as (address,):
        function, first_address, list_bytes, num_calls, *queries = (code.load_int(address, index) for index in range(6))
        results = [code.builder.call(code.builder.inttoptr(query.value, query_type), []) for query in queries]
        thread, num_threads = (Int(code, code.builder.sext(result, INT64)) for result in results)
        with code.loop(thread, num_calls, num_threads) as index:
            code.call(function, first_address + index * list_bytes)
    return code.build()["worker"]
