"""Checkpoints, written atomically (temporary folder, fsync, rename), so that a kill never leaves an incomplete one.

A checkpoint is `step-N/` with `tensors.safetensors`, `state.json` and, written last, `manifest.json` with the size
and digest of both. Loading one never executes code. The functions at the end read and write the weights of a model.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seqwise.errors import RunError
from seqwise.files import PARTIAL_SUFFIX, explain_write_errors, replace_file, sync

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
NUM_CHECKPOINTS = 2  # the newest, and the one before in case the newest is damaged


@dataclass(frozen=True)
class Snapshot:
    """Everything that training needs to resume: tensors by name, and plain data."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, step: int, snapshot: Snapshot) -> Path:
    """Write `folder/step-N`, unless an intact one exists, and remove all but the newest `NUM_CHECKPOINTS`."""
    final = folder / f"step-{step}"
    if final.exists():
        if _find_damage(final) is None:
            return final
        shutil.rmtree(final)
    temporary = folder / f".step-{step}{PARTIAL_SUFFIX}"
    shutil.rmtree(temporary, ignore_errors=True)
    with explain_write_errors(final, get_resume_advice(folder.parent)):
        try:
            temporary.mkdir(parents=True)
            save_file({name: t.detach().contiguous() for name, t in snapshot.tensors.items()}, temporary / TENSORS)
            (temporary / STATE).write_text(json.dumps(snapshot.state), encoding="utf-8")
            manifest = {}
            for file in (temporary / TENSORS, temporary / STATE):
                sync(file)
                manifest[file.name] = {"bytes": file.stat().st_size, "blake2b": _digest(file)}
            (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            sync(temporary / MANIFEST)
            sync(temporary)
            temporary.rename(final)
            sync(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    for _, old in list(_list_checkpoints(folder))[NUM_CHECKPOINTS:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Snapshot | None:
    """Return the newest complete checkpoint, or None; damaged ones are reported and skipped."""
    for _, path in _list_checkpoints(folder):
        damage = _find_damage(path)
        if damage is None:
            return Snapshot(load_file(path / TENSORS), json.loads((path / STATE).read_text()))
        warn(f"{path} is damaged ({damage}); falling back to the checkpoint before it.")
    return None


def remove_leftovers(folder: Path, step: int) -> None:
    """Remove damaged checkpoints after `step`, at which the run resumes, and unfinished writes."""
    damaged = [path for number, path in _list_checkpoints(folder) if number > step]
    for path in [*damaged, *folder.glob(f".step-*{PARTIAL_SUFFIX}")]:
        shutil.rmtree(path, ignore_errors=True)


def _list_checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield (step, folder) of each checkpoint, newest first."""
    matches = ((re.fullmatch(r"step-(\d+)", path.name), path) for path in folder.glob("step-*"))
    yield from sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _find_damage(path: Path) -> str | None:
    """Return what is wrong with a checkpoint folder, or None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError):
        return "no readable manifest"
    for name, expected in manifest.items():
        try:
            size = (path / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if size != expected["bytes"]:
            return f"{name} has {size:,} of {expected['bytes']:,} bytes"
        if _digest(path / name) != expected["blake2b"]:
            return f"{name} does not match its digest"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def resume_command(run: Path) -> str:
    """Return the command that resumes the run in this folder."""
    return shlex.join(["seqwise", "train", "--resume", str(run)])


def get_resume_advice(run: Path) -> str:
    """Return the advice for a write in a run folder that failed."""
    return f"What was saved before is complete. Fix the cause, then resume with: {resume_command(run)}"


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name; a shared tensor only once."""
    persistent = set(model.state_dict())
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    return tensors | {name: b for name, b in model.named_buffers() if name in persistent}


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write the weights file of a run."""
    with replace_file(path, repair=get_resume_advice(path.parent)) as temporary:
        save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, temporary)


@torch.no_grad()
def load_weights(model: nn.Module, tensors: dict[str, Tensor], source: Path | str) -> None:
    """Copy saved weights into the model; names and shapes must agree exactly.

    A model may have `optional_weights`, which files of earlier versions lack; they stay as they are.
    """
    optional = set(getattr(model, "optional_weights", ())) - tensors.keys()
    model_weights = {name: tensor for name, tensor in get_weights(model).items() if name not in optional}
    if differences := sorted(model_weights.keys() ^ tensors.keys()):
        reason = "is missing from the file" if differences[0] in model_weights else "is not a weight of the model"
        raise RunError(f"the weights do not fit the model: {differences[0]!r} {reason}.", file=source)
    for name, tensor in model_weights.items():
        if tensor.shape != tensors[name].shape:
            saved, expected = tuple(tensors[name].shape), tuple(tensor.shape)
            raise RunError(f"{name} has shape {saved}, the model needs {expected}.", file=source)
        tensor.copy_(tensors[name])
