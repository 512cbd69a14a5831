"""Jobs on a Ray cluster: one at a time on each device, in a process that stays from job to job.

The driver asks each process a few times a second how far it is. That question is also a lease: a process that nobody
asks saves what it has and stops, so that a job which goes on elsewhere, because its node was lost, never runs twice at
the same time. Ray itself restarts nothing here. What a cluster consists of is the matter of `cluster.py`.
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

from seqwise.compare.plan.plan import AT_ONCE, BESIDE, Plan, resume_command
from seqwise.compare.run.engine import DEATHS, Event, Listen, bury
from seqwise.compare.run.execute import Interrupted, Lost, execute
from seqwise.compare.run.jobs import Job
from seqwise.compare.run.ray_cluster import (
    Node,
    TrainerState,
    connect,
    in_words,
    library,
    look,
    nodes,
    on_node,
    places_on,
    unfit,
)
from seqwise.errors import SeqwiseError, UsageError
from seqwise.files import write_text
from seqwise.training.run import ENVIRONMENT

POLL = 0.2  # seconds between two questions
LEASE = 15.0  # seconds without a question after which a process stops its job; after twice as many it ends
GRACE = 60.0  # seconds in which jobs that were asked to stop have to save what they have
TELL = 15.0  # seconds without any process, after which it is told what is waited for
PATIENCE = 600.0  # and after which the comparison gives up: the cluster is busy with something else


class Ray:
    """Processes on a cluster, kept from one stage to the next. Nodes that join take part from the next stage on."""

    def __init__(self, folder: Path, workers: int | None = None):
        self.ray = library()
        self.folder, self.workers = folder.resolve(), workers
        self._connected = False  # by us
        self._processes = 1  # of one job
        self._nodes: list[Node] = []  # that can take part
        self._places: list[TrainerState] = []
        self._hands: dict[TrainerState, _Hand] = {}
        self._stillborn: dict[TrainerState, int] = {}  # processes of a place that ended before they said anything
        self._last_error = ""  # of such a process

    @property
    def places(self) -> int:
        return len(self._places) or self.workers or 1

    def run(self, jobs: Sequence[Job], listen: Listen, stop: Callable[[], bool]) -> None:
        self._join()
        stage = _Stage(self.folder, jobs, listen)
        alone = _Alone(listen)
        asked_at: float | None = None
        while stage.waiting or any(hand.job for hand in self._hands.values()):
            if asked_at is None and stop():
                asked_at = time.monotonic()
            if asked_at is not None:
                stage.waiting.clear()
                if time.monotonic() - asked_at > GRACE:
                    self._dismiss(list(self._hands))
                    return
            if stage.waiting:
                self._hire()
                alone.check(self._hands, self.folder)
            for hand in self._hands.values():
                if hand.heard and hand.job is None and (job := stage.next()):
                    hand.give(job)
            self._ask(stage, stopping=asked_at is not None)
            time.sleep(POLL)

    def close(self) -> None:
        self._dismiss(list(self._hands))
        if self._connected:
            self.ray.shutdown()
        self._connected, self._nodes = False, []

    # The cluster

    def _join(self) -> None:
        """See which nodes there are. At first all must be able to take part; of later ones, those that can do so."""
        self._connected = connect() or self._connected
        plan = Plan.open(self.folder)
        gpus = any(settings.device != "cpu" for settings in plan.families.values())
        there = nodes()
        useful = {place.node for place in places_on(there, self.workers, plan.nproc, gpus)}
        found = look(self.folder, plan.data, [node for node in there if node in useful and node not in self._nodes])
        if not self._nodes:
            if not useful:
                raise UsageError("the Ray cluster offers no processor for jobs.", repair="See: ray status")
            if problem := unfit(found, self.folder, plan.data):
                raise problem
            write_text(self.folder / ENVIRONMENT, json.dumps({"in_words": in_words(found)}, ensure_ascii=False) + "\n")
        able = [node for node, report in found.items() if unfit({node: report}, self.folder, plan.data) is None]
        self._nodes = [node for node in self._nodes if node in there] + able
        self._places = places_on(self._nodes, self.workers, plan.nproc, gpus)
        self._processes = plan.nproc
        self._dismiss([place for place in self._hands if place not in self._places])

    def _hire(self) -> None:
        """A process for each place that has none, on nodes that are alive."""
        if not self._usable():
            self._join()  # there may be nodes that were not needed before
        for place in self._usable():
            if place not in self._hands:
                self._hands[place] = _Hand(place, self._process(place))
        if not self._hands:
            repair = f"Go on when there is one, with: {resume_command(self.folder)}"
            problem = f"the Ray cluster has no node left on which jobs can run. {self._last_error}".strip()
            raise SeqwiseError(problem, repair=repair)

    def _usable(self) -> list[TrainerState]:
        alive = nodes()
        return [place for place in self._places if place.node in alive and self._stillborn.get(place, 0) < DEATHS]

    def _process(self, place: TrainerState) -> Any:
        options = {"num_cpus": place.cores, "num_gpus": place.gpus, "max_restarts": 0, "max_task_retries": 0}
        actor = self.ray.remote(_Process).options(**options, scheduling_strategy=on_node(place.node))
        neighbours = {BESIDE: str(place.beside), AT_ONCE: str(len(self._places))}
        return actor.remote(str(self.folder), os.getcwd(), place.threads, self._processes, LEASE, neighbours)

    def _dismiss(self, places: Sequence[TrainerState]) -> None:
        for place in places:
            with suppress(self.ray.exceptions.RayError):
                self.ray.kill(self._hands.pop(place).process)

    # What the processes say

    def _ask(self, stage: _Stage, stopping: bool) -> None:
        """Ask those that are new or have a job; those that have not answered yet are not asked twice."""
        hands = [hand for hand in self._hands.values() if hand.job is not None or not hand.heard]
        for hand in hands:
            if hand.question is None:
                hand.ask(stopping)
        questions = {hand.question: hand for hand in hands}
        answered, _ = self.ray.wait(list(questions), num_returns=len(questions), timeout=POLL) if hands else ([], [])
        for question in answered:
            hand, errors = questions[question], self.ray.exceptions
            hand.question = None
            try:
                answer = self.ray.get(question)
            except errors.ActorUnavailableError:
                continue  # the connection is disturbed: ask again, until Ray knows more
            except errors.RayError as error:
                self._lost(hand, stage, str(error))
            else:
                self._hear(hand, answer, stage)

    def _hear(self, hand: _Hand, answer: dict[str, Any], stage: _Stage) -> None:
        job, hand.heard = hand.job, time.monotonic()
        self._stillborn.pop(hand.place, None)
        if job is None:
            return
        if not hand.begun:
            hand.begun = True
            stage.tell(job, {"event": "begin", "pid": answer["pid"], "node": hand.place.node.name})
        if answer["progress"] is not None and answer["progress"] != hand.told:
            hand.told = answer["progress"]
            stage.tell(job, {"event": "progress", **hand.told})
        if answer["result"] is not None:
            hand.job = None
            stage.ended(job, answer["result"])

    def _lost(self, hand: _Hand, stage: _Stage, error: str) -> None:
        place = hand.place
        del self._hands[place]
        if hand.job is None:  # it never said a word: not the fault of any job
            self._stillborn[place] = self._stillborn.get(place, 0) + 1
            self._last_error = error.strip().rpartition("\n")[2]
            return
        gone = place.node not in nodes()
        reason = f"with its node {place.node.name}" if gone else f"on {place.node.name}"
        # A node that is only cut off may still be at work until its lease is over; processes of --nproc save first.
        lingers = gone or self._processes > 1
        stage.lost(hand.job, reason, earliest=hand.heard + 2 * LEASE + 1 if lingers else 0.0)


class _Stage:
    """The jobs of one call of `run` that wait for a process, and what is told about them."""

    def __init__(self, folder: Path, jobs: Sequence[Job], listen: Listen):
        self.folder, self.listen = folder, listen
        self.waiting = list(jobs)
        self.deaths = dict.fromkeys(jobs, 0)
        self.earliest = dict.fromkeys(jobs, 0.0)  # when it may be given away

    def next(self) -> Job | None:
        job = next((job for job in self.waiting if time.monotonic() >= self.earliest[job]), None)
        if job is not None:
            self.waiting.remove(job)
        return job

    def tell(self, job: Job, event: Event) -> None:
        self.listen({"kind": job.kind, "name": job.name, **event})

    def ended(self, job: Job, result: Event) -> None:
        if result["event"] == "end":
            self.tell(job, result)
        elif result["event"] == "broken":
            self.lost(job, result["reason"])
        else:
            self.waiting.append(job)  # stopped: on request, and `run` is about to end; or because nobody asked

    def lost(self, job: Job, reason: str, earliest: float = 0.0) -> None:
        self.tell(job, {"event": "lost", "reason": reason})
        self.deaths[job] += 1
        if self.deaths[job] < DEATHS:
            self.waiting.append(job)
            self.earliest[job] = earliest
        else:
            self.listen(bury(self.folder, job, reason))


class _Alone:
    """How long there has been no process at all, and what is said about it."""

    def __init__(self, listen: Listen):
        self.listen = listen
        self.since: float | None = None
        self.told = False

    def check(self, hands: dict[TrainerState, _Hand], folder: Path) -> None:
        """Raises when it has been too long."""
        if any(hand.heard for hand in hands.values()):
            self.since, self.told = None, False
            return
        now = time.monotonic()
        self.since = now if self.since is None else self.since
        if now - self.since > PATIENCE:
            raise SeqwiseError(
                f"the Ray cluster started no process within {PATIENCE / 60:g} minutes: {_wanted(hands)}.",
                repair=f"See what keeps it busy: ray status. Then go on with: {resume_command(folder)}",
            )
        if now - self.since > TELL and not self.told:
            self.told = True
            problem = f"the Ray cluster has started no process yet: {_wanted(hands)}. Perhaps it is busy: ray status."
            self.listen({"event": "waiting", "reason": f"{problem} It has {PATIENCE / 60:g} minutes."})


def _wanted(hands: dict[TrainerState, _Hand]) -> str:
    """`a job needs 2 cores and 1 GPU on one of 2 nodes`."""
    place = next(iter(hands))
    gpus = f" and {place.gpus:g} GPU{'s' if place.gpus > 1 else ''}" if place.gpus else ""
    names = sorted({each.node.name for each in hands})
    where = f"on {names[0]}" if len(names) == 1 else f"on one of {len(names)} nodes"
    return f"a job needs {place.cores:g} core{'s' if place.cores != 1 else ''}{gpus} {where}"


@dataclass
class _Hand:
    """The driver's side of a process."""

    place: TrainerState
    process: Any
    job: Job | None = None
    ticket: int = 0  # of the job, so that a question asked twice starts it once; 0: no job yet
    question: Any = None
    begun: bool = False
    told: Event | None = None
    heard: float = 0.0  # when it last answered; 0: never

    def give(self, job: Job) -> None:
        self.job, self.ticket, self.begun, self.told = job, self.ticket + 1, False, None

    def ask(self, stopping: bool) -> None:
        about = ("", "") if self.job is None else (self.job.kind, self.job.name)
        self.question = self.process.work.remote(self.ticket, *about, stopping)


class _Process:
    """A process of the cluster. It does the job it is asked about in a thread, and answers how far that is."""

    def __init__(self, folder: str, home: str, threads: int, processes: int, lease: float, neighbours: dict[str, str]):
        self.folder, self.threads, self.lease = Path(folder), threads, lease
        os.environ.update(neighbours)  # what a trial says about the circumstances of its measurements
        with suppress(OSError):
            os.chdir(home)  # data may be named relative to where the user is
        os.environ["OMP_NUM_THREADS"] = str(max(1, threads // processes))  # of the processes of --nproc
        with suppress(Exception):  # no file to write to
            faulthandler.enable()
        self.ticket, self.asked, self.heard = 0, False, time.monotonic()
        self.progress: Event | None = None
        self.result: Event | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def work(self, ticket: int, kind: Any, name: str, stop: bool) -> dict[str, Any]:
        self.heard, self.asked = time.monotonic(), stop
        if ticket != self.ticket:
            self.ticket, self.progress, self.result = ticket, None, None
            threading.Thread(target=self._carry_out, args=(Job(kind, name),), daemon=True).start()
        return {"pid": os.getpid(), "progress": self.progress, "result": self.result}

    def _carry_out(self, job: Job) -> None:
        torch.set_num_threads(self.threads)
        try:
            outcome = execute(self.folder, job, self._tell, lambda: self.asked or self._silence() > self.lease)
            self.result = {"event": "end", "status": outcome.status, "reason": outcome.reason}
        except Interrupted:
            self.result = {"event": "stopped"}
        except Lost as error:
            self.result = {"event": "broken", "reason": str(error)}
        except BaseException as error:  # the folder cannot be written, or the like: the driver decides
            self.result = {"event": "broken", "reason": f"by {type(error).__name__}: {error}"}

    def _tell(self, event: Event) -> None:
        self.progress = event

    def _silence(self) -> float:
        return time.monotonic() - self.heard

    def _watch(self) -> None:
        """End a job that goes on long after the driver must think it lost: a step may take longer than the lease."""
        while True:
            time.sleep(1)
            if self.ticket and self.result is None and self._silence() > 2 * self.lease:
                os._exit(1)
