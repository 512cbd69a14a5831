"""Why a training or a comparison has failed: `failure.json` in its folder, until it is resumed.

    {"problem": "the loss of step 12 is not finite …", "fix": "Try half the learning rate …", "time": "2026-01-31 …"}

A process that was stopped by Ctrl-C or SIGTERM, or killed, leaves no such file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from seqwise.errors import SeqwiseError, shorten
from seqwise.files import remove, write_text
from seqwise.signals import is_due_to_interrupt

FAILURE_FILE = "failure.json"


@contextmanager
def record_failure(
    folder: Path, last_file: str, *, is_recorded: Callable[[Exception], bool] = lambda error: True
) -> Iterator[None]:
    """Removes the failure of an earlier attempt, and saves that of the block, which is raised as it is.

    `last_file` is the file that makes the folder complete: without it, the folder is about to be removed. Errors for
    which `is_recorded` is false, such as a lost connection to the process that failed, are not saved.
    """
    with suppress(SeqwiseError):  # it stays on a read-only disk, where nothing can be trained
        remove(folder / FAILURE_FILE, folder)
    try:
        yield
    except BrokenPipeError:  # the reader of the output has closed it, as with `| head`: the user stopped it
        raise
    except Exception as error:
        if is_recorded(error) and not is_due_to_interrupt(error) and (folder / last_file).exists():
            with suppress(SeqwiseError, OSError):  # the disk may be full: the error itself matters more
                write_text(folder / FAILURE_FILE, json.dumps(_describe(error), indent=1) + "\n", concurrent=True)
        raise


def _describe(error: Exception) -> dict[str, str]:
    if isinstance(error, SeqwiseError):
        problem, fix = str(SeqwiseError(error.problem, file=error.file, line=error.line)), error.fix
    else:
        problem, fix = shorten(f"{type(error).__name__}: {error}"), ""
    return {"problem": problem, "fix": fix, "time": datetime.now().astimezone().isoformat(" ", "seconds")}
