"""Checkpoints survive kills, truncation and full disks."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from killed_calls import CallKiller
from torch import nn

from seqwise.errors import RunError, SaveError
from seqwise.files import explain_write_errors
from seqwise.training import checkpoints
from seqwise.training.checkpoints import (
    MANIFEST,
    NUM_CHECKPOINTS,
    STATE,
    TENSORS,
    Snapshot,
    get_weights,
    load_newest_checkpoint,
    load_weights,
    remove_unusable_checkpoints,
    save_checkpoint,
    save_weights,
)


def make_snapshot(value: float, size: int = 4) -> Snapshot:
    return Snapshot({"weight": torch.full((size,), value)}, {"value": value, "nested": [1, None]})


def load_newest(folder, warnings=None):
    return load_newest_checkpoint(folder, (warnings if warnings is not None else []).append)


def test_a_saved_checkpoint_is_loaded(tmp_path):
    save_checkpoint(tmp_path, 7, make_snapshot(1.5))
    loaded = load_newest(tmp_path)
    assert torch.equal(loaded.tensors["weight"], torch.full((4,), 1.5))
    assert loaded.state == {"value": 1.5, "nested": [1, None]}


def test_the_newest_checkpoint_is_loaded_and_old_ones_are_removed(tmp_path):
    for step in (5, 10, 15, 100):
        save_checkpoint(tmp_path, step, make_snapshot(step))
    assert load_newest(tmp_path).state["value"] == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100", "step-15"]
    assert NUM_CHECKPOINTS == 2


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        (TENSORS, lambda path: os.truncate(path, 10), "has 10 of"),
        (TENSORS, lambda path: path.unlink(), "is missing"),
        (STATE, lambda path: path.write_text(path.read_text().replace("2.0", "3.0")), "does not match its digest"),
        (MANIFEST, lambda path: path.write_text("{"), "no readable manifest"),
        (MANIFEST, lambda path: path.unlink(), "no readable manifest"),
    ],
    ids=["truncated", "missing", "altered", "half a manifest", "no manifest"],
)
def test_a_damaged_newest_checkpoint_is_skipped_with_a_message(tmp_path, name, damage, problem):
    save_checkpoint(tmp_path, 1, make_snapshot(1.0))
    path = save_checkpoint(tmp_path, 2, make_snapshot(2.0))
    damage(path / name)
    warnings: list[str] = []
    assert load_newest(tmp_path, warnings).state["value"] == 1.0
    assert len(warnings) == 1
    assert "step-2" in warnings[0]
    assert problem in warnings[0]


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path):
    (save_checkpoint(tmp_path, 2, make_snapshot(2.0)) / TENSORS).unlink()
    save_checkpoint(tmp_path, 2, make_snapshot(3.0))
    assert load_newest(tmp_path).state["value"] == 3.0


def test_the_temporary_file_of_safetensors_is_removed_by_the_next_save(tmp_path, monkeypatch):
    """safetensors writes to a file with a random name beside the one it was given, which a kill leaves behind."""

    def save_half(tensors, path, metadata):
        (path.parent / ".tmpX1y2Z3").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    weights = {"weight": torch.ones(4)}
    if (pid := os.fork()) == 0:
        monkeypatch.setattr(checkpoints, "save_file", save_half)
        save_weights(tmp_path / "model.safetensors", weights)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".model.safetensors.writing"]
    assert (tmp_path / ".model.safetensors.writing" / ".tmpX1y2Z3").exists()
    save_weights(tmp_path / "model.safetensors", weights)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_leftovers_are_removed(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, step, make_snapshot(step))
    (tmp_path / "step-3").mkdir()
    (tmp_path / ".step-4.writing").mkdir()
    assert load_newest(tmp_path, []).state["value"] == 2
    remove_unusable_checkpoints(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1", "step-2"]
    remove_unusable_checkpoints(tmp_path / "missing", 0)


def test_old_checkpoints_that_a_kill_kept_from_being_removed_are_removed_at_the_next_resume(tmp_path):
    """After the rename of the newest checkpoint and before the removal of the oldest."""
    for step in (3, 6):
        save_checkpoint(tmp_path, step, make_snapshot(step))
    (tmp_path / "step-6").rename(tmp_path / "step-9")
    save_checkpoint(tmp_path, 6, make_snapshot(6))
    (tmp_path / "step-3").mkdir()
    remove_unusable_checkpoints(tmp_path, 9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-6", "step-9"]


def save_and_die(folder: Path, saved: Snapshot, fatal_call: int) -> bool:
    """Saves a checkpoint in a forked child that kills itself before its n-th call that writes to the disk.

    Returns whether the child completed the write.
    """
    child = os.fork()
    if child == 0:
        killer = CallKiller(fatal_call)
        killer.wrap(checkpoints, "save_file")
        killer.wrap(os, "fsync")
        killer.wrap(Path, "write_text", "rename", "mkdir")
        try:
            save_checkpoint(folder, 2, saved)
        finally:
            os._exit(0 if killer.num_calls >= 8 else 1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


def test_a_kill_at_any_point_of_the_write_leaves_a_complete_checkpoint(tmp_path):
    for call in range(1, 40):
        folder = tmp_path / str(call)
        save_checkpoint(folder, 1, make_snapshot(1.0))
        completed = save_and_die(folder, make_snapshot(2.0), call)
        warnings: list[str] = []
        loaded = load_newest(folder, warnings)
        assert loaded.state["value"] in (1.0, 2.0)
        assert float(loaded.tensors["weight"][0]) == loaded.state["value"]
        assert warnings == []
        if completed:
            assert loaded.state["value"] == 2.0
            return
    pytest.fail("the write was never completed")


def test_a_full_disk_is_reported_once_and_the_previous_checkpoint_stays(tmp_path):
    """A limit on file size makes the kernel refuse the write, as a full disk does."""
    save_checkpoint(tmp_path, 1, make_snapshot(1.0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(SaveError, match=r"step-2: cannot write") as excinfo:
            save_checkpoint(tmp_path, 2, make_snapshot(2.0, size=100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert excinfo.value.exit_status == 1
    assert f"seqwise train --resume {tmp_path.parent}" in str(excinfo.value)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]
    assert load_newest(tmp_path).state["value"] == 1.0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_no_space_left_is_reported_as_a_full_disk(tmp_path):
    file = Path("/dev/full")
    with pytest.raises(SaveError, match="the disk is full"), explain_write_errors(file), file.open("w") as stream:
        stream.write("x")


def test_a_tied_matrix_is_saved_once_and_loaded_into_both_places(tmp_path):
    model = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight
    saved = get_weights(model)
    assert list(saved) == ["a.weight"]
    save_weights(tmp_path / "model.safetensors", saved)
    expected = saved["a.weight"].clone()
    with torch.no_grad():
        model["a"].weight.zero_()
    load_weights(model, {"a.weight": expected}, "file")
    assert torch.equal(model["b"].weight, expected)


def test_weights_of_another_model_are_an_error_that_names_them():
    with pytest.raises(RunError, match="'bias' is missing from the file"):
        load_weights(nn.Linear(2, 2), {"weight": torch.zeros(2, 2)}, "file")
    with pytest.raises(RunError, match=r"weight has shape \(3, 2\), the model needs \(2, 2\)"):
        load_weights(nn.Linear(2, 2, bias=False), {"weight": torch.zeros(3, 2)}, "file")


def test_nothing_in_a_checkpoint_is_executable(tmp_path):
    path = save_checkpoint(tmp_path, 1, make_snapshot(1.0))
    assert sorted(file.name for file in path.iterdir()) == [MANIFEST, STATE, TENSORS]
    json.loads((path / STATE).read_text())


def test_checkpoints_that_became_a_link_during_training_are_not_written(tmp_path):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    run.mkdir()
    (run / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(RunError, match=r"is a link to .*elsewhere, outside of"):
        save_checkpoint(run / "checkpoints", 1, Snapshot({}, {}))
    assert list(elsewhere.iterdir()) == []
