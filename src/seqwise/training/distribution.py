"""Several processes as one: data parallel training over torch.distributed (gloo on CPUs, nccl on GPUs).

Each process holds the whole model and its own rows of the batch; gradients are summed before the update. The sum is
taken after the local gradients are complete, so a process that runs out of memory can halve its micro-batch without
the others noticing (see docs/decisions). A `World` of one process does nothing and costs nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from seqwise.backbones.states import ModelState, join_rows, map_state
from seqwise.errors import SeqwiseError

PATIENCE = timedelta(hours=2)  # the others wait so long while the first process reads the data

# What the processes and their launcher tell each other through the store.
JOINED, DONE, FAILED, LOST = "seqwise/joined", "seqwise/done", "seqwise/failed", "seqwise/lost"
WATCHED = "SEQWISE_WATCHED"  # environment variable: standard input is a pipe from `launch`

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

    def wait(self) -> None:
        """Until all processes are here."""
        self.sum(0.0)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of the first process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes, which must all bring the same list."""
        if self.size == 1:
            return
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket])):
                gradient.copy_(summed.view_as(gradient))

    def gather_rows(self, carry: ModelState) -> ModelState:
        """The carry of all rows, joined in the order of the ranks."""
        if self.size == 1 or carry is None:
            return carry

        def gather(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor) for _ in range(self.size)]
            dist.all_gather(parts, tensor.contiguous())
            return join_rows(parts)

        return map_state(gather, carry)

    def select_own_rows(self, carry: ModelState) -> ModelState:
        """This process's share of a carry of all rows."""
        return map_state(lambda tensor: tensor.chunk(self.size)[self.rank].clone(), carry)

    def gather(self, numbers: list[int]) -> list[int]:
        """The numbers of all processes, in the order of the ranks."""
        if self.size == 1:
            return numbers
        lists: list[list[int]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, numbers)
        return [number for own in lists for number in own]

    def share(self, text: str) -> str:
        """The first process's text, once it has one: the others wait for it."""
        if self.size == 1:
            return text
        box = [text]
        dist.broadcast_object_list(box, src=0)
        return box[0]


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
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
    """The world that torchrun's environment describes; one process when there is none.

    When several processes fail, the first of them raises its error and the others leave silently: a failure is
    reported once.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    if os.environ.get(WATCHED):
        _end_with_launcher()
    if device.type == "cuda":
        torch.cuda.set_device(local_device(device))
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=PATIENCE)))
    store.add(JOINED, 1)
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
        yield World(rank, size)
    except BaseException as error:
        # The group is left as it is: to close it in order, nccl might wait for processes that will never come.
        _leave(error, store, rank)
        raise
    store.add(DONE, 1)  # what goes wrong from here on changes no result: gloo has been seen to abort while it closes
    dist.destroy_process_group()


def _leave(error: BaseException, store: dist.Store, rank: int) -> None:
    """Return if this process shall report its error; otherwise end it."""
    if _lost_contact(error):  # the others are gone; they know why
        if os.environ.get(WATCHED):
            store.set(LOST, str(error))
            raise SystemExit(1) from None
        raise SeqwiseError(f"another process of this training has ended ({error}).") from error
    status = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)
    mine = f"{rank} {status}"
    try:
        first = store.compare_set(FAILED, "", mine).decode()
    except dist.DistError:  # whoever holds the store is gone
        return
    if first != mine:
        raise SystemExit(int(first.split()[1])) from None


def _lost_contact(error: BaseException) -> bool:
    """gloo raises plain RuntimeErrors that name the line of its source."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _end_with_launcher() -> None:
    """The launcher holds the other end of our standard input: without it nobody could stop this process."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def local_device(device: torch.device) -> torch.device:
    """This process's own GPU when there are several processes on the machine."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank) if device.type == "cuda" else device


def is_worker() -> bool:
    """Is this process one of several, started by `launch` or by torchrun?"""
    return "LOCAL_RANK" in os.environ
