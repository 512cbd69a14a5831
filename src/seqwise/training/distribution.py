"""Data-parallel training over torch.distributed (gloo on CPUs, nccl on GPUs).

Each process has the whole model and its own rows of the batch; gradients are summed before the update. They are summed
after the local gradients are complete, so a process that runs out of memory can split its batch without the others
(docs/decisions/0004). All methods of a `World` of one process return immediately.
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

from seqwise.backbones.states import ModelState, concat_states, map_state
from seqwise.errors import SeqwiseError

TIMEOUT = timedelta(hours=2)  # while the first process reads the data, the others wait

# Keys of the store through which the processes and their launcher communicate.
JOINED, DONE = "seqwise/joined", "seqwise/done"  # numbers of processes
FAILED, LOST = "seqwise/failed", "seqwise/lost"  # "RANK STATUS" of the first to fail; how contact was lost
HAS_LAUNCHER = "SEQWISE_WATCHED"  # environment variable: standard input is a pipe from `launch`

_BUCKET_ELEMENTS = 25 * 2**20 // 4  # 25 MB per message, large enough to hide the latency


@dataclass(frozen=True)
class World:
    """The processes of a training, seen from one of them."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the first process, which alone writes files and messages."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Return the numbers summed over all processes, in double precision."""
        if self.size == 1:
            return list(numbers)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        values = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(values)
        return values.tolist()

    def wait(self) -> None:
        """Block until all processes have called it."""
        self.sum(0.0)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of the first process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all processes; their lists must have the same shapes."""
        if self.size == 1:
            return
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket])):
                gradient.copy_(summed.view_as(gradient))

    def gather_rows(self, state: ModelState) -> ModelState:
        """Return the state of the rows of all processes, in the order of their ranks."""
        if self.size == 1 or state is None:
            return state

        def gather(tensor: Tensor) -> Tensor:
            parts = [torch.empty_like(tensor) for _ in range(self.size)]
            dist.all_gather(parts, tensor.contiguous())
            return concat_states(parts)

        return map_state(gather, state)

    def select_own_rows(self, state: ModelState) -> ModelState:
        """Return the state of this process's rows, given that of all rows."""
        return map_state(lambda tensor: tensor.chunk(self.size)[self.rank].clone(), state)

    def gather(self, numbers: list[int]) -> list[int]:
        """Return the numbers of all processes, in the order of their ranks."""
        if self.size == 1:
            return numbers
        lists: list[list[int]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, numbers)
        return [number for own in lists for number in own]

    def share(self, text: str) -> str:
        """Return the text of the first process; the others wait for it."""
        if self.size == 1:
            return text
        texts = [text]
        dist.broadcast_object_list(texts, src=0)
        return texts[0]


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(part.numel() for part in bucket) >= _BUCKET_ELEMENTS:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Join the processes that torchrun's environment variables describe; without them there is one process.

    When several processes fail, the first of them raises its error and the others exit silently, so that a failure is
    reported once.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    if os.environ.get(HAS_LAUNCHER):
        _exit_with_launcher()
    if device.type == "cuda":
        torch.cuda.set_device(local_device(device))
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=TIMEOUT)))
    store.add(JOINED, 1)
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        yield World(rank, size)
    except BaseException as error:
        # The process group is not destroyed: nccl might wait for processes that never join.
        _exit_unless_first_failure(error, store, rank)
        raise
    store.add(DONE, 1)  # later errors change no result: gloo sometimes aborts while it closes
    dist.destroy_process_group()


def _exit_unless_first_failure(error: BaseException, store: dist.Store, rank: int) -> None:
    """Return if this process should report its error; otherwise exit."""
    if _is_lost_contact(error):  # other processes have exited and report why
        if os.environ.get(HAS_LAUNCHER):
            store.set(LOST, str(error))
            raise SystemExit(1) from None
        raise SeqwiseError(f"another process of this training has ended ({error}).") from error
    status = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)
    own_failure = f"{rank} {status}"
    try:
        first_failure = store.compare_set(FAILED, "", own_failure).decode()
    except dist.DistError:  # the process with the store has exited
        return
    if first_failure != own_failure:
        raise SystemExit(int(first_failure.split()[1])) from None


def _is_lost_contact(error: BaseException) -> bool:
    """Return whether a connection broke; gloo raises plain RuntimeErrors that name a line of its source."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _exit_with_launcher() -> None:
    """Kill this process when the launcher, which has the other end of its standard input, ends."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def local_device(device: torch.device) -> torch.device:
    """Return the GPU of this process, if there are several processes on the machine."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank) if device.type == "cuda" else device


def is_worker() -> bool:
    """Return whether this process is one of several, started by `launch` or by torchrun."""
    return "LOCAL_RANK" in os.environ
