"""No polled tile is loaded by two warps, of which only one would check whether it is written. Compiled for Hopper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SHAPES = [
    "layer_norm_rnn 256 8",
    "layer_norm_lstm 64 8",
    "layer_norm_gru 32 8",
    "lstm 256 64",
    "gru 650 20",
    "gru_reset_before 256 64",
]
SCRIPT = Path(__file__).parents[1] / "support" / "polled_tiles.py"


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_polled_number_has_one_reader_in_a_program(shape: str, tmp_path: Path) -> None:
    # In a separate process, because Triton is interpreted in this one.
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, SCRIPT, *shape.split()], capture_output=True, text=True, env=environment, check=False
    )
    assert (process.returncode, process.stdout) == (0, ""), process.stdout + process.stderr
