"""Starts the processes of `--nproc N` on this machine, and waits for them.

They get the environment variables that torchrun would set. Unlike torchrun, `launch` forwards each signal exactly once,
returns the exit status of the worker that failed, and adds no report to the message of that worker. All sockets are on
the loopback interface (`loopback.py`), and a worker that hangs ends the run (`heartbeat.py`).
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
from seqwise.signals import handle_signals, suspend_with
from seqwise.training import loopback
from seqwise.training.checkpoints import get_resume_command
from seqwise.training.distribution import FAILED_KEY, LAUNCHER_VARIABLE, LOST_KEY, parse_failure
from seqwise.training.heartbeat import HangDetector, Heartbeats, read_hang_seconds
from seqwise.training.run import CONFIG

MAX_EXIT_SECONDS = 10.0  # time for the other workers to exit after one has failed
POLL_SECONDS = 0.05
MAX_REASON = 300  # characters of a connection error in a message

Worker = subprocess.Popen[bytes]


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
    hang_seconds = read_hang_seconds()
    store, heartbeats = loopback.open_store(), Heartbeats.create(processes)
    signals: list[int] = []
    workers: list[Worker] = []
    with (
        handle_signals(lambda signal_number, frame: signals.append(signal_number)),
        suspend_with(lambda signal_number: _send(workers, signal_number)),
    ):
        try:
            for rank in range(processes):
                workers.append(_start_worker(rank, heartbeats, store.port, arguments, log_file))
            hang_detector = HangDetector(heartbeats, hang_seconds)
            statuses = _wait_for_workers(workers, hang_detector, signals, stop, folder)
            return _get_exit_status(statuses, heartbeats, store, folder)
        finally:
            heartbeats.close()
            for worker in workers:
                worker.kill()
                worker.wait()


def check_process_count(processes: int, device: torch.device) -> None:
    """Raises an error if there are more processes than GPUs; on the CPU any number may run."""
    if device.type == "cuda" and processes > (num_gpus := torch.cuda.device_count()):
        problem = f"--nproc: expected at most {num_gpus}, one process for each GPU; received {processes}."
        raise UsageError(problem, fix=f"Use --nproc {num_gpus}, or train on the CPU with --device cpu.")


def _start_worker(
    rank: int, heartbeats: Heartbeats, port: int, arguments: Sequence[str], log_file: IO[bytes] | None
) -> Worker:
    processes, descriptor = heartbeats.processes, heartbeats.descriptor
    threads = max(1, environment.count_cpus() // processes)
    variables = {"OMP_NUM_THREADS": str(threads), **build_worker_environment()}
    variables |= loopback.get_interface_variables()
    variables |= {"MASTER_ADDR": loopback.ADDRESS, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    variables |= {"RANK": str(rank), "LOCAL_RANK": str(rank), LAUNCHER_VARIABLE: str(descriptor)}
    variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    # Workers run in a POSIX session of their own: they do not get the terminal's Ctrl-C, which this process forwards.
    # Their standard input closes when this process ends, even if it is killed; then they end too.
    command = [*build_python_command("seqwise"), *arguments]
    return subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stderr=log_file, start_new_session=True, pass_fds=(descriptor,)
    )


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
    workers: list[Worker], hang_detector: HangDetector, signals: list[int], stop: Callable[[], bool], folder: Path
) -> list[int | None]:
    """Returns the exit statuses once all workers have ended, or one has failed and the others had time to exit.

    Raises an error if a worker does not respond.
    """
    seconds_left = MAX_EXIT_SECONDS
    is_stopped = False
    while any(worker.poll() is None for worker in workers) and seconds_left > 0:
        if not is_stopped and stop():
            is_stopped = True
            signals.append(signal.SIGINT)
        if signals and not hang_detector.heartbeats.have_all_started:
            raise KeyboardInterrupt  # training has not started
        while signals:
            _send(workers, signals.pop(0))
        time.sleep(POLL_SECONDS)
        if any(worker.returncode for worker in workers):
            seconds_left -= POLL_SECONDS
        elif ranks := hang_detector.find_ranks():
            names = ", ".join(str(rank + 1) for rank in ranks)
            subject = f"process {names} of {len(workers)} has" if len(ranks) == 1 else f"processes {names} have"
            raise _build_lost_process_error(
                f"{subject} not responded for {hang_detector.seconds:g} s.", folder, len(workers)
            )
    return [worker.returncode for worker in workers]


def _send(workers: list[Worker], signal_number: int) -> None:
    for worker in workers:
        worker.send_signal(signal_number)


def _get_exit_status(statuses: list[int | None], heartbeats: Heartbeats, store: dist.TCPStore, folder: Path) -> int:
    """Returns 0 if all workers have succeeded; else the status of the first that reported an error, or the largest.

    Raises an error if a worker was killed or the workers lost contact before any of them reported an error. A signal
    that ends a worker after its work is complete is ignored.
    """
    is_complete = [bool(heartbeats.read(rank).is_done) for rank in range(len(statuses))]
    ends = [0 if complete and (status or 0) <= 0 else status for status, complete in zip(statuses, is_complete)]
    if not any(status is None or status for status in ends):
        return 0
    if failure := parse_failure(_read_key(store, FAILED_KEY)):
        return failure
    for rank, status in enumerate(ends):
        if status is not None and status < 0:
            raise _build_lost_process_error(
                f"process {rank + 1} of {len(statuses)} was ended by {signal.Signals(-status).name}.",
                folder,
                len(statuses),
            )
    if reason := _read_key(store, LOST_KEY):
        raise _build_lost_process_error(f"the processes lost contact: {reason[:MAX_REASON]}", folder, len(statuses))
    return max(1, *(status or 0 for status in ends))


def _read_key(store: dist.TCPStore, key: str) -> str:
    """Returns a text of the store; "" if there is none."""
    return store.get(key).decode(errors="replace") if store.check([key]) else ""


def _build_lost_process_error(problem: str, folder: Path, num_processes: int) -> LostProcessError:
    fix = ""
    if (folder / CONFIG).exists():
        fix = f"The files that were saved before are complete. Resume with: {get_resume_command(folder, num_processes)}"
    return LostProcessError(problem, fix=fix)
