"""The source files of the package, parsed once for all policy tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "seqwise"


@cache
def list_sources() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def parse_source(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def get_relative_name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()
