"""Every error reaches the page as JSON with a problem, whatever its cause; hostile files break nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from async_calls import run_async
from run_folders import write_run

from seqwise.locks import find_owner
from seqwise.studio.app import build_app
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.processes import is_running
from seqwise.studio.routes.forms import _find_paths
from seqwise.studio.scan import measure_size
from seqwise.studio.security import Guard
from seqwise.studio.services import Services

OWN = {b"host": b"127.0.0.1:8600", b"origin": b"http://127.0.0.1:8600", b"x-seqwise": b"1"}


def ask(folder: Path, path: str, query: bytes = b"", parts: list[bytes] | None = None) -> tuple[int, Any]:
    """Returns the status and the JSON of the answer; `parts` of a body are sent one by one."""
    messages = [{"type": "http.request", "body": body, "more_body": True} for body in parts or []]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    async def run():
        services = Services.create([folder])
        method = "POST" if parts else "GET"
        scope = {"type": "http", "method": method, "path": path, "headers": list(OWN.items()), "query_string": query}
        guard = Guard(build_app(services), "127.0.0.1", 8600, max_body_bytes=100)
        try:
            await guard(scope, receive, send)
        except ZeroDivisionError:
            pass  # the server prints it
        finally:
            services.uploads.close()

    run_async(run())
    return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent))


@pytest.mark.parametrize(
    ("path", "query", "parts", "status"),
    [
        ("/api/nothing", b"", None, 404),
        ("/api/curves", b"id=a&points=x", None, 422),
        ("/api/run", b"id=a", None, 400),
        ("/api/notes", b"", [b"["], 400),
        ("/api/uploads", b"name=a.csv", [b"x" * 60] * 2, 413),
    ],
)
def test_an_error_has_a_problem(tmp_path, path, query, parts, status):
    answered, values = ask(tmp_path, path, query, parts)
    assert answered == status
    assert values["problem"]


def test_bodies_at_the_same_time_are_limited_together(tmp_path, monkeypatch):
    monkeypatch.setattr("seqwise.studio.security.MAX_TOTAL_BYTES", 50)
    status, values = ask(tmp_path, "/api/uploads", b"name=a.csv", [b"x" * 60])
    assert status == 503
    assert values["fix"]


def test_a_bug_has_a_problem_too(tmp_path, monkeypatch):
    monkeypatch.setattr(Catalogue, "refresh", lambda self: 1 / 0)
    status, values = ask(tmp_path, "/api/runs")
    assert status == 500
    assert "ZeroDivisionError" in values["problem"]
    assert values["fix"]


def test_names_and_texts_that_are_not_unicode_are_sent(tmp_path):
    folder = tmp_path / os.fsdecode(b"a\xff")
    write_run(folder)
    (folder / "notes.json").write_text('{"note": "\\ud800"}')
    status, rows = ask(tmp_path, "/api/runs")
    assert status == 200
    assert rows[0]["name"] == folder.name
    assert rows[0]["note"] == "\ud800"


@pytest.mark.parametrize("pid", ["Infinity", "-1", "0", "1e400", "99999999999999999999", '"x"', "null", "[]"])
def test_a_lock_file_with_a_strange_process_locks_nothing(tmp_path, pid):
    (tmp_path / ".lock").write_text(f'{{"pid": {pid}, "host": "elsewhere", "command": "x", "started": "y"}}')
    assert find_owner(tmp_path) is None


@pytest.mark.parametrize("pid", [-1, 0])
def test_a_number_that_stands_for_many_processes_is_not_running(pid, monkeypatch, tmp_path):
    monkeypatch.setattr("seqwise.studio.processes.PROCESSES", tmp_path / "none")
    assert not is_running(pid, ["train"])


def test_a_damaged_folder_does_not_hide_the_others(tmp_path, monkeypatch):
    for name in ("a", "b"):
        write_run(tmp_path / name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/compare.yaml").write_text("families: {lstm: {model: lstm}}\nadded_rates: {lstm: 5}\n")
    catalogue = Catalogue([tmp_path])
    assert len(catalogue.refresh()) == 3
    assert next(each for each in catalogue.entries.values() if each.kind == "comparison").trials.total == 1

    def read_rows(path: Path) -> tuple[dict, dict]:
        if path.parent.name == "a":
            raise ValueError("no rows")
        return {}, {}

    monkeypatch.setattr("seqwise.studio.entries.read_last_rows", read_rows)
    catalogue = Catalogue([tmp_path])
    catalogue.refresh()
    states = {each.folder.name: each.state for each in catalogue.entries.values()}
    assert states["a"] == "failed"
    assert set(states) == {"a", "b", "c"}


def test_the_size_of_folders_that_are_nested_deeply(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    (tmp_path / "file").write_bytes(b"abc")
    try:
        assert measure_size(tmp_path) == 3
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # pytest cannot remove so many


def test_folders_have_different_names(tmp_path):
    folders = [tmp_path / name for name in ("x/a", "y/a", "a-1", "b")]
    assert len(set(Catalogue(folders).names.values())) == 4


def test_paths_to_choose_from_are_below_the_working_folder_and_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "work/.hidden/inner").mkdir(parents=True)
    (tmp_path / "work/data").mkdir()
    (tmp_path / "work/data/a.txt").touch()
    monkeypatch.chdir(tmp_path / "work")
    assert list(_find_paths("")) == ["data/"]
    assert list(_find_paths("data/")) == ["data/a.txt"]
    for prefix in ("../", ".hidden/", "data/../../", "/", "a\0/b", "x" * 500 + "/", "none/"):
        assert list(_find_paths(prefix)) == []


def test_a_working_folder_that_was_removed_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work").rmdir()
    try:
        assert list(_find_paths("")) == []
        services = Services.create([tmp_path / "runs"])
        from seqwise.studio.jobs import format_path

        assert format_path(tmp_path / "runs") == str(tmp_path / "runs")
        services.uploads.close()
    finally:
        os.chdir(tmp_path)


def test_a_list_of_runs_wakes_the_pages_that_wait_for_changes(tmp_path):
    async def run():
        services = Services.create([tmp_path])
        await services.watcher.look()
        changed = services.watcher.changed
        write_run(tmp_path / "a")
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/api/runs", "headers": [], "query_string": b""}
        await build_app(services)(scope, receive, send)
        services.uploads.close()
        return changed.is_set()

    assert run_async(run())
