"""Every file and function that docs/walkthrough.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "seqwise"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


def defined_names(path: Path) -> set[str]:
    """Functions and classes of a module; methods as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


def test_every_function_in_the_walkthrough_exists():
    rows = ROW.findall((ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8"))
    assert len(rows) > 20
    missing = [f"{file}: {name}" for file, name in rows if name not in defined_names(PACKAGE / file)]
    assert missing == []


def test_every_file_in_the_walkthrough_exists():
    text = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`([\w/]+\.py)`", text))
    missing = [file for file in files if not any((base / file).exists() for base in (PACKAGE, ROOT))]
    assert missing == []
