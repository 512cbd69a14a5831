"""The file of --out: refused before anything is computed, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqwise.errors import SaveError, UsageError
from seqwise.tasks.answers import check_out, write_out


def test_what_can_be_written_passes(tmp_path: Path):
    check_out(None)
    check_out(Path("answers.txt"))
    check_out(tmp_path / "a.SVG", (".svg",))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("nowhere/a.svg", "its folder does not exist.\nMake it: mkdir -p"),
        ("folder.svg", "expected a file, received a folder"),
        ("a.pdf", r"expected a file that ends in .svg; received 'a.pdf'"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, fragment: str):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(UsageError, match=fragment):
        check_out(tmp_path / name, (".svg",))


def test_a_file_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="no permission"):
        check_out(tmp_path / "a.txt")


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.txt"
    write_out(path, "old\n")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SaveError, match="cannot write: No space left on device"):
        write_out(path, "new\n")
    assert path.read_text() == "old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_out(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced():
    write_out(Path(os.devnull), "lost")
    assert not Path(os.devnull).is_file()
