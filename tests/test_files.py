"""Files are written completely or not at all; an invalid `--out` is an error before anything is computed."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from seqwise.errors import SaveError, UsageError
from seqwise.files import check_output_path, explain_write_errors, replace_file, write_text


def test_valid_output_paths_are_accepted(tmp_path: Path):
    check_output_path(None)
    check_output_path(Path("answers.txt"))
    check_output_path(tmp_path / "a.SVG", (".svg",))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("nowhere/a.svg", "its folder does not exist.\nMake it: mkdir -p"),
        ("folder.svg", "expected a file, received a folder"),
        ("a.pdf", r"expected a file that ends in .svg; received 'a.pdf'"),
    ],
)
def test_invalid_output_paths_are_an_error(tmp_path: Path, name: str, fragment: str):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match=fragment):
        check_output_path(tmp_path / name, (".svg",))


def test_a_file_without_permission_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="no permission"):
        check_output_path(tmp_path / "a.txt")


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.txt"
    write_text(path, "old\n")

    def fail_on_full_disk(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail_on_full_disk)
    with pytest.raises(SaveError, match="cannot write: the disk is full"):
        write_text(path, "new\n")
    assert path.read_text() == "old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_symbolic_link_is_kept(tmp_path: Path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced():
    write_text(Path(os.devnull), "lost")
    assert not Path(os.devnull).is_file()


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path):
    pipe, received = tmp_path / "pipe.txt", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    check_output_path(pipe)
    write_text(pipe, "through")
    reader.join(10)
    assert received == ["through"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_into_a_missing_folder_is_an_error(tmp_path: Path):
    (tmp_path / "link.txt").symlink_to("nowhere/real.txt")
    with pytest.raises(UsageError, match=f"its folder does not exist.\nMake it: mkdir -p {tmp_path}/nowhere"):
        check_output_path(tmp_path / "link.txt")


def test_a_file_in_a_folder_without_write_permission_is_an_error(tmp_path: Path, monkeypatch):
    """The new file is written beside the old one."""
    (tmp_path / "a.txt").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(UsageError, match="no permission"):
        check_output_path(tmp_path / "a.txt")


def test_two_processes_do_not_write_into_each_others_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with replace_file(tmp_path / "a.txt", concurrent=True) as first:
        monkeypatch.setattr(os, "getpid", lambda: 12345)
        with replace_file(tmp_path / "a.txt", concurrent=True) as second:
            assert first != second
            second.write_text("second")
        first.write_text("first")
    assert (tmp_path / "a.txt").read_text() == "first"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "the disk is full.\nMake room there. Or name another file."),
        (errno.EDQUOT, "your disk quota is used up.\nDelete files of your own there, or ask for a larger quota. Or"),
        (errno.EROFS, "the file system is read-only.\nMount it for writing. Or name another file."),
        (errno.EACCES, "there is no permission to write there.\nChange its permissions. Or name another file."),
        (errno.EIO, "Input/output error.\nName another file."),
    ],
)
@pytest.mark.parametrize("is_text", [False, True])
def test_each_cause_of_a_failed_write_has_its_own_fix(tmp_path: Path, number: int, message: str, is_text: bool):
    class SafetensorError(Exception):  # has no error number, only a text
        pass

    text = os.strerror(number)
    if is_text and number == errno.EIO:
        message = message.replace("Input", "Error while serializing: Input")
    with pytest.raises(SaveError) as excinfo, explain_write_errors(tmp_path / "a.txt"):
        raise SafetensorError(f"Error while serializing: {text}") if is_text else OSError(number, text)
    assert f"cannot write: {message}" in str(excinfo.value)
