"""Checkpoints, written atomically (temporary folder, fsync, rename), so that a kill never leaves an incomplete one.

A checkpoint is a folder `step-N/` with `tensors.safetensors`, `state.json` and, written last, `manifest.json` with the
size and digest of both. A damaged one is skipped, and the one before it is used. Loading one never executes code. The
functions at the end save the weights of a model, with a digest, and copy saved weights into a model.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqwise.digests import PLACEHOLDER, check_digest, insert_digest, read_object
from seqwise.errors import RunError
from seqwise.files import PARTIAL_SUFFIX, check_link, explain_write_errors, remove, replace_file, sync
from seqwise.layers.old_names import use_current_names

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
NUM_CHECKPOINTS = 2  # the newest, and the one before in case the newest is damaged


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint, in memory: everything that training needs to resume."""

    tensors: dict[str, Tensor]  # weights, state of the optimiser, averaged weights, state of the model
    state: dict[str, Any]  # everything else, as JSON values

    def select(self, prefix: str) -> dict[str, Tensor]:
        """Returns the tensors whose names begin with `prefix`, by the rest of their names."""
        return {name[len(prefix) :]: each for name, each in self.tensors.items() if name.startswith(prefix)}


def save_checkpoint(folder: Path, step: int, snapshot: Snapshot) -> Path:
    """Writes `folder/step-N`, unless an intact one exists, and removes all but the newest `NUM_CHECKPOINTS`."""
    check_link(folder, folder.parent)  # again: it may have become a link since training began
    path = folder / f"step-{step}"
    if path.exists():
        if _find_damage(path) is None:
            return path
        remove(path, folder.parent)
    temporary = folder / f".step-{step}{PARTIAL_SUFFIX}"
    remove(temporary, folder.parent, ignore_errors=True)
    with explain_write_errors(path, get_resume_fix(folder.parent)):
        try:
            temporary.mkdir(parents=True)
            save_file({name: t.detach().contiguous() for name, t in snapshot.tensors.items()}, temporary / TENSORS)
            (temporary / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
            manifest = {}
            for file in (temporary / TENSORS, temporary / STATE):
                sync(file)
                manifest[file.name] = {"bytes": file.stat().st_size, "blake2b": _compute_digest(file)}
            (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            sync(temporary / MANIFEST)
            sync(temporary)
            temporary.rename(path)
            sync(folder)
        except BaseException:
            remove(temporary, folder.parent, ignore_errors=True)
            raise
    for _, old_path in list(list_checkpoints(folder))[NUM_CHECKPOINTS:]:
        remove(old_path, folder.parent, ignore_errors=True)
    return path


def load_newest_checkpoint(
    folder: Path, warn: Callable[[str], None], check: Callable[[Snapshot], None] | None = None
) -> Snapshot | None:
    """Returns the newest usable checkpoint, or None if there is none at all; damaged ones are reported and skipped.

    `check` raises a ValueError for content from which training cannot resume. If all checkpoints are damaged, an error
    is raised: training from the beginning would replace the best weights and the metrics of the run.
    """
    checkpoints = list(list_checkpoints(folder))
    for _, path in checkpoints:
        try:
            return _load_checkpoint(path, check)
        except ValueError as error:
            warn(f"{path} is damaged ({error}) and is skipped.")
    if not checkpoints:
        return None
    delete = shlex.join(["rm", "-r", str(folder)])
    fix = f"Copy the folder again from where it was made, or delete the checkpoints to train from the start: {delete}"
    raise RunError("no checkpoint is left from which the run can resume: all are damaged.", file=folder, fix=fix)


def _load_checkpoint(path: Path, check: Callable[[Snapshot], None] | None) -> Snapshot:
    """Returns the content of a checkpoint; raises a ValueError that says what is damaged."""
    damage = _find_damage(path)
    if damage is not None:
        raise ValueError(damage)
    try:
        snapshot = Snapshot(load_file(path / TENSORS), read_object(path / STATE))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ValueError(str(error)) from None
    if check is not None:
        check(snapshot)
    return snapshot


def remove_unusable_checkpoints(folder: Path, resumed_step: int) -> None:
    """Removes what a resumed run does not need.

    These are checkpoints after the step at which it resumes, which are damaged; old ones that a kill kept from being
    removed; and unfinished writes.
    """
    checkpoints = list(list_checkpoints(folder))
    later_paths = [path for step, path in checkpoints if step > resumed_step]
    old_paths = [path for step, path in checkpoints if step <= resumed_step][NUM_CHECKPOINTS:]
    for path in [*later_paths, *old_paths, *folder.glob(f".step-*{PARTIAL_SUFFIX}")]:
        remove(path, folder.parent, ignore_errors=True)


def list_checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yields (step, folder) of each checkpoint, newest first."""
    matches = ((re.fullmatch(r"step-(\d+)", path.name), path) for path in folder.glob("step-*"))
    yield from sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _find_damage(path: Path) -> str | None:
    """Returns what is wrong with a checkpoint folder, or None."""
    try:
        manifest = read_object(path / MANIFEST)
    except (OSError, ValueError):
        return "no readable manifest"
    for name in (TENSORS, STATE):
        expected = manifest.get(name)
        if not isinstance(expected, dict) or not isinstance(expected.get("bytes"), int):
            return f"its manifest lacks the size of {name}"
        try:
            size = (path / name).stat().st_size
            if size != expected["bytes"]:
                return f"{name} has {size:,} of {expected['bytes']:,} bytes"
            if _compute_digest(path / name) != expected.get("blake2b"):
                return f"{name} does not match its digest"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def _compute_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def get_resume_command(run_folder: Path, num_processes: int = 1) -> str:
    """Returns the command that resumes a run, with as many processes as before."""
    processes = ["--nproc", str(num_processes)] if num_processes > 1 else []
    return shlex.join(["seqwise", "train", "--resume", str(run_folder), *processes])


def get_resume_fix(run_folder: Path) -> str:
    """Returns the fix for a failed write in a run folder, as a sentence of the error message."""
    command = get_resume_command(run_folder)
    return f"The files that were saved before are complete. Fix the cause, then resume with: {command}"


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and persistent buffers of a model by name; a shared parameter has one name."""
    persistent = set(model.state_dict())
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    return tensors | {name: b for name, b in model.named_buffers() if name in persistent}


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Writes the weights file of a run, with a digest of its content."""
    with replace_file(path, fix=get_resume_fix(path.parent), in_temporary_folder=True) as temporary:
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, temporary, PLACEHOLDER)
        insert_digest(temporary)


def read_weights(path: Path, fix: str, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Returns the weights in a file, which must match its digest, if it has one, and hold no NaN."""
    try:
        check_digest(path)
        weights = load_file(path, device=str(device))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"the weights cannot be read: {error}.", file=path, fix=fix) from None
    _check_finite(weights, path, torch.isnan)  # a buffer, such as a mask, may hold infinite numbers
    return weights


def _check_finite(weights: dict[str, Tensor], file: Path | str, is_wrong: Callable[[Tensor], Tensor]) -> None:
    name = find_non_finite(weights, is_wrong)
    if name is not None:
        fix = "Train again with half the learning rate (--training.learning-rate), or copy the folder again."
        raise RunError(f"the weights {name} hold infinite numbers or nan.", file=file, fix=fix)


def find_non_finite(
    weights: dict[str, Tensor], is_wrong: Callable[[Tensor], Tensor] = lambda tensor: ~tensor.isfinite()
) -> str | None:
    """Returns the name of the first tensor that holds an infinite number or NaN; None if all are finite."""
    # Numbers of one byte are never weights: `load_weights` reports their type.
    floats = ((name, each) for name, each in weights.items() if each.is_floating_point() and each.itemsize > 1)
    return next((name for name, tensor in floats if bool(is_wrong(tensor).any())), None)


@torch.no_grad()
def load_weights(model: nn.Module, saved_weights: dict[str, Tensor], file: Path | str) -> None:
    """Copies saved weights into the model; names, shapes and types must agree. `file` is for error messages.

    Parameters must be finite.

    Names of version 0.1 are replaced. A model may have `optional_weights`, which files of earlier versions lack; they
    stay as they are.
    """
    saved_weights = use_current_names(saved_weights, get_weights(model))
    missing_optional = set(getattr(model, "optional_weights", ())) - saved_weights.keys()
    model_weights = {name: tensor for name, tensor in get_weights(model).items() if name not in missing_optional}
    if differences := sorted(model_weights.keys() ^ saved_weights.keys()):
        reason = "is missing from the file" if differences[0] in model_weights else "is not a weight of the model"
        others = f" (and {len(differences) - 1:,} other differences)" if len(differences) > 1 else ""
        raise RunError(f"the weights do not fit the model: {differences[0]!r} {reason}{others}.", file=file)
    for name, tensor in model_weights.items():
        if tensor.shape != saved_weights[name].shape:
            saved, expected = tuple(saved_weights[name].shape), tuple(tensor.shape)
            raise RunError(f"{name} has shape {saved}, the model needs {expected}.", file=file)
        if tensor.dtype != saved_weights[name].dtype:
            problem = f"{name} has type {saved_weights[name].dtype}, the model needs {tensor.dtype}."
            raise RunError(problem, file=file)
    parameters = {name: saved_weights[name] for name, _ in model.named_parameters() if name in saved_weights}
    _check_finite(parameters, file, lambda tensor: ~tensor.isfinite())
    for name, tensor in model_weights.items():
        tensor.copy_(saved_weights[name])
