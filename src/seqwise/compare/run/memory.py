"""How much memory some work adds to this process, or to its GPU. It knows nothing of models or trials."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

PEAK_FROM_NOW = "5"  # what to write into clear_refs (proc(5)): the highest mark begins anew


@contextmanager
def added(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Yields a function that tells the bytes by which memory was above its level at the beginning, at the highest.

    What earlier work of this process left behind is given back first, and whatever stays, such as libraries and data,
    does not count; only what a library loads at its first use does, once in a process, some 10 MB. On a GPU it is what
    PyTorch allocated there. None: it cannot be known here.
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
    level = _bytes("VmRSS") if _began_anew() else None
    yield lambda: None if level is None or (peak := _bytes("VmHWM")) is None else max(0, peak - level)


def _began_anew() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text(PEAK_FROM_NOW)
    except OSError:
        return False
    return True


def _bytes(entry: str) -> int | None:
    """An entry of /proc/self/status; VmRSS is the memory in use now, VmHWM the most that ever was."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{entry}:"):
                return int(line.split()[1]) * 1024
    return None
