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
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from seqwise import environment
from seqwise.compare.engines import DEATHS, Event, Listen, died
from seqwise.compare.outcomes import Job, Outcome
from seqwise.compare.plan import BESIDE, LOG
from seqwise.compare.worker import STOPPED

GRACE = 60.0  # seconds in which a worker that was asked to stop has to save what it has
POLL = 0.2


class Local:
    """Worker processes, kept from one stage to the next."""

    def __init__(self, folder: Path, workers: int | None = None, gpus: int = 0):
        self.folder = folder
        count = workers or max(1, gpus)
        cores = environment.cpu_count()
        # With GPUs the workers take turns in choosing one; without, they share the cores.
        self.variables = [
            {"CUDA_VISIBLE_DEVICES": _visible(number % gpus)}
            if gpus
            else {"OMP_NUM_THREADS": str(max(1, cores // count))}
            for number in range(count)
        ]
        if not gpus and count == 1:
            self.variables = [{}]  # as many threads as PyTorch thinks best
        self.variables = [each | {BESIDE: str(-(-count // max(1, gpus)))} for each in self.variables]
        self.workers: list[_Worker | None] = [None] * count

    def run(self, jobs: Sequence[Job], listen: Listen, stop: Callable[[], bool]) -> None:
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        for job in jobs:
            waiting.put(job)
        deaths = dict.fromkeys(jobs, 0)
        lock = threading.Lock()

        def tell(event: Event) -> None:
            with lock:
                listen(event)

        threads = [
            threading.Thread(target=self._serve, args=(slot, waiting, deaths, tell, stop), daemon=True)
            for slot in range(min(len(self.workers), len(jobs)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(POLL)  # a plain join would hold back Ctrl-C

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
            self.workers[slot] = None
            deaths[job] += 1
            tell({"event": "lost", "kind": job.kind, "name": job.name, "reason": reason})
            if deaths[job] < DEATHS:
                waiting.put(job)
            elif Outcome.load(job.file(self.folder)) is None:
                Outcome("failed", died(reason)).save(job.file(self.folder))
                tell({"event": "end", "kind": job.kind, "name": job.name, "status": "failed", "reason": died(reason)})

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
                [sys.executable, "-m", "seqwise.compare.worker", str(folder)],
                env={**os.environ, **variables}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                encoding="utf-8", start_new_session=True,
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
        """Wait for the end of the job; why the worker is gone, if it is."""
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
