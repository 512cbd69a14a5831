"""Commands that the studio starts: they survive it, are found again, can be stopped, and say why they failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from studio_server import wait_until

from seqwise.errors import SeqwiseError, UsageError
from seqwise.locks import Owner, lock_folder
from seqwise.studio import jobs as jobs_module
from seqwise.studio import processes
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.jobs import JOBS_FOLDER, MAX_RUNNING, Jobs, format_path
from seqwise.studio.processes import build_environment, find_error, terminate

# A training in miniature: it locks its folder, writes the settings, and waits for SIGTERM.
TRAINING = """
import signal, sys, time
from pathlib import Path
from seqwise.locks import lock_folder
option = "--out" if "--out" in sys.argv else "--resume"
folder = Path(sys.argv[sys.argv.index(option) + 1])
def stop(number, frame):
    print("stopped and saved.", file=sys.stderr)
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
folder.mkdir(exist_ok=True)
with lock_folder(folder):
    if "broken" in sys.argv:
        print("reading\\nerror: a.csv:3: the row is short.\\nAdd a field.", file=sys.stderr)
        sys.exit(2)
    (folder / "config.yaml").write_text("task: language\\n")
    if "quick" not in sys.argv:
        time.sleep(60)
"""


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """A folder of runs; `seqwise` is a training in miniature there."""
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    command = lambda arguments: [sys.executable, str(script), *arguments]  # noqa: E731
    for module in (jobs_module, processes):
        monkeypatch.setattr(module, "build_command", command)
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def jobs(runs) -> Iterator[Jobs]:
    jobs = open_jobs(runs)
    yield jobs
    for process in list(jobs._processes.values()):
        process.kill()


def open_jobs(runs: Path) -> Jobs:
    catalogue = Catalogue([runs])
    catalogue.refresh()
    return Jobs(catalogue)


def start(jobs: Jobs, runs: Path, name: str = "first", *words: str) -> dict:
    return jobs.describe(*jobs.start(["train", "a.txt", *words, "--out", str(runs / name)], runs, runs / name))


def get_state(jobs: Jobs) -> str:
    return jobs.describe_all()[0]["state"]


def wait_for(jobs: Jobs, state: str) -> dict:
    wait_until(lambda: get_state(jobs) == state, 20, state)
    return jobs.describe_all()[0]


def refresh(jobs: Jobs) -> None:
    jobs._catalogue.refresh()


def test_a_job_starts_runs_stops_and_is_resumed(jobs, runs):
    described = start(jobs, runs)
    assert (described["state"], described["run"], described["kind"]) == ("starting", "runs/first", "run")
    assert described["command"].endswith(f"--out {runs / 'first'}")
    wait_for(jobs, "running")
    refresh(jobs)
    assert jobs.stop("runs/first") is True
    assert get_state(jobs) == "stopped"
    refresh(jobs)
    _, job = jobs.resume(jobs._catalogue.get("runs/first"))
    assert job.arguments[:2] == ["train", "--resume"]
    wait_for(jobs, "running")
    assert len(jobs.describe_all()) == 2
    assert jobs.stop(job.name) is True


def test_a_job_that_is_starting_can_be_stopped_by_its_own_id(jobs, runs, tmp_path):
    (tmp_path / "training.py").write_text("import time; time.sleep(60)")
    described = start(jobs, runs)
    assert jobs.stop(described["id"]) is True
    assert get_state(jobs) == "stopped"


def test_the_process_has_a_session_of_its_own_no_input_and_leaves_no_zombie(jobs, runs):
    _, job = jobs.start(["train", "--out", str(runs / "a")], runs, runs / "a")
    wait_for(jobs, "running")
    assert os.getsid(job.pid) == job.pid
    assert os.readlink(f"/proc/{job.pid}/fd/0") == "/dev/null"
    os.kill(job.pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{job.pid}").exists(), 20)


def test_a_finished_job(jobs, runs):
    start(jobs, runs, "first", "quick")
    assert wait_for(jobs, "finished")["problem"] == ""


def test_a_failed_job_has_the_last_error_of_its_log(jobs, runs):
    start(jobs, runs, "first", "broken")
    described = wait_for(jobs, "failed")
    assert described["problem"] == "a.csv:3: the row is short."
    assert described["fix"] == "Add a field."


def test_a_killed_job_says_so(jobs, runs):
    _, job = jobs.start(["train", "--out", str(runs / "a")], runs, runs / "a")
    wait_for(jobs, "running")
    os.kill(job.pid, signal.SIGKILL)
    assert wait_for(jobs, "failed")["problem"] == "the process was killed."


def test_another_server_finds_a_job_again_and_stops_it(jobs, runs):
    start(jobs, runs)
    wait_for(jobs, "running")
    later = open_jobs(runs)
    assert get_state(later) == "running"
    assert later.stop("runs/first") is True
    wait_until(lambda: get_state(later) == "stopped", 20)


@pytest.mark.parametrize(("word", "state"), [("broken", "failed"), ("quick", "finished")])
def test_the_log_says_how_a_job_ended_that_no_server_saw(jobs, runs, word, state):
    described = start(jobs, runs, "first", word)
    wait_for(jobs, state)
    path = runs / JOBS_FOLDER / f"{described['id']}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": None}))
    assert get_state(open_jobs(runs)) == state


def test_a_record_of_another_process_with_the_same_number_is_not_running(jobs, runs):
    described = start(jobs, runs, "first", "quick")
    wait_for(jobs, "finished")
    path = runs / JOBS_FOLDER / f"{described['id']}.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        path.write_text(json.dumps({**json.loads(path.read_text()), "status": None, "pid": other.pid}))
        later = open_jobs(runs)
        assert get_state(later) == "finished"
        with pytest.raises(UsageError):
            later.stop(described["id"])
        assert other.poll() is None
        other.communicate(b"\n")


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{}", '{"name": 1}', "\xff", '{"name": "x", "arguments": "ab", "out": "a", "started": 0}',
     '{"name": "x", "arguments": ["train"], "out": "../a", "started": 0}',
     '{"name": "x", "arguments": ["train"], "out": "/etc", "started": 0}',
     '{"name": "y", "arguments": ["train"], "out": "a", "started": 0}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_record_is_ignored(jobs, runs, record):
    (runs / JOBS_FOLDER).mkdir(parents=True)
    (runs / JOBS_FOLDER / "x.json").write_text(record, encoding="latin-1")
    assert jobs.describe_all() == []


def test_records_behind_a_link_out_of_the_folder_are_neither_read_nor_written(jobs, runs, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (runs / ".studio").symlink_to(tmp_path / "elsewhere")
    assert jobs.describe_all() == []
    with pytest.raises(UsageError, match="outside"):
        start(jobs, runs)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_more_jobs_than_the_limit_are_refused(jobs, runs, monkeypatch):
    monkeypatch.setattr(jobs_module, "MAX_RUNNING", 1)
    assert MAX_RUNNING == 8
    start(jobs, runs)
    with pytest.raises(SeqwiseError, match="run already"):
        start(jobs, runs, "second")
    jobs.stop(jobs.describe_all()[0]["id"])


def test_a_folder_that_exists_or_is_about_to_is_refused(jobs, runs):
    (runs / "old").mkdir()
    (runs / "old" / "file").touch()
    with pytest.raises(UsageError, match="already a run 'old'"):
        start(jobs, runs, "old")
    start(jobs, runs)
    with pytest.raises(UsageError, match="being written"):
        start(jobs, runs)
    assert jobs.suggest_name(runs, "first") == "first-2"
    assert jobs.suggest_name(runs, "old") == "old-2"
    assert jobs.suggest_name(runs, "new") == "new"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/etc/a", "a//b", ".hidden", "a/.b", "a\\b", "a\nb", "a\0b", " a",
             "a/b/c/d", "x" * 201]
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(jobs, runs, name):
    with pytest.raises(UsageError):
        jobs.choose_out(runs, name)


def test_a_name_through_a_link_or_inside_a_run_is_refused(jobs, runs, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (runs / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="through a link"):
        jobs.choose_out(runs, "link/a")
    (runs / "run").mkdir()
    (runs / "run" / "config.yaml").touch()
    with pytest.raises(UsageError, match="inside"):
        jobs.choose_out(runs, "run/a")
    assert jobs.choose_out(runs, "october/a b-1") == runs / "october/a b-1"


def test_a_run_of_another_host_is_not_stopped(jobs, runs, monkeypatch):
    (runs / "far").mkdir()
    (runs / "far" / "config.yaml").write_text("task: language\n")
    refresh(jobs)
    monkeypatch.setattr(jobs_module, "find_owner", lambda folder: Owner(os.getpid(), "elsewhere", "", "", 1))
    with pytest.raises(UsageError, match="process on elsewhere"):
        jobs.stop("runs/far")


def test_what_does_not_run_cannot_be_stopped_and_what_runs_cannot_be_resumed(jobs, runs):
    folder = runs / "a"
    folder.mkdir()
    (folder / "config.yaml").write_text("task: language\n")
    refresh(jobs)
    with pytest.raises(UsageError, match="not running"):
        jobs.stop("runs/a")
    with pytest.raises(UsageError, match="there is no run"):
        jobs.stop("runs/b")
    with lock_folder(folder):
        refresh(jobs)
        with pytest.raises(UsageError, match="is running"):
            jobs.resume(jobs._catalogue.get("runs/a"))


def test_a_finished_run_needs_a_larger_budget(jobs, runs):
    folder = runs / "a"
    folder.mkdir()
    (folder / "config.yaml").write_text("task: language\n")
    (folder / "summary.json").write_text('{"seconds": {}}')
    refresh(jobs)
    entry = jobs._catalogue.get("runs/a")
    with pytest.raises(UsageError, match="is finished"):
        jobs.resume(entry)
    with pytest.raises(UsageError, match="budget"):
        jobs.resume(entry, "--resume")
    _, job = jobs.resume(entry, "2m")
    assert job.arguments[-2:] == ["--budget", "2m"]
    jobs.stop(job.name)


def test_trials_are_stopped_and_resumed_with_their_comparison(jobs, runs):
    trial = runs / "compared" / "trials" / "gru" / "seed-0"
    trial.mkdir(parents=True)
    (runs / "compared" / "compare.yaml").write_text("families: [gru]\n")
    (trial / "config.yaml").write_text("task: language\n")
    refresh(jobs)
    for act in (lambda: jobs.stop("runs/compared/trials/gru/seed-0"),
                lambda: jobs.resume(jobs._catalogue.get("runs/compared/trials/gru/seed-0"))):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            act()
        assert "runs/compared" in caught.value.fix
    _, job = jobs.resume(jobs._catalogue.get("runs/compared"))
    assert job.arguments[0] == "compare"
    jobs.stop(job.name)


def test_a_job_that_has_ended_can_be_forgotten(jobs, runs):
    described = start(jobs, runs, "first", "broken")
    wait_for(jobs, "failed")
    jobs.forget(described["id"])
    assert jobs.describe_all() == []
    assert list((runs / JOBS_FOLDER).iterdir()) == []
    running = start(jobs, runs)
    with pytest.raises(UsageError):
        jobs.forget(running["id"])
    jobs.stop(running["id"])


def test_old_records_are_removed(jobs, runs, monkeypatch):
    monkeypatch.setattr(jobs_module, "MAX_RECORDS", 1)
    for name in ("a", "b", "c"):
        start(jobs, runs, name, "quick")
        wait_for(jobs, "finished")
    assert [job["run"] for job in jobs.describe_all()] == ["runs/c", "runs/b"]


def test_a_given_folder_that_is_a_run_takes_no_runs(tmp_path):
    (tmp_path / "config.yaml").write_text("task: language\n")
    assert Jobs(Catalogue([tmp_path])).list_folders() == []


def test_a_process_that_has_changed_its_owner_gets_no_signal():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        terminate(process.pid, lambda: False)
        time.sleep(0.1)
        assert process.poll() is None
        terminate(process.pid, lambda: True)
        assert process.wait(20) == -signal.SIGTERM
    terminate(process.pid, lambda: True)  # it has ended


def test_commands_import_this_seqwise_and_nothing_of_the_working_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the working folder')")
    command = [sys.executable, "-P", "-m", "seqwise", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=build_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("seqwise ")


def test_paths_below_the_working_folder_are_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert format_path(tmp_path / "runs" / "a") == "runs/a"
    assert format_path(Path("/elsewhere/a")) == "/elsewhere/a"


def test_the_last_error_of_a_log():
    assert find_error("a\nerror: one.\nfix\nb\nerror: two.\nfix two.\n") == "two.\nfix two."
    assert find_error("error: at the start.") == "at the start."
    assert find_error("no error: here") == ""
