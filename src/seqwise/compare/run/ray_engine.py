"""`RayEngine`: executes jobs on a Ray cluster, one at a time in each slot, in processes that live from job to job.

The engine polls each process a few times a second. The poll is also a lease: a process that is not polled saves its
state and stops, so that a job which is resumed elsewhere, because its node was lost, never runs twice at the same time.
Ray itself restarts nothing. `ray_cluster.py` knows the nodes of the cluster.
"""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqwise import environment
from seqwise.compare.plan.folder import get_resume_command
from seqwise.compare.plan.plan import DEVICE_WORKERS_VARIABLE, WORKERS_VARIABLE, Plan
from seqwise.compare.run.engine import MAX_LOST_PROCESSES, JobQueue
from seqwise.compare.run.execute import execute_to_event
from seqwise.compare.run.jobs import Event, Job, OnEvent
from seqwise.compare.run.ray_cluster import (
    Node,
    Slot,
    allocate_slots,
    connect,
    describe_cluster,
    find_node_error,
    import_ray,
    list_nodes,
    pin_to_node,
    probe_nodes,
)
from seqwise.errors import SeqwiseError, UsageError
from seqwise.files import write_text
from seqwise.training.run import ENVIRONMENT

POLL_SECONDS = 0.2
LEASE_SECONDS = 15.0  # without a poll, after which a process stops its job; after twice as many it exits
STOP_SECONDS = 60.0  # for jobs to save their state when the comparison is stopped
WARN_SECONDS = 15.0  # without any process, after which a warning explains the wait
GIVE_UP_SECONDS = 600.0  # without any process, after which the comparison fails: the cluster is busy


class RayEngine:
    """Processes on a cluster, which live from one stage to the next. Nodes that join take part from the next stage."""

    def __init__(self, folder: Path, workers: int | None = None):
        self.ray = import_ray()
        self.folder, self.workers = folder.resolve(), workers
        self._is_connected = False  # by this engine
        self._nproc = 1  # processes of one job
        self._nodes: list[Node] = []  # that can take part
        self._slots: list[Slot] = []
        self._workers: dict[Slot, _RayWorker] = {}
        self._failed_starts: dict[Slot, int] = {}  # processes of a slot that ended before their first answer
        self._last_error = ""  # of such a process

    @property
    def num_workers(self) -> int:
        return len(self._slots) or self.workers or 1

    def run(self, jobs: Sequence[Job], on_event: OnEvent, should_stop: Callable[[], bool]) -> None:
        self._join()
        queue = JobQueue(self.folder, jobs, on_event)
        timeout = _StartTimeout(on_event)
        stopped_at: float | None = None
        while queue.waiting or any(worker.job for worker in self._workers.values()):
            if stopped_at is None and should_stop():
                stopped_at = time.monotonic()
            if stopped_at is not None:
                queue.waiting.clear()
                if time.monotonic() - stopped_at > STOP_SECONDS:
                    self._stop_workers(list(self._workers))
                    return
            if queue.waiting:
                self._start_workers()
                timeout.check(self._workers, self.folder)
            for worker in self._workers.values():
                if worker.last_answer and worker.job is None and (job := queue.take()):
                    worker.assign(job)
            self._poll(queue, should_stop=stopped_at is not None)
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        self._stop_workers(list(self._workers))
        if self._is_connected:
            self.ray.shutdown()
        self._is_connected, self._nodes = False, []

    # The cluster

    def _join(self) -> None:
        """Finds the nodes. At first all must be able to take part; of later ones, those that can are added."""
        self._is_connected = connect() or self._is_connected
        plan = Plan.open(self.folder)
        use_gpus = any(settings.device != "cpu" for settings in plan.families.values())
        alive = list_nodes()
        useful = {slot.node for slot in allocate_slots(alive, self.workers, plan.nproc, use_gpus)}
        new_nodes = [node for node in alive if node in useful and node not in self._nodes]
        probes = probe_nodes(self.folder, plan.data, new_nodes)
        if not self._nodes:
            if not useful:
                raise UsageError("the Ray cluster offers no CPU core for jobs.", fix="See: ray status")
            if problem := find_node_error(probes, self.folder, plan.data):
                raise problem
            description = {"in_words": describe_cluster(probes)}
            write_text(self.folder / ENVIRONMENT, json.dumps(description, ensure_ascii=False) + "\n")
        suitable = [
            node for node, probe in probes.items() if find_node_error({node: probe}, self.folder, plan.data) is None
        ]
        self._nodes = [node for node in self._nodes if node in alive] + suitable
        self._slots = allocate_slots(self._nodes, self.workers, plan.nproc, use_gpus)
        self._nproc = plan.nproc
        self._stop_workers([slot for slot in self._workers if slot not in self._slots])

    def _start_workers(self) -> None:
        """Starts a process in each empty slot on a node that is alive."""
        if not self._list_usable_slots():
            self._join()  # there may be nodes that were not needed before
        for slot in self._list_usable_slots():
            if slot not in self._workers:
                options = {"num_cpus": slot.cores, "num_gpus": slot.gpus, "max_restarts": 0, "max_task_retries": 0}
                actor = self.ray.remote(_WorkerProcess).options(
                    **options, scheduling_strategy=pin_to_node(slot.node), runtime_env=_make_runtime_env()
                )
                counts = {DEVICE_WORKERS_VARIABLE: str(slot.device_workers), WORKERS_VARIABLE: str(len(self._slots))}
                process = actor.remote(str(self.folder), os.getcwd(), slot.threads, self._nproc, LEASE_SECONDS, counts)
                self._workers[slot] = _RayWorker(slot, process)
        if not self._workers:
            problem = f"the Ray cluster has no node left on which jobs can run. {self._last_error}".strip()
            fix = f"When it has one, resume with: {get_resume_command(self.folder)}"
            raise SeqwiseError(problem, fix=fix)

    def _list_usable_slots(self) -> list[Slot]:
        alive = list_nodes()
        return [
            slot for slot in self._slots if slot.node in alive and self._failed_starts.get(slot, 0) < MAX_LOST_PROCESSES
        ]

    def _stop_workers(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(self._workers.pop(slot).process)

    # Polling

    def _poll(self, queue: JobQueue, should_stop: bool) -> None:
        """Polls processes that are new or have a job, unless their last poll is unanswered."""
        workers = [worker for worker in self._workers.values() if worker.job is not None or not worker.last_answer]
        for worker in workers:
            if worker.poll is None:
                worker.poll = worker.process.poll.remote(worker.ticket, worker.job, should_stop)
        polls = {worker.poll: worker for worker in workers}
        if not polls:
            return
        answered, _ = self.ray.wait(list(polls), num_returns=len(polls), timeout=POLL_SECONDS)
        for poll in answered:
            worker = polls[poll]
            errors = self.ray.exceptions
            worker.poll = None
            try:
                answer = self.ray.get(poll)
            except errors.ActorUnavailableError:
                continue  # the connection is interrupted: poll again, until Ray knows more
            except errors.RayError as error:
                self._handle_lost_process(worker, queue, str(error))
            else:
                self._handle_answer(worker, answer, queue)

    def _handle_answer(self, worker: _RayWorker, answer: dict[str, Any], queue: JobQueue) -> None:
        job = worker.job
        worker.last_answer = time.monotonic()
        self._failed_starts.pop(worker.slot, None)
        if job is None:
            return
        if not worker.has_started:
            worker.has_started = True
            queue.report(job, {"event": "begin", "pid": answer["pid"], "node": worker.slot.node.name})
        if answer["progress"] is not None and answer["progress"] != worker.last_progress:
            worker.last_progress = answer["progress"]
            queue.report(job, {"event": "progress", **worker.last_progress})
        if answer["result"] is not None:
            worker.job = None
            if answer["result"]["event"] == "end":
                queue.report(job, answer["result"])
            elif answer["result"]["event"] == "lost":
                queue.handle_lost_process(job, answer["result"]["reason"])
            else:  # stopped: on request, and `run` is about to end; or because its lease ended
                queue.waiting.append(job)

    def _handle_lost_process(self, worker: _RayWorker, queue: JobQueue, error: str) -> None:
        slot = worker.slot
        del self._workers[slot]
        if worker.job is None:  # it never answered: not the fault of any job
            self._failed_starts[slot] = self._failed_starts.get(slot, 0) + 1
            self._last_error = error.strip().rpartition("\n")[2]
            return
        is_node_lost = slot.node not in list_nodes()
        reason = f"with its node {slot.node.name}" if is_node_lost else f"on {slot.node.name}"
        # A node that is only disconnected may work until its lease ends; of a job with --nproc, the training processes
        # that are left save their state before they exit.
        may_still_run = is_node_lost or self._nproc > 1
        earliest_start = worker.last_answer + 2 * LEASE_SECONDS + 1 if may_still_run else 0.0
        queue.handle_lost_process(worker.job, reason, earliest_start)


class _StartTimeout:
    """Warns when no process has started for a while, and finally raises an error."""

    def __init__(self, on_event: OnEvent):
        self.on_event = on_event
        self.since: float | None = None
        self.has_warned = False

    def check(self, workers: dict[Slot, _RayWorker], folder: Path) -> None:
        if any(worker.last_answer for worker in workers.values()):
            self.since, self.has_warned = None, False
            return
        self.since = time.monotonic() if self.since is None else self.since
        waited = time.monotonic() - self.since
        minutes = f"{GIVE_UP_SECONDS / 60:g} minutes"
        demand = _describe_demand(list(workers))
        if waited > GIVE_UP_SECONDS:
            fix = f"See what keeps it busy: ray status. Then resume with: {get_resume_command(folder)}"
            raise SeqwiseError(f"the Ray cluster started no process within {minutes}: {demand}.", fix=fix)
        if waited > WARN_SECONDS and not self.has_warned:
            self.has_warned = True
            advice = f"Perhaps it is busy: ray status. The comparison waits for {minutes}."
            reason = f"the Ray cluster has started no process yet: {demand}. {advice}"
            self.on_event({"event": "waiting", "reason": reason})


def _make_runtime_env() -> dict[str, dict[str, str]]:
    """Returns the variables that limit how long waiting threads of a process spin.

    PyTorch reads them when it is imported, before `__init__` of a process: so Ray has to set them.
    """
    name, _, value = environment.get_spin_setting().partition("=")
    variables = {name: value} if name else {}
    environment.limit_spinning(variables)
    return {"env_vars": variables}


def _describe_demand(slots: Sequence[Slot]) -> str:
    """Returns `a job needs 2 cores and 1 GPU on one of 2 nodes`."""
    slot = slots[0]
    gpus = f" and {slot.gpus:g} GPU{'s' if slot.gpus > 1 else ''}" if slot.gpus else ""
    names = sorted({each.node.name for each in slots})
    where = f"on {names[0]}" if len(names) == 1 else f"on one of {len(names)} nodes"
    return f"a job needs {slot.cores:g} core{'s' if slot.cores != 1 else ''}{gpus} {where}"


@dataclass
class _RayWorker:
    """The engine's side of a process."""

    slot: Slot
    process: Any
    job: Job | None = None
    ticket: int = 0  # of the job, so that a repeated poll starts it once; 0: no job yet
    poll: Any = None  # unanswered
    has_started: bool = False
    last_progress: Event | None = None
    last_answer: float = 0.0  # time; 0: never

    def assign(self, job: Job) -> None:
        self.job, self.ticket = job, self.ticket + 1
        self.has_started, self.last_progress = False, None


class _WorkerProcess:
    """A process of the cluster. It executes the job of the poll in a thread, and answers with its progress."""

    def __init__(
        self, folder: str, working_folder: str, threads: int, nproc: int, lease: float, variables: dict[str, str]
    ):
        self.folder, self.threads, self.lease = Path(folder), threads, lease
        os.environ.update(variables)
        with suppress(OSError):
            os.chdir(working_folder)  # the data may be a relative path
        os.environ["OMP_NUM_THREADS"] = str(max(1, threads // nproc))  # of the processes of --nproc
        with suppress(Exception):  # standard error may have no file
            faulthandler.enable()
        self.ticket = 0
        self.should_stop = False
        self.last_poll = time.monotonic()
        self.progress: Event | None = None
        self.result: Event | None = None
        threading.Thread(target=self._watch_lease, daemon=True).start()

    def poll(self, ticket: int, job: Job | None, should_stop: bool) -> dict[str, Any]:
        """Starts the job, unless a poll with its ticket has; returns its progress and, at the end, its result."""
        self.last_poll, self.should_stop = time.monotonic(), should_stop
        if job is not None and ticket != self.ticket:
            self.ticket, self.progress, self.result = ticket, None, None
            threading.Thread(target=self._execute, args=(job,), daemon=True).start()
        return {"pid": os.getpid(), "progress": self.progress, "result": self.result}

    def _execute(self, job: Job) -> None:
        torch.set_num_threads(self.threads)

        def should_stop() -> bool:
            return self.should_stop or self._count_seconds_since_poll() > self.lease

        try:
            self.result = execute_to_event(self.folder, job, self._report, should_stop)
        except BaseException as error:  # such as a folder that cannot be written: the engine decides
            self.result = {"event": "lost", "reason": f"by {type(error).__name__}: {error}"}

    def _report(self, event: Event) -> None:
        self.progress = event

    def _count_seconds_since_poll(self) -> float:
        return time.monotonic() - self.last_poll

    def _watch_lease(self) -> None:
        """Exits if the job still runs when the engine may have resumed it elsewhere: a step may exceed the lease."""
        while True:
            time.sleep(1)
            if self.ticket and self.result is None and self._count_seconds_since_poll() > 2 * self.lease:
                os._exit(1)
