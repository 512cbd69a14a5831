"""Checks whether the package's own kernels can run on a device: the machine and the installation, not the shapes."""

from __future__ import annotations

import os
from functools import cache

import torch

from seqwise.environment import get_package_version
from seqwise.errors import UsageError

KERNELS_VARIABLE = "SEQWISE_KERNELS"  # "off" leaves everything to PyTorch
MIN_TRITON = (3, 6)


def get_unavailable_reason(device: torch.device) -> str | None:
    """Returns why the recurrent kernels are not used on the device, in words, or None if they are.

    It is not cached, because the environment variable may change.
    """
    return get_disabled_reason() or get_machine_reason(device)


@cache
def get_machine_reason(device: torch.device) -> str | None:
    """Returns why the machine or the installation rules out the kernels, in words, or None if they do not."""
    if device.type == "cuda":
        return _get_gpu_reason(device)
    if device.type != "cpu":
        return f"there are no kernels for {device.type}"
    from seqwise.kernels.recurrence.cpu.compiled import get_compiler_problem  # imports LLVM only where it is used

    return get_compiler_problem()


def get_disabled_reason() -> str | None:
    """Returns "SEQWISE_KERNELS=off" if the user has disabled the kernels, otherwise None."""
    value = os.environ.get(KERNELS_VARIABLE, "").lower()
    if value not in ("", "on", "off"):
        raise UsageError(
            f"expected {KERNELS_VARIABLE}=on or off, received {value}.",
            fix=f"Set {KERNELS_VARIABLE}=off, or unset the variable.",
        )
    return f"{KERNELS_VARIABLE}=off" if value == "off" else None


def get_triton_reason() -> str | None:
    """Returns why no Triton kernel of this package is used, on any GPU, or None if they may be."""
    return get_disabled_reason() or _get_triton_version_reason()


def describe_backend(device: torch.device) -> str:
    """Returns the name of the backend that recurrent layers use on the device, with the reason if it is PyTorch's."""
    reason = get_unavailable_reason(device)
    backend, fallback = ("triton", "cudnn") if device.type == "cuda" else ("compiled", "aten")
    return f"{fallback} ({reason})" if reason else backend


def _get_gpu_reason(device: torch.device) -> str | None:
    if torch.version.hip:
        return "an AMD GPU; the kernels are written for NVIDIA's Hopper"
    if (reason := _get_triton_version_reason()) is not None:
        return reason
    major, minor = torch.cuda.get_device_capability(device)
    if major != 9:
        return (
            f"compute capability {major}.{minor}; the kernels are written for 9.0 (Hopper) and were tested nowhere else"
        )
    return None


def _get_triton_version_reason() -> str | None:
    version = get_package_version("triton") or get_package_version("pytorch-triton")
    if version is None:
        return "Triton is not installed"
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_TRITON:
        return f"Triton {version} is older than {MIN_TRITON[0]}.{MIN_TRITON[1]}"
    return None
