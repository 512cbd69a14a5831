"""Worker processes, one per lane: started when they are needed, replaced when they die, ended with the server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from seqwise.studio.functions import Function
from seqwise.studio.limits import BusyError
from seqwise.studio.processes import build_environment

MAX_WAITING = 16  # requests of a lane that wait
CANCEL_SECONDS = 3.0  # for a computation to notice that it is cancelled, before its process is killed
MAX_EVENT_BYTES = 64 << 20  # of a line
MAX_CACHE_BYTES = 16 << 20  # of results that are remembered: all statements of the lab need 5 MB

Event = dict[str, Any]


class Worker:
    """The process of a lane; it computes one request at a time."""

    def __init__(self, name: str):
        self.name = name
        self._process: asyncio.subprocess.Process | None = None
        self._mutex = asyncio.Lock()
        self._number = 0
        self._num_waiting = 0
        self._cancelling: asyncio.Task[None] | None = None  # ends the computation that was cancelled last

    async def call(self, function: Function, arguments: dict[str, Any]) -> AsyncGenerator[Event]:
        """Yields the events of a computation; the last one has a `result` or an `error`.

        If the caller stops early, the computation is cancelled.
        """
        if self._num_waiting >= MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} requests are waiting already.", fix="Wait for their results.")
        self._num_waiting += 1
        try:
            async with self._mutex:
                if self._cancelling is not None:
                    await asyncio.shield(self._cancelling)
                self._number += 1
                is_done, end = False, asyncio.get_running_loop().time() + function.max_seconds
                try:
                    async for event in self._exchange(function.target, arguments, end):
                        is_done = "result" in event or "error" in event
                        yield event
                except TimeoutError:
                    yield _build_error(f"the computation took longer than {function.max_seconds:.0f} seconds.")
                finally:
                    if not is_done:  # a caller that is cancelled itself cannot wait for this, the next call does
                        self._cancelling = asyncio.create_task(self._cancel(self._number))
        finally:
            self._num_waiting -= 1

    async def _exchange(self, target: str, arguments: dict[str, Any], end: float) -> AsyncGenerator[Event]:
        """Yields the events; raises `TimeoutError` at the time `end`.

        Nothing is yielded inside `asyncio.timeout`: it would cancel the task that asked for the first event, and
        another one may ask for the others.
        """
        process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        message = {"id": self._number, "target": target, "arguments": arguments}
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            async with asyncio.timeout_at(end):
                await process.stdin.drain()
            while True:
                async with asyncio.timeout_at(end):
                    line = await process.stdout.readline()
                if not line:
                    break
                event = json.loads(line)
                if event.pop("id") == self._number:
                    yield event
                    if "result" in event or "error" in event:
                        return
        except TimeoutError:
            raise
        except (OSError, ValueError):
            pass  # it has ended, or its answer is too long
        status = await self._kill()
        reason = "killed, perhaps because there is not enough memory" if status == -9 else f"exit status {status}"
        yield _build_error(f"the process that computes has ended ({reason}).")

    async def _start(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            # -P: a file torch.py in the working folder is not imported.
            command = [sys.executable, "-P", "-m", "seqwise.studio.worker"]
            environment = build_environment()
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=MAX_EVENT_BYTES, env=environment, start_new_session=True
            )
        return self._process

    async def _cancel(self, number: int) -> None:
        """Asks the process to stop a computation, and kills it if it does not."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None or process.stdout is None:
            return
        with suppress(OSError, TimeoutError, ValueError):
            process.stdin.write(json.dumps({"cancel": number}).encode() + b"\n")
            async with asyncio.timeout(CANCEL_SECONDS):
                while line := await process.stdout.readline():
                    event = json.loads(line)
                    if event["id"] == number and ("result" in event or "error" in event):
                        return
        await self._kill()

    async def _kill(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()

    async def close(self) -> None:
        """Ends the process."""
        await self._kill()


class Workers:
    """The workers of all lanes, and the results of functions that are cached."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._results: dict[str, bytes] = {}  # by function and arguments; the one that was used last is the last

    async def call(self, function: Function, arguments: dict[str, Any]) -> AsyncGenerator[Event]:
        """Yields the events of a computation in the worker of its lane, or at once the result of an earlier one."""
        key = json.dumps([function.target, arguments], sort_keys=True)
        if (known := self._results.pop(key, None)) is not None:
            self._results[key] = known
            yield json.loads(known)
            return
        worker = self._workers.setdefault(function.lane, Worker(function.lane))
        async with aclosing(worker.call(function, arguments)) as events:
            async for event in events:
                if function.is_cached and "result" in event:
                    self._remember(key, json.dumps(event).encode())
                yield event

    def _remember(self, key: str, event: bytes) -> None:
        self._results[key] = event
        while sum(map(len, self._results.values())) > MAX_CACHE_BYTES:
            del self._results[next(iter(self._results))]

    async def close(self) -> None:
        """Ends all processes."""
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))


def _build_error(problem: str) -> Event:
    return {"error": {"problem": problem, "fix": "Try again; if it happens again, use less text or a smaller model."}}
