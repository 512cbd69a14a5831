"""`read_yaml`: settings files and plans, which users write and copy, and which may contain anything.

Keys are names, as they are written: a key `on`, `no` or `1` is no boolean and no number, unlike in YAML 1.1.
`build_file_error` reports wrong keys with their lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from seqwise.errors import UsageError, format_location

MAX_BYTES = 10_000_000
MAX_VALUES = 1_000_000  # of a file, where an alias counts as all that it stands for
MAX_C_DEPTH = 100  # lists and mappings inside each other, for the parser in C

Location = Sequence[int | str]  # keys and indices, from the outermost one

_NAMED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "float", "int", "null", "timestamp")}


class _NamedKeys:
    """A part of a loader that reads keys as names, which errors can then contain as the user wrote them."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)  # type: ignore[misc]
        node.value = [(_name_key(key), value) for key, value in node.value]


def _name_key(key: yaml.Node) -> yaml.Node:
    if not isinstance(key, yaml.ScalarNode) or key.tag not in _NAMED_TAGS:
        return key
    return yaml.ScalarNode("tag:yaml.org,2002:str", key.value, key.start_mark, key.end_mark)


class SafeLoader(_NamedKeys, yaml.SafeLoader):
    """PyYAML's safe loader, except that keys are names."""


_CLoader: Any = type("CSafeLoader", (_NamedKeys, yaml.CSafeLoader), {}) if hasattr(yaml, "CSafeLoader") else None


def read_yaml(path: str | Path) -> Any:
    """Returns the values of a YAML file; raises `yaml.YAMLError` for whatever is wrong with its content."""
    return parse_yaml(read_yaml_text(path))


def read_yaml_text(path: str | Path) -> str:
    """Returns the text of a YAML file; raises `yaml.YAMLError` if it is too large, not UTF-8 or not a file.

    A pipe may never end, so that only those under /dev are read, such as `<(…)` of bash.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir() or str(path).startswith("/dev/")):
        raise yaml.YAMLError("this is a pipe or a device, not a file")
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise yaml.YAMLError(f"the file has more than {MAX_BYTES // 10**6} MB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"byte 0x{content[error.start]:02X} at offset {error.start:,} is not UTF-8") from None


def parse_yaml(text: str) -> Any:
    """Returns the values of a YAML text; raises `yaml.YAMLError` also if values are nested too deeply or have no end.

    An alias inside its own value has no end, and aliases of aliases may stand for billions of values.
    """
    try:
        values = _parse_quickly(text) if _CLoader is not None else _load(text, SafeLoader)
        _count_values(values, {})
        return values
    except RecursionError:
        raise yaml.YAMLError("the values are nested too deeply") from None
    except (ValueError, TypeError, OverflowError) as error:  # a number with thousands of digits, a date in month 13, …
        raise yaml.YAMLError(str(error)) from None
    except (AttributeError, LookupError):  # PyYAML on !!timestamp x, !!bool x, !!int ""
        raise yaml.YAMLError("a value does not have the type that is written before it (!!)") from None


def build_file_error(
    problems: Iterable[tuple[Location, str]], text: str, file: str | Path | None, fix: str = ""
) -> UsageError:
    """Returns one error about several keys of a YAML file: where each is, a sentence about it, and its line.

    They are sorted by line; keys that are missing are last, with the line of the mapping that lacks them.
    """
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):  # the parser in C accepts a little more
        root = None
    index_keys = cache(_index_keys)  # a file may have very many wrong keys
    found = [(*_find_line(root, location, index_keys), sentence) for location, sentence in problems]
    found.sort(key=lambda each: (not each[1], each[0] or 0))
    (line, _, first), *others = found
    sentences = [first, *(f"{format_location(file, line)}: {sentence}" for line, _, sentence in others)]
    return UsageError("\n".join(sentences), file=file, line=line, fix=fix)


def _index_keys(node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    """Returns the keys of a mapping with their nodes and those of their values."""
    return {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _find_line(
    node: yaml.Node | None,
    location: Location,
    index_keys: Callable[[yaml.MappingNode], dict[str, tuple[yaml.Node, yaml.Node]]],
) -> tuple[int | None, bool]:
    """Returns the line, from 1, of the key or item that a sequence of keys and indices leads to, and whether it exists.

    The line of one that does not exist is that of the mapping that lacks it; None for an empty text.
    """
    line = None if node is None else node.start_mark.line + 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            if (pair := index_keys(node).get(str(part))) is None:
                return line, False
            key, node = pair
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line, True


def _parse_quickly(text: str) -> Any:
    """Returns the values by the parser in C, which is faster; where it fails, by the other, whose errors are shown.

    The one in C would exhaust the stack on values that are nested deeply, so that their depth is measured first.
    """
    depth = 0
    try:
        for event in yaml.parse(text, _CLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_C_DEPTH:
                return _load(text, SafeLoader)
        return _load(text, _CLoader)
    except yaml.YAMLError:
        return _load(text, SafeLoader)


def _load(text: str, loader_class: Any) -> Any:
    loader = loader_class(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _count_values(value: Any, counts: dict[int, int]) -> int:
    """Returns the number of values inside a value; `counts` has those of the lists and mappings that were counted."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in counts:
        counts[id(value)] = 0  # until it is counted
        items = value if isinstance(value, list) else value.values()
        counts[id(value)] = 1 + sum(_count_values(item, counts) for item in items)
    if not counts[id(value)]:
        raise yaml.YAMLError("the values are recursive: an alias (*) is inside its own value")
    if counts[id(value)] > MAX_VALUES:
        raise yaml.YAMLError(f"the aliases (*) stand for more than {MAX_VALUES:,} values")
    return counts[id(value)]
