"""Computations in worker processes end when the client has left, when they take too long, and with the server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from async_calls import run_async

from seqwise.errors import SeqwiseError
from seqwise.studio import checks
from seqwise.studio.app import build_app
from seqwise.studio.functions import Function, Request
from seqwise.studio.limits import BusyError
from seqwise.studio.services import Services
from seqwise.studio.workers import Worker


class FakeProcess:
    """A worker process that sends one event and then nothing."""

    returncode = None

    def __init__(self):
        self.stdin, self.stdout, self.is_killed = self, asyncio.StreamReader(), False
        self.stdout.feed_data(json.dumps({"id": 1, "progress": [1, 2]}).encode() + b"\n")

    def write(self, line: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass

    def kill(self) -> None:
        self.is_killed = True

    async def wait(self) -> int:
        return -9


def test_a_computation_that_takes_too_long_ends_also_if_another_task_waits_for_it(monkeypatch):
    monkeypatch.setattr("seqwise.studio.workers.CANCEL_SECONDS", 0.01)

    async def run():
        worker, process = Worker("use"), FakeProcess()
        worker._process = process
        events = worker.call(Function(Request, "x:y", "use", max_seconds=0.05), {})
        first = await asyncio.create_task(anext(events))
        second = await asyncio.create_task(anext(events))
        await events.aclose()
        await worker._cancelling
        return first, second, process.is_killed

    first, second, is_killed = run_async(asyncio.wait_for(run(), 10))
    assert first == {"progress": [1, 2]}
    assert "longer than" in second["error"]["problem"]
    assert is_killed


class EndlessWorkers:
    """Workers whose computations send nothing until they are cancelled."""

    def __init__(self):
        self.num_running = 0

    async def call(self, function, arguments):
        self.num_running += 1
        try:
            await asyncio.Event().wait()
            yield {}
        finally:
            self.num_running -= 1


def test_a_page_that_leaves_before_the_first_event_cancels_the_computation(tmp_path):
    async def run():
        services = Services.create([tmp_path])
        services.workers = workers = EndlessWorkers()
        body = json.dumps({"id": "A1"}).encode()
        messages = [{"type": "http.request", "body": body}]

        async def receive():
            if messages:
                return messages.pop()
            while not workers.num_running:
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message):
            pass

        path = "/api/call/run_experiment"
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
        await build_app(services)(scope, receive, send)
        services.uploads.close()
        return workers.num_running, messages

    assert run_async(asyncio.wait_for(run(), 20)) == (0, [])


def test_a_worker_ends_with_its_server_even_in_the_middle_of_a_request():
    command = [sys.executable, "-m", "seqwise.studio.worker"]
    completed = subprocess.run(command, input=b'{"id": 1, "targ', capture_output=True, timeout=60)
    assert completed.returncode == 0


def test_checks_that_wait_are_limited_and_one_that_takes_too_long_is_killed(monkeypatch):
    monkeypatch.setattr(checks, "build_command", lambda arguments: ["sleep", "60"])
    monkeypatch.setattr(checks, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(checks, "MAX_WAITING", 1)

    async def is_cancelled() -> bool:
        return False

    async def run():
        own = checks.Checks()
        first = asyncio.create_task(own.run([], is_cancelled))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await own.run([], is_cancelled)
        with pytest.raises(SeqwiseError, match="takes longer"):
            await first
        assert own._num_waiting == 0

    run_async(asyncio.wait_for(run(), 20))
