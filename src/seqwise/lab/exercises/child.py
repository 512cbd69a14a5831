"""Runs the `solve` of a student's file on inputs, in a process of its own: `python child.py FILE FOLDER SECONDS`.

The folder has `case-0.npz`, … and perhaps `single.npz`, a case of one time step that may fail; the outputs are written
beside them, and an error as `error.json`. What `solve` prints is kept for the first case only. This file is started by
`grading.py` and imports NumPy only, so that nothing of Seqwise is loaded where the student's code runs.
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

import numpy as np

MAX_MEMORY = 4 * 2**30  # bytes of address space
MAX_OUTPUT = 2**20  # bytes that may be printed


def limit_resources(seconds: float) -> None:
    """Limits memory, printed text and processor time, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT, MAX_OUTPUT))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, int(seconds) + 3))


def run_case(solve: Callable, path: Path, target: Path) -> None:
    """Saves the outputs of `solve` for the inputs of a file."""
    with np.load(path) as stored:
        inputs = {name: value if value.ndim else value.item() for name, value in stored.items()}
    outputs = solve(**inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    arrays = [np.asarray(each, dtype=np.float64) for each in outputs]
    if sum(each.nbytes for each in arrays) > MAX_OUTPUT // 2:
        raise ValueError(f"solve returns arrays that are too large: {', '.join(str(each.shape) for each in arrays)}")
    np.savez(target, *arrays)


def main(file: str, folder: Path, seconds: float) -> None:
    limit_resources(seconds)
    try:
        solve = runpy.run_path(file)["solve"]
        first, *others = sorted(folder.glob("case-*.npz"))
        run_case(solve, first, folder / first.name.replace("case", "outputs"))
        sys.stdout.flush()  # fails here, not at the end of the process, if too much is printed
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            for path in others:
                run_case(solve, path, folder / path.name.replace("case", "outputs"))
            if (folder / "single.npz").exists():
                with suppress(Exception):  # it only helps to explain what is wrong in the others
                    run_case(solve, folder / "single.npz", folder / "single-outputs.npz")
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        message = {
            "kind": type(error).__name__,
            "message": str(error)[:500],
            "line": line,
            "prints_too_much": isinstance(error, OSError) and error.errno == errno.EFBIG,
        }
        (folder / "error.json").write_text(json.dumps(message), encoding="utf-8")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
