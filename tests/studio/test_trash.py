"""Deleted runs can be restored; nothing that runs, and nothing elsewhere, is moved or removed."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from run_folders import write_comparison, write_run

from seqwise.errors import LockedError, RunError, SeqwiseError, UsageError
from seqwise.locks import lock_folder
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.routes.changes import NotesBody, write_notes
from seqwise.studio.trash import Trash


@pytest.fixture
def trash(tmp_path) -> Trash:
    write_run(tmp_path / "runs" / "book")
    write_run(tmp_path / "runs" / "deep" / "er" / "other")
    write_comparison(tmp_path / "runs" / "demo")
    catalogue = Catalogue([tmp_path / "runs"])
    catalogue.refresh()
    return Trash(catalogue)


def test_a_deleted_run_is_gone_and_restored_as_it_was(trash, tmp_path):
    folder = tmp_path / "runs" / "book"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    deleted = trash.delete("runs/book")
    assert not folder.exists()
    assert trash.catalogue.refresh() == {"runs/book"}
    assert [each.path for each in trash.list()] == ["book"]
    assert trash.list()[0].describe()["bytes"] == sum(map(len, before.values()))
    trash.restore(deleted.token)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert trash.list() == []
    assert not (tmp_path / "runs" / ".trash").exists()
    assert trash.catalogue.refresh() == {"runs/book"}


def test_a_comparison_is_deleted_with_its_trials(trash):
    trash.delete("runs/demo")
    assert len(trash.catalogue.refresh()) == 5
    assert trash.list()[0].describe()["kind"] == "comparison"


def test_a_run_in_folders_that_are_gone_is_restored(trash, tmp_path):
    deleted = trash.delete("runs/deep/er/other")
    (tmp_path / "runs" / "deep" / "er").rmdir()
    (tmp_path / "runs" / "deep").rmdir()
    trash.restore(deleted.token)
    assert (tmp_path / "runs/deep/er/other/config.yaml").is_file()


def test_a_run_that_is_running_is_not_deleted(trash, tmp_path):
    folder = tmp_path / "runs" / "book"
    with lock_folder(folder), pytest.raises(LockedError, match="running"):
        trash.delete("runs/book")
    with lock_folder(tmp_path / "runs/demo/trials/gru/seed-0"), pytest.raises(LockedError, match="running"):
        trash.delete("runs/demo")
    assert folder.is_dir()
    assert not (tmp_path / "runs" / ".trash").exists()


@pytest.mark.parametrize("identifier", ["runs/demo/trials/gru/seed-0", "runs/../x", "", "runs"])
def test_neither_trials_nor_unknown_runs_are_deleted(trash, identifier):
    with pytest.raises(UsageError):
        trash.delete(identifier)


def test_the_folder_of_the_studio_itself_is_not_deleted(tmp_path):
    catalogue = Catalogue([write_run(tmp_path / "book")])
    catalogue.refresh()
    with pytest.raises(UsageError, match="the folder that the studio shows"):
        Trash(catalogue).delete("book")


def test_a_run_with_a_link_to_elsewhere_is_not_deleted(trash, tmp_path):
    (tmp_path / "runs" / "book" / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(RunError, match="link"):
        trash.delete("runs/book")
    assert (tmp_path / "runs" / "book").is_dir()
    assert not (tmp_path / "runs" / ".trash").exists()


def test_a_trash_that_is_a_link_to_elsewhere_is_not_used(trash, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / ".trash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="link"):
        trash.delete("runs/book")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert trash.list() == []


def test_a_run_is_not_restored_over_another(trash, tmp_path):
    deleted = trash.delete("runs/book")
    write_run(tmp_path / "runs" / "book")
    with pytest.raises(UsageError, match="exists"):
        trash.restore(deleted.token)
    assert len(trash.list()) == 1


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "a/../../out", "", ".", "..", 3])
def test_an_edited_origin_restores_nothing_elsewhere(trash, tmp_path, path):
    deleted = trash.delete("runs/book")
    (deleted.folder.parent / "origin.json").write_text(json.dumps({"path": path, "deleted": 1}))
    with pytest.raises(UsageError, match="no longer in the trash"):
        trash.restore(deleted.token)
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_restored_through_a_link(trash, tmp_path):
    deleted = trash.delete("runs/deep/er/other")
    (tmp_path / "runs" / "deep" / "er").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / "deep" / "er").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="leads out"):
        trash.restore(deleted.token)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("token", ["..", "../book", "20260101-000000-00000000", ""])
def test_a_token_that_does_not_exist_restores_nothing(trash, token):
    with pytest.raises(SeqwiseError):
        trash.restore(token)


def test_emptying_removes_only_what_was_deleted(trash, tmp_path):
    trash.delete("runs/book")
    (tmp_path / "runs" / ".trash" / "mine").mkdir()
    assert trash.empty() == 1
    assert trash.list() == []
    assert [each.name for each in (tmp_path / "runs" / ".trash").iterdir()] == ["mine"]
    assert (tmp_path / "runs" / "demo").is_dir()


def test_notes_are_read_by_another_catalogue(trash, tmp_path):
    write_notes(trash.catalogue.get("runs/book"), ["new <b>", "π"], "a note")
    catalogue = Catalogue([tmp_path / "runs"])
    catalogue.refresh()
    row = catalogue.get("runs/book").describe()
    assert (row["tags"], row["note"]) == (["new <b>", "π"], "a note")


@pytest.mark.parametrize(
    "values",
    [
        {"tags": ["x"] * 21},
        {"tags": ["x" * 41]},
        {"note": "x" * 2_001},
        {"tags": "x"},
        {"tags": [1]},
        {"note": 3},
        {"id": "x" * 1_001},
        {"more": 1},
    ],
)
def test_notes_that_are_too_long_or_wrong_are_refused(values):
    assert NotesBody.model_validate({"id": "runs/book", "tags": ["x" * 40] * 20, "note": "x" * 2_000})
    with pytest.raises(ValidationError):
        NotesBody.model_validate({"id": "runs/book", **values})


def test_notes_are_not_written_through_a_link(trash, tmp_path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "runs" / "book" / "notes.json").symlink_to(tmp_path / "secret")
    with pytest.raises(RunError, match="link"):
        write_notes(trash.catalogue.get("runs/book"), [], "a note")
    assert (tmp_path / "secret").read_text() == "x"
