"""A flipped bit in any file that Seqwise writes is detected when it is read, or changes nothing that is read."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed_calls import CallKiller
from safetensors.torch import save_file
from stores import write_store

from seqwise.data.corpus.store import TokenStore
from seqwise.digests import PLACEHOLDER, add_digest, check_digest, insert_digest, read_object
from seqwise.errors import RunError, SeqwiseError
from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.tasks.task import Preprocessor
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.text.tokenizer import Tokenizer
from seqwise.training import checkpoints
from seqwise.training.checkpoints import (
    Snapshot,
    load_newest_checkpoint,
    read_weights,
    save_checkpoint,
    save_weights,
)
from seqwise.vectors.formats import load_vectors, save_vectors
from seqwise.vectors.keyed import KeyedVectors

NUM_FLIPS = 64  # of each file, besides all bits of a small weights file
TENSORS = {"embedding.weight": torch.arange(12.0).reshape(3, 4), "counts": torch.arange(5)}
SUMMARY = TrainingSummary("loss", np.arange(8, dtype=np.uint64), 1, {"counts": np.arange(3)}, {"ngram": 32})


def listed(tensors: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    return {name: (str(tensor.dtype), tensor.tolist()) for name, tensor in tensors.items()}


def write_weights(folder: Path) -> Callable[[], object]:
    save_weights(folder / "model.safetensors", TENSORS)
    return lambda: listed(read_weights(folder / "model.safetensors", "fix"))


def write_summary(folder: Path) -> Callable[[], object]:
    SUMMARY.save(folder)

    def read() -> object:
        summary = TrainingSummary.load(folder)
        assert summary is not None
        return summary.metric, summary.hashes.tolist(), summary.sampling, listed(summary.arrays), summary.attributes

    return read


def write_preprocessor(folder: Path) -> Callable[[], object]:
    tokenizer = Tokenizer.train("words", ["the cat sat on the mat and the dog slept"])
    Preprocessor({"text": tokenizer, "de": tokenizer}, {"labels": ["yes", "no"], "scale": 0.1}).save(folder)

    def read() -> object:
        loaded = Preprocessor.load(folder)
        return {name: each.fingerprint for name, each in loaded.tokenizers.items()}, loaded.attributes

    return read


def write_vectors(folder: Path) -> Callable[[], object]:
    save_vectors(
        folder / "vectors.safetensors", KeyedVectors(["a", "b"], np.ones((2, 3), np.float32), np.array([2, 1]))
    )

    def read() -> object:
        vectors = load_vectors(folder / "vectors.safetensors")
        assert vectors.counts is not None
        return vectors.words, vectors.matrix.tolist(), vectors.counts.tolist(), dict(vectors.about)

    return read


def write_scores(folder: Path) -> Callable[[], object]:
    texts = (ExampleText("a", "b", "c"), ExampleText("d", "e", "f"))
    ExampleScores("accuracy", "texts", np.arange(4.0).reshape(2, 2), texts).save(folder)

    def read() -> object:
        scores = ExampleScores.load(folder)
        return scores.metric, scores.unit, scores.sums.tolist(), scores.texts

    return read


def write_tokens(folder: Path) -> Callable[[], object]:
    write_store(folder / "train", np.random.default_rng(0).integers(0, 60_000, 1000))

    def read() -> object:
        store = TokenStore(folder / "train")
        return store.info, store.read(0, 1000).tolist()

    return read


def write_checkpoint(folder: Path) -> Callable[[], object]:
    path = save_checkpoint(
        folder.parent, int(folder.name.removeprefix("step-")), Snapshot(TENSORS, {"place": [1, 2.5]})
    )
    assert path == folder

    def read() -> object:
        snapshot = load_newest_checkpoint(folder.parent, lambda message: None)
        assert snapshot is not None
        return listed(snapshot.tensors), snapshot.state

    return read


KINDS = {
    "weights": write_weights,
    "training summary": write_summary,
    "tokenisers and attributes": write_preprocessor,
    "vectors": write_vectors,
    "scores of examples": write_scores,
    "token store": write_tokens,
    "checkpoint": write_checkpoint,
}


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_detected_or_changes_nothing(kind: str, tmp_path: Path):
    folder = tmp_path / "step-1"
    if kind != "checkpoint":
        folder.mkdir()
    read = KINDS[kind](folder)
    expected = read()
    for file in sorted(folder.iterdir()):
        content, num_detected = file.read_bytes(), 0
        for bit in random.Random(file.name).sample(range(8 * len(content)), min(NUM_FLIPS, 8 * len(content))):
            file.write_bytes(flip(content, bit))
            try:
                assert read() == expected, f"bit {bit} of {file.name}"
            except SeqwiseError:
                num_detected += 1
        file.write_bytes(content)
        assert num_detected > 0.9 * NUM_FLIPS
    assert read() == expected


def test_every_byte_of_a_weights_file_is_protected(tmp_path: Path):
    """Except for the name of the digest: a file without one is read as it is."""
    read = write_weights(tmp_path)
    expected, file = read(), tmp_path / "model.safetensors"
    content = file.read_bytes()
    name_start = content.index(b"blake2b")
    name = range(name_start, name_start + len("blake2b"))
    for position in range(len(content)):
        file.write_bytes(flip(content, 8 * position + (0 if position in name else position % 8)))
        if position in name:
            assert read() == expected
        else:
            with pytest.raises(RunError, match="the weights cannot be read"):
                read()


def test_files_of_versions_without_digests_are_read(tmp_path: Path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert listed(read_weights(tmp_path / "model.safetensors", "")) == listed(TENSORS)
    save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt"})
    assert listed(read_weights(tmp_path / "model.safetensors", "")) == listed(TENSORS)
    (tmp_path / "task.json").write_text('{"labels": ["a"], "scale": "b"}')
    assert read_object(tmp_path / "task.json") == {"labels": ["a"], "scale": "b"}


def test_equal_content_has_equal_bytes(tmp_path: Path):
    """Although safetensors writes metadata in random order."""
    metadata = {f"key {number}": "ä\n" for number in range(8)}
    for name in ("a", "b", "c"):
        checkpoints.save_file(TENSORS, tmp_path / name, {**metadata, **PLACEHOLDER})
        insert_digest(tmp_path / name)
        check_digest(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected a JSON object, found \\[\\]"),
        ("null", "expected a JSON object, found null"),
        ("", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (json.dumps({**add_digest({"a": 1}), "a": 2}), "does not match its digest"),
        (json.dumps(add_digest({"a": 1})).replace("blake2b", "blake2c"), "does not match its digest"),
        ("9" * 5_000, "integer string conversion"),
        ("\xff", "Expecting value"),
    ],
)
def test_what_is_not_an_intact_object_is_a_value_error(content: str, message: str, tmp_path: Path):
    (tmp_path / "file.json").write_text(content, encoding="latin-1" if content == "\xff" else "utf-8")
    with pytest.raises(ValueError, match=message if content != "\xff" else "utf-8"):
        read_object(tmp_path / "file.json")


def test_a_named_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="pipe or a device"):
        read_object(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="pipe or a device"):
        check_digest(tmp_path / "pipe.json")


def run_and_die(run: Callable[[], object], modules: dict[Any, tuple[str, ...]], fatal_call: int) -> bool:
    """Runs a function in a forked child that kills itself before its n-th call of one of the functions.

    Returns whether the child completed it.
    """
    child = os.fork()
    if child == 0:
        killer = CallKiller(fatal_call)
        for owner, names in modules.items():
            killer.wrap(owner, *names)
        try:
            run()
        finally:
            os._exit(0 if killer.num_calls >= 3 else 1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


CALLS = {
    checkpoints: ("save_file", "insert_digest"),
    hashlib: ("file_digest",),
    os: ("fsync",),
    Path: ("replace", "chmod", "touch", "open", "write_bytes"),
}


def test_a_kill_at_any_point_leaves_weights_that_match_their_digest(tmp_path: Path):
    file = tmp_path / "model.safetensors"
    save_weights(file, {"w": torch.zeros(3)})
    for call in range(1, 40):
        completed = run_and_die(lambda: save_weights(file, {"w": torch.ones(3)}), CALLS, call)
        loaded = read_weights(file, "")["w"].tolist()
        assert loaded in ([0.0] * 3, [1.0] * 3)
        if completed:
            assert loaded == [1.0] * 3
            return
        save_weights(file, {"w": torch.zeros(3)})
    pytest.fail("the write was never completed")


def test_a_kill_at_any_point_leaves_a_complete_store_or_none(tmp_path: Path):
    for call in range(1, 40):
        folder = tmp_path / str(call)
        folder.mkdir()
        completed = run_and_die(lambda: write_store(folder / "train", np.arange(100)), CALLS, call)  # noqa: B023
        if (folder / "train.json").exists():
            assert TokenStore(folder / "train").read(0, 100).tolist() == list(range(100))
        if completed:
            assert (folder / "train.json").exists()
            return
    pytest.fail("the write was never completed")
