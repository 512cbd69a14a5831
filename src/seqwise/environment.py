"""Describes the machine: versions, processor, memory, GPU, the cache folder, and whether bfloat16 works on its CPU.

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
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from seqwise.errors import SaveError
from seqwise.files import write_text

PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "PyYAML", "tyro", "rich", "llvmlite")

# How often a waiting thread of GNU OpenMP, which PyTorch's wheels for Linux include, checks for work before it sleeps.
SPIN_VARIABLE, SPIN_COUNT = "GOMP_SPINCOUNT", "1000"

# A program that does what training does in bfloat16: a matrix product, a recurrent layer, a linear layer under
# autocast, and their backward pass. Some virtual machines advertise AMX and crash with an illegal instruction at the
# first use, so it runs in a process of its own. The core-dump limit keeps such a crash from leaving a file behind.
_PROBE_SCRIPT = """
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

# Return codes of a probe that crashed. SIGKILL is excluded: its cause may be a lack of memory.
_CRASH_RETURN_CODES = (-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGABRT)


def get_version() -> str:
    """Returns the version of Seqwise: of the installed package, or else of the source folder."""
    if installed_version := get_package_version("seqwise"):
        return installed_version
    import tomllib

    with suppress(OSError, KeyError, tomllib.TOMLDecodeError):
        project = Path(__file__).parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    return "unknown"


def get_package_version(name: str) -> str | None:
    """Returns the installed version of a package, or None, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def get_cache_folder() -> Path:
    """Returns the folder for reusable files: $SEQWISE_CACHE, or else `seqwise` in the user's cache folder."""
    if folder := os.environ.get("SEQWISE_CACHE"):
        return Path(folder).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "seqwise"


def limit_spinning(variables: MutableMapping[str, str] = os.environ) -> None:
    """Makes the threads of PyTorch sleep soon when they wait for each other, unless the user has chosen otherwise.

    Waiting OpenMP threads busy-wait and so slow down other processes on the same cores (docs/performance.md). Call it
    before PyTorch is imported, which reads the variable once.
    `variables` may be the environment of a process that is started later.
    """
    if not get_spin_setting(variables):
        variables[SPIN_VARIABLE] = SPIN_COUNT


def get_spin_setting(variables: Mapping[str, str] = os.environ) -> str:
    """Returns the first set variable of the three that control how long waiting threads spin, as NAME=VALUE, or ""."""
    names = (SPIN_VARIABLE, "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
    return next((f"{name}={variables[name]}" for name in names if variables.get(name)), "")


def describe() -> dict[str, Any]:
    """Returns the versions and the hardware that are saved as `env.json`. Sizes are in bytes."""
    total, available = get_memory()
    torch = _import_torch()
    threads = None if torch is None else torch.get_num_threads()
    return {
        "seqwise": get_version(),
        "python": platform.python_version(),
        "packages": {name: get_package_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": {"name": get_cpu_name(), "count": count_cpus(), "threads": threads},
        "memory": {"total": total, "free": available},
        "gpu": get_gpu(),
    }


@cache
def get_cpu_name() -> str:
    """Returns the model name of the processor, or else its architecture."""
    with suppress(OSError):
        if name := re.search(r"^model name\s*:\s*(.+?)\s*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return name[1]
    return platform.processor() or platform.machine()


def count_cpus() -> int:
    """Returns the number of logical CPUs that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_memory() -> tuple[int | None, int | None]:
    """Returns (total, available) bytes of main memory, within the limit of the container if there is one."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        with suppress(AttributeError, ValueError, OSError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
        return None, None
    kibibytes = {name: int(size) for name, size in re.findall(r"^(\w+):\s*(\d+)", text, re.MULTILINE)}
    total, available = kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024
    cgroup = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # ValueError: the word "max", no limit
        limit, used = int((cgroup / "memory.max").read_text()), int((cgroup / "memory.current").read_text())
        total, available = min(total, limit), min(available, max(limit - used, 0))
    return total, available


def get_gpu() -> dict[str, Any] | None:
    """Returns a description of the first CUDA device, or None if there is none."""
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
        "triton": get_package_version("triton"),
    }


def probe_cpu_bfloat16(timeout: float = 120.0) -> bool:
    """Returns whether bfloat16 works on this CPU, by running a probe in a child process; cached per machine."""
    file = get_cache_folder() / "bfloat16.json"
    system = platform.uname()
    torch_version = get_package_version("torch")
    key = f"{system.node}, {system.system} {system.release}, {get_cpu_name()}, torch {torch_version}"
    results: dict[str, bool] = {}
    with suppress(OSError, ValueError, TypeError, RecursionError):  # missing or damaged
        results = dict(json.loads(file.read_text(encoding="utf-8")))
    if isinstance(results.get(key), bool):
        return results[key]
    command = [sys.executable, "-c", _PROBE_SCRIPT]
    try:
        child = subprocess.run(command, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except (subprocess.TimeoutExpired, OSError):
        return False  # not cached: the machine may only have been busy
    works = child.returncode == 0
    if works or child.returncode in _CRASH_RETURN_CODES:
        with suppress(OSError, SaveError):  # without a writable cache the probe runs again
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps({**results, key: works}, indent=2), concurrent=True)
    return works


def _import_torch() -> Any:
    """Returns the module torch, or None if it is missing or does not load."""
    try:
        import torch
    except (ImportError, OSError):  # OSError: its shared libraries do not load
        return None
    return torch
