"""Data-parallel training over torch.distributed (gloo on CPUs, nccl on GPUs), the launcher of its processes, signals.

Each process has the whole model and its own sequences of the batch; gradients are summed before the update. They are
summed after the local gradients are complete, so a process that runs out of memory can split its batch independently of
the others (docs/decisions/0004). In a `World` of one process, no method communicates.

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
from seqwise.training.checkpoints import get_resume_command
from seqwise.training.run import CONFIG

TIMEOUT = timedelta(hours=2)  # while the first process reads the data, the others wait

# Keys of the store through which the processes and their launcher communicate.
JOINED_KEY, DONE_KEY = "seqwise/joined", "seqwise/done"  # numbers of processes that have started, and finished
FAILED_KEY, LOST_KEY = "seqwise/failed", "seqwise/lost"  # "RANK STATUS" of the first to fail; a connection error
LAUNCHER_VARIABLE = "SEQWISE_WATCHED"  # environment variable: standard input is a pipe from `launch`

BUCKET_ELEMENTS = 25 * 2**20 // 4  # 25 MB per message, large enough to hide the latency
MAX_EXIT_SECONDS = 10.0  # time for the other workers to exit after one has failed
POLL_SECONDS = 0.05

Worker = subprocess.Popen[bytes]
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The processes of a training run: the rank of this one, and their number."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, which alone writes files and messages."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Returns the numbers summed over all processes, in double precision."""
        if self.size == 1:
            return list(numbers)
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        values = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(values)
        return values.tolist()

    def barrier(self) -> None:
        """Blocks until all processes have called it."""
        self.sum(0.0)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by the tensor of the first process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replaces each gradient by its sum over all processes; all processes must pass lists of the same shapes."""
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

    def gather_state(self, state: ModelState) -> ModelState:
        """Returns the model state of the sequences of all processes, in the order of their ranks."""
        if self.size == 1 or state is None:
            return state

        def gather(tensor: Tensor) -> Tensor:
            gathered = [torch.empty_like(tensor) for _ in range(self.size)]
            dist.all_gather(gathered, tensor.contiguous())
            return concat_states(gathered)

        return map_state(gather, state)

    def select_own_state(self, state: ModelState) -> ModelState:
        """Returns the model state of this process's sequences, out of the state that `gather_state` returns."""
        return map_state(lambda tensor: tensor.chunk(self.size)[self.rank].clone(), state)

    def gather(self, items: list[T]) -> list[T]:
        """Returns the items of all processes, in the order of their ranks."""
        if self.size == 1:
            return items
        lists: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(lists, items)
        return list(chain(*lists))

    def broadcast_text(self, text: str) -> str:
        """Returns the text of the first process; the others wait for it."""
        return self.gather([text])[0]


@contextmanager
def join_world(device: torch.device) -> Iterator[World]:
    """Joins the processes that torchrun's environment variables describe; without them there is one process.

    When several processes fail, the first of them raises its error and the others exit silently, so that a failure is
    reported once.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    if os.environ.get(LAUNCHER_VARIABLE):
        _kill_when_launcher_ends()
    if device.type == "cuda":
        torch.cuda.set_device(get_local_device(device))
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=TIMEOUT)))
    store.add(JOINED_KEY, 1)
    try:
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        yield World(rank, size)
    except BaseException as error:
        # The process group is not destroyed: nccl might wait for processes that never join.
        _exit_unless_first_failure(error, store, rank)
        raise
    store.add(DONE_KEY, 1)  # later errors are ignored: gloo sometimes aborts while it closes
    dist.destroy_process_group()


def _exit_unless_first_failure(error: BaseException, store: dist.Store, rank: int) -> None:
    """Returns if this process must report its error; otherwise exits."""
    # When a connection breaks, gloo raises plain RuntimeErrors that name a line of its source.
    if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error)):
        # Another process has exited and reports why.
        if os.environ.get(LAUNCHER_VARIABLE):
            store.set(LOST_KEY, str(error))
            raise SystemExit(1) from None
        raise SeqwiseError(f"another process of this training run has ended ({error}).") from error
    status = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)
    own_failure = f"{rank} {status}"
    try:
        first_failure = store.compare_set(FAILED_KEY, "", own_failure).decode()
    except dist.DistError:  # the process with the store has exited
        return
    if first_failure != own_failure:
        raise SystemExit(int(first_failure.split()[1])) from None


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
    """Runs `seqwise ARGUMENTS`, which trains the run in `folder`, in several processes; returns the exit status.

    Their messages are written to standard error or to `log_file`. If `stop()` returns true, they end as after Ctrl-C.
    """
    check_process_count(processes, device)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    signals: list[int] = []
    workers: list[Worker] = []
    with handle_signals(lambda signal_number, frame: signals.append(signal_number)):
        try:
            workers += [_start_worker(rank, processes, store.port, arguments, log_file) for rank in range(processes)]
            return _get_exit_status(_wait_for_workers(workers, store, signals, stop), store, folder)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def check_process_count(processes: int, device: torch.device) -> None:
    """Raises an error if there are more processes than GPUs; on the CPU any number may run."""
    if device.type == "cuda" and processes > (num_gpus := torch.cuda.device_count()):
        problem = f"--nproc: expected at most {num_gpus}, one process for each GPU; received {processes}."
        raise UsageError(problem, fix=f"Use --nproc {num_gpus}, or train on the CPU with --device cpu.")


def _start_worker(rank: int, processes: int, port: int, arguments: Sequence[str], log_file: IO[bytes] | None) -> Worker:
    threads = max(1, environment.count_cpus() // processes)
    variables = {"OMP_NUM_THREADS": str(threads), **build_worker_environment()}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), LAUNCHER_VARIABLE: "1"}
    variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    # Workers run in a POSIX session of their own: they do not get the terminal's Ctrl-C, which this process forwards.
    # Their standard input closes when this process ends, even if it is killed; then they end too.
    command = [*build_python_command("seqwise"), *arguments]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stderr=log_file, start_new_session=True)


def build_python_command(module: str) -> list[str]:
    """Returns the command that runs a module of this package; -P keeps the current folder out of the import path."""
    return [sys.executable, "-P", "-m", module]


def build_worker_environment() -> dict[str, str]:
    """Returns the environment variables for `build_python_command`.

    If Seqwise was imported from the current folder, which -P leaves out, they add it to the import path.
    """
    variables = dict(os.environ)
    environment.limit_spinning(variables)  # the command line has called it already, Python code may not have
    source = Path(__file__).parents[2]
    if Path().exists() and source.samefile(Path()):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (variables.get("PYTHONPATH"), str(source))))
    return variables


def _wait_for_workers(
    workers: list[Worker], store: dist.TCPStore, signals: list[int], stop: Callable[[], bool]
) -> list[int | None]:
    """Returns the exit statuses once all workers have ended, or one has failed and the others had time to exit."""
    seconds_left = MAX_EXIT_SECONDS
    is_stopped = False
    while any(worker.poll() is None for worker in workers) and seconds_left > 0:
        if not is_stopped and stop():
            is_stopped = True
            signals.append(signal.SIGINT)
        if signals and store.add(JOINED_KEY, 0) < len(workers):
            raise KeyboardInterrupt  # training has not started
        while signals:
            signal_number = signals.pop(0)
            for worker in workers:
                worker.send_signal(signal_number)
        time.sleep(POLL_SECONDS)
        if any(worker.returncode for worker in workers):
            seconds_left -= POLL_SECONDS
    return [worker.returncode for worker in workers]


def _get_exit_status(statuses: list[int | None], store: dist.TCPStore, folder: Path) -> int:
    """Returns the exit status of the first worker that reported an error, if any, or else the largest.

    Raises an error if a worker was killed or the workers lost contact before any of them reported an error.
    """
    if store.check([FAILED_KEY]):
        return int(store.get(FAILED_KEY).split()[1])
    if store.add(DONE_KEY, 0) == len(statuses):
        return max(max(status or 0, 0) for status in statuses)
    for rank, status in enumerate(statuses):
        if status is not None and status < 0:
            raise _build_lost_process_error(
                f"process {rank + 1} of {len(statuses)} was ended by {signal.Signals(-status).name}.", folder
            )
    if store.check([LOST_KEY]):
        raise _build_lost_process_error(f"the processes lost contact: {store.get(LOST_KEY).decode()}", folder)
    return max(status or 0 for status in statuses)


def _build_lost_process_error(problem: str, folder: Path) -> LostProcessError:
    fix = ""
    if (folder / CONFIG).exists():
        fix = f"The files that were saved before are complete. Resume with: {get_resume_command(folder)}"
    return LostProcessError(problem, fix=fix)


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Calls `handler` for SIGINT and SIGTERM inside the block. Outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    previous_handlers = {signal_number: signal.signal(signal_number, handler) for signal_number in signals}
    try:
        yield
    finally:
        for signal_number, previous_handler in previous_handlers.items():
            signal.signal(signal_number, previous_handler)


def raise_interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, so that open contexts clean up. It is a handler for `handle_signals`."""
    raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether a signal was received. A second signal raises KeyboardInterrupt."""
    signals: list[int] = []

    def receive(signal_number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(signal_number)

    with handle_signals(receive):
        yield lambda: bool(signals)
