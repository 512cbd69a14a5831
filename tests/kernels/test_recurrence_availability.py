"""Where our recurrent kernels are used, and the reason that is reported where they are not."""

from __future__ import annotations

import pytest
import torch

from seqwise.kernels.recurrence import availability
from seqwise.kernels.recurrence.availability import describe_backend, get_machine_reason, get_unavailable_reason

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _clear_cache(monkeypatch):
    monkeypatch.delenv("SEQWISE_KERNELS", raising=False)
    get_machine_reason.cache_clear()
    yield
    get_machine_reason.cache_clear()


def fake_gpu(monkeypatch, triton: str | None = "3.6.0", capability: tuple[int, int] = (9, 0)) -> None:
    monkeypatch.setattr(availability, "get_package_version", lambda name: triton)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)


def test_kernels_are_available_on_a_hopper_gpu_with_triton_and_on_a_cpu(monkeypatch):
    fake_gpu(monkeypatch)
    assert get_unavailable_reason(GPU) is None
    assert describe_backend(GPU) == "triton"
    assert describe_backend(CPU) == "compiled"


@pytest.mark.parametrize(
    ("triton", "capability", "description"),
    [
        (None, (9, 0), "cudnn (Triton is not installed)"),
        ("3.5.1", (9, 0), "cudnn (Triton 3.5.1 is older than 3.6)"),
        (
            "3.10.0",
            (8, 0),
            "cudnn (compute capability 8.0; the kernels are written for 9.0 (Hopper) and were tested nowhere else)",
        ),
    ],
)
def test_the_reason_why_kernels_are_unavailable_is_given(monkeypatch, triton, capability, description):
    fake_gpu(monkeypatch, triton, capability)
    assert describe_backend(GPU) == description


def test_kernels_can_be_disabled(monkeypatch):
    fake_gpu(monkeypatch)
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    assert describe_backend(GPU) == "cudnn (SEQWISE_KERNELS=off)"
    assert describe_backend(CPU) == "aten (SEQWISE_KERNELS=off)"


def test_there_are_no_kernels_for_other_devices():
    assert get_unavailable_reason(torch.device("meta")) == "there are no kernels for meta"
