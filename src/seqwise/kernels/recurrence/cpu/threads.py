"""Runs a compiled function on several threads. It does not know what the function computes.

It uses PyTorch's own OpenMP threads if it finds them: after a matrix product they are still spinning, so a
second pool of threads would have to wait for their cores. Elsewhere Python threads are used; compiled code runs without
the global interpreter lock.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Code, Compiled, Int
from seqwise.kernels.recurrence.decorators import thread_safe_cache


def run(function: Compiled, jobs: Sequence[Sequence[int]], threads: int) -> None:
    """Call `function` with the address of each job, a list of integers. Returns when all are done."""
    if not jobs:
        return
    words = array("q", jobs[0] if len(jobs) == 1 else [word for job in jobs for word in job])
    start, length = words.buffer_info()[0], 8 * len(jobs[0])
    addresses, threads = range(start, start + len(jobs) * length, length), min(threads, len(jobs))
    if threads == 1:
        _run_jobs(function, addresses)
    elif (openmp := _openmp()) is not None:
        openmp(function.address, start, length, len(jobs), threads)
    else:
        shares = [addresses[worker::threads] for worker in range(threads)]
        list(_pool(os.getpid()).map(_run_jobs, [function] * threads, shares))


def _run_jobs(function: Compiled, addresses: Sequence[int]) -> None:
    for address in addresses:
        function(address)


@thread_safe_cache
def _pool(process: int) -> ThreadPoolExecutor:
    """One pool per process, since a fork does not copy threads."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="seqwise-scan")


class OpenMPThreads:
    """The threads of the OpenMP library that PyTorch has loaded."""

    def __init__(self, library: Any):
        self._parallel = library.GOMP_parallel
        self._parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        self._parallel.restype = None
        queries = (library.omp_get_thread_num, library.omp_get_num_threads)
        self._query_addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in queries]
        self._worker = _compile_worker()

    def __call__(self, function: int, start: int, length: int, jobs: int, threads: int) -> None:
        words = array("q", [function, start, length, jobs, *self._query_addresses])
        self._parallel(self._worker.address, words.buffer_info()[0], threads, 0)


@thread_safe_cache
def _openmp() -> OpenMPThreads | None:
    """The functions of GCC's OpenMP library, which LLVM's has too; None where they are missing."""
    if "OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        return OpenMPThreads(ctypes.CDLL(None))
    except (AttributeError, OSError, TypeError):
        return None


def _compile_worker() -> Compiled:
    """The function of each thread: every n-th job, where n threads were started, possibly fewer than requested."""
    code = Code("float")
    with code.function("worker", 1) as (words,):
        function, start, length, jobs, thread_query, count_query = (code.word(words, index) for index in range(6))
        thread, count = (_call_query(code, address) for address in (thread_query, count_query))
        with code.loop(thread, jobs, count) as job:
            code.call(function, start + job * length)
    return code.build()["worker"]


def _call_query(code: Code, address: Int) -> Int:
    """Call a function without arguments that returns a 32-bit integer."""
    pointer_type = ir.FunctionType(INT32, []).as_pointer()
    result = code.builder.call(code.builder.inttoptr(address.value, pointer_type), [])
    return Int(code, code.builder.sext(result, INT64))
