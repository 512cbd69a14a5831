"""One process at a time writes a folder; the lock of a process that has ended, however it ended, locks nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from locking_processes import COMMAND, kill, lock_in_child, run_in_child

from seqwise.errors import LockedError, SaveError, UsageError
from seqwise.locks import LOCK_FILE, clear_folder, lock_folder


def test_a_second_process_is_refused_with_the_owner_of_the_lock(tmp_path: Path):
    with lock_in_child(tmp_path) as child:
        with pytest.raises(LockedError) as excinfo, lock_folder(tmp_path):
            pass
        match = re.fullmatch(r"(.*) is locked: (.*) has been writing it since (.*) \((.*)\)\.", excinfo.value.problem)
        assert match is not None, excinfo.value.problem
        assert match.group(1, 2, 4) == (str(tmp_path), f"process {child} on {platform.node()}", COMMAND)
        assert abs(datetime.now().astimezone() - datetime.fromisoformat(match[3])) < timedelta(minutes=10)
        assert excinfo.value.fix.startswith("Wait until that command ends, or stop it")
        assert excinfo.value.exit_status == 2
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == child  # not changed by the attempt


def test_the_same_process_is_refused_too(tmp_path: Path):
    with (
        lock_folder(tmp_path),
        pytest.raises(LockedError, match=f"process {os.getpid()} on "),
        lock_folder(tmp_path),
    ):
        pass


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path):
    with lock_in_child(tmp_path) as child:
        kill(child)
        assert (tmp_path / LOCK_FILE).exists()
        with lock_folder(tmp_path):
            assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_behind(tmp_path: Path, error: type[BaseException]):
    with lock_folder(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(error), lock_folder(tmp_path):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path):
    """As a data worker: it lives on for a moment after its parent was killed."""

    def lock_and_fork(report_ready: Callable[[], None]) -> None:
        with lock_folder(tmp_path):
            report_ready()
            if not os.fork():
                os.write(writer, str(os.getpid()).encode())
                signal.alarm(60)
            signal.pause()

    reader, writer = os.pipe()
    with run_in_child(lock_and_fork) as parent:
        grandchild = int(os.read(reader, 20))
        kill(parent)
        os.kill(grandchild, 0)  # it is alive
        with lock_folder(tmp_path):
            pass
        os.kill(grandchild, signal.SIGKILL)


def test_a_forked_child_that_leaves_the_block_does_not_unlock(tmp_path: Path):
    process = os.getpid()
    try:
        with lock_folder(tmp_path):
            if child := os.fork():
                os.waitpid(child, 0)
                assert (tmp_path / LOCK_FILE).exists()
                with pytest.raises(LockedError, match=f"process {process} on "), lock_folder(tmp_path):
                    pass
    finally:
        if os.getpid() != process:
            os._exit(0)


def test_a_started_program_does_not_keep_the_lock(tmp_path: Path):
    with lock_folder(tmp_path):
        program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with lock_folder(tmp_path):
        assert program.poll() is None
    program.communicate(b"\n")


def test_a_copied_lock_file_locks_nothing(tmp_path: Path):
    (tmp_path / "run").mkdir()
    with lock_in_child(tmp_path / "run"):
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        assert (tmp_path / "copy" / LOCK_FILE).exists()
        with lock_folder(tmp_path / "copy"):
            pass


def test_a_new_folder_at_the_same_path_keeps_its_own_lock(tmp_path: Path):
    """The user removed the folder while it was written, and another process has created it again."""
    folder = tmp_path / "run"
    folder.mkdir()
    with lock_folder(folder):
        shutil.rmtree(folder)
        folder.mkdir()
        second = lock_folder(folder)
        second.__enter__()
    with pytest.raises(LockedError), lock_folder(folder):
        pass
    second.__exit__(None, None, None)


def test_waiting_for_a_lock(tmp_path: Path):
    errors: list[LockedError] = []
    with lock_in_child(tmp_path) as child:

        def wait(error: LockedError) -> None:
            errors.append(error)
            kill(child)

        with lock_folder(tmp_path, on_wait=wait):
            assert len(errors) == 1
            assert f"process {child} on " in errors[0].problem


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UsageError) as excinfo, lock_folder(tmp_path):
        pytest.fail("written without a lock")
    assert f"its file system has no locks (flock: {os.strerror(code)})" in str(excinfo.value)
    assert "Use a folder on another file system" in excinfo.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(SaveError) as excinfo, lock_folder(tmp_path):
        pass
    assert str(excinfo.value).splitlines() == [
        f"{tmp_path / LOCK_FILE}: cannot write: the file system is read-only.",
        "Mount it for writing. Or use a copy of the folder.",
    ]


def test_a_lock_file_that_cannot_be_opened_is_named(tmp_path: Path):
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(SaveError) as excinfo, lock_folder(tmp_path):
        pass
    assert excinfo.value.file == tmp_path / LOCK_FILE


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "host": 1}'])
def test_an_unreadable_lock_file_that_is_locked_is_refused_too(tmp_path: Path, content: str):
    with lock_in_child(tmp_path):
        (tmp_path / LOCK_FILE).write_text(content)
        with pytest.raises(LockedError, match="is locked: another process is writing it"), lock_folder(tmp_path):
            pass


def test_the_content_of_a_locked_folder_is_cleared(tmp_path: Path):
    with lock_folder(tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").touch()
        (tmp_path / "file").touch()
        clear_folder(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]
