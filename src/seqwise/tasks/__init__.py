"""Tasks: the entrance. One page per task, where tokens, backbone, head, loss, decoding and metrics meet."""

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


def task_of(name: str | None) -> type[Task]:
    """The class of the task called `name`."""
    if name not in _PAGES:
        raise KeyError(name)
    return getattr(import_module(f"seqwise.tasks.{name}"), _PAGES[name])
