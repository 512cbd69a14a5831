"""The tasks that exist, by name: the built-in ones, and those that a user's own file registers.

Settings check names here without importing any task. A registered task is also found by the processes that a comparison
starts: they import the file that defines it, whose path they read from an environment variable. The same variable makes
a task known to the command line:

    SEQWISE_TASKS=regress=my_task.py seqwise train data.csv --task regress
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from seqwise.errors import UsageError, suggest

BUILTIN_TASKS = {
    "language": "Language",
    "masked": "Masked",
    "classify": "Classify",
    "tag": "Tag",
    "translate": "Translate",
    "caption": "Caption",
    "forecast": "Forecast",
}  # name → class in `seqwise.tasks.NAME.task`
TASK_FILES = "SEQWISE_TASKS"  # environment variable: NAME=FILE, several separated as in PATH

_registered: dict[str, Any] = {}
TaskClass = TypeVar("TaskClass", bound=type)


def register(task: TaskClass) -> TaskClass:
    """Make a task available under its class variable `name`. Return the class, so that it can be a decorator."""
    name = getattr(task, "name", "")
    if not name or name in BUILTIN_TASKS:
        problem = f"the task {name!r} is built in" if name else f"the task {task.__name__} has no name"
        raise UsageError(f"{problem}.", repair='Give the class a name of its own: name = "my-task"')
    _registered[name] = task
    file = getattr(sys.modules.get(task.__module__), "__file__", None)
    if file is not None:
        files = {**_task_files(), name: str(Path(file).resolve())}
        os.environ[TASK_FILES] = os.pathsep.join(f"{each}={path}" for each, path in files.items())
    return task


def task_names() -> list[str]:
    """Return the names of all tasks."""
    return list(dict.fromkeys([*BUILTIN_TASKS, *_registered, *_task_files()]))


def check_task_name(name: str | None) -> str | None:
    """Return the name of a task that exists; raises ValueError for any other."""
    if name is not None and name not in task_names():
        raise ValueError(f"there is no such task. {suggest(name, task_names())}")
    return name


def find_task(name: str | None) -> Any:
    """Return the class of a task; `seqwise.tasks.get_task` is the same with its type."""
    if name in BUILTIN_TASKS:
        return getattr(import_module(f"seqwise.tasks.{name}.task"), BUILTIN_TASKS[name])
    if name not in _registered and name in (files := _task_files()):
        _import_file(name, files[name])
    return _registered[str(name)]  # KeyError for an unknown one


def _task_files() -> dict[str, str]:
    """Return the files named by the environment variable, by the name of their task."""
    entries = os.environ.get(TASK_FILES, "").split(os.pathsep)
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _import_file(name: str, file: str) -> None:
    """Execute a file that registers the task `name`."""
    spec = spec_from_file_location(f"seqwise_task_{name}", file)
    if spec is None or spec.loader is None or not Path(file).is_file():
        problem = f"the file of the task {name!r} cannot be imported."
        raise UsageError(problem, file=file, repair=f"Change {TASK_FILES}.")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
