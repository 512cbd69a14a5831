"""Every file and function that docs/walkthrough.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from package_sources import PACKAGE, ROOT, parse_source

ROW = re.compile(r"^\| `([\w/]+\.py)` \| (?:→+ )?`([\w.]+)` \|", re.MULTILINE)  # arrows show the depth of a call


def list_defined_names(path: Path) -> set[str]:
    """Returns the functions and classes of a module; methods as `Class.method`."""
    names: set[str] = set()
    for node in parse_source(path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef)}
    return names


def test_every_function_in_the_walkthrough_exists():
    rows = ROW.findall((ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8"))
    assert len(rows) > 20
    missing = [f"{file}: {name}" for file, name in rows if name not in list_defined_names(PACKAGE / file)]
    assert missing == []


def test_every_file_in_the_walkthrough_exists():
    text = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    missing = [file for file in files if not any((base / file).exists() for base in (PACKAGE, ROOT))]
    assert missing == []
