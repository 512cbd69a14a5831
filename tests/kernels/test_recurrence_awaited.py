"""No awaited tile is loaded by two warps, of which only one would look whether it has come. Compiled for Hopper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SHAPES = [
    "normalised_rnn 256 8",
    "normalised_lstm 64 8",
    "normalised_gru 32 8",
    "lstm 256 64",
    "gru 650 20",
    "early_gru 256 64",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_awaited_number_has_one_reader_in_a_program(shape: str, tmp_path: Path) -> None:
    program = Path(__file__).with_name("awaited.py")  # a process of its own: in this one Triton is interpreted
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, program, *shape.split()], capture_output=True, text=True, env=environment, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr
