"""A process that carries out jobs, one after another: `python -m seqwise.compare.run.worker FOLDER`.

Jobs come as JSON lines on standard input, what happens goes as JSON lines to standard output. It reads the data once
and keeps it between jobs. When its input ends, because its owner wants so or is gone, it saves what it has and leaves.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqwise.compare.run.execute import Interrupted, Lost, execute
from seqwise.compare.run.jobs import Job
from seqwise.training.signals import defer_interrupts

STOPPED = 130


def main(folder: Path) -> int:
    """Work until the input ends; exit status."""
    tell = _own_output()
    faulthandler.enable()
    jobs: queue.Queue[Job | None] = queue.Queue()
    ended = threading.Event()
    threading.Thread(target=_read, args=(jobs, ended), daemon=True).start()
    with defer_interrupts() as asked:
        tell({"event": "ready"})
        while (job := jobs.get()) is not None:
            about = {"kind": job.kind, "name": job.name}

            def report(event: dict[str, Any], about: dict[str, Any] = about) -> None:
                tell({"event": "progress", **about, **event})

            tell({"event": "begin", **about, "pid": os.getpid()})
            try:
                outcome = execute(folder, job, report, lambda: asked() or ended.is_set())
            except Interrupted:
                return STOPPED
            except Lost as error:
                tell({"event": "lost", **about, "reason": str(error)})
                continue
            tell({"event": "end", **about, "status": outcome.status, "reason": outcome.reason})
    return 0


def _own_output() -> Callable[[dict[str, Any]], None]:
    """A way to tell the owner; what anybody else prints goes to standard error instead of between the lines."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        try:
            pipe.write(json.dumps(event) + "\n")
            pipe.flush()
        except BrokenPipeError:
            pass  # the owner is gone: standard input ends too

    return tell


def _read(jobs: queue.Queue[Job | None], ended: threading.Event) -> None:
    for line in sys.stdin:
        jobs.put(Job(**json.loads(line)))
    ended.set()
    jobs.put(None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
