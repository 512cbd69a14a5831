"""The folder of a comparison: the names of its files, and when it may be created or removed."""

from __future__ import annotations

import shlex
from pathlib import Path

from seqwise.files import remove, remove_empty
from seqwise.new_folders import FolderKind
from seqwise.training.file_names import COMPARISON_FILE, ENVIRONMENT, WEIGHTS

PLAN_FILE = COMPARISON_FILE
TRIALS_FOLDER = "trials"
PREPROCESSOR_FOLDER = "preprocessor"
OLD_PREPROCESSOR_FOLDER = "learned"  # of version 0.1
WORKER_LOG = "workers.log"


def get_resume_command(folder: Path) -> str:
    return f"seqwise compare --resume {shlex.quote(str(folder))}"


COMPARISON_FOLDER = FolderKind("comparison", PLAN_FILE, (PREPROCESSOR_FOLDER,), get_resume_command)


def get_preprocessor_folder(folder: Path) -> Path:
    """Returns the folder with the preprocessor that all trials of a comparison share."""
    old = folder / OLD_PREPROCESSOR_FOLDER
    return old if old.is_dir() else folder / PREPROCESSOR_FOLDER


def has_trained(folder: Path) -> bool:
    """Returns whether any trial has saved weights or a checkpoint."""
    trials = folder / TRIALS_FOLDER
    return any(trials.glob("*/*/checkpoints/step-*")) or any(trials.glob(f"*/*/{WEIGHTS}"))


def remove_untrained_comparison(folder: Path) -> None:
    """Removes a comparison in which nothing was trained, to make room for another; other files stay."""
    if has_trained(folder):
        return
    files = (PLAN_FILE, WORKER_LOG, ENVIRONMENT)
    for name in (*files, PREPROCESSOR_FOLDER, OLD_PREPROCESSOR_FOLDER, TRIALS_FOLDER):
        remove(folder / name, folder, ignore_errors=True)
    remove_empty([folder])
