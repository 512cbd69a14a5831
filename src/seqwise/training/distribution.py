"""Data-parallel training over torch.distributed (gloo on CPUs, nccl on GPUs), the launcher of its processes, signals.

Each process has the whole model and its own rows of the batch; gradients are summed before the update. They are summed
after the local gradients are complete, so a process that runs out of memory can split its batch without the others
(docs/decisions/0004). All methods of a `World` of one process return immediately.

Workers get the environment variables that torchrun would set. Unlike torchrun, `launch` forwards each signal exactly
once, returns the exit status of the worker that failed, and adds no report to the message of that worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import IO, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from seqwise import environment
from seqwise.backbones.states import ModelState, concat_states, map_state
from seqwise.errors import SeqwiseError, UsageError
from seqwise.training.checkpoints import resume_command
from seqwise.training.run import CONFIG

TIMEOUT = timedelta(hours=2)  # while the first process reads the data, the others wait

# Keys of the store through which the processes and their launcher communicate.
JOINED, DONE = "seqwise/joined", "seqwise/done"  # numbers of processes
FAILED, LOST = "seqwise/failed", "seqwise/lost"  # "RANK STATUS" of the first to fail; how contact was lost
HAS_LAUNCHER = "SEQWISE_WATCHED"  # environment variable: standard input is a pipe from `launch`

BUCKET_ELEMENTS = 25 * 2**20 // 4  # 25 MB per message, large enough to hide the latency
EXIT_SECONDS = 10.0  # for the other workers to exit after one has failed
POLL_SECONDS = 0.05

Worker = subprocess.Popen[bytes]
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of a training run, seen from one of them."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
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

    def barrier(self) -> None:
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
        buckets: list[list[Tensor]] = [[]]
        for gradient in gradients:
            if sum(other.numel() for other in buckets[-1]) >= BUCKET_ELEMENTS:
                buckets.append([])
            buckets[-1].append(gradient)
        for bucket in buckets:
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

    def gather(self, items: list[T]) -> list[T]:
        """Return the items of all processes, in the order of their ranks."""
        if self.size == 1:
            return items
        lists: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, items)
        return list(chain(*lists))

    def broadcast_text(self, text: str) -> str:
        """Return the text of the first process; the others wait for it."""
        return self.gather([text])[0]


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
    # When a connection breaks, gloo raises plain RuntimeErrors that name a line of its source.
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        # Other processes have exited and report why.
        if os.environ.get(HAS_LAUNCHER):
            store.set(LOST, str(error))
            raise SystemExit(1) from None
        raise SeqwiseError(f"another process of this training run has ended ({error}).") from error
    status = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)
    own_failure = f"{rank} {status}"
    try:
        first_failure = store.compare_set(FAILED, "", own_failure).decode()
    except dist.DistError:  # the process with the store has exited
        return
    if first_failure != own_failure:
        raise SystemExit(int(first_failure.split()[1])) from None


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


class LostProcessError(SeqwiseError):
    """A process was killed or lost contact with the others, and none of them reported an error."""


def launch(
    processes: int,
    device: torch.device,
    arguments: Sequence[str],
    folder: Path,
    log_file: IO[bytes] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Run `seqwise ARGUMENTS`, which trains the run in `folder`, in several processes; return the exit status.

    Their messages go to standard error, or into `log_file`. `stop()` returning true has the effect of Ctrl-C.
    """
    check_process_count(processes, device)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    signals: list[int] = []
    workers: list[Worker] = []
    with handle_signals(lambda number, frame: signals.append(number)):
        try:
            workers += [_start(rank, processes, store.port, arguments, log_file) for rank in range(processes)]
            return _get_exit_status(_wait_for_workers(workers, store, signals, stop), store, folder)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def check_process_count(processes: int, device: torch.device) -> None:
    """Raise an error if there are more processes than GPUs."""
    if device.type == "cuda" and processes > (num_gpus := torch.cuda.device_count()):
        problem = f"--nproc: expected at most {num_gpus}, one process for each GPU; received {processes}."
        raise UsageError(problem, repair=f"Use --nproc {num_gpus}, or train on the CPU with --device cpu.")


def _start(rank: int, processes: int, port: int, arguments: Sequence[str], log_file: IO[bytes] | None) -> Worker:
    threads = max(1, environment.cpu_count() // processes)
    variables = {"OMP_NUM_THREADS": str(threads), **build_worker_environment()}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), HAS_LAUNCHER: "1"}
    variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    # After setsid the workers do not get the terminal's Ctrl-C, which this process forwards.
    # Their standard input closes when this process ends, however that happens; then they end too.
    command = [*python_command("seqwise"), *arguments]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stderr=log_file, start_new_session=True)


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this package; -P keeps the current folder out of the import path."""
    return [sys.executable, "-P", "-m", module]


def build_worker_environment() -> dict[str, str]:
    """Return the environment of `python_command`, in which Seqwise is also found when run from its source folder."""
    environment.limit_spinning()  # the caller may be Python code that has not
    source = Path(__file__).parents[2]
    if not (Path().exists() and source.samefile(Path())):
        return dict(os.environ)
    paths = [path for path in (os.environ.get("PYTHONPATH"), str(source)) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _wait_for_workers(
    workers: list[Worker], store: dist.TCPStore, signals: list[int], stop: Callable[[], bool]
) -> list[int | None]:
    """Return the exit statuses once all workers have ended, or one has failed and the others had time to exit."""
    seconds_left = EXIT_SECONDS
    has_stopped = False
    while any(worker.poll() is None for worker in workers) and seconds_left > 0:
        if not has_stopped and stop():
            has_stopped = True
            signals.append(signal.SIGINT)
        if signals and store.add(JOINED, 0) < len(workers):
            raise KeyboardInterrupt  # no worker has started anything
        while signals:
            number = signals.pop(0)
            for worker in workers:
                worker.send_signal(number)
        time.sleep(POLL_SECONDS)
        if any(worker.returncode for worker in workers):
            seconds_left -= POLL_SECONDS
    return [worker.returncode for worker in workers]


def _get_exit_status(statuses: list[int | None], store: dist.TCPStore, folder: Path) -> int:
    """Return the exit status of the first worker that failed and reported why; otherwise raise an error here."""
    if store.check([FAILED]):
        return int(store.get(FAILED).split()[1])
    if store.add(DONE, 0) == len(statuses):
        return max(max(status or 0, 0) for status in statuses)
    for number, status in enumerate(statuses, start=1):
        if status is not None and status < 0:
            raise _lost_process_error(
                f"process {number} of {len(statuses)} was ended by {signal.Signals(-status).name}.", folder
            )
    if store.check([LOST]):
        raise _lost_process_error(f"the processes lost contact: {store.get(LOST).decode()}", folder)
    return max(status or 0 for status in statuses)


def _lost_process_error(problem: str, folder: Path) -> LostProcessError:
    exists = (folder / CONFIG).exists()
    repair = f"What was saved before is complete. Resume with: {resume_command(folder)}" if exists else ""
    return LostProcessError(problem, repair=repair)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` for SIGINT and SIGTERM inside the block. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def interrupt_at_once(number: int, frame: FrameType | None) -> None:
    """A handler that raises KeyboardInterrupt, so that open contexts clean up."""
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Only set a flag on a signal, which the yielded function returns. A second signal raises KeyboardInterrupt."""
    signals: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    with handle_signals(receive):
        yield lambda: bool(signals)
