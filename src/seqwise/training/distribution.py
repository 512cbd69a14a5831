"""Several processes as one: data parallel training over torch.distributed (gloo on CPUs, nccl on GPUs).

Each process holds the whole model and its own rows of the batch; gradients are summed before the update. The sum is
taken after the local gradients are complete, so a process that runs out of memory can halve its micro-batch without
the others noticing (see docs/decisions). A `World` of one process does nothing and costs nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from seqwise.backbones.states import Carry, join_rows, map_carry

_BUCKET = 25 * 2**20 // 4  # elements summed in one message: 25 MB, large enough to hide its latency


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """The numbers summed over all processes, in double precision."""
        if self.size == 1:
            return list(numbers)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        values = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(values)
        return values.tolist()

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes."""
        if self.size == 1:
            return
        for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket])):
                gradient.copy_(summed.view_as(gradient))

    def gather_rows(self, carry: Carry) -> Carry:
        """The carry of all rows, joined in the order of the ranks."""
        if self.size == 1 or carry is None:
            return carry

        def gather(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor) for _ in range(self.size)]
            dist.all_gather(parts, tensor.contiguous())
            return join_rows(parts)

        return map_carry(gather, carry)

    def own_rows(self, carry: Carry) -> Carry:
        """This process's share of a carry of all rows."""
        return map_carry(lambda tensor: tensor.chunk(self.size)[self.rank].clone(), carry)

    def share(self, text: str) -> str:
        """The first process's text, once it has one: the others wait for it."""
        if self.size == 1:
            return text
        box = [text]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(part.numel() for part in bucket) >= _BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """The world that torchrun's environment describes; one process when there is none."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    if device.type == "cuda":
        torch.cuda.set_device(local_device(device))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(hours=2))
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """This process's own GPU when there are several processes on the machine."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank) if device.type == "cuda" else device


def launched() -> bool:
    """Is this process one of several started by torchrun?"""
    return "LOCAL_RANK" in os.environ


def launch(processes: int, arguments: list[str]) -> int:
    """Run `seqwise ARGUMENTS` in several processes on this machine; returns the exit status."""
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    child = subprocess.Popen([*command, "-m", "seqwise", *arguments], env=environment)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue  # the workers received it too: they finish their step and save
