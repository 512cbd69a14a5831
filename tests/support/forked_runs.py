"""`seqwise` in children of a `fork_server`, which tests start, signal and wait for."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fork_server import NOT_PERMITTED
from live_runs import get_saved_step

from seqwise.training.checkpoints import NUM_CHECKPOINTS

MAX_SECONDS = 10.0  # from a signal to the end of the process
SECONDS = 600.0  # after which a process counts as hanging; the machine may be busy


class ForkServer:
    """Starts `seqwise ARGUMENTS` in forks of one process. The commands of `warm_up` run in that process itself."""

    def __init__(self, folder: Path, warm_up: list[list[str]]):
        self.folder, self.num_started = folder, 0
        program = Path(__file__).with_name("fork_server.py")
        source = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(warm_up)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source},
        )  # fmt: skip
        ready = self._read_answer()
        assert ready["statuses"] == [0] * len(warm_up)
        assert ready["threads"] == 1, "a fork would lack the other threads"

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the fork server has ended: {self._process.poll()}"
        return json.loads(line)

    def start(self, *arguments: str | Path, environment: dict[str, str] | None = None, **options: Any) -> ForkedRun:
        """Starts a command; for `options` see `fork_server.run`."""
        self.num_started += 1
        stderr = self.folder / f"{self.num_started}.stderr"
        stderr.touch()  # a process may be killed before it opens the file
        request = {"arguments": list(map(str, arguments)), "stderr": str(stderr), **options}
        variables = {"SEQWISE_CACHE": os.environ["SEQWISE_CACHE"], **(environment or {})}
        return ForkedRun(self, self.ask({**request, "environment": variables})["pid"], stderr)

    def run(self, *arguments: str | Path, **options: Any) -> tuple[int, str]:
        """Runs a command to its end; returns its exit status and standard error."""
        return self.start(*arguments, **options).finish()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)


@dataclass
class ForkedRun:
    """A running command."""

    server: ForkServer
    pid: int
    stderr: Path
    status: int | None = field(default=None)

    def send_signal(self, number: int) -> None:
        """Sends a signal. The process id stays that of the child until `finish` or `poll` has seen its end."""
        os.kill(self.pid, number)

    def poll(self, seconds: float = 0.0) -> int | None:
        """Returns the exit status; None if the process is still running after some seconds."""
        if self.status is None:
            self.status = self.server.ask({"wait": {"pid": self.pid, "seconds": seconds}})["status"]
        return self.status

    def finish(self, seconds: float = SECONDS) -> tuple[int, str]:
        """Waits for the end; returns the exit status and standard error."""
        status = self.poll(seconds)
        if status is None:
            self.send_signal(signal.SIGKILL)
            self.poll(SECONDS)
            raise AssertionError(f"still running after {seconds} s: {self.stderr.read_text()}")
        if status == NOT_PERMITTED:
            pytest.skip("this system does not let a user mount a file system")
        return status, self.stderr.read_text(errors="replace")

    def wait_until(self, condition: Any) -> None:
        """Polls until `condition()` is true; fails if the process ends before that."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert self.poll() is None, f"ended with {self.status}: {self.stderr.read_text()}"
            assert time.monotonic() < deadline, "nothing happened"
            time.sleep(0.001)


def read_result(folder: Path) -> dict[str, Any]:
    """Returns what must be byte-identical however often a run was interrupted, and the names of all its files."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(list(folder.glob("checkpoints/*"))) <= NUM_CHECKPOINTS
    summary = json.loads((folder / "summary.json").read_text())
    newest = folder / f"checkpoints/step-{get_saved_step(folder)}/tensors.safetensors"
    return {
        "weights": (folder / "model.safetensors").read_bytes(),
        "state": newest.read_bytes() if newest.exists() else None,  # an n-gram model has no checkpoints
        "metrics": [(row["step"], row["tokens"], row["loss"], row["validation"], row["best"]) for row in rows],
        "ended": rows[-1]["ended"],
        "summary": (summary["validation"], summary["share"], summary["final"], summary["step"]),
        "config": (folder / "config.yaml").read_text().split("\nrun:")[0],
        "files": sorted(path.name for path in folder.iterdir()),
    }


@dataclass
class TrainingCase:
    """A short training run that tests interrupt: the arguments of `seqwise train` without --out, and its result."""

    server: ForkServer
    root: Path
    arguments: list[str]
    result: dict[str, Any] = field(init=False)
    seconds: float = field(init=False)
    num_folders: int = 0

    def __post_init__(self) -> None:
        """Runs it once without a fault."""
        folder, start = self.new_folder(), time.monotonic()
        status, stderr = self.server.run(*self.build_command(folder))
        self.seconds = time.monotonic() - start
        assert status == 0, stderr
        self.result = read_result(folder)

    def new_folder(self) -> Path:
        self.num_folders += 1
        return self.root / f"run-{self.num_folders}"

    def build_command(self, folder: Path) -> list[str]:
        """Returns the command that continues with a folder: the first one again until the run exists, then --resume."""
        if (folder / "config.yaml").exists():
            return ["train", "--resume", str(folder)]
        return ["train", *self.arguments, "--out", str(folder)]

    def start(self, folder: Path, **options: Any) -> ForkedRun:
        return self.server.start(*self.build_command(folder), **options)

    def signal_at_random(self, folder: Path, number: int, generator: random.Random) -> tuple[int, str]:
        """Starts, and sends a signal after a random time, unless the process has ended; returns as `finish` does.

        The longest time follows the speed of a busy machine, so that all parts of a run are interrupted.
        """
        process = self.start(folder)
        if process.poll(generator.uniform(0, self.seconds)) is None:
            process.send_signal(number)
            self.seconds *= 1.1
        else:
            self.seconds *= 0.8
        return process.finish(MAX_SECONDS)

    def start_with_fault(self, folder: Path, action: str = "", at: int = 0) -> ForkedRun:
        """Starts with an empty cache and an action at operation `at` on the files of the run or the cache."""
        cache = folder.with_suffix(".cache")
        shutil.rmtree(cache, ignore_errors=True)
        faults = {"folders": [str(folder), str(cache)], "log": str(self.log), "action": action, "at": at}
        return self.start(folder, faults=faults, environment={"SEQWISE_CACHE": str(cache)})

    def list_operations(self) -> list[str]:
        """Returns the operations on files of a whole run without a fault, in their order."""
        folder = self.new_folder()
        status, stderr = self.start_with_fault(folder).finish()
        assert status == 0, stderr
        self.check(folder)
        return self.log.read_text().splitlines()

    @property
    def log(self) -> Path:
        """The file of the operations of the last process with a fault."""
        return self.root / "operations"

    def check(self, folder: Path) -> None:
        """Asserts that a finished run is identical to the run without a fault; removes it."""
        actual = read_result(folder)
        for key in self.result:
            assert actual[key] == self.result[key], key
        shutil.rmtree(folder)

    def finish(self, folder: Path) -> None:
        """Runs to the end without a fault, and checks the result."""
        status, stderr = self.start(folder).finish()
        assert status == 0, stderr
        self.check(folder)


def draw_seed() -> int:
    """Returns the seed of random faults, of $SEQWISE_FAULTS_SEED or a new one; it is in the output of a failed test."""
    seed = int(os.environ.get("SEQWISE_FAULTS_SEED") or random.SystemRandom().randrange(2**32))
    print(f"to repeat these faults: SEQWISE_FAULTS_SEED={seed}")  # noqa: T201 - in the output of a failed test
    return seed
