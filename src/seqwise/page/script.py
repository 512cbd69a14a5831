"""What goes into the script tags of a page: data as JSON, and ES modules joined into one script.

The modules of `components/` can be imported one by one by a page that a server delivers. A page in one file cannot
import anything: here each module becomes a function that returns what it exports, in the order of their imports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

COMPONENTS = Path(__file__).parent / "components"

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const) (\w+))", re.MULTILINE)
_COMMENT_OR_INDENTATION = re.compile(r"^[ \t]*//.*\n|^[ \t]+", re.MULTILINE)


def dump_json_for_script(value: Any) -> str:
    """Returns ASCII JSON that is safe inside a script tag: no character of it can end a tag."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def bundle(entry: str) -> str:
    """Returns a module and all that it imports as one script."""
    return "\n".join(("const modules = {};", *(_wrap(name) for name in list_modules(entry))))


def list_modules(entry: str) -> list[str]:
    """Returns the names of the modules that `entry` needs, each after those that it imports itself."""
    order: list[str] = []

    def visit(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"modules import each other: {' → '.join((*importers, name))}")
        for _, imported in _IMPORT.findall(_read(name)):
            visit(imported, (*importers, name))
        if name not in order:
            order.append(name)

    visit(entry, ())
    return order


def _wrap(name: str) -> str:
    """Returns a module as a function call, without comments and indentation."""
    text = _read(name)
    body = _EXPORT.sub("", _IMPORT.sub(r'const \1 = modules["\2"];\n', text))
    exported = ", ".join(_EXPORT.findall(text))
    return f'modules["{name}"] = (() => {{\n{_COMMENT_OR_INDENTATION.sub("", body)}return {{ {exported} }};\n}})();'


def _read(name: str) -> str:
    return (COMPONENTS / name).read_text(encoding="utf-8")
