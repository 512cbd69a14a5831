"""May our own recurrent kernels run on this device? It asks for the machine and what is installed, not for shapes."""

from __future__ import annotations

import os
from functools import cache

import torch

from seqwise.environment import package_version
from seqwise.errors import UsageError

SWITCH = "SEQWISE_KERNELS"  # "off" leaves everything to PyTorch
LEAST_TRITON = (3, 6)


def obstacle(device: torch.device) -> str | None:
    """Why our kernels are not used there, in words; None where they are. The switch may be turned at any time."""
    return switch() or lasting_obstacle(device)


@cache
def lasting_obstacle(device: torch.device) -> str | None:
    """The same, as far as the machine and what is installed say it."""
    return _on_gpu(device) if device.type == "cuda" else _elsewhere(device)


def switch() -> str | None:
    """What turns our kernels off, if anything does."""
    value = os.environ.get(SWITCH, "").lower()
    if value not in ("", "on", "off"):
        raise UsageError(f"expected {SWITCH}=on or off, received {value}.", repair=f"Set {SWITCH}=off, or nothing.")
    return f"{SWITCH}=off" if value == "off" else None


def _on_gpu(device: torch.device) -> str | None:
    if torch.version.hip:
        return "an AMD GPU; they are written for NVIDIA's Hopper"
    if (reason := _triton()) is not None:
        return reason
    major, minor = torch.cuda.get_device_capability(device)
    if major != 9:
        return f"compute capability {major}.{minor}; they are written for 9.0 (Hopper) and were tried nowhere else"
    return None


def triton_obstacle() -> str | None:
    """Why no kernel of ours in Triton is used, on any GPU; None where they may be."""
    return switch() or _triton()


def _triton() -> str | None:
    found = package_version("triton") or package_version("pytorch-triton")
    if found is None:
        return "Triton is not installed"
    if tuple(int(part) for part in found.split(".")[:2]) < LEAST_TRITON:
        return f"Triton {found} is older than {LEAST_TRITON[0]}.{LEAST_TRITON[1]}"
    return None


def _elsewhere(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"there are none for {device.type}"
    from seqwise.kernels.recurrence.cpu.choice import obstacle  # LLVM is imported where it is needed

    return obstacle()


def describe_backend(device: torch.device) -> str:
    """The path that recurrent layers take there unless a call does not suit it; and why, where it is not our own."""
    reason = obstacle(device)
    ours, others = ("triton", "cudnn") if device.type == "cuda" else ("compiled", "aten")
    return f"{others} ({reason})" if reason else ours
