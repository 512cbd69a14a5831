"""Forms from the typed settings: the fields of a form, and the command that a filled-in form stands for.

The same classes define the options of the command line, so a form has every option, with its help text and limits.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seqwise.config import Settings, combine_settings
from seqwise.errors import UsageError
from seqwise.families import list_family_names
from seqwise.task_registry import list_task_names

COMMANDS = ("train", "compare")
MAX_VALUE = 1_000  # characters of a value


def list_fields(model: type[BaseModel] = Settings, prefix: str = "") -> list[dict[str, Any]]:
    """Returns every setting as a field of a form: its name, kind, choices, limits, default and help text."""
    fields: list[dict[str, Any]] = []
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            fields += list_fields(info.annotation, f"{prefix}{name}.")
        else:
            fields.append(_describe_field(prefix + name, info))
    return fields


def _describe_field(name: str, info: FieldInfo) -> dict[str, Any]:
    types = _list_types(info.annotation)
    choices = [value for each in types if get_origin(each) is Literal for value in get_args(each)]
    choices = {"task": list_task_names(), "model": list_family_names()}.get(name, choices)
    kind = "choice" if choices else next((each.__name__ for each in (bool, int, float) if each in types), "text")
    if choices and int in types:
        kind = "text"  # a number or one of a few words
    limits = {
        key: getattr(rule, key) for rule in info.metadata for key in ("ge", "gt", "le", "lt") if hasattr(rule, key)
    }
    return {
        "name": name,
        "section": name.rpartition(".")[0],
        "kind": kind,
        "choices": choices,
        "limits": limits,
        "default": info.default,
        "help": info.description or "",
    }


def _list_types(annotation: Any) -> list[Any]:
    """Returns the members of a union, without None."""
    if get_origin(annotation) in (Union, UnionType):
        return [each for part in get_args(annotation) for each in _list_types(part)]
    return [] if annotation is NoneType else [annotation]


def build_arguments(command: str, values: Mapping[str, Any]) -> list[str]:
    """Returns the words after `seqwise` for a form: `data`, `out`, and settings by dotted name; raises if one is wrong.

    Values that are None or empty are left out. A text that begins with a dash cannot become an option.
    """
    if command not in COMMANDS:
        raise UsageError(f"expected train or compare; received {command!r}.")
    values = {str(name): value for name, value in values.items() if value is not None and value != ""}
    data, out = values.pop("data", None), values.pop("out", None)
    if not isinstance(data, str):
        raise UsageError("data: expected the path of a file or folder.", fix="For example: builtin:docs")
    extra: dict[str, Any] = {
        name: values.pop(name) for name in ("models", "seeds") if command == "compare" and name in values
    }
    names = {field["name"] for field in list_fields()}
    for name, value in values.items():
        if name not in names:
            raise UsageError(f"there is no setting {name!r}.")
        if not isinstance(value, (str, int, float, bool)) or len(str(value)) > MAX_VALUE:
            raise UsageError(f"{name}: expected a number or a short text.")
    combine_settings(None, values)  # raises an error that names every wrong setting
    arguments = [command, *_format_options({**extra, **values}), *([] if out is None else [f"--out={out}"])]
    return [*arguments, "--", data]


def _format_options(values: Mapping[str, Any]) -> list[str]:
    """Returns --name=value, or --name and --no-name for switches."""
    options = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            section, _, last = flag.rpartition(".")
            options.append(f"--{flag}" if value else f"--{section}.no-{last}" if section else f"--no-{last}")
        else:
            options.append(f"--{flag}={value}")
    return options


def format_command(arguments: list[str]) -> str:
    """Returns the command as the user would type it."""
    return shlex.join(["seqwise", *arguments])
