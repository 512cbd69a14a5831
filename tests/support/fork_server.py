"""A process that has imported PyTorch and Seqwise and forks a child for each command: it starts in milliseconds.

It reads requests from standard input, one JSON object per line, and answers each with one: `forked_runs.py` is its
client. It has one thread, so that a fork is a complete process; a child is killed as any other process. The compiled
functions of recurrent layers are inherited, which saves a second in each child.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1  # of prctl: the signal that a child gets when its parent ends
MS_RDONLY, MS_REMOUNT = 1, 32  # flags of mount
NOT_PERMITTED = 77  # exit status: this system does not let the user mount a file system
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # of unshare: mounts, and users, of its own


def serve(warm_up: list[list[str]]) -> None:
    """Runs the warm-up commands in this process, then answers requests until standard input ends."""
    end_with_parent()
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    import torch._dynamo  # which optimisers import when they are first used

    from seqwise.cli import main, progress, train  # noqa: F401 - imported once, for all children

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    statuses = [main.main(arguments) for arguments in warm_up]
    deadline = time.monotonic() + 10
    while (num_threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # until threads of the warm-up have ended
    os.write(answers, json.dumps({"statuses": statuses, "threads": num_threads}).encode() + b"\n")
    for line in sys.stdin:
        request = json.loads(line)
        answer = wait(**request["wait"]) if "wait" in request else {"pid": fork(request)}
        os.write(answers, json.dumps(answer).encode() + b"\n")


def wait(pid: int, seconds: float) -> dict[str, Any]:
    """Returns the exit status of a child and its processor time; a status of None if it is still running."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return {"status": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime}
        if time.monotonic() > deadline:
            return {"status": None}
        time.sleep(0.002)


def fork(request: dict[str, Any]) -> int:
    """Starts a child; returns its process id."""
    if pid := os.fork():
        return pid
    status = 70
    try:
        end_with_parent()
        status = run(**request)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def end_with_parent() -> None:
    """Lets the kernel kill this process when the one that started it ends, as after Ctrl-C."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(
    arguments: list[str],
    stderr: str,
    environment: dict[str, str],
    faults: dict[str, Any] | None = None,
    disk: dict[str, Any] | None = None,
    record: str = "",
) -> int:
    """Runs `seqwise ARGUMENTS` in this process; returns its exit status."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, path in ((0, os.devnull), (1, f"{stderr}.stdout"), (2, stderr)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if descriptor else 0)), descriptor)
    os.environ.update(environment)
    if disk is not None:
        mount_disk(**disk)
    if record:
        record_samples(record)
    if faults is not None:
        from faulty_files import FaultyFiles

        FaultyFiles(**faults).install()
    sys.argv = ["seqwise", *arguments]
    status = 0
    try:
        runpy.run_module("seqwise", run_name="__main__")
    except SystemExit as end:
        status = int(end.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    if disk is not None:  # it ends with this process
        shutil.copytree(disk["folder"], f"{disk['folder']}.copy", dirs_exist_ok=True)
    return status


def mount_disk(folder: str, options: str = "", content: str = "", read_only: bool = False) -> None:
    """Mounts a small file system in memory over a folder, for this process alone; `content` is copied to it."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNS | CLONE_NEWUSER):
        os._exit(NOT_PERMITTED)
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(line)
    if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, options.encode()):
        os._exit(NOT_PERMITTED)
    if content:
        shutil.copytree(content, folder, dirs_exist_ok=True)
    if read_only and libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MS_REMOUNT | MS_RDONLY, None):
        os._exit(NOT_PERMITTED)


def record_samples(path: str) -> None:
    """Appends a line to a file at each update: its step and the positions of its samples in the data."""
    from seqwise.training.loop import Trainer

    original = Trainer.compute_gradients

    def compute_gradients(self: Trainer, batch: Any) -> Any:
        positions = [] if batch.is_filler else batch.positions.tolist()
        with open(path, "a") as file:
            file.write(json.dumps([self.state.step + 1, self.world.rank, positions]) + "\n")
        return original(self, batch)

    Trainer.compute_gradients = compute_gradients  # type: ignore[method-assign]


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
