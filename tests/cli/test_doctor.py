"""`seqwise doctor` describes this machine, and what to install when something is missing."""

from __future__ import annotations

import json
import platform
import sys

import pytest

from seqwise import environment
from seqwise.cli import doctor
from seqwise.cli.main import main


@pytest.fixture(autouse=True)
def _no_bfloat16_probe(monkeypatch, tmp_path):
    """The probe of bfloat16 has tests of its own."""
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(environment, "probe_cpu_bfloat16", lambda: False)


@pytest.fixture(autouse=True)
def _no_spin_settings(monkeypatch):
    """The report names the first of these variables that the caller of the tests has set."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def without_torch(monkeypatch):
    package_version = environment.get_package_version
    monkeypatch.setattr(
        environment, "get_package_version", lambda name: None if name == "torch" else package_version(name)
    )


def test_a_complete_machine_is_ready(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "ready."
    assert any(line.startswith("cpu bfloat16") and "crashes; float32 is used" in line for line in lines)
    assert any(line.startswith("waiting threads") and line.endswith(" GOMP_SPINCOUNT=1000") for line in lines)
    assert any(line.startswith("extra [dev]") for line in lines)
    assert any(line.startswith("cross-entropy") and "fused with the output layer" in line for line in lines)
    assert any(line.startswith("cache") and " 0 bytes in " in line for line in lines)


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "unknown"), (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (45_678_900, "45.7 MB"), (3e9, "3.0 GB")],
)
def test_a_size_has_the_unit_that_fits(size, text):
    assert doctor._format_size(size) == text


def test_a_backend_is_described_with_its_reason():
    assert doctor._describe_backend("aten (llvmlite is missing)", doctor.RECURRENT_BACKENDS) == (
        "PyTorch (ATen) (llvmlite is missing)"
    )
    assert doctor._describe_backend(None, doctor.LOSS_BACKENDS) == "unknown"


def test_json_is_one_document(capsys, tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ready"] is True
    assert report["python"] == platform.python_version()
    assert report["cpu_bfloat16"] is False
    assert report["cache"] == {"folder": str(tmp_path), "size": 5}
    assert report["extras"]["dev"]["packages"]["pytest"] == pytest.__version__
    assert report["recurrent_backend"].startswith(("triton", "cudnn") if report["gpu"] else "compiled")
    assert report["loss_backend"].startswith(("triton", "plain") if report["gpu"] else "cpu")
    assert report["missing"] == []
    assert report["disk"]["free"] > 0


def test_a_missing_package_ends_with_the_exact_command(capsys, without_torch):
    (torch,) = (each for each in doctor.list_requirements() if each.name == "torch")
    assert main(["doctor"]) == 1
    ending = f"not ready. Install the missing packages:\n  {sys.executable} -m pip install '{torch.text}'\n"
    assert capsys.readouterr().out.endswith(ending)


def test_a_missing_package_is_not_probed(without_torch):
    report = doctor.examine()
    assert report["ready"] is False
    assert report["cpu_bfloat16"] is None
    assert len(report["missing"]) == 1
    assert report["missing"][0].startswith("torch")
    assert report["install"] == f"{sys.executable} -m pip install '{report['missing'][0]}'"


def test_a_torch_that_does_not_load_is_not_ready(monkeypatch):
    monkeypatch.setattr(environment, "_import_torch", lambda: None)
    report = doctor.examine()
    assert report["ready"] is False
    assert report["missing"][0].startswith("torch")


@pytest.mark.parametrize(
    ("installed", "is_satisfied"),
    [("2.9.1", False), ("2.10.0", True), ("2.13.0+cpu", True), ("3.0", True), (None, False)],
)
def test_a_package_that_is_too_old_does_not_satisfy(monkeypatch, installed, is_satisfied):
    monkeypatch.setattr(environment, "get_package_version", lambda name: installed)
    assert doctor.Requirement.parse("torch>=2.10,<3").is_satisfied is is_satisfied


def test_a_requirement_of_an_extra_names_its_extra():
    requirement = doctor.Requirement.parse("types-PyYAML; extra == 'dev'")
    assert requirement == doctor.Requirement("types-PyYAML", "types-PyYAML", "dev", None)


def test_an_extra_with_a_missing_package_says_how_to_install_it(monkeypatch, capsys):
    requirement = doctor.Requirement.parse("no-such-package>=1; extra == 'serve'")
    monkeypatch.setattr(doctor, "list_requirements", lambda: [requirement])
    assert main(["doctor"]) == 0
    line = "extra [serve]     not installed (no-such-package); pip install 'seqwise[serve]'\n"
    assert line in capsys.readouterr().out


def test_an_unknown_option_suggests_the_most_similar(capsys):
    assert main(["doctor", "--jsno"]) == 2
    assert "Perhaps you meant '--json'." in capsys.readouterr().err
