"""Trainings and comparisons that were started from the page: ordinary commands, in processes of their own.

They do not end with the server: each runs in its own session, without standard input, and writes to a log file. The
folder of the runs has a record of each job, so that a server that starts later finds it again:

    .studio/jobs/NAME.json    the command, the folder that it writes, its process, and in the end its exit status
    .studio/jobs/NAME.log     what it printed

Once the folder of the run exists, its lock says whether it is trained (`seqwise/locks.py`), whichever process does it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from seqwise.budget import Budget
from seqwise.errors import SeqwiseError, UsageError
from seqwise.files import check_link, remove, write_text
from seqwise.locks import find_owner
from seqwise.studio.catalogue import COMPARISON_FILE, MAX_DEPTH, RUN_FILE, Catalogue, Entry
from seqwise.studio.forms import format_command
from seqwise.studio.limits import BusyError
from seqwise.studio.processes import (
    build_command,
    build_environment,
    find_error,
    find_working_folder,
    is_running,
    terminate,
    wait_until,
)

JobState = Literal["starting", "running", "finished", "stopped", "failed"]
JOBS_FOLDER = Path(".studio", "jobs")
MAX_RUNNING = 8  # processes at the same time
MAX_NAME_BYTES = 200  # of a folder; file systems allow 255, and temporary names are longer
MAX_RECORDS = 50  # of a folder; those of older jobs are removed
MAX_RECORD_BYTES = 100_000
TAIL_BYTES = 1 << 16  # of a log, in which its last error is
STOP_SECONDS = 10.0  # for a training to save its state
INTERRUPTED = 130  # exit status of a command that was stopped and has saved its state
STOP_MESSAGES = ("stopped and saved.", "interrupted.")  # the beginning of a line of its log
STOP_STATUSES = (INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)


@dataclass
class Job:
    """A command that was started from the page."""

    name: str
    arguments: list[str]  # after `seqwise`
    out: str  # the folder of the run or comparison, below the given folder
    started: float
    pid: int = 0
    status: int | None = None  # of its end; None if it runs, or if no server saw its end

    @property
    def is_resumed(self) -> bool:
        """Whether the command continues in a folder that exists."""
        return self.arguments[1:2] == ["--resume"] or self.arguments[1].startswith("--resume=")


class Jobs:
    """The jobs of all folders of the studio. Several threads may use it."""

    def __init__(self, catalogue: Catalogue):
        self._catalogue = catalogue
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # of jobs that this server started
        self._written: set[str] = set()  # jobs whose folder was locked by a process
        self._mutex = threading.RLock()

    # --- starting

    def list_folders(self) -> list[Path]:
        """Returns the given folders in which runs can be created; a run or a comparison itself is none."""
        return [each for each in self._catalogue.folders if not _is_complete(each) and os.access(each, os.W_OK)]

    def choose_out(self, folder: Path, name: str) -> Path:
        """Returns the path of a new run below a given folder; raises an error for a name that leads elsewhere."""
        parts = name.split("/")
        is_plain = all(part and not part.startswith(".") and part == part.strip() for part in parts)
        is_long = len(parts) > MAX_DEPTH or any(len(part.encode()) > MAX_NAME_BYTES for part in parts)
        if not is_plain or is_long or not name.isprintable() or "\\" in name:
            problem = f"the name {name[:100]!r} cannot be that of a run."
            raise UsageError(problem, fix="Use letters, digits, dashes; folders are separated by a slash.")
        out = folder / name
        if not self._catalogue.is_inside(out):
            raise UsageError(f"{out} leads out of {folder}, through a link.", fix="Choose another name.")
        inside = next((each for each in out.parents if folder in each.parents and _is_complete(each)), None)
        if inside is not None:
            raise UsageError(f"{inside} is a run: another one cannot be inside it.", fix="Choose another name.")
        return out

    def suggest_name(self, folder: Path, stem: str) -> str:
        """Returns the stem, or with the first free number."""
        with self._mutex:
            names = {job.out for job in self._load(folder) if self._is_alive(job)}
        candidates = (stem, *(f"{stem}-{number}" for number in range(2, 10_000)))
        return next(each for each in candidates if each not in names and not (folder / each).exists())

    def start(self, arguments: Sequence[str], folder: Path, out: Path) -> tuple[Path, Job]:
        """Starts `seqwise ARGUMENTS`, which writes the folder `out` below a given `folder`; returns at once."""
        with self._mutex:
            running = self._list_running()
            if len(running) >= MAX_RUNNING:
                raise BusyError(f"{len(running)} trainings run already.", fix="Wait for one of them, or stop it.")
            relative = out.relative_to(folder).as_posix()
            if any((parent, job.out) == (folder, relative) for parent, job in running):
                raise UsageError(f"{out} is being written already.", fix="Choose another name.")
            name = f"{out.name[:40]}-{uuid.uuid4().hex[:8]}"
            job = Job(name, list(arguments), relative, time.time())
            if not job.is_resumed and out.exists() and any(out.iterdir()):
                raise UsageError(f"there is already a run {relative!r}.", fix="Choose another name.")
            self._create_folder(folder)
            self._remove_old(folder)
            self._save(folder, job)
            process = self._run(job, folder)
            job.pid = process.pid
            self._processes[name] = process
            self._save(folder, job)
        threading.Thread(target=self._wait, args=(folder, job, process), daemon=True).start()
        return folder, job

    def resume(self, entry: Entry, budget: str = "") -> tuple[Path, Job]:
        """Resumes a run or a comparison; `budget` is a new one, larger than that of a finished run."""
        _reject_trial(entry, "resumed")
        if entry.owner is not None or find_owner(entry.folder) is not None:
            raise UsageError(f"{entry.id} is running.", fix="Wait for its end, or stop it.")
        if entry.state == "finished" and entry.kind == "run" and not budget:
            raise UsageError(f"{entry.id} is finished.", fix="To train it further, set a larger budget.")
        self._wait_for_end(entry)  # a process ends shortly after it has released the lock of the folder
        command = "train" if entry.kind == "run" else "compare"
        path = format_path(entry.folder)
        words = [f"--resume={path}"] if path.startswith("-") else ["--resume", path]
        if budget and entry.kind == "run":
            Budget.parse(budget)  # raises an error if it is none
            words += ["--budget", budget]
        return self.start([command, *words], self._catalogue.get_root(entry), entry.folder)

    def _run(self, job: Job, folder: Path) -> subprocess.Popen[bytes]:
        log = os.open(
            folder / JOBS_FOLDER / f"{job.name}.log", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644
        )
        try:
            return subprocess.Popen(
                build_command(job.arguments),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=build_environment(), start_new_session=True,  # Ctrl-C does not reach it
            )  # fmt: skip
        finally:
            os.close(log)

    def _wait(self, folder: Path, job: Job, process: subprocess.Popen[bytes]) -> None:
        """Saves the exit status, so that no zombie is left and a later server knows it."""
        status = process.wait()
        with self._mutex:
            job.status = status
            with suppress(SeqwiseError):
                if self._get_record(folder, job).exists():  # else it was forgotten
                    self._save(folder, job)
            self._processes.pop(job.name, None)

    # --- records

    def describe_all(self) -> list[dict[str, Any]]:
        """Returns what the page shows of each job, newest first."""
        with self._mutex:
            jobs = [(folder, job) for folder in self._catalogue.folders for job in self._load(folder)]
            return [self.describe(folder, job) for folder, job in sorted(jobs, key=lambda each: -each[1].started)]

    def describe(self, folder: Path, job: Job) -> dict[str, Any]:
        """Returns what the page shows of a job: its state, its run, and why it has failed."""
        state = self._find_state(folder, job)
        problem, fix = self._explain(folder, job) if state == "failed" else ("", "")
        return {
            "id": job.name,
            "run": self.get_run_id(folder, job),
            "kind": "comparison" if job.arguments[0] == "compare" else "run",
            "state": state,
            "command": format_command(job.arguments),
            "started": job.started,
            "problem": problem,
            "fix": fix,
        }

    def get_run_id(self, folder: Path, job: Job) -> str:
        """Returns the id under which the catalogue shows the run, once its folder exists."""
        name = self._catalogue.names[folder]
        return name if job.out == "." else f"{name}/{job.out}"

    def find(self, name: str) -> tuple[Path, Job] | None:
        """Returns the job of a name and its folder."""
        with self._mutex:
            jobs = ((folder, job) for folder in self._catalogue.folders for job in self._load(folder))
            return next((each for each in jobs if each[1].name == name), None)

    def _find_state(self, folder: Path, job: Job) -> JobState:
        out = folder / job.out
        if self._is_alive(job):
            if job.name not in self._written and _is_complete(out) and find_owner(out) is not None:
                self._written.add(job.name)
            return "running" if job.name in self._written else "starting"
        if job.status is not None:
            return "finished" if job.status == 0 else "stopped" if job.status in STOP_STATUSES else "failed"
        # The server was killed before the job ended: its log says how.
        log = self._read_log(folder, job)
        if any(f"\n{words}" in log for words in STOP_MESSAGES):
            return "stopped"
        return "failed" if find_error(log) or not _is_complete(out) else "finished"

    def _explain(self, folder: Path, job: Job) -> tuple[str, str]:
        """Returns why a job has failed, and how to fix it."""
        if error := find_error(self._read_log(folder, job)):
            problem, _, fix = error.partition("\n")
            return problem, fix
        if job.status == -signal.SIGKILL:
            return "the process was killed.", "Perhaps there is not enough memory: use a smaller model or batch."
        reason = "the process has ended" + ("" if job.status is None else f" with status {job.status}")
        return f"{reason}, without a message.", f"Run the command in a terminal: {format_command(job.arguments)}"

    def _read_log(self, folder: Path, job: Job) -> str:
        """Returns the end of what a job has printed."""
        path = folder / JOBS_FOLDER / f"{job.name}.log"
        with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return "\n" + file.read().decode(errors="replace")
        return ""

    def _load(self, folder: Path) -> list[Job]:
        """Returns the jobs of a folder."""
        records = folder / JOBS_FOLDER
        if not self._catalogue.is_inside(records):
            return []
        jobs = []
        for path in records.glob("*.json"):
            with suppress(OSError, ValueError, TypeError, RecursionError):
                with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    job = Job(**json.loads(file.read(MAX_RECORD_BYTES)))
                if _is_valid(job, path.stem):
                    jobs.append(job)
        return jobs

    def _save(self, folder: Path, job: Job) -> None:
        write_text(self._get_record(folder, job), json.dumps(asdict(job)) + "\n")

    def _get_record(self, folder: Path, job: Job) -> Path:
        return folder / JOBS_FOLDER / f"{job.name}.json"

    def _create_folder(self, folder: Path) -> None:
        for each in (folder / JOBS_FOLDER.parent, folder / JOBS_FOLDER):
            check_link(each, folder)
            try:
                each.mkdir(exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot create {each}: {error.strerror}.") from error

    def _remove_old(self, folder: Path) -> None:
        ended = [job for job in self._load(folder) if not self._is_alive(job)]
        for job in sorted(ended, key=lambda job: -job.started)[MAX_RECORDS:]:
            self._remove_record(folder, job)

    def _list_running(self) -> list[tuple[Path, Job]]:
        jobs = [(folder, job) for folder in self._catalogue.folders for job in self._load(folder)]
        return [each for each in jobs if self._is_alive(each[1])]

    def _is_alive(self, job: Job) -> bool:
        process = self._processes.get(job.name)
        return (
            process.poll() is None if process is not None else job.status is None and is_running(job.pid, job.arguments)
        )

    def forget(self, name: str) -> None:
        """Removes the record and the log of a job that has ended, and of earlier ones that wrote the same folder."""
        with self._mutex:
            found = self.find(name)
            if found is None or self._is_alive(found[1]):
                raise UsageError("there is no such job that has ended.")
            folder, job = found
            for each in self._load(folder):
                if each.out == job.out and not self._is_alive(each):
                    self._remove_record(folder, each)

    def _remove_record(self, folder: Path, job: Job) -> None:
        for suffix in (".json", ".log"):
            remove(folder / JOBS_FOLDER / f"{job.name}{suffix}", folder, ignore_errors=True)

    # --- stopping

    def stop(self, identifier: str) -> bool:
        """Stops a run or comparison by its id, or a job by its name; returns whether it has ended within 10 seconds."""
        found = self.find(identifier)
        if found is not None and self._is_alive(found[1]):
            job = found[1]
            terminate(job.pid, lambda: self._is_alive(job))
            return wait_until(lambda: not self._is_alive(job), STOP_SECONDS)
        entry = self._catalogue.get(identifier)
        _reject_trial(entry, "stopped")
        owner = find_owner(entry.folder)
        if owner is None:
            raise UsageError(f"{entry.id} is not running.")
        if not owner.is_here:
            raise UsageError(f"{entry.id} is written by a process on {owner.host}.", fix="Stop it there.")
        terminate(owner.pid, lambda: find_owner(entry.folder) == owner)
        return self._wait_for_end(entry)

    def _wait_for_end(self, entry: Entry) -> bool:
        """Waits until no process writes a folder, and its job has ended; returns whether that is so."""
        jobs = [job for folder, job in self._list_running() if folder / job.out == entry.folder]
        return wait_until(lambda: find_owner(entry.folder) is None and not any(map(self._is_alive, jobs)), STOP_SECONDS)


def _reject_trial(entry: Entry, verb: str) -> None:
    if entry.parent:
        raise UsageError(f"{entry.id} is a trial of a comparison.", fix=f"The comparison {entry.parent} can be {verb}.")


def _is_complete(folder: Path) -> bool:
    return (folder / RUN_FILE).exists() or (folder / COMPARISON_FILE).exists()


def _is_valid(job: Job, name: str) -> bool:
    """Returns whether a record has the right types: any process may have written it."""
    texts = [job.name, job.out, *job.arguments] if isinstance(job.arguments, list) else [None]
    is_text = all(isinstance(each, str) for each in texts) and job.name == name and len(job.arguments) > 0
    is_number = isinstance(job.pid, int) and isinstance(job.started, (int, float))
    parts = Path(job.out).parts if is_text else ("..",)
    return (
        is_text and is_number and isinstance(job.status, (int, NoneType)) and ".." not in parts and parts[:1] != ("/",)
    )


def format_path(path: Path) -> str:
    """Returns a path relative to the working folder, if it is inside it."""
    folder = find_working_folder()
    return str(path.relative_to(folder)) if folder is not None and path.is_relative_to(folder) else str(path)
