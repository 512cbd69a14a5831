"""A module imports only from modules named before it in the list of `seqwise/__init__.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from package_sources import PACKAGE, get_relative_name, list_sources, parse_source

# Modules that every other may import.
SHARED = (
    *("errors", "families", "task_registry", "config", "resolved_settings", "applicability"),
    *("environment", "budget", "files", "digests", "locks", "new_folders", "svg", "image", "callbacks", "user_files"),
    *("clock", "signals", "foreign_names", "printable", "yaml_files", "metric_names", "recipe_files", "recipe_results"),
)
ORDER = [
    *("text", "page", "data", "kernels", "layers", "backbones", "heads", "losses", "decoding", "metrics", "tasks"),
    *("vectors", "training", "compare", "lens", "lab", "studio", "cli"),
]
ROOT = ("__init__", "__main__")


def get_part(path: Path) -> str:
    """Returns the entry of the list that a file belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def list_imported_parts(tree: ast.AST, package: str) -> list[tuple[int, str]]:
    """Returns (line, part) for every import from Seqwise; a bare `import seqwise` is the part `__init__`."""
    names: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names += [
                (node.lineno, f"{module}.{alias.name}" if module == "seqwise" else module) for alias in node.names
            ]
    inside = [(line, name.split(".")) for line, name in names if name.split(".")[0] == "seqwise"]
    return sorted({(line, parts[1] if len(parts) > 1 else "__init__") for line, parts in inside})


def may_import(importer: str, imported: str) -> bool:
    if importer in ROOT or imported == importer:
        return True
    if importer in SHARED:
        return imported in SHARED
    return imported in SHARED or (imported in ORDER and ORDER.index(imported) < ORDER.index(importer))


def get_package(path: Path) -> str:
    return ".".join(("seqwise", *path.relative_to(PACKAGE).parent.parts))


def test_every_module_is_in_the_list():
    assert {get_part(path) for path in list_sources()} <= {*ORDER, *SHARED, *ROOT}


def test_a_module_imports_only_from_modules_named_before_it():
    wrong = [
        f"{get_relative_name(path)} line {line}: {get_part(path)} must not import from {name}"
        for path in list_sources()
        for line, name in list_imported_parts(parse_source(path), get_package(path))
        if not may_import(get_part(path), name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "line", "allowed"),
    [
        ("training", "from seqwise.layers.record import record", True),
        ("layers", "import seqwise.training.loop", False),
        ("layers", "from seqwise import training", False),
        ("layers", "from .. import heads", False),
        ("layers", "from . import record", True),
        ("text", "from seqwise.errors import DataError", True),
        ("errors", "from seqwise.text import Tokenizer", False),
        ("tasks", "import seqwise", False),
        ("tasks", "if TYPE_CHECKING:\n    from seqwise.cli import main", False),
    ],
)
def test_the_rule_detects_forbidden_imports(importer: str, line: str, allowed: bool):
    ((_, imported),) = list_imported_parts(ast.parse(line), f"seqwise.{importer}")
    assert may_import(importer, imported) is allowed


@pytest.mark.parametrize(
    "module", ["seqwise", "seqwise.text", "seqwise.config", "seqwise.environment", "seqwise.cli.main"]
)
def test_light_modules_do_not_import_torch(module: str):
    modules = [module]
    if module == "seqwise.text":
        modules += [f"seqwise.text.{path.stem}" for path in (PACKAGE / "text").glob("*.py") if path.stem != "__init__"]
    code = f"import sys, importlib; [importlib.import_module(n) for n in {modules!r}]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
