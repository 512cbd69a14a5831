"""Files that the page sends are kept while the server runs; the next one removes those of a server that was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from seqwise.studio.uploads import Uploads

HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from seqwise.studio.uploads import Uploads
uploads = Uploads()
uploads.add("a.txt", b"text")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def start_holder(folder: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_files_of_a_killed_server_are_removed_and_those_of_a_living_one_stay(temporary):
    killed, living = start_holder(temporary), start_holder(temporary)
    try:
        assert len(list(temporary.glob("*/*.txt"))) == 2
        killed.kill()
        killed.wait()
        assert len(list(temporary.iterdir())) == 2
        uploads = Uploads()
        folders = {path.parent for path in temporary.glob("*/*.txt")}
        assert {json.loads((path / ".lock").read_text())["pid"] for path in folders} == {living.pid}
        uploads.close()
        assert set(temporary.iterdir()) == folders
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


def test_what_names_no_process_or_belongs_to_another_user_stays(temporary, monkeypatch):
    (temporary / "seqwise-studio-old").mkdir()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".lock").write_text("{}")
    (temporary / "seqwise-studio-link").symlink_to(temporary / "elsewhere")
    dead = temporary / "seqwise-studio-dead"
    dead.mkdir()
    owner = {"pid": 2**22 + 1, "host": os.uname().nodename, "command": "seqwise studio", "started": "2026"}
    (dead / ".lock").write_text(json.dumps(owner))
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    Uploads().close()
    assert dead.exists()
    monkeypatch.delattr(os, "getuid")
    Uploads().close()
    assert not dead.exists(), "Windows has no such function"
    dead.mkdir()
    (dead / ".lock").write_text(json.dumps(owner))
    monkeypatch.setattr(os, "getuid", lambda: own, raising=False)
    Uploads().close()
    assert not dead.exists()
    names = sorted(path.name for path in temporary.iterdir())
    assert names == ["elsewhere", "seqwise-studio-link", "seqwise-studio-old"]
