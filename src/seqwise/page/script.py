"""What goes into the script tags of a page: data as JSON, and ES modules joined into one script.

The modules of `components/`, and those of other pages that import them, can be imported one by one by a page that a
server delivers. A page in one file cannot import anything: here each module becomes a function that returns what it
exports, in the order of their imports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from seqwise.printable import make_printable

COMPONENTS = Path(__file__).parent / "components"

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.\.?/[\w./-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const) (\w+))", re.MULTILINE)
_COMMENT_OR_INDENTATION = re.compile(r"^[ \t]*//.*\n|^[ \t]+", re.MULTILINE)


def dump_json_for_script(value: Any) -> str:
    """Returns ASCII JSON that is safe inside a script tag: no character can end a tag, and texts are printable."""
    text = json.dumps(_make_texts_printable(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _make_texts_printable(value: Any) -> Any:
    if isinstance(value, str):
        return make_printable(value)
    if isinstance(value, dict):
        return {_make_texts_printable(key): _make_texts_printable(item) for key, item in value.items()}
    return list(map(_make_texts_printable, value)) if isinstance(value, list | tuple) else value


def bundle(entry: Path) -> str:
    """Returns a module and all that it imports as one script."""
    return "\n".join(("const modules = {};", *(_wrap(path) for path in list_modules(entry))))


def list_modules(entry: Path) -> list[Path]:
    """Returns the modules that `entry` needs, each after those that it imports itself. Their names differ."""
    order: list[Path] = []

    def visit(path: Path, importers: tuple[Path, ...]) -> None:
        if path in importers:
            raise ValueError(f"modules import each other: {' → '.join(each.name for each in (*importers, path))}")
        for _, imported in _IMPORT.findall(_read(path)):
            visit((path.parent / imported).resolve(), (*importers, path))
        if path not in order:
            order.append(path)

    visit(entry.resolve(), ())
    names = [path.name for path in order]
    if len(set(names)) < len(names):
        raise ValueError(f"two modules have the same name: {', '.join(sorted(names))}")
    return order


def _wrap(path: Path) -> str:
    """Returns a module as a function call, without comments and indentation."""
    text = _read(path)
    body = _IMPORT.sub(lambda match: f'const {match[1]} = modules["{Path(match[2]).name}"];\n', text)
    exported = ", ".join(_EXPORT.findall(text))
    body = _COMMENT_OR_INDENTATION.sub("", _EXPORT.sub("", body))
    return f'modules["{path.name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();'


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
