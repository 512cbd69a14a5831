"""The machine: versions, processor, memory, GPU, the cache folder, and whether bfloat16 works on its CPU.

`describe()` is saved as `env.json` in each run. This module knows nothing of models. PyTorch is imported inside the
functions, so that this module imports quickly and can report that PyTorch is missing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from seqwise.errors import SaveError
from seqwise.files import write_text

PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "PyYAML", "tyro", "rich", "llvmlite")

# How often a waiting thread of GNU OpenMP, which PyTorch's wheels for Linux include, looks for work before it sleeps.
SPIN_VARIABLE, SPIN_COUNT = "GOMP_SPINCOUNT", "1000"

# What training does in bfloat16: a matrix product, a recurrent layer, and the backward pass of both. Some virtual
# machines advertise AMX and crash with an illegal instruction at the first use, so this runs in a process of its own.
# The core-dump limit keeps such a crash from leaving a file behind.
_PROBE = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
import torch
torch.manual_seed(0)
x = torch.randn(256, 256, dtype=torch.bfloat16, requires_grad=True)
loss = (x @ x).float().pow(2).mean()
lstm = torch.nn.LSTM(256, 256, batch_first=True).bfloat16()
states, _ = lstm(x.view(8, 32, 256))
(loss + states.float().pow(2).mean()).backward()
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.nn.Linear(256, 256)(torch.randn(64, 256)).float().sum().backward()
assert torch.isfinite(x.grad.float()).all()
"""


def version() -> str:
    """Return the version of the installed package, or else of the source folder."""
    if installed := package_version("seqwise"):
        return installed
    import tomllib

    with suppress(OSError, KeyError, tomllib.TOMLDecodeError):
        project = Path(__file__).parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    return "unknown"


def package_version(name: str) -> str | None:
    """Return the installed version of a package, or None, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cache_folder() -> Path:
    """Return the folder for reusable files: $SEQWISE_CACHE, else `seqwise` in the user's cache folder."""
    if folder := os.environ.get("SEQWISE_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "seqwise"


def limit_spinning() -> None:
    """Make the threads of PyTorch sleep soon when they wait for each other, unless the user has chosen otherwise.

    OpenMP threads that wait spin on their cores. Where other processes need these cores, they keep each other from
    working (docs/performance.md). It must be called before PyTorch is imported, which reads the variable once.
    """
    if not get_spin_setting():
        os.environ[SPIN_VARIABLE] = SPIN_COUNT


def get_spin_setting() -> str:
    """Return the variable that decides how long waiting threads spin, as NAME=VALUE; empty: it is not set."""
    names = (SPIN_VARIABLE, "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
    return next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")


def describe() -> dict[str, Any]:
    """Return everything about this machine and its software that may change a result. Sizes are in bytes."""
    total, free = memory()
    torch = _import_torch()
    threads = None if torch is None else torch.get_num_threads()
    return {
        "seqwise": version(),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": {"name": cpu_name(), "count": cpu_count(), "threads": threads},
        "memory": {"total": total, "free": free},
        "gpu": gpu(),
    }


@cache
def cpu_name() -> str:
    """Return the model name of the processor, or else its architecture."""
    with suppress(OSError):
        if name := re.search(r"^model name\s*:\s*(.+?)\s*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return name[1]
    return platform.processor() or platform.machine()


def cpu_count() -> int:
    """Return the number of processors this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> tuple[int | None, int | None]:
    """Return (total, free) bytes of main memory, within the limit of the container if there is one."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        with suppress(AttributeError, ValueError, OSError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
        return None, None
    kibibytes = {name: int(size) for name, size in re.findall(r"^(\w+):\s*(\d+)", text, re.MULTILINE)}
    total, free = kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # ValueError: the word "max", no limit
        limit, used = int((cgroup / "memory.max").read_text()), int((cgroup / "memory.current").read_text())
        total, free = min(total, limit), min(free, max(limit - used, 0))
    return total, free


def gpu() -> dict[str, Any] | None:
    """Return name, memory and versions of the first CUDA device, or None."""
    torch = _import_torch()
    if torch is None or not torch.cuda.is_available():
        return None
    device = torch.cuda.get_device_properties(0)
    return {
        "name": device.name,
        "count": torch.cuda.device_count(),
        "memory": device.total_memory,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": package_version("triton"),
    }


def probe_cpu_bfloat16(timeout: float = 120.0) -> bool:
    """Return whether bfloat16 works on this CPU: tried in a child process, and cached per machine."""
    file = cache_folder() / "bfloat16.json"
    system = platform.uname()
    key = f"{system.node}, {system.system} {system.release}, {cpu_name()}, torch {package_version('torch')}"
    results: dict[str, bool] = {}
    with suppress(OSError, ValueError, TypeError):  # missing or damaged
        results = dict(json.loads(file.read_text(encoding="utf-8")))
    if isinstance(results.get(key), bool):
        return results[key]
    command = [sys.executable, "-c", _PROBE]
    try:
        child = subprocess.run(command, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return False  # not cached: the machine may only have been busy
    works = child.returncode == 0
    if works or child.returncode in _FATAL_SIGNALS:
        with suppress(OSError, SaveError):  # without a writable cache the probe runs again
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps({**results, key: works}, indent=2), concurrent=True)
    return works


# Crashes caused by the processor. SIGKILL is not among them: its cause may be a lack of memory.
_FATAL_SIGNALS = (-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGABRT)


def _import_torch() -> Any:
    try:
        import torch
    except (ImportError, OSError):  # OSError: its shared libraries do not load
        return None
    return torch
