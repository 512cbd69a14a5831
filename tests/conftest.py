"""Fixtures of all tests. Tests use a cache of their own, and one thread, because their tensors are small."""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fault_counts import count_faults, pytest_terminal_summary

__all__ = ["count_faults", "pytest_terminal_summary"]  # of the fault battery: the totals are printed at the end

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported, since triton reads it at import

WORDS = [
    *("the", "a", "small", "old", "model", "learns", "reads", "writes", "forgets"),
    *("every", "word", "state", "gate", "vector", "of", "in", "and"),
]


def pytest_configure() -> None:
    """Makes Ctrl-C work in tests that send it: a shell starts commands in the background with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Modules and collected tests stay until the end: garbage collections during the tests need not visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("SEQWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def benchmark_script() -> Iterator[Callable[[str], ModuleType]]:
    """Loads a script of benchmarks/ as a module, by its name. The scripts can import each other, as when one is run.

    Their samples are short: tests depend on no precise time.
    """
    loaded: dict[str, ModuleType] = {}
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.append(folder)
    measuring: Any = importlib.import_module("measuring")
    measuring.MIN_SAMPLE_SECONDS = measuring.MIN_TOTAL_SECONDS = 0.0

    def load(name: str) -> ModuleType:
        if name not in loaded:
            path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
            spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
            assert spec is not None
            assert spec.loader is not None
            loaded[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look it up
            spec.loader.exec_module(loaded[name])
        return loaded[name]

    yield load
    sys.path.remove(folder)
    for name in loaded:
        del sys.modules[f"benchmarks_{name}"]


@pytest.fixture(scope="session")
def book(tmp_path_factory) -> Path:
    """A text file of about 60 kB: lines of words from a small vocabulary."""
    generator = random.Random(1)
    lines = (" ".join(generator.choices(WORDS, k=generator.randint(4, 14))) + "." for _ in range(1300))
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text("\n".join(lines) + "\n")
    return path
