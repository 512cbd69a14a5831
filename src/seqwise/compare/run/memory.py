"""Measures how much memory some work adds to this process, or to its GPU. It knows nothing of models or trials."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

RESET_PEAK = "5"  # written to clear_refs (proc(5)), it resets the peak of the resident memory


@contextmanager
def measure_added_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Yields a function that returns the peak of memory since the start of the block, in bytes above its start.

    Memory of earlier work is released first. Libraries and data that are already loaded do not count; what a library
    loads at its first use does, once in a process, some 10 MB. On a GPU it is what PyTorch allocated there. The
    function returns None where the memory cannot be measured.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield lambda: torch.cuda.max_memory_allocated(device) - before
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # only glibc has it
    start = _read_status("VmRSS") if _reset_peak() else None
    yield lambda: None if start is None or (peak := _read_status("VmHWM")) is None else max(0, peak - start)


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    except OSError:
        return False
    return True


def _read_status(entry: str) -> int | None:
    """Returns the bytes of an entry of /proc/self/status: VmRSS, the resident memory, or VmHWM, its peak."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{entry}:"):
                return int(line.split()[1]) * 1024
    return None
