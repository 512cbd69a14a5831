"""`python -m seqwise` and the installed command `seqwise`: the process around `seqwise.cli.main`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # exit status: 128 + SIGINT, also for SIGTERM
IMPORT_MODULE = "importlib._bootstrap"


def run() -> None:
    """Runs the command line of this process and exits with its status."""
    _handle_signals(interrupt)
    from seqwise.cli.main import main

    status = main()
    _handle_signals(signal.SIG_DFL)  # an exception would be printed with a traceback
    if "LOCAL_RANK" in os.environ:
        # One of several processes: threads of gloo that are still running would abort the interpreter while it shuts
        # down, and everything is already saved and printed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _handle_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signal_number) is not signal.SIG_IGN:  # as in a background job of a shell script
            signal.signal(signal_number, handler)


def interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, which the command line reports; while a module is imported, exits at once instead.

    An import that an exception interrupts may turn it into another error, and has nothing to clean up. Commands that
    save something have their own handlers later (`handle_signals`).
    """
    caller = frame
    while caller is not None:
        if caller.f_globals.get("__name__") == IMPORT_MODULE:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"interrupted.\n")
            os._exit(INTERRUPTED)
        caller = caller.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    run()
