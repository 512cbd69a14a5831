"""Files are written completely or not at all; an invalid `--out` is an error before anything is computed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from seqwise.errors import RunError, SaveError, UsageError
from seqwise.files import check_links, check_output_path, explain_write_errors, remove, replace_file, write_text


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


# Removal and links


def test_files_folders_and_links_are_removed(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "letter.txt").write_text("dear")
    root = tmp_path / "root"
    (root / "folder" / "below").mkdir(parents=True)
    (root / "file").touch()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "folder" / "link").symlink_to(tmp_path / "elsewhere")
    (root / "dangling").symlink_to("nowhere")
    for name in ("folder", "file", "link", "dangling", "missing", "missing/below"):
        remove(root / name, root)
    assert list(root.iterdir()) == []
    assert (tmp_path / "elsewhere" / "letter.txt").read_text() == "dear"


def test_nothing_is_removed_through_a_link(tmp_path: Path):
    (tmp_path / "elsewhere" / "step-1").mkdir(parents=True)
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    for ignore_errors in (False, True):
        with pytest.raises(RunError, match=f"leads to {tmp_path}/elsewhere/step-1, outside of {tmp_path}/root"):
            remove(tmp_path / "root" / "checkpoints" / "step-1", tmp_path / "root", ignore_errors=ignore_errors)
    with pytest.raises(RunError):
        remove(tmp_path / "root" / ".." / "elsewhere", tmp_path / "root")
    assert (tmp_path / "elsewhere" / "step-1").is_dir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    remove(tmp_path / "link" / "step-1", tmp_path / "link")  # the folder itself is reached through a link
    assert not (tmp_path / "elsewhere" / "step-1").exists()


def test_what_cannot_be_removed_is_an_error_unless_it_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "unlink", fail)
    remove(tmp_path / "file", tmp_path, ignore_errors=True)
    with pytest.raises(SaveError, match="file: cannot remove it: the file system is read-only"):
        remove(tmp_path / "file", tmp_path)


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("../letter.txt"), lambda path: os.mkfifo(path)])
def test_a_temporary_file_that_is_a_link_or_a_pipe_is_not_written_to(tmp_path: Path, make: Callable[[Path], None]):
    """A folder from elsewhere may contain it: the name is known."""
    (tmp_path / "letter.txt").write_text("dear")
    (tmp_path / "root").mkdir()
    make(tmp_path / "root" / ".a.txt.writing")
    write_text(tmp_path / "root" / "a.txt", "new")
    assert (tmp_path / "letter.txt").read_text() == "dear"
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["a.txt"]
    assert (tmp_path / "root" / "a.txt").read_text() == "new"


def test_links_that_lead_out_of_a_folder_are_an_error(tmp_path: Path):
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "inside").symlink_to("../a/b")
    (root / "loop").symlink_to("loop")
    check_links(root)
    (tmp_path / "link").symlink_to(root)
    check_links(tmp_path / "link")
    check_links(tmp_path / "missing")
    (tmp_path / "root-2").mkdir()  # its name begins with that of the folder
    for target in (tmp_path / "nowhere", tmp_path / "root-2", Path("../../..")):
        (root / "a" / "b" / "outside").symlink_to(target)
        with pytest.raises(RunError, match=f"{root}/a/b/outside is a link to .*, outside of {root}"):
            check_links(root)
        (root / "a" / "b" / "outside").unlink()
