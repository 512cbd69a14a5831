"""The description of the machine, and the bfloat16 probe, whose child process may crash."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqwise import environment


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def probe(monkeypatch):
    """Replaces what the child runs; the returned list counts the children."""
    children: list[list[str]] = []
    run = subprocess.run

    def run_and_count(command, **options):
        children.append(command)
        return run(command, **options)

    monkeypatch.setattr(environment.subprocess, "run", run_and_count)

    def replace(code: str) -> list[list[str]]:
        monkeypatch.setattr(environment, "_PROBE_SCRIPT", code)
        return children

    return replace


KILL_ITSELF = "import os, signal; os.kill(os.getpid(), signal.SIG{})"


def test_the_description_names_versions_and_machine():
    description = environment.describe()
    assert description["python"] == platform.python_version()
    assert description["packages"]["torch"] == torch.__version__
    assert description["cpu"]["threads"] == torch.get_num_threads()
    assert 1 <= description["cpu"]["count"] <= (os.cpu_count() or 1)
    assert 0 < description["memory"]["free"] <= description["memory"]["total"]
    assert json.loads(json.dumps(description)) == description


@pytest.mark.slow
def test_the_probe_agrees_with_bfloat16_layers_in_a_child_process():
    code = "import torch; x = torch.ones(9, 256, 256).bfloat16(); torch.nn.LSTM(256, 256).bfloat16()(x @ x)"
    works = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
    assert environment.probe_cpu_bfloat16() is works


@pytest.mark.parametrize("name", ["ILL", "SEGV"])
def test_a_crash_of_the_probe_means_that_bfloat16_is_unsupported_and_is_cached(probe, name):
    children = probe(KILL_ITSELF.format(name))
    assert environment.probe_cpu_bfloat16() is False
    assert environment.probe_cpu_bfloat16() is False
    assert len(children) == 1


def test_a_success_of_the_probe_means_that_bfloat16_is_supported_and_is_cached(probe, own_cache):
    children = probe("pass")
    assert environment.probe_cpu_bfloat16() is True
    assert environment.probe_cpu_bfloat16() is True
    assert len(children) == 1
    assert list(json.loads((own_cache / "bfloat16.json").read_text()).values()) == [True]


@pytest.mark.parametrize("code", [KILL_ITSELF.format("KILL"), "raise ImportError"])
def test_another_failure_of_the_probe_means_that_bfloat16_is_unsupported_and_is_not_cached(probe, code):
    children = probe(code)
    assert environment.probe_cpu_bfloat16() is False
    assert environment.probe_cpu_bfloat16() is False
    assert len(children) == 2


def test_a_probe_that_hangs_is_stopped_and_not_cached(probe):
    children = probe("import time; time.sleep(60)")
    assert environment.probe_cpu_bfloat16(timeout=0.2) is False
    probe("pass")
    assert environment.probe_cpu_bfloat16() is True
    assert len(children) == 2


def test_another_torch_version_is_probed_again(probe, monkeypatch):
    children = probe("pass")
    environment.probe_cpu_bfloat16()
    monkeypatch.setattr(environment, "get_package_version", lambda name: "9.9")
    environment.probe_cpu_bfloat16()
    assert len(children) == 2


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_damaged_cache_file_is_ignored(probe, own_cache, content):
    own_cache.mkdir()
    (own_cache / "bfloat16.json").write_text(content)
    probe("pass")
    assert environment.probe_cpu_bfloat16() is True


def test_without_a_writable_cache_the_probe_runs_again(probe, own_cache):
    own_cache.write_text("a file where the folder should be")
    children = probe("pass")
    assert environment.probe_cpu_bfloat16() is True
    assert environment.probe_cpu_bfloat16() is True
    assert len(children) == 2


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "a"))
    assert environment.get_cache_folder() == tmp_path / "a"
    monkeypatch.delenv("SEQWISE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.get_cache_folder() == tmp_path / "seqwise"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert environment.get_cache_folder() == Path.home() / ".cache" / "seqwise"


def test_the_version_comes_from_the_source_tree_when_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(environment, "get_package_version", lambda name: None)
    assert re.fullmatch(r"\d+\.\d+\.\d+\w*", environment.get_version())


@pytest.mark.parametrize("variable", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"])
def test_waiting_threads_sleep_soon_unless_the_user_decides(monkeypatch: pytest.MonkeyPatch, variable: str):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    assert environment.get_spin_setting() == ""
    environment.limit_spinning()
    assert environment.get_spin_setting() == "GOMP_SPINCOUNT=1000"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv(variable, "7")
    environment.limit_spinning()
    assert environment.get_spin_setting() == f"{variable}=7"


def test_the_environment_of_another_process_can_be_changed_instead_of_that_of_this_one(monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    variables: dict[str, str] = {}
    environment.limit_spinning(variables)
    assert variables == {"GOMP_SPINCOUNT": "1000"}
    assert environment.get_spin_setting() == ""


COMMAND = """
import os, sys
from seqwise.cli.main import main
assert "torch" not in sys.modules
assert main(["--version"]) == 0
assert os.environ["GOMP_SPINCOUNT"] == "1000"
"""
PYTHON = """
import os, sys
import seqwise
assert "GOMP_SPINCOUNT" not in os.environ
seqwise.train
assert os.environ["GOMP_SPINCOUNT"] == "1000"
"""
PYTORCH_FIRST = """
import os, torch
import seqwise
seqwise.train
assert "GOMP_SPINCOUNT" not in os.environ  # it would have no effect in this process
"""


@pytest.mark.parametrize("code", [COMMAND, PYTHON, PYTORCH_FIRST])
def test_how_threads_wait_is_decided_before_pytorch_is_imported(code: str):
    """PyTorch reads the variable when it is imported."""
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")
    variables = {name: value for name, value in os.environ.items() if name not in names}
    subprocess.run([sys.executable, "-c", code], env=variables, check=True, capture_output=True)
