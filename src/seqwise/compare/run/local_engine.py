"""Jobs on this machine: one worker process per GPU, or one after another on the CPU.

Several workers share a device only where the user asks for it: two timed trials on the same cores would measure each
other. A worker that dies is replaced, and its job goes on from its newest checkpoint.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from seqwise import environment
from seqwise.compare.plan.plan import AT_ONCE, BESIDE, LOG
from seqwise.compare.run.engine import DEATHS, Event, Listen, bury
from seqwise.compare.run.jobs import Job
from seqwise.compare.run.worker import STOPPED
from seqwise.training.launching import build_worker_environment, python_command

GRACE = 60.0  # seconds in which a worker that was asked to stop has to save what it has
POLL = 0.2


class Local:
    """Worker processes, kept from one stage to the next."""

    def __init__(
        self, folder: Path, workers: int | None = None, gpus: int = 0, processes: int = 1, limit: int | None = None
    ):
        """`limit`: threads of one trial on the CPU, at most."""
        self.folder = folder
        count = workers or max(1, gpus)
        threads = max(1, (limit or environment.cpu_count() // count) // processes)
        # With GPUs the workers take turns in choosing one; without, they and the processes of each share the cores.
        self.variables = [
            {"CUDA_VISIBLE_DEVICES": _visible(number % gpus)} if gpus else {"OMP_NUM_THREADS": str(threads)}
            for number in range(count)
        ]
        if not gpus and count == 1 and limit is None:
            self.variables = [{}]  # as many threads as PyTorch thinks best
        neighbours = {BESIDE: str(-(-count // max(1, gpus))), AT_ONCE: str(count)}
        self.variables = [each | neighbours for each in self.variables]
        self.workers: list[_Worker | None] = [None] * count

    @property
    def places(self) -> int:
        return len(self.workers)

    def run(self, jobs: Sequence[Job], listen: Listen, stop: Callable[[], bool]) -> None:
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        deaths = dict.fromkeys(jobs, 0)
        lock = threading.Lock()
        errors: list[BaseException] = []

        def tell(event: Event) -> None:
            with lock:
                listen(event)

        def serve(slot: int) -> None:
            try:
                self._serve(slot, waiting, deaths, tell, lambda: bool(errors) or stop())
            except BaseException as error:  # nobody looks after a thread: the others stop, and `run` fails of it
                errors.append(error)

        threads = [
            threading.Thread(target=serve, args=(slot,), daemon=True)
            for slot in range(min(len(self.workers), len(jobs)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(POLL)  # a plain join would hold back Ctrl-C
        if errors:
            raise errors[0]

    def _serve(
        self, slot: int, waiting: queue.SimpleQueue[Job], deaths: dict[Job, int], tell: Listen, stop: Callable[[], bool]
    ) -> None:
        """One worker's share of the jobs."""
        while not stop():
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            worker = self.workers[slot]
            if worker is None or worker.process.poll() is not None:
                worker = self.workers[slot] = _Worker(self.folder, self.variables[slot])
            reason = worker.carry_out(job, tell, stop)
            if not reason or stop():
                continue
            deaths[job] += 1
            tell({"event": "lost", "kind": job.kind, "name": job.name, "reason": reason})
            if deaths[job] < DEATHS:
                waiting.put(job)
            else:
                tell(bury(self.folder, job, reason))

    def close(self) -> None:
        for worker in filter(None, self.workers):
            worker.close()
        self.workers = [None] * len(self.workers)


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self, folder: Path, variables: dict[str, str]):
        with (folder / LOG).open("ab") as log:
            # Its own process session keeps the terminal's Ctrl-C away: it is stopped by the end of its input.
            self.process = subprocess.Popen(
                [*python_command("seqwise.compare.run.worker"), str(folder)],
                env={**build_worker_environment(), **variables},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, encoding="utf-8", start_new_session=True,
            )  # fmt: skip
        self.lines: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.lines.put(json.loads(line))
            except ValueError:
                continue  # a kill cut the line
        self.lines.put(None)

    def carry_out(self, job: Job, tell: Listen, stop: Callable[[], bool]) -> str:
        """Wait for the end of the job; why its process was lost, if it was: this one, or one that it had started."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"kind": job.kind, "name": job.name}) + "\n")
            self.process.stdin.flush()
        except OSError:
            return self._death()
        while True:
            if stop():
                self.close()
            try:
                event = self.lines.get(timeout=POLL)
            except queue.Empty:
                continue
            if event is None:
                return self._death()
            if event["event"] == "ready":
                event = {"event": "ready", "kind": job.kind, "name": job.name, "pid": self.process.pid}
            if event["event"] == "lost":
                return event["reason"]
            tell(event)
            if event["event"] == "end":
                return ""

    def _death(self) -> str:
        status = self.process.wait()
        if status == STOPPED:
            return "because it was stopped"
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"

    def close(self) -> None:
        """Ask it to save and leave, and wait for that."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            with suppress(OSError):
                self.process.stdin.close()
        deadline = time.monotonic() + GRACE
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _visible(number: int) -> str:
    """The name of the so many-th GPU that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number] if visible else str(number)
