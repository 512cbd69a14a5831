"""Runs commands on malicious files: each in a fork of one warm process, with limits, in a folder that is compared.

A case writes files below a root folder and names a command. `Server.run` returns what the command printed, its exit
status, the memory that it added, and what it changed outside the folders in which it may write.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SUPPORT = Path(__file__).parent
PACKAGE = Path(str(find_spec("seqwise").origin)).parent.parent  # of the parent process, for the children
CANARY = "canary"  # a file that the code in malicious files would create in the root folder
INPUT = "a/b/c"  # where the files are, so that ../../x is still inside the root folder
WRITABLE = ("cache", "out", "home")  # folders in the root folder that a command may change
MAX_SECONDS = 20  # of processor time
MAX_WAIT = 60.0  # seconds
MAX_ADDRESS_SPACE = 3 << 30  # bytes beyond those of the warm process


@dataclass(frozen=True)
class Case:
    """A malicious file and the command that reads it. `{}` in an argument is the folder of the files."""

    name: str
    write: Callable[[Path], object]  # into the folder INPUT of the root folder
    command: Sequence[str]
    names: str = ""  # the part of a path that an error must name
    before: Sequence[str] = ()  # a command that succeeds first, on valid files
    tamper: Callable[[Path], object] | None = None  # changes files in the root folder after that
    can_fail: bool = True
    can_succeed: bool = True
    is_exact: bool = False  # the output is read by other programs: a file gets exactly what the model answers


@dataclass(frozen=True)
class Result:
    """What a command did."""

    status: int  # negative: killed by this signal
    output: str  # standard output and standard error
    memory: int  # bytes that were added
    is_late: bool  # it was killed because it did not end


class Server:
    """A process that has imported everything and forks for each command."""

    def __init__(self, log: Path):
        environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{SUPPORT}", "OMP_NUM_THREADS": "1"}
        self.log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment,
            text=True,
        )

    def run(self, root: Path, command: Sequence[str]) -> Result:
        """Runs a command in the folder INPUT of a root folder."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(root), list(command)]) + "\n")
        self.process.stdin.flush()
        return Result(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.log.close()


def describe_tree(root: Path) -> dict[str, str]:
    """Returns the content of every file and the target of every link, outside the folders that may change."""
    found = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in WRITABLE]
        for name in [*files, *folders]:
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path)] = f"link to {os.readlink(path)}"
            elif path.is_file():
                found[str(path)] = hashlib.blake2b(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = "folder" if path.is_dir() else "special"
    return found


# In the warm process


def serve() -> None:
    """Reads commands from standard input, and writes a result for each."""
    import seqwise.cli.check
    import seqwise.cli.compare
    import seqwise.cli.evaluate
    import seqwise.cli.inspect
    import seqwise.cli.predict
    import seqwise.cli.train
    import seqwise.compare.report.gather
    import seqwise.lens.training
    import seqwise.tasks.caption.task
    import seqwise.training.check
    import seqwise.vectors.formats.text  # noqa: F401

    for line in sys.stdin:
        root, command = json.loads(line)
        sys.stdout.write(json.dumps(fork(Path(root), command)) + "\n")
        sys.stdout.flush()


def fork(root: Path, command: list[str]) -> dict[str, object]:
    """Runs a command in a child and waits for it."""
    output = root / "home" / "output.txt"
    output.parent.mkdir(exist_ok=True)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()).encode())
        run_command(root, command, output)
    size = int(os.read(reader, 100))  # of the child, before it does anything
    os.close(reader)
    os.close(writer)
    deadline, is_late = time.monotonic() + MAX_WAIT, False
    while True:
        waited, status, usage = os.wait4(child, os.WNOHANG)
        if waited:
            break
        if time.monotonic() > deadline:
            is_late = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "output": output.read_text(encoding="utf-8", errors="replace"),
        "memory": (usage.ru_maxrss << 10) - size,
        "is_late": is_late,
    }


def run_command(root: Path, command: list[str], output: Path) -> None:
    """Runs a command in this process, which it ends."""
    from seqwise.cli.main import main

    status = 99
    try:
        folder = root / INPUT
        os.chdir(folder)
        os.environ.update(SEQWISE_CACHE=str(root / "cache"), HOME=str(root / "home"))
        file = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(source, target)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MAX_ADDRESS_SPACE, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = main(command)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve()
