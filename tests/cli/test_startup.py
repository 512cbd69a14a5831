"""A signal at any moment of the start of a command ends it with one line and no traceback."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from live_runs import SMALL, finish, start, wait_until

# Sends a signal to itself when a module is about to be imported.
SIGNAL_AT_IMPORT = """
import os, runpy, sys

module, signal_number = sys.argv[1], int(sys.argv[2])

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal_number)

sys.meta_path.insert(0, Finder())
sys.argv[1:] = sys.argv[3:]
runpy.run_module("seqwise", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["seqwise.cli.main", "seqwise.cli.console", "tyro", "seqwise.budget", "torch"])
def test_a_signal_during_an_import_ends_the_command_quietly(module, signal_number):
    command = [sys.executable, "-c", SIGNAL_AT_IMPORT, module, str(int(signal_number)), "train", "builtin:docs"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "interrupted.\n")


def test_a_signal_between_imports_is_reported_by_the_command_line():
    code = (
        "import os, signal, sys\n"
        "from seqwise import __main__ as process\n"
        "import seqwise.cli.main as command_line\n"
        "command_line._dispatch = lambda words: os.kill(os.getpid(), signal.SIGTERM) or 0\n"
        "process.run()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "interrupted.\n")


def test_a_signal_that_the_parent_ignores_stays_ignored():
    code = (
        "import os, signal\n"
        "from seqwise import __main__ as process\n"
        "import seqwise.cli.main as command_line\n"
        "command_line._dispatch = lambda words: os.kill(os.getpid(), signal.SIGINT) or 0\n"
        "process.run()\n"
    )
    command = [sys.executable, "-c", code]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process inherits it
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_a_random_moment_of_the_start_ends_the_command_quietly(tmp_path, signal_number):
    generator = random.Random(int(signal_number))
    for number in range(6):
        folder = tmp_path / str(number)
        process = start("train", "builtin:docs", "--model", "gru", *SMALL, "--budget", "1h", "--out", folder)
        wait_until(lambda: handles_signals(process.pid), process)  # noqa: B023 - used at once
        time.sleep(generator.uniform(0, 6))
        process.send_signal(signal_number)
        status, stderr = finish(process)
        assert status == 130, stderr
        assert "Traceback" not in stderr
        assert stderr.splitlines()[-1].startswith(("interrupted.", "stopped and saved.")), stderr


def handles_signals(pid: int) -> bool:
    """Returns whether the process has a handler of SIGTERM, by the bit mask that Linux shows."""
    if not os.path.exists(f"/proc/{pid}/status"):
        return True
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
