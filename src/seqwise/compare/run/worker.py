"""A worker process that executes jobs, one after another: `python -m seqwise.compare.run.worker FOLDER`.

It reads jobs as JSON lines from standard input and writes events as JSON lines to standard output. The data is read
once and kept between jobs. When the input ends, because the engine stops it or was killed, the worker saves and exits.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import queue
import sys
import threading
from pathlib import Path

from seqwise.compare.run.execute import execute_to_event
from seqwise.compare.run.jobs import Event, Job, OnEvent
from seqwise.signals import defer_interrupts, suspend_with

STOPPED_STATUS = 130  # exit status


def main(folder: Path) -> int:
    """Executes jobs until the input ends; returns the exit status."""
    send = _open_event_pipe()
    faulthandler.enable()
    gc.freeze()  # modules are never garbage: the collection before each trial takes some milliseconds instead of 100
    jobs: queue.Queue[Job | None] = queue.Queue()
    input_ended = threading.Event()
    threading.Thread(target=_read_jobs, args=(jobs, input_ended), daemon=True).start()

    def report(progress: Event) -> None:
        send({"event": "progress", **progress})

    with defer_interrupts() as is_interrupted, suspend_with(lambda signal_number: None):
        while (job := jobs.get()) is not None:
            send({"event": "begin", "pid": os.getpid()})
            result = execute_to_event(folder, job, report, lambda: is_interrupted() or input_ended.is_set())
            if result["event"] == "stopped":
                return STOPPED_STATUS
            send(result)
    return 0


def _open_event_pipe() -> OnEvent:
    """Returns a function that writes events to standard output; other prints go to standard error instead."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(event: Event) -> None:
        try:
            pipe.write(json.dumps(event) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # the engine was killed: standard input ends too

    return send


def _read_jobs(jobs: queue.Queue[Job | None], input_ended: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(Job(**json.loads(line)))
    input_ended.set()
    jobs.put(None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
