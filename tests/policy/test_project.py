"""Version, dependencies, changelog, decisions, commit hooks and Makefile are consistent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import seqwise

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DECISIONS = ROOT / "docs" / "decisions"


def read_pinned_versions() -> dict[str, str]:
    """Returns package → version in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalise(name): version for name, version in pairs}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_changelog_begins_with_the_version_of_the_project():
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == PROJECT["version"]


def test_the_package_has_the_version_of_the_project():
    assert seqwise.__version__ == PROJECT["version"]


def test_every_public_name_can_be_imported():
    assert [name for name in seqwise.__all__ if getattr(seqwise, name, None) is None] == []


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = seqwise.trian


def test_the_index_lists_exactly_the_existing_decisions():
    pages = {path.name for path in DECISIONS.glob("[0-9]*.md")}
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", index)) == pages


def test_a_decision_has_context_decision_and_consequences_on_one_page():
    for page in sorted(DECISIONS.glob("[0-9]*.md")):
        text = page.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert (page.name, headings) == (page.name, ["Context", "Decision", "Consequences"])
        assert len(text.splitlines()) <= 70, page.name
        assert text.startswith(f"# {page.name[:4]}: ")


UNPINNED = {"triton"}  # each CUDA build of PyTorch requires another version


def list_requirements() -> list[str]:
    return [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]


def test_every_requirement_is_a_range_that_includes_the_pinned_version():
    for line in list_requirements():
        match = re.fullmatch(r"([\w-]+)>=([\d.]+),<(\d+)(; .*)?", line)
        assert match is not None, line
        if match[1] not in UNPINNED:
            pinned = parse_version(read_pinned_versions()[normalise(match[1])])
            assert parse_version(match[2]) <= pinned < parse_version(match[3]), line


def parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_every_requirement_is_pinned_without_a_local_suffix():
    names = {normalise(re.split(r"[<>=!~\[; ]", line)[0]) for line in list_requirements()}
    assert names - read_pinned_versions().keys() == UNPINNED
    assert [version for version in read_pinned_versions().values() if "+" in version] == []


def test_the_checks_before_a_merge_are_lint_and_all_tests():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    targets = re.findall(r"^make (\S+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert targets == ["lint", "test", "test-all"]


def test_the_commit_hooks_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {hook["language"] for repo in config["repos"] for hook in repo["hooks"]} == {"system"}


def test_the_makefile_explains_a_missing_python(tmp_path: Path):
    programs = tmp_path / "bin"  # without Python
    programs.mkdir()
    for tool in ("make", "sh", "echo", "rm"):
        if path := shutil.which(tool):
            (programs / tool).symlink_to(path)
    environment = {"PATH": str(programs)}
    command = [str(programs / "make"), "-f", str(ROOT / "Makefile"), "-C", str(tmp_path), f"SHELL={programs / 'sh'}"]
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    result = subprocess.run([*command, "install"], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 2
    assert "no Python 3.11 or newer found" in result.stderr
