"""Loops run as machine code from the cache give numba's bits, without numba; where that fails, numba takes over."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import jit

from seqwise.vectors import machine_code
from seqwise.vectors.compiled import compiled
from seqwise.vectors.machine_code import REFUSED, Loop
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec import sampling
from seqwise.vectors.word2vec.chances import block_state
from seqwise.vectors.word2vec.sampling import NegativeSampling

here = pytest.mark.skipif(
    not (sys.platform == "linux" and platform.machine() == "x86_64"), reason="machine code is made for Linux on x86-64"
)
KINDS = "int32[] ( float32[] ( int64 uint32[] ) ) bool uint64 float32 float64[]"


@compiled
def weigh(numbers, nested, doubled, large, share, result):
    """Uses every kind of argument once."""
    weights, (first, more) = nested
    for i in range(len(numbers)):
        result[0] += numbers[i] * weights[i] * share
        result[1] += more[first + i]
    result[2] = np.float64(large >> np.uint64(32)) * (2 if doubled else 1)
    for i in range(3, len(result)):  # a loop that becomes a call of memset
        result[i] = 0


@compiled
def logarithms(values):
    for i in range(len(values)):
        values[i] = np.log(values[i])


@pytest.fixture(scope="module")
def code(tmp_path_factory) -> Iterator[Path]:
    """The machine code of `weigh`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQWISE_CACHE", str(tmp_path_factory.mktemp("made")))
        weighed(Loop(__name__, "weigh"))
        yield machine_code._place(__name__, "weigh", KINDS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path))
    return tmp_path / "machine_code"


def weighed(loop: Loop, doubled: bool = True) -> list[float]:
    numbers = np.array([1, -2, 3], dtype=np.int32)
    numbers.setflags(write=False)
    weights, more = np.array([0.5, 0.25, 0.1], np.float32), np.array([9, 1, 2, 2**32 - 1], np.uint32)
    result = np.full(40, 7.0)
    result[:2] = 0
    loop(numbers, (weights, (1, more)), doubled, np.uint64(5 << 32 | 1 << 63), np.float32(0.1), result)
    return result.tolist()


class Ordinary(Loop):
    """Always numba, and compiled now: its cache does not notice changes in other modules."""

    def __init__(self, loop: Loop):
        super().__init__(loop.module, loop.name)

    @property
    def ordinary(self) -> Any:
        return fresh(self.module, self.name)

    def code(self, kinds: str) -> None:
        return None


@cache
def fresh(module: str, name: str) -> Any:
    loop = Loop(module, name).ordinary
    return jit(**loop.targetoptions)(loop.py_func)


EXPECTED = [
    pytest.approx((0.5 - 0.5 + 0.3) * 0.1, rel=1e-6),
    1.0 + 2 + 2**32 - 1,
    2.0 * (5 + 2**31),
    *[0.0] * 37,
]


@here
def test_every_kind_of_argument_arrives(code, folder):
    folder.mkdir()
    shutil.copy(code, folder)
    loop = Loop(__name__, "weigh")
    assert weighed(loop) == EXPECTED
    assert weighed(loop, doubled=False)[2] == 5 + 2**31
    assert loop.code(KINDS) is not None
    assert weighed(loop) == weighed(Ordinary(loop))


def preprocessor(settings: VectorSettings) -> list[np.ndarray]:
    counts = np.arange(400, 0, -2)
    objective = NegativeSampling(list(map(str, range(200))), counts, settings.resolved())
    words = np.random.default_rng(1).choice(200, size=6000, p=counts / counts.sum()).astype(np.int32)
    words[::17] = -1
    scratch, tally = objective.scratch(), np.zeros(2)
    for number, block in enumerate(np.split(words, 3)):
        objective.train(block, block_state(0, 1, number), 0.1, scratch, tally)
    return [objective.inputs, objective.outputs, tally]


@here
@pytest.mark.parametrize(("method", "update"), [("skipgram", "gradient"), ("cbow", "gradient"), ("cbow", "gensim")])
def test_training_gives_the_bits_that_numba_gives(method, update, monkeypatch):
    settings = VectorSettings(method=method, update=update, dim=20, negative=4, window=3)
    loop = getattr(sampling, method)
    lean = preprocessor(settings)
    assert [code for code in loop._codes.values() if code is None] == []
    monkeypatch.setattr(sampling, method, Ordinary(loop))
    for ours, numbas in zip(lean, preprocessor(settings), strict=True):
        np.testing.assert_array_equal(ours, numbas)


@here
def test_training_does_not_import_numba(book):
    code = (
        "import sys; from seqwise.vectors.training import train_vectors; "
        f"train_vectors({str(book)!r}, method='cbow', dim=20, epochs=1, device='cpu'); "
        "sys.exit(bool({'numba', 'llvmlite', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@here
@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "foreign"])
def test_a_damaged_or_foreign_file_is_not_run(harm, code, tmp_path):
    good, harmed = code.read_bytes(), tmp_path / "harmed.bin"
    changed = {"cut": good[:-10], "changed": good[:100] + b"\xcc" + good[101:], "empty": b"", "foreign": good}
    harmed.write_bytes(changed[harm])
    harmed.chmod(0o666 if harm == "foreign" else 0o600)
    with pytest.raises(ValueError, match=r"not ours alone|damaged|empty file"):
        machine_code._load(harmed, KINDS)


@here
def test_a_damaged_file_is_made_anew(code, folder):
    folder.mkdir()
    made = folder / code.name
    made.write_bytes(b"damaged")
    loop = Loop(__name__, "weigh")
    assert weighed(loop) == EXPECTED
    assert loop.code(KINDS) is not None
    assert made.read_bytes() == code.read_bytes()
    assert made.stat().st_mode & 0o077 == 0


@here
def test_what_is_made_is_found_again_without_the_compiler(code, folder, monkeypatch):
    folder.mkdir()
    shutil.copy(code, folder)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    loop = Loop(__name__, "weigh")
    assert weighed(loop) == EXPECTED
    assert loop.code(KINDS) is not None


@here
def test_a_loop_that_needs_the_systems_library_is_refused_once_and_runs_by_numba(folder, monkeypatch):
    values = np.array([1.0, np.e])
    Loop(__name__, "logarithms")(values)
    assert values.tolist() == [0, 1]
    (made,) = folder.iterdir()
    assert made.read_bytes() == REFUSED
    monkeypatch.setattr(machine_code, "_compile", lambda *_: pytest.fail("compiled again"))
    assert Loop(__name__, "logarithms").code("float64[]") is None


def no_child(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")


def failing_child(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")


def slow_child(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(machine_code, "PATIENCE", 0.01)


def file_for_a_folder(folder: Path, monkeypatch) -> None:
    folder.write_text("in the way")


def no_right_to_write(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)


def no_right_to_run(folder: Path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise PermissionError

    folder.mkdir()
    machine_code._place(__name__, "weigh", KINDS).write_bytes(bytes(100))
    monkeypatch.setattr(machine_code.mmap, "mmap", refuse)


def other_system(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.parametrize(
    "trouble",
    [no_child, failing_child, slow_child, file_for_a_folder, no_right_to_write, no_right_to_run, other_system],
)
def test_numba_takes_over_where_there_is_no_machine_code(trouble, folder, monkeypatch):
    trouble(folder, monkeypatch)
    loop = Loop(__name__, "weigh")
    assert weighed(loop) == EXPECTED
    assert loop.code(KINDS) is None


def test_the_name_of_the_file_changes_with_what_decides_on_the_code(folder, monkeypatch):
    def place(kinds: str = KINDS) -> Path:
        return machine_code._place("a.b", "c", kinds)

    first = place()
    assert first == place()
    assert first != place("int32[]")
    for name, value in [("sources", "other"), ("_processor", "other"), ("package_version", "1.0")]:
        with monkeypatch.context() as changed:
            changed.setattr(machine_code, name, lambda *_, value=value: value)
            assert first != place()


def test_arrays_with_gaps_are_refused():
    with pytest.raises(TypeError, match="flat arrays without gaps"):
        Loop(__name__, "logarithms")(np.zeros(10)[::2])


def test_taking_the_vectors_ends_the_training():
    objective = NegativeSampling(["a", "b"], np.array([2, 1]), VectorSettings(dim=20).resolved())
    before = objective.inputs[:, :20].copy()
    vectors = objective.vectors()
    np.testing.assert_array_equal(vectors, before)
    assert vectors.flags.c_contiguous
    assert objective.vectors() is vectors
    with pytest.raises(AssertionError, match="training is over"):
        objective.train(np.array([0, 1], np.int32), np.uint64(1), 0.1, (), np.zeros(2))
