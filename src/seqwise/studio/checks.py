"""Checks data before training: runs `seqwise check … --json` and returns what it reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from seqwise.errors import SeqwiseError
from seqwise.studio.limits import BusyError
from seqwise.studio.processes import build_command, build_environment, find_error

MAX_CHECKS = 2  # at the same time
MAX_WAITING = 16  # checks, with those that run
MAX_SECONDS = 600.0
POLL_SECONDS = 0.5
CANCELLED = {"errors": [{"problem": "the check was cancelled.", "fix": "", "file": "", "line": None}]}


class Checks:
    """Runs a few checks at the same time; the others wait."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_CHECKS)
        self._num_waiting = 0

    async def run(self, arguments: Sequence[str], is_cancelled: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        """Returns the facts about the data, or its errors, each with file and line; ends early if it is cancelled."""
        if self._num_waiting >= MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} checks are waiting already.", fix="Wait for their results.")
        self._num_waiting += 1
        try:
            return await self._run(arguments, is_cancelled)
        finally:
            self._num_waiting -= 1

    async def _run(self, arguments: Sequence[str], is_cancelled: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        async with self._slots:
            if await is_cancelled():
                return CANCELLED
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *build_command(arguments),
                stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=build_environment(),
                start_new_session=True,
            )  # fmt: skip
            task = asyncio.create_task(process.communicate())
            try:
                output, messages = await _wait(task, is_cancelled)
            except TimeoutError:
                problem = f"the check takes longer than {MAX_SECONDS / 60:.0f} minutes."
                raise SeqwiseError(problem, fix="Check the data in a terminal.") from None
            finally:
                task.cancel()
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        return _read_report(output, messages, process.returncode)


async def _wait(
    task: asyncio.Task[tuple[bytes, bytes]], is_cancelled: Callable[[], Awaitable[bool]]
) -> tuple[bytes, bytes]:
    async with asyncio.timeout(MAX_SECONDS):
        while not task.done():
            await asyncio.wait([task], timeout=POLL_SECONDS)
            if not task.done() and await is_cancelled():
                return json.dumps(CANCELLED).encode(), b""
    return task.result()


def _read_report(output: bytes, messages: bytes, status: int | None) -> dict[str, Any]:
    """Returns the JSON document of a check; without one, the error that ended it."""
    with suppress(ValueError, RecursionError):
        report = json.loads(output)
        if isinstance(report, dict):
            return report
    error = find_error(messages.decode(errors="replace"))
    if not error:
        raise SeqwiseError(f"the check ended with status {status}, without a message.", fix="Try it in a terminal.")
    problem, _, fix = error.partition("\n")
    return {"errors": [{"problem": problem, "fix": fix, "file": "", "line": None}]}
