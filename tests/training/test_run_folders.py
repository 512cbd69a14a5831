"""Run folders: one process writes one, none is written through a link, and an interrupted creation can be repeated."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_runs import SMALL, finish, get_logged_step, get_saved_step, run, start, wait_until
from locking_processes import COMMAND, kill, lock_in_child, run_with_kill
from short_runs import OPTIONS, TOKENS_PER_STEP, train

import seqwise
from seqwise.errors import LockedError, RunError
from seqwise.locks import LOCK_FILE
from seqwise.new_folders import create_folder, reserve_folder
from seqwise.tasks.language.task import Language
from seqwise.training import training_run
from seqwise.training.run import CONFIG, RUN_FOLDER, Run

BUDGET = ["--budget", f"{20 * TOKENS_PER_STEP}-tokens"]


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory, book: Path) -> Path:
    """A run with two checkpoints that has not used its budget."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    intervals = ["--training.save-every", "4", "--training.validate-every", "8"]
    assert train(book, "--model", "gru", *OPTIONS, *intervals, *BUDGET, "--out", folder) == 0
    run = Run.open(folder)
    run.change_budget(f"{40 * TOKENS_PER_STEP}-tokens", "")
    return folder


@pytest.fixture
def run_copy(stopped_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped_run, tmp_path / "copy")


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_error(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines of the only error message."""
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert "Traceback" not in stderr
    return stderr[stderr.index("error: ") :].splitlines()


# Locks


def test_a_locked_run_is_not_resumed_and_can_be_read(run_copy: Path, book: Path, capsys: pytest.CaptureFixture[str]):
    with lock_in_child(run_copy) as child:
        before = read_files(run_copy)
        assert train("--resume", run_copy) == 2
        lines = read_error(capsys)
        assert lines[0].startswith(f"error: {run_copy} is locked: process {child} on ")
        assert lines[0].endswith(f"({COMMAND}).")
        assert lines[1:] == ["Wait until that command ends, or stop it: after Ctrl-C or SIGTERM it saves first."]
        assert read_files(run_copy) == before
        seqwise.load(run_copy).evaluate(book)
        kill(child)
        assert train("--resume", run_copy) == 0
    assert get_logged_step(run_copy) == 40
    assert not (run_copy / LOCK_FILE).exists()


def test_a_locked_folder_is_not_trained_in(run_copy: Path, book: Path, capsys: pytest.CaptureFixture[str]):
    with lock_in_child(run_copy) as child:
        before = read_files(run_copy)
        assert train(book, *OPTIONS, "--out", run_copy) == 2
        lines = read_error(capsys)
        assert f"is locked: process {child} on " in lines[0]
        assert lines[-1] == "Or name another folder with --out."
        with pytest.raises(LockedError, match=f"process {child} on ") as excinfo:
            seqwise.train(book, task="language", model="gru", budget="2k-tokens", out=run_copy)
        assert excinfo.value.fix.endswith("Or name another folder with out.")  # in the words of Python
        assert read_files(run_copy) == before


def test_a_folder_is_locked_while_the_data_is_read(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder, statuses = tmp_path / "run", []
    prepare = Language.prepare

    def train_again(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        statuses.append(train(*arguments_of_command))
        return prepare(*arguments, **options)

    monkeypatch.setattr(Language, "prepare", train_again)
    arguments_of_command = [book, "--task", "language", "--model", "ngram", "--out", folder]
    assert train(*arguments_of_command) == 0
    assert statuses == [2]
    assert f"error: {folder} is locked: process {os.getpid()} on " in capsys.readouterr().err
    assert not (folder / LOCK_FILE).exists()


@pytest.mark.parametrize("model", ["gru", "ngram"])
def test_a_run_is_locked_while_it_is_trained(book: Path, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch):
    folder, errors = tmp_path / "run", []
    open_training = training_run.open_training

    def resume_again(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        assert train("--resume", folder) == 2
        errors.append(folder)
        return open_training(*arguments, **options)

    monkeypatch.setattr(training_run, "open_training", resume_again)
    options = OPTIONS if model == "gru" else []
    budget = BUDGET if model == "gru" else []
    assert train(book, "--model", model, "--task", "language", *options, *budget, "--out", folder) == 0
    assert errors == [folder]


def test_an_error_or_an_interrupt_unlocks_the_run(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for error in (ValueError("by chance"), KeyboardInterrupt()):
        folder = tmp_path / type(error).__name__

        def fail(step: Any, error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            seqwise.train(book, task="language", model="gru", budget="2k-tokens", out=folder, on_step=fail)
        assert (folder / CONFIG).exists()
        assert not (folder / LOCK_FILE).exists()


def test_runs_that_start_at_the_same_time_get_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folders: list[Path] = []
    barrier = threading.Barrier(8)

    def reserve() -> None:
        barrier.wait()
        with reserve_folder("language-gru") as folder:
            folders.append(folder)
            barrier.wait()

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(folders) == [Path("runs") / f"language-gru-{number}" for number in range(1, 9)]
    assert list(Path().glob("runs/*")) == []  # all stayed empty


@pytest.mark.parametrize("make", [lambda path: path.write_text(""), lambda path: path.symlink_to("nowhere")])
def test_a_default_folder_that_cannot_be_created_is_an_error(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make: Callable
):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs")
    assert train(book, "--task", "language", *OPTIONS) == 1
    assert read_error(capsys)[0].startswith("error: cannot create runs/language-lstm-1: ")


# Links


LINKED = ["checkpoints", "checkpoints/step-40", "metrics.jsonl", "model.safetensors", "README.md", "config.yaml"]


@pytest.mark.parametrize("name", [*LINKED, "checkpoints/step-20", ".metrics.jsonl.writing", LOCK_FILE])
def test_a_run_with_a_link_to_elsewhere_is_not_resumed(
    run_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
):
    link, elsewhere = run_copy / name, tmp_path / "elsewhere"
    if link.exists():
        link.rename(elsewhere)
    else:
        (elsewhere / "step-99").mkdir(parents=True)
        (elsewhere / "step-99" / "letter.txt").write_text("dear")
    link.symlink_to(elsewhere)
    before = read_files(tmp_path)
    assert train("--resume", run_copy) == 2
    assert read_error(capsys) == [
        f"error: {link} is a link to {elsewhere}, outside of {run_copy}: nothing is written or removed there.",
        f"Replace the link by a copy: rm {link} && cp -r {elsewhere} {link}",
        "To use another disk, move the whole folder and link that.",
    ]
    assert read_files(tmp_path) == before
    assert link.is_symlink()


def test_checkpoints_elsewhere_are_never_removed(run_copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Before, resuming removed every later `step-N` there, as damaged."""
    elsewhere = tmp_path / "elsewhere"
    for name in ("step-99", "step-100", ".step-7.writing"):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "letter.txt").write_text("dear")
    shutil.rmtree(run_copy / "checkpoints")
    (run_copy / "checkpoints").symlink_to(elsewhere)
    assert train("--resume", run_copy) == 2
    assert len(list(elsewhere.glob("*/letter.txt")) + list(elsewhere.glob(".*/letter.txt"))) >= 3
    training = Run.open(run_copy)
    with pytest.raises(RunError, match="outside of"):
        training_run.remove_unusable_checkpoints(training.checkpoints, 0)  # the second defence
    assert (elsewhere / "step-99" / "letter.txt").exists()


def test_a_run_that_is_reached_through_a_link_is_resumed(run_copy: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(run_copy)
    assert train("--resume", tmp_path / "link") == 0
    assert get_saved_step(run_copy) == 40
    assert (tmp_path / "link").is_symlink()


def test_links_inside_a_run_are_allowed(run_copy: Path):
    (run_copy / "checkpoints").rename(run_copy / "other")
    (run_copy / "checkpoints").symlink_to("other")
    (run_copy / "other" / "step-99").symlink_to("step-20")
    assert train("--resume", run_copy) == 0
    assert get_saved_step(run_copy) == 40
    assert (run_copy / "checkpoints").is_symlink()


# Interrupted creation


def create_with_kill(arguments: list[str | Path], fatal_call: int) -> int:
    """Creates a run, without training it, in a process that may be killed; returns its exit status."""

    def create() -> int:
        training_run.open_training = lambda *args, **options: _end()  # type: ignore[assignment]
        return train(*arguments)

    return run_with_kill(create, fatal_call)


def _end() -> None:
    raise SystemExit(0)


@pytest.mark.usefixtures("stopped_run")  # which imports all modules, so that the forked processes do not
@pytest.mark.parametrize("fatal_calls", [(2, 3, 9), pytest.param(range(1, 100), marks=pytest.mark.slow)])
def test_the_same_command_reuses_a_folder_whose_creation_was_killed(book: Path, tmp_path: Path, fatal_calls: range):
    create_with_kill([book, *OPTIONS, *BUDGET, "--out", tmp_path / "first"], 0)  # the tokens are cached now
    leftovers: set[str] = set()
    for call in fatal_calls:
        folder = tmp_path / str(call)
        arguments = [book, *OPTIONS, *BUDGET, "--out", folder]
        if create_with_kill(arguments, call) == 0:  # all calls were made
            assert call > 20
            break
        if (folder / CONFIG).exists():  # the run is complete: it can be resumed
            continue
        leftovers |= {path.name for path in folder.iterdir()} if folder.exists() else set()
        assert create_with_kill(arguments, 0) == 0, sorted(path.name for path in folder.iterdir())
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            path.name for path in (tmp_path / "first").iterdir()
        )
    assert LOCK_FILE in leftovers
    assert "tokenizer.json" in leftovers or ".tokenizer.json.writing" in leftovers


def test_an_interrupted_creation_beside_other_files_is_left_alone(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / LOCK_FILE).touch()
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "letter.txt").write_text("dear")
    before = read_files(tmp_path)
    assert train(book, *OPTIONS, "--out", tmp_path) == 2
    assert read_error(capsys) == [f"error: {tmp_path} is not an empty folder.", "Name another folder with --out."]
    del before[LOCK_FILE]
    assert read_files(tmp_path) == before


def test_files_without_a_lock_file_are_those_of_the_user(book: Path, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    assert train(book, *OPTIONS, "--out", tmp_path) == 2
    assert read_files(tmp_path) == {"tokenizer.json": b"{}"}


def test_a_failure_removes_only_the_files_of_the_creation(tmp_path: Path):
    def fill(folder: Path) -> None:
        for name in ("tokenizer.de.json", "env.json", ".config.yaml.writing", "letter.txt"):
            (folder / name).touch()
        raise ValueError("by chance")

    with pytest.raises(ValueError, match="by chance"), create_folder(RUN_FOLDER, tmp_path / "run", "") as folder:
        fill(folder)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["letter.txt"]


# Processes


@pytest.mark.slow
def test_with_several_processes_the_first_one_has_the_lock(book: Path, tmp_path: Path):
    folder = tmp_path / "run"
    arguments = [book, "--model", "lstm", *SMALL, "--budget", "1h", "--training.save-every", "20"]
    process = start("train", *arguments, "--nproc", "2", "--out", folder)
    wait_until(lambda: get_saved_step(folder) > 20, process)
    owner = json.loads((folder / LOCK_FILE).read_text())["pid"]
    for options in ([], ["--nproc", "2"]):
        status, stderr = run("train", "--resume", folder, *options)
        assert status == 2, stderr
        assert stderr.count(f"is locked: process {owner} on ") == stderr.count("error: ") == 1
    process.kill()  # the launcher; its processes notice
    finish(process)
    budget = f"{64 * (get_saved_step(folder) + 20)}-tokens"
    status, stderr = run("train", "--resume", folder, "--nproc", "2", "--budget", budget)
    assert status == 0, stderr
    assert not (folder / LOCK_FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--nproc", "2"]])
def test_two_commands_without_a_folder_train_in_different_ones(book: Path, tmp_path: Path, options: list[str]):
    arguments = [book, "--task", "language", "--model", "gru", *SMALL, "--budget", f"{64 * 40}-tokens", *options]
    processes = [start("train", *arguments, cwd=tmp_path) for _ in range(2)]
    assert [finish(each)[0] for each in processes] == [0, 0]
    assert sorted(path.parent.name for path in tmp_path.glob(f"runs/*/{CONFIG}")) == [
        "language-gru-1",
        "language-gru-2",
    ]
