"""The worker process of a lane: reads requests from standard input, computes them one by one, and writes events.

A request is a line of JSON: {"id": 1, "target": "predictions:predict", "arguments": {…}}; {"cancel": 1} stops one. An
event is a line with the id of its request and one of `progress` ([done, total]), `emitted` (a partial result), `result`
and `error`. The process ends with its standard input, so that it never outlives the server.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from seqwise.environment import limit_spinning
from seqwise.errors import SeqwiseError
from seqwise.page.figures import to_plain

if TYPE_CHECKING:
    from seqwise.training.api import TrainedModel

MAX_MODELS = 3  # in memory


class Cancelled(Exception):
    """The page no longer waits for the result."""


class Context:
    """What a function gets from its worker: loaded runs, progress and partial results."""

    def __init__(self, send: Callable[[dict[str, Any]], None]):
        self._send = send
        self._models: dict[str, tuple[tuple, TrainedModel]] = {}  # by folder; the one that was used last is the last
        self.request = 0
        self.cancelled: set[int] = set()

    def load(self, folder: str) -> TrainedModel:
        """Returns the model of a run, or the best of a comparison; loaded again if its weights have changed."""
        from seqwise.compare.loading import load

        self.check_cancelled()
        mark = _read_mark(Path(folder))
        known = self._models.pop(folder, None)
        if known is None or known[0] != mark:
            known = mark, load(folder, "auto")
        self._models[folder] = known
        while len(self._models) > MAX_MODELS:
            del self._models[next(iter(self._models))]
        return known[1]

    def report_progress(self, done: float, total: float | None = None) -> None:
        """Shows progress; raises `Cancelled` if the page no longer waits. It is a `ProgressCallback`."""
        self.check_cancelled()
        self._send({"id": self.request, "progress": [done, total]})

    def emit(self, value: Any) -> None:
        """Sends a partial result to the page."""
        self._send({"id": self.request, "emitted": to_plain(value)})

    def check_cancelled(self) -> None:
        """Raises `Cancelled` if the page no longer waits for the result."""
        if self.request in self.cancelled:
            raise Cancelled


def _read_mark(folder: Path) -> tuple:
    marks = []
    for name in ("config.yaml", "compare.yaml", "model.safetensors", "summary.json"):
        with suppress(OSError):
            status = (folder / name).stat()
            marks.append((name, status.st_size, status.st_mtime_ns))
    return tuple(marks)


def compute(context: Context, target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Calls a function and returns its last event, without the id."""
    try:
        module, _, name = target.partition(":")
        function = getattr(import_module(f"seqwise.studio.work.{module}"), name)
        return {"result": to_plain(function(context, **arguments))}
    except Cancelled:
        return {"error": {"problem": "cancelled.", "fix": ""}}
    except SeqwiseError as error:
        return {"error": describe_error(error)}
    except MemoryError:
        return {"error": {"problem": "there is not enough memory.", "fix": "Use a shorter text or a smaller model."}}
    except Exception as error:
        traceback.print_exc()
        problem = f"unexpected {type(error).__name__}: {error}"
        return {"error": {"problem": problem, "fix": "This is a bug in Seqwise; the terminal shows the traceback."}}


def describe_error(error: SeqwiseError) -> dict[str, Any]:
    """Returns an error as JSON values."""
    file = "" if error.file is None else str(error.file)
    return {"problem": error.problem, "fix": error.fix or "", "file": file, "line": error.line}


def serve(requests: BinaryIO, events: BinaryIO) -> None:
    """Answers requests until their end."""
    mutex = threading.Lock()

    def send(event: dict[str, Any]) -> None:
        with mutex:
            events.write(json.dumps(event, allow_nan=False, default=str).encode() + b"\n")
            events.flush()

    context = Context(send)
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        try:
            for line in requests:
                message = json.loads(line)
                if "cancel" in message:
                    context.cancelled.add(message["cancel"])
                else:
                    waiting.put(message)
        finally:  # the server has ended, perhaps in the middle of a line; a computation may still run
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        message = waiting.get()
        context.request = message["id"]
        event = compute(context, message["target"], message["arguments"])
        context.cancelled.discard(message["id"])
        send({"id": message["id"], **event})


def main() -> None:
    """Runs the worker. What a library prints goes to standard error."""
    limit_spinning()
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, events)


if __name__ == "__main__":
    main()
