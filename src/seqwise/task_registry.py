"""The tasks by name: built-in ones, and those that a user's file registers.

Settings check names here without importing any task. The processes of a comparison import the file that defines a
registered task; its path is in an environment variable. The same variable makes the task available to the command line:

    SEQWISE_TASKS=regress=my_task.py seqwise train data.csv --task regress
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from seqwise.errors import UsageError, suggest
from seqwise.user_files import add_file, get_files_by_name, import_item

BUILTIN_TASKS = {
    "language": "Language",
    "masked": "Masked",
    "classify": "Classify",
    "tag": "Tag",
    "translate": "Translate",
    "caption": "Caption",
    "forecast": "Forecast",
}  # name → class in `seqwise.tasks.NAME.task`
PATH_TASKS = ("caption", "forecast")  # whose inputs are paths of images and tables
TASK_FILES = "SEQWISE_TASKS"  # environment variable; see user_files.py

_registered: dict[str, Any] = {}
TaskClass = TypeVar("TaskClass", bound=type)


def register(task: TaskClass) -> TaskClass:
    """Registers a task under its class variable `name`. Returns the class, so that it can be a decorator."""
    name = getattr(task, "name", "")
    if not name or name in BUILTIN_TASKS:
        problem = f"the task {name!r} is built in" if name else f"the task {task.__name__} has no name"
        raise UsageError(f"{problem}.", fix='Give the class a name of its own: name = "my-task"')
    _registered[name] = task
    add_file(TASK_FILES, name, task)
    return task


def list_task_names() -> list[str]:
    """Returns the names of all tasks, built-in and registered."""
    return list(dict.fromkeys([*BUILTIN_TASKS, *_registered, *get_files_by_name(TASK_FILES)]))


def check_task_name(name: str | None) -> str | None:
    """Returns the name if there is such a task, or None for None; raises ValueError otherwise."""
    if name is not None and name not in list_task_names():
        raise ValueError(f"there is no such task. {suggest(name, list_task_names())}")
    return name


def find_task(name: str | None) -> Any:
    """Returns the class of a task.

    Imports only that task. Unlike `seqwise.tasks.get_task` it is untyped: this module does not import `Task`.
    """
    if name in BUILTIN_TASKS:
        return getattr(import_module(f"seqwise.tasks.{name}.task"), BUILTIN_TASKS[name])
    if name not in _registered and name in get_files_by_name(TASK_FILES):
        task = import_item(TASK_FILES, name)
        if task is not None:
            _registered[name] = task
    return _registered[str(name)]  # KeyError for an unknown name
