"""`launch`: one command in several processes on this machine, which start and end together.

Each worker gets the environment variables that torchrun would set. Unlike torchrun, this forwards each signal exactly
once, returns the exit status of the worker that failed, and adds no report to the message of that worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import torch
import torch.distributed as dist

from seqwise import environment
from seqwise.errors import SeqwiseError, UsageError
from seqwise.training.checkpoints import resume_command
from seqwise.training.distribution import DONE, FAILED, HAS_LAUNCHER, JOINED, LOST
from seqwise.training.run import CONFIG
from seqwise.training.signals import handle_signals

EXIT_SECONDS = 10.0  # for the other workers to exit after one has failed
POLL_SECONDS = 0.05

Worker = subprocess.Popen[bytes]


class LostProcessError(SeqwiseError):
    """A process was killed or lost contact with the others, and none of them reported an error."""


def launch(
    processes: int,
    device: torch.device,
    arguments: Sequence[str],
    folder: Path,
    log: IO[bytes] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Run `seqwise ARGUMENTS`, which trains the run in `folder`, in several processes; return the exit status.

    Their messages go to standard error, or into `log`. `stop()` returning true has the effect of Ctrl-C.
    """
    check_process_count(processes, device)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    received: list[int] = []
    workers: list[Worker] = []
    with handle_signals(lambda number, frame: received.append(number)):
        try:
            workers += [_start(rank, processes, store.port, arguments, log) for rank in range(processes)]
            return _status(_watch(workers, store, received, stop), store, folder)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def check_process_count(processes: int, device: torch.device) -> None:
    """Raise an error if there are more processes than GPUs."""
    if device.type == "cuda" and processes > (num_gpus := torch.cuda.device_count()):
        raise UsageError(
            f"--nproc: expected at most {num_gpus}, one process for each GPU; received {processes}.",
            repair=f"Use --nproc {num_gpus}, or train on the CPU with --device cpu.",
        )


def _start(rank: int, processes: int, port: int, arguments: Sequence[str], log: IO[bytes] | None) -> Worker:
    threads = max(1, environment.cpu_count() // processes)
    variables = {"OMP_NUM_THREADS": str(threads), **build_worker_environment()}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), HAS_LAUNCHER: "1"}
    variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    # After setsid the workers do not get the terminal's Ctrl-C, which this process forwards.
    # Their standard input closes when this process ends, however that happens; then they end too.
    command = [*python_command("seqwise"), *arguments]
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stderr=log, start_new_session=True)


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this package; -P keeps the current folder out of the import path."""
    return [sys.executable, "-P", "-m", module]


def build_worker_environment() -> dict[str, str]:
    """Return the environment variables for it, in which Seqwise is also found when run from its source folder."""
    source = Path(__file__).parents[2]
    if not (Path().exists() and source.samefile(Path())):
        return dict(os.environ)
    paths = [path for path in (os.environ.get("PYTHONPATH"), str(source)) if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _watch(
    workers: list[Worker], store: dist.TCPStore, received: list[int], stop: Callable[[], bool]
) -> list[int | None]:
    """Return the exit statuses once all workers have ended, or one has failed and the others had time to exit."""
    patience, stopped = EXIT_SECONDS, False
    while any(worker.poll() is None for worker in workers) and patience > 0:
        if not stopped and stop():
            stopped = True
            received.append(signal.SIGINT)
        if received and store.add(JOINED, 0) < len(workers):
            raise KeyboardInterrupt  # no worker has started anything
        while received:
            number = received.pop(0)
            for worker in workers:
                worker.send_signal(number)
        time.sleep(POLL_SECONDS)
        if any(worker.returncode for worker in workers):
            patience -= POLL_SECONDS
    return [worker.returncode for worker in workers]


def _status(statuses: list[int | None], store: dist.TCPStore, folder: Path) -> int:
    """Return the exit status of the first worker that failed and reported why; otherwise raise an error here."""
    if store.check([FAILED]):
        return int(store.get(FAILED).split()[1])
    if store.add(DONE, 0) == len(statuses):
        return max(max(status or 0, 0) for status in statuses)
    for number, status in enumerate(statuses, start=1):
        if status is not None and status < 0:
            raise _lost(f"process {number} of {len(statuses)} was ended by {signal.Signals(-status).name}.", folder)
    if store.check([LOST]):
        raise _lost(f"the processes lost contact: {store.get(LOST).decode()}", folder)
    return max(status or 0 for status in statuses)


def _lost(problem: str, folder: Path) -> LostProcessError:
    exists = (folder / CONFIG).exists()
    repair = f"What was saved before is complete. Resume with: {resume_command(folder)}" if exists else ""
    return LostProcessError(problem, repair=repair)
