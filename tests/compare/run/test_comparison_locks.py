"""A comparison is run by one process, its trials are locked one by one, and nothing is written through a link."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from locking_processes import COMMAND, kill, lock_in_child
from small_comparison import finish, finished_comparison, get_data_path, make_plan, write_text

import seqwise
from seqwise.cli.main import main
from seqwise.compare.run import execute as execute_module
from seqwise.compare.run.execute import InterruptedJob, execute
from seqwise.compare.run.jobs import Job
from seqwise.compare.run.stages import resume_plan
from seqwise.errors import LockedError, RunError
from seqwise.locks import LOCK_FILE


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "small.txt")


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_locked_comparison_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = finished_comparison(tmp_path / "out")
    with lock_in_child(folder) as child:
        before = read_files(folder)
        assert main(["compare", "--resume", str(folder)]) == 2
        error = capsys.readouterr().err
        assert f"error: {folder} is locked: process {child} on " in error
        assert f"({COMMAND})." in error
        with pytest.raises(LockedError, match=f"process {child} on "):
            seqwise.compare(resume=folder)
        assert main(["compare", get_data_path(folder), "--out", str(folder)]) == 2
        error = capsys.readouterr().err
        assert f"is locked: process {child} on " in error
        assert "Or name another folder with --out." in error
        assert read_files(folder) == before
        with pytest.warns(UserWarning, match="its best model is used"):
            seqwise.load(folder)  # reading is not refused
        kill(child)
        with resume_plan(folder):
            pass
    assert not (folder / LOCK_FILE).exists()


def test_a_comparison_is_locked_while_it_runs(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "out"
    make_plan(folder, text)

    def run(self: Any, *callbacks: Any) -> None:
        with pytest.raises(LockedError, match=f"process {os.getpid()} on "), resume_plan(folder):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr("seqwise.compare.api.Orchestrator.run", run)
    with pytest.raises(KeyboardInterrupt):
        seqwise.compare(resume=folder)
    assert not (folder / LOCK_FILE).exists()


def test_a_trial_is_locked_while_it_is_trained(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1)
    job = Job("train", "rnn/seed-0")
    statuses: list[int] = []

    def resume_by_hand(event: dict[str, Any]) -> None:
        if not statuses:
            statuses.append(main(["train", "--resume", str(job.get_run_folder(folder))]))

    assert execute(folder, job, resume_by_hand).status == "done"
    assert statuses == [2]
    assert f"{job.get_run_folder(folder)} is locked: process {os.getpid()} on " in capsys.readouterr().err
    assert not list(folder.rglob("*.lock"))


def test_a_trial_that_the_user_trains_is_waited_for(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1)
    job = Job("train", "rnn/seed-0")
    job.get_run_folder(folder).mkdir(parents=True)
    events: list[dict[str, Any]] = []
    with lock_in_child(job.get_run_folder(folder)) as child:
        with pytest.raises(InterruptedJob):
            execute(folder, job, events.append, lambda: len(events) > 0)
        assert f"is locked: process {child} on " in events[0]["notes"][0]
        kill(child)
    assert execute(folder, job).status == "done"


def test_trials_of_several_processes_are_locked_by_the_first_of_them(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The worker that starts them must not have the lock itself."""
    folder = tmp_path / "out"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1, nproc=2)
    job = Job("train", "rnn/seed-0")

    def train(processes: int, device: Any, arguments: list[str], *others: Any) -> int:
        assert not (job.get_run_folder(folder) / LOCK_FILE).exists()
        thread_status: list[int] = []
        thread = threading.Thread(target=lambda: thread_status.append(main(arguments)))
        thread.start()
        thread.join()
        return thread_status[0]

    monkeypatch.setattr(execute_module, "launch", train)
    assert execute(folder, job).status == "done"


@pytest.mark.parametrize("name", ["trials", "trials/rnn", "trials/rnn/seed-0", "preprocessor", "report.json"])
def test_a_comparison_with_a_link_to_elsewhere_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
):
    folder, elsewhere = finished_comparison(tmp_path / "out"), tmp_path / "elsewhere"
    (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    before = read_files(tmp_path)
    assert main(["compare", "--resume", str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"error: {folder / name} is a link to {elsewhere}, outside of {folder}: " in error
    assert read_files(tmp_path) == before


def test_a_trial_with_a_link_to_elsewhere_fails_and_nothing_there_is_removed(text: Path, tmp_path: Path):
    """The link was made while the comparison ran."""
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1)
    job = Job("train", "rnn/seed-0")
    (elsewhere / "step-99").mkdir(parents=True)
    job.get_run_folder(folder).mkdir(parents=True)
    (job.get_run_folder(folder) / "checkpoints").symlink_to(elsewhere)
    outcome = execute(folder, job)
    assert outcome.status == "failed"
    assert f"checkpoints is a link to {elsewhere}" in outcome.reason
    assert (elsewhere / "step-99").is_dir()


def test_a_comparison_that_is_reached_through_a_link_is_run(text: Path, tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    folder = tmp_path / "runs" / "out"
    finish(folder, make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1))
    assert (tmp_path / "disk" / "out" / "report.json").exists()
    with resume_plan(folder):
        pass


def test_a_copy_of_a_comparison_that_is_running_can_be_resumed(text: Path, tmp_path: Path):
    folder = tmp_path / "out"
    plan = make_plan(folder, text, models=["rnn"], lr_trials=1, seeds=1)
    with lock_in_child(folder):
        shutil.copytree(folder, tmp_path / "copy")
        with resume_plan(tmp_path / "copy") as copied_plan:
            assert copied_plan == plan


def test_a_folder_that_is_no_comparison_is_not_locked(tmp_path: Path):
    with pytest.raises(RunError, match="is not a comparison"), resume_plan(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
