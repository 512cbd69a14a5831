"""Tasks: the entrance. One folder per task, whose `task.py` wires tokens, backbone, head, loss, decoding and metrics.

What all of them share lies beside the folders: the interface (`task.py`), the guess, checks, writing, vectors.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqwise.tasks.task import Task

# Task → the class of its page, imported when it is needed.
_PAGES = {
    "language": "Language",
    "masked": "Masked",
    "classify": "Classify",
    "tag": "Tag",
    "translate": "Translate",
    "caption": "Caption",
    "forecast": "Forecast",
}


def get_task(name: str | None) -> type[Task]:
    """The class of the task called `name`."""
    if name not in _PAGES:
        raise KeyError(name)
    return getattr(import_module(f"seqwise.tasks.{name}.task"), _PAGES[name])
