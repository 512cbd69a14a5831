"""Python files of the user that define tasks and model families, listed by name in an environment variable.

    NAME=FILE or NAME=FILE#CLASS, several separated as in PATH

The processes that a comparison starts inherit the variable and import a file when its name is needed. A run folder
never names code to execute: the caller imports the file, or sets the variable.
"""

from __future__ import annotations

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from seqwise.errors import UsageError


def get_files_by_name(variable: str) -> dict[str, str]:
    """Returns the files that an environment variable names, by the name of what they define."""
    entries = os.environ.get(variable, "").split(os.pathsep)
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def add_file(variable: str, name: str, item: Any) -> None:
    """Adds the file that defines `item`, a class or function; one of an interactive session has no file."""
    file = getattr(sys.modules.get(item.__module__), "__file__", None)
    files = {key: value for key, value in get_files_by_name(variable).items() if key != name}
    if file is not None and "<" not in item.__qualname__:  # <locals> and <lambda> cannot be imported
        files[name] = f"{Path(file).resolve()}#{item.__qualname__}"
    os.environ[variable] = os.pathsep.join(f"{key}={value}" for key, value in files.items())


def import_item(variable: str, name: str) -> Any:
    """Executes the file of `name`; returns the class or function that the variable names in it, or None."""
    file, _, qualified_name = get_files_by_name(variable)[name].partition("#")
    spec = spec_from_file_location(f"seqwise_user_{name}", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        raise UsageError(f"the file of {name!r} cannot be imported.", file=file, fix=f"Change {variable}.")
    item: Any = module_from_spec(spec)
    assert isinstance(item, ModuleType)
    sys.modules[spec.name] = item
    spec.loader.exec_module(item)
    if not qualified_name:
        return None
    for part in qualified_name.split("."):
        item = getattr(item, part, None)
    return item
