"""Data-parallel training over torch.distributed (gloo on CPUs, nccl on GPUs).

Each process has the whole model and its own sequences of the batch; gradients are summed before the update. They are
summed after the local gradients are complete, so a process that runs out of memory can split its batch independently of
the others (docs/decisions/0004). In a `World` of one process, no method communicates. What processes exchange are
tensors and JSON. `launcher.py` starts them, unless torchrun does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from seqwise.backbones.states import ModelState, concat_states, map_state
from seqwise.data.batch import shard_batch
from seqwise.errors import SeqwiseError
from seqwise.signals import is_due_to_interrupt
from seqwise.training.heartbeat import HeartbeatRecorder, Heartbeats

TIMEOUT = timedelta(hours=2)  # while the first process reads the data, the others wait

# Keys of the store: "RANK STATUS" of the first process to fail, and a connection error. Other users of the machine can
# write to the store, so it only explains a failure; whether there is one depends on how the processes ended.
FAILED_KEY, LOST_KEY = "seqwise/failed", "seqwise/lost"
# Environment variable of workers of `launch`: the descriptor of their `Heartbeats`. Standard input is a pipe from it.
LAUNCHER_VARIABLE = "SEQWISE_HEARTBEATS"

BUCKET_ELEMENTS = 25 * 2**20 // 4  # 25 MB per message, large enough to hide the latency

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of a training run: the rank of this one, and their number."""

    rank: int = 0
    size: int = 1
    heartbeat: HeartbeatRecorder | None = None  # of a worker of `launch`

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, which alone writes files and messages."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Returns the numbers summed over all processes, in double precision."""
        if self.size == 1:
            return list(numbers)
        self._record_call()
        values = torch.tensor(numbers, dtype=torch.float64, device=_get_message_device())
        dist.all_reduce(values)
        return values.tolist()

    def barrier(self) -> None:
        """Blocks until all processes have called it."""
        self.sum(0.0)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by the tensor of the first process."""
        if self.size > 1:
            for tensor in tensors:
                self._record_call()
                dist.broadcast(tensor, src=0)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replaces each gradient by its sum over all processes; all processes must pass lists of the same shapes."""
        if self.size == 1:
            return
        if self.heartbeat is not None:
            self.heartbeat.record_update()
        buckets: list[list[Tensor]] = [[]]
        for gradient in gradients:
            if sum(other.numel() for other in buckets[-1]) >= BUCKET_ELEMENTS:
                buckets.append([])
            buckets[-1].append(gradient)
        for bucket in buckets:
            self._record_call()
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat)
            for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket])):
                gradient.copy_(summed.view_as(gradient))

    def gather_state(self, state: ModelState) -> ModelState:
        """Returns the model state of the sequences of all processes, in the order of their ranks."""
        if self.size == 1 or state is None:
            return state

        def gather(tensor: Tensor) -> Tensor:
            return concat_states(self._gather_tensors(tensor))

        return map_state(gather, state)

    def select_own_state(self, state: ModelState) -> ModelState:
        """Returns the model state of this process's sequences, out of the state that `gather_state` returns."""

        def select(tensor: Tensor) -> Tensor:
            shard = shard_batch(len(tensor), self.rank, self.size)
            return tensor[shard.start : shard.stop].clone()

        return map_state(select, state)

    def gather(self, items: list[T]) -> list[T]:
        """Returns the items of all processes, in the order of their ranks. They must be values of JSON."""
        if self.size == 1:
            return items
        text = bytearray(json.dumps(items).encode())  # floats are written so that they are read exactly
        messages = self._gather_tensors(torch.frombuffer(text, dtype=torch.uint8).to(_get_message_device()))
        return list(chain(*(json.loads(bytes(message.tolist())) for message in messages)))

    def _gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """Returns the tensors of all processes, which may differ in their first dimension."""
        self._record_call()
        lengths = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(tensor)], device=tensor.device))
        longest = max(int(length) for length in lengths)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(gathered, padded)
        return [each[: int(length)] for each, length in zip(gathered, lengths)]

    def _record_call(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.record_call()

    def broadcast_text(self, text: str) -> str:
        """Returns the text of the first process; the others wait for it."""
        return self.gather([text])[0]


def _get_message_device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Joins the processes that torchrun's environment variables describe; without them there is one process.

    When several processes fail, the first of them raises its error and the others exit silently, so that a failure is
    reported once.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    heartbeat = None
    if descriptor := os.environ.get(LAUNCHER_VARIABLE):
        _kill_when_launcher_ends()
        heartbeat = HeartbeatRecorder(
            Heartbeats(int(descriptor), int(os.environ["WORLD_SIZE"])), int(os.environ["RANK"])
        )
    if device.type == "cuda":
        torch.cuda.set_device(get_local_device(device))
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=TIMEOUT)))
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        yield World(rank, size, heartbeat)
    except BaseException as error:
        # The process group is not destroyed: nccl might wait for processes that never join.
        _exit_unless_first_failure(error, store, rank)
        raise
    if heartbeat is not None:
        heartbeat.record_end()  # a later signal is ignored: gloo sometimes aborts while it closes
    dist.destroy_process_group()


def _exit_unless_first_failure(error: BaseException, store: dist.Store, rank: int) -> None:
    """Returns if this process must report its error; otherwise exits."""
    if is_connection_error(error):
        # Another process has exited and reports why.
        if os.environ.get(LAUNCHER_VARIABLE):
            store.set(LOST_KEY, str(error))
            raise SystemExit(1) from None
        raise SeqwiseError(f"another process of this training run has ended ({error}).") from error
    status = 130 if is_due_to_interrupt(error) else getattr(error, "exit_status", 1)
    own_failure = f"{rank} {status}"
    try:
        first_failure = store.compare_set(FAILED_KEY, "", own_failure).decode(errors="replace")
    except dist.DistError:  # the process with the store has exited
        return
    if first_failure != own_failure:
        raise SystemExit(parse_failure(first_failure) or 1) from None


def is_connection_error(error: BaseException) -> bool:
    """Returns whether another process has ended, or cannot be reached."""
    # When a connection breaks, gloo raises plain RuntimeErrors that name a line of its source.
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def parse_failure(text: str) -> int | None:
    """Returns the exit status of `RANK STATUS`; None if the text is anything else, or names no failure."""
    match = re.fullmatch(r"\d{1,6} (\d{1,3})", text, flags=re.ASCII)
    return int(match[1]) if match and 1 <= int(match[1]) <= 255 else None


def _kill_when_launcher_ends() -> None:
    """Kills this process when the launcher, which has the other end of its standard input, ends."""

    def wait() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def get_local_device(device: torch.device) -> torch.device:
    """Returns the device of this process: for "cuda" the GPU with the index of the process on this machine."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank) if device.type == "cuda" else device


def is_worker() -> bool:
    """Returns whether this process is one of several, started by `launch` or by torchrun."""
    return "LOCAL_RANK" in os.environ
