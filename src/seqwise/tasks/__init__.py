"""Tasks: one folder per task, whose `task.py` connects tokens, backbone, head, loss, decoding and metrics.

Modules beside the folders are shared: the base classes (`task.py`, `example_task.py`, `corpus_task.py`), default rules,
checks, latency. To add a task, pass a subclass of `Task` or `ExampleTask` to `register`; see
`examples/11_your_own_task.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqwise.task_registry import find_task
from seqwise.task_registry import register as register

if TYPE_CHECKING:
    from seqwise.tasks.task import Task


def get_task(name: str | None) -> type[Task]:
    """Returns the class of the task called `name`."""
    return find_task(name)
