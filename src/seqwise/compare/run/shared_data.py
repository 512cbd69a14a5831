"""The data of a comparison, read once per process: trials that read it alike share it in memory."""

from __future__ import annotations

import atexit
from pathlib import Path

from seqwise.callbacks import ProgressCallback
from seqwise.compare.plan.folder import get_preprocessor_folder
from seqwise.compare.plan.plan import Plan
from seqwise.errors import RunError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.task import Preprocessor, Task

# Settings on which reading the data does not depend: trials that differ only in these share the data in memory.
UNRELATED_TO_DATA = {"network", "recurrent", "transformer", "context", "training", "model", "seed", "budget", "device"}
MAX_OPEN_TASKS = 2  # of recurrent networks, which read streams, and of Transformers, which read windows

_tasks: dict[str, Task] = {}  # the last ones that this process opened; reading may take longer than a short trial
atexit.register(_tasks.clear)  # files of the data are closed while the module that closes them still exists


def open_shared_task(folder: Path, plan: Plan, settings: ResolvedSettings, reread: bool = False) -> Task:
    """Returns the task with the shared preprocessor of the comparison; `reread`: do not use the data in memory."""
    key = f"{folder.resolve()} {settings.model_dump_json(exclude=UNRELATED_TO_DATA)}"
    if reread:
        _tasks.pop(key, None)
    if key not in _tasks:
        task = read_data(folder, plan, settings)
        while len(_tasks) >= MAX_OPEN_TASKS:
            del _tasks[next(iter(_tasks))]
        _tasks[key] = task
    return _tasks[key]


def read_data(folder: Path, plan: Plan, settings: ResolvedSettings, progress: ProgressCallback | None = None) -> Task:
    """Reads the data; raises an error if it has changed since the comparison was created."""
    preprocessor = Preprocessor.load(get_preprocessor_folder(folder))
    task = get_task(plan.task).prepare(plan.data, settings.model_copy(deep=True), preprocessor, progress=progress)
    if task.fingerprint != plan.fingerprint:
        problem = f"{plan.data} has changed since this comparison was created."
        raise RunError(problem, fix="Put the original file back, or start a new comparison.")
    return task
