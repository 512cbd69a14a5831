"""Checkpoints whose manifest or state is damaged or edited are skipped with a message; none is ever lost silently."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from short_runs import OPTIONS, TOKENS_PER_STEP, train

from seqwise.digests import read_object
from seqwise.errors import RunError
from seqwise.training.checkpoints import MANIFEST, STATE, TENSORS, Snapshot, load_newest_checkpoint, save_checkpoint
from seqwise.training.loop import Trainer
from seqwise.training.run import Run
from seqwise.training.training_run import open_training


def save_two(folder: Path) -> Path:
    for step in (1, 2):
        path = save_checkpoint(folder, step, Snapshot({"weight": torch.full((4,), float(step))}, {"step": step}))
    return path


INTERVALS = ["--training.save-every", "10", "--data.valid-fraction", "0.005"]
ENTRY = {"bytes": 1, "blake2b": "0"}
MANIFESTS = {
    "empty object": {},
    "list": [],
    "null": None,
    "number": 3,
    "text": "tensors.safetensors",
    "no tensors": {STATE: ENTRY},
    "no state": {TENSORS: ENTRY},
    "entries are lists": {TENSORS: [], STATE: []},
    "sizes are texts": {TENSORS: {**ENTRY, "bytes": "1"}, STATE: ENTRY},
    "negative sizes": {TENSORS: {**ENTRY, "bytes": -1}, STATE: ENTRY},
    "digest is null": {TENSORS: {**ENTRY, "blake2b": None}, STATE: ENTRY},
    "another path": {"../step-1/tensors.safetensors": ENTRY, STATE: ENTRY},
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_empty_or_malformed_manifest_is_damage(name: str, tmp_path: Path):
    path = save_two(tmp_path)
    (path / MANIFEST).write_text(json.dumps(MANIFESTS[name]))
    warnings: list[str] = []
    loaded = load_newest_checkpoint(tmp_path, warnings.append)
    assert loaded is not None
    assert loaded.state == {"step": 1}
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{path} is damaged (")


@pytest.mark.parametrize("content", ["", "[" * 100_000, "\x00" * 40, '{"a": ' * 50_000])
def test_a_manifest_that_is_not_json_is_damage(content: str, tmp_path: Path):
    (save_two(tmp_path) / MANIFEST).write_text(content)
    warnings: list[str] = []
    assert load_newest_checkpoint(tmp_path, warnings.append).state == {"step": 1}
    assert "no readable manifest" in warnings[0]


def test_a_run_with_damaged_checkpoints_only_is_not_started_again(tmp_path: Path):
    save_two(tmp_path)
    for path in tmp_path.iterdir():
        (path / MANIFEST).write_text("{}")
    warnings: list[str] = []
    with pytest.raises(RunError, match="no checkpoint is left from which the run can resume") as excinfo:
        load_newest_checkpoint(tmp_path, warnings.append)
    assert f"rm -r {tmp_path}" in excinfo.value.fix
    assert len(warnings) == 2
    assert len(list(tmp_path.iterdir())) == 2, "nothing is deleted"


def write_state(path: Path, state: Any) -> None:
    """Replaces the state of a checkpoint, and its digest in the manifest."""
    content = json.dumps(state) if not isinstance(state, str) else state
    (path / STATE).write_text(content)
    digest = hashlib.blake2b(content.encode()).hexdigest()
    manifest = {**read_object(path / MANIFEST), STATE: {"bytes": len(content.encode()), "blake2b": digest}}
    (path / MANIFEST).write_text(json.dumps(manifest))


def change_place(**values: Any) -> Callable[[dict], Any]:
    return lambda state: {**state, "place": {**state["place"], **values}}


STATES: dict[str, tuple[Callable[[dict], Any], str]] = {
    "empty": (lambda state: {}, "'place' lacks some of step"),
    "a list": (lambda state: [], "expected a JSON object"),
    "nested too deeply": (lambda state: "[" * 100_000, "nested too deeply"),
    "no place": (lambda state: {**state, "place": None}, "'place' lacks"),
    "no step": (lambda state: {**state, "place": {"epoch": 0}}, "'place' lacks"),
    "a negative step": (change_place(step=-3), "'step' is -3"),
    "steps as text": (change_place(step="30"), "'step' is 30"),
    "a step that is true": (change_place(step=True), "'step' is True"),
    "infinite seconds": (change_place(seconds=float("inf")), "'seconds' is inf"),
    "huge tokens": (change_place(tokens=10**400), "'tokens' is 1000"),
    "history of texts": (change_place(history=["a"]), "'history' is"),
    "no micro-batches": (change_place(pieces=0), "'pieces' is 0"),
    "an unknown key": (change_place(unknown=1), "'unknown' is 1"),
    "no carry": (lambda state: {key: state[key] for key in state if key != "carry"}, "'carry' does not describe"),
    "carry of a missing tensor": (lambda state: {**state, "carry": ["tensor"] * 9}, "'carry' does not describe"),
    "carry of text": (lambda state: {**state, "carry": "abc"}, "'carry' does not describe"),
    "no schedule": (lambda state: {**state, "schedule": None}, "'schedule' is missing"),
    "schedule of texts": (lambda state: {**state, "schedule": {"a": "b"}}, "not a number"),
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, book) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    budget = f"{30 * TOKENS_PER_STEP}-tokens"
    arguments = ["--model", "lstm", *OPTIONS, *INTERVALS, "--budget", budget, "--out", folder]
    assert train(book, *arguments) == 0
    return folder


@pytest.fixture(scope="module")
def trainer(finished_run) -> Trainer:
    return open_training(Run.open(finished_run)).trainer


@pytest.fixture
def checkpoints(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run / "checkpoints", tmp_path / "checkpoints"))


@pytest.mark.parametrize("name", STATES)
def test_a_state_without_its_keys_or_with_wrong_types_is_damage(name: str, checkpoints, trainer):
    newest = checkpoints / "step-30"
    change, message = STATES[name]
    write_state(newest, change(read_object(newest / STATE)))
    warnings: list[str] = []
    loaded = load_newest_checkpoint(checkpoints, warnings.append, trainer.check_snapshot)
    assert loaded is not None
    assert loaded.state["place"]["step"] == 20
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{newest} is damaged (")
    assert message in warnings[0]


def test_weights_of_a_checkpoint_that_are_not_finite_are_damage(checkpoints, trainer):
    warnings: list[str] = []
    snapshot = load_newest_checkpoint(checkpoints, warnings.append, trainer.check_snapshot)
    assert warnings == []
    name = next(name for name in snapshot.tensors if name.startswith("model."))
    snapshot.tensors[name].view(-1)[0] = float("nan")
    shutil.rmtree(checkpoints / "step-30")
    save_checkpoint(checkpoints, 30, snapshot)
    load_newest_checkpoint(checkpoints, warnings.append, trainer.check_snapshot)
    assert f"{name} holds infinite numbers or nan" in warnings[0]


def test_a_run_whose_newest_state_lacks_its_keys_resumes_from_the_checkpoint_before(finished_run, tmp_path, capsys):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    write_state(folder / "checkpoints/step-30", {})
    assert train("--resume", folder) == 0
    stderr = capsys.readouterr().err
    assert f"{folder / 'checkpoints/step-30'} is damaged (state.json: 'place' lacks some of step" in stderr
    assert "resuming at step 20." in stderr
    assert (folder / "model.safetensors").read_bytes() == (finished_run / "model.safetensors").read_bytes()


def test_a_command_that_finds_no_usable_checkpoint_says_so(finished_run, tmp_path, capsys):
    folder = Path(shutil.copytree(finished_run, tmp_path / "run"))
    for path in (folder / "checkpoints").iterdir():
        (path / MANIFEST).write_text("null")
    assert train("--resume", folder) == 2
    stderr = capsys.readouterr().err
    assert f"error: {folder / 'checkpoints'}: no checkpoint is left from which the run can resume: all" in stderr
    assert (folder / "model.safetensors").read_bytes() == (finished_run / "model.safetensors").read_bytes()
