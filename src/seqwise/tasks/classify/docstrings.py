"""`builtin:modules`: docstrings of the standard library, labelled with their module. No file has to be downloaded."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from seqwise.errors import DataError

MIN_WORDS = 4  # of a docstring

# Parts of the standard library with many docstrings, the same in every supported Python: label → file or folder.
MODULES = {
    **{name: name for name in ("asyncio", "email", "http", "importlib", "inspect", "logging", "multiprocessing")},
    **{name: name for name in ("tkinter", "turtle", "unittest", "xml")},
    "decimal": "_pydecimal",
}


def iterate_docstrings() -> Iterator[tuple[str, str, str, int]]:
    """Yield (docstring, module, file, line) without repeated docstrings."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    seen: set[str] = set()
    num_modules = 0
    for module in sorted(MODULES):
        source, before = folder / MODULES[module], len(seen)
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source.with_suffix(".py")]:
            for text, line in _parse_docstrings(path, module):
                if text not in seen:
                    seen.add(text)
                    yield text, module, f"builtin:modules/{path.relative_to(folder)}", line
        num_modules += len(seen) > before
    if num_modules < 2:
        raise DataError("this Python has no source of its standard library.", repair="Give a file.", file=folder)


def _parse_docstrings(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """Yield (docstring, line) of the functions and classes of a file, with … for the name of the module."""
    if "test" in path.parts or not path.is_file():
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            text = " ".join((ast.get_docstring(node) or "").split())
            text = re.sub(rf"(?i){module}", "…", text)
            if len(text.split()) >= MIN_WORDS:
                yield text, node.lineno
