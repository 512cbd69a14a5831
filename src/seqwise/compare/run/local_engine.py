"""`LocalEngine`: executes jobs on this machine, one worker process per GPU, or one after another on the CPU.

Several workers share a device only at the user's request: two timed trials on the same cores slow each other down. A
worker that is killed is replaced, and its job continues from its newest checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from seqwise import environment
from seqwise.compare.plan.folder import WORKER_LOG
from seqwise.compare.plan.plan import DEVICE_WORKERS_VARIABLE, WORKERS_VARIABLE
from seqwise.compare.run.engine import JobQueue
from seqwise.compare.run.jobs import Event, Job, OnEvent
from seqwise.compare.run.worker import STOPPED_STATUS
from seqwise.signals import suspend_with
from seqwise.training.launcher import build_python_command, build_worker_environment

STOP_SECONDS = 60.0  # for a worker to save its state and exit
POLL_SECONDS = 0.2


class LocalEngine:
    """Worker processes, which live from one stage to the next."""

    def __init__(
        self,
        folder: Path,
        workers: int | None = None,
        gpus: int = 0,
        processes: int = 1,
    ):
        """`processes` is the number in one trial."""
        self.folder = folder
        count = workers or max(1, gpus)
        threads = max(1, environment.count_cpus() // count // processes)
        counts = {DEVICE_WORKERS_VARIABLE: str(math.ceil(count / max(1, gpus))), WORKERS_VARIABLE: str(count)}
        # Workers are distributed over the GPUs; without GPUs, they and the processes of each share the cores.
        if gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else [str(number) for number in range(gpus)]
            self.variables = [{"CUDA_VISIBLE_DEVICES": names[number % gpus], **counts} for number in range(count)]
        elif count == 1:
            self.variables = [counts]  # PyTorch's default number of threads
        else:
            self.variables = [{"OMP_NUM_THREADS": str(threads), **counts}] * count
        self.workers: list[_Worker | None] = [None] * count

    @property
    def num_workers(self) -> int:
        return len(self.workers)

    def run(self, jobs: Sequence[Job], on_event: OnEvent, should_stop: Callable[[], bool]) -> None:
        jobs_left = JobQueue(self.folder, jobs, on_event)
        errors: list[BaseException] = []

        def serve(slot: int) -> None:
            try:
                self._serve(slot, jobs_left, lambda: bool(errors) or should_stop())
            except BaseException as error:  # the other threads stop, and `run` raises it
                errors.append(error)

        count = min(len(self.workers), len(jobs))
        threads = [threading.Thread(target=serve, args=(slot,), daemon=True) for slot in range(count)]
        with suspend_with(self._send, stop_signal=signal.SIGTSTP):  # workers have processes of --nproc to stop first
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(POLL_SECONDS)  # a join without a limit would delay Ctrl-C
        if errors:
            raise errors[0]

    def _serve(self, slot: int, jobs: JobQueue, should_stop: Callable[[], bool]) -> None:
        """Gives waiting jobs to one worker until none is left."""
        while not should_stop() and (job := jobs.take()):
            worker = self.workers[slot]
            if worker is None or worker.process.poll() is not None:
                worker = self.workers[slot] = _Worker(self.folder, self.variables[slot])
            reason = worker.execute(job, jobs, should_stop)
            if reason and not should_stop():
                jobs.handle_lost_process(job, reason)

    def _send(self, signal_number: int) -> None:
        for worker in filter(None, self.workers):
            worker.process.send_signal(signal_number)

    def close(self) -> None:
        for worker in filter(None, self.workers):
            worker.close()
        self.workers = [None] * len(self.workers)


class _Worker:
    """A worker process and the pipes to it."""

    def __init__(self, folder: Path, variables: dict[str, str]):
        with (folder / WORKER_LOG).open("ab") as log:
            # setsid shields it from the terminal's Ctrl-C; it stops when its input ends.
            self.process = subprocess.Popen(
                [*build_python_command("seqwise.compare.run.worker"), str(folder)],
                env={**build_worker_environment(), **variables},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, encoding="utf-8", start_new_session=True,
            )  # fmt: skip
        self.events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        threading.Thread(target=self._read_events, daemon=True).start()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.events.put(json.loads(line))
            except ValueError:
                continue  # a line cut off by a kill
        self.events.put(None)

    def execute(self, job: Job, jobs: JobQueue, should_stop: Callable[[], bool]) -> str:
        """Waits for the end of the job; returns why its process, or one that it had started, was lost; else ""."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"kind": job.kind, "name": job.name}) + "\n")
            self.process.stdin.flush()
        except OSError:
            return self._explain_exit()
        while True:
            if should_stop():
                self.close()
            try:
                event = self.events.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if event is None:
                return self._explain_exit()
            if event["event"] == "lost":
                return event["reason"]
            jobs.report(job, event)
            if event["event"] == "end":
                return ""

    def _explain_exit(self) -> str:
        status = self.process.wait()
        if status == STOPPED_STATUS:
            return "because it was stopped"
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"

    def close(self) -> None:
        """Asks it to save and exit, and waits for that."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
