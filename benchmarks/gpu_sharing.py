"""Lets several processes compute on one GPU at the same time, with NVIDIA's Multi-Process Service (MPS).

Without it, a GPU switches between the processes that use it, and each has all multiprocessors for some milliseconds.
With it, each process has a part of the multiprocessors all the time. `torch.cuda` reports that part, so the recurrent
kernels divide their work accordingly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqwise.errors import UsageError

CONTROL = "nvidia-cuda-mps-control"  # comes with the driver
FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin")  # where it is if it is not on the path
TIMEOUT = 60.0


@contextmanager
def share_gpu(num_processes: int) -> Iterator[dict[str, str]]:
    """Runs the service inside the block; yields the variables that give each of the processes an equal part."""
    program = find_control()
    with tempfile.TemporaryDirectory(prefix="seqwise-mps-") as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        result = subprocess.run([program, "-d"], env=environment, capture_output=True, text=True, timeout=TIMEOUT)
        if result.returncode:
            problem = f"the Multi-Process Service did not start: {(result.stderr or result.stdout).strip()}"
            raise UsageError(problem, fix="Leave out --mps; the runs then take turns on the GPU.")
        try:
            yield {**variables, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // num_processes)}
        finally:
            subprocess.run([program], input="quit -t 5\n", env=environment, text=True, check=False, timeout=TIMEOUT)


def find_control() -> str:
    """Returns the path of the program that starts the service."""
    program = shutil.which(CONTROL) or shutil.which(CONTROL, path=os.pathsep.join(FOLDERS))
    if program is None:
        problem = f"--mps needs {CONTROL}, which is neither on the path nor in {' or '.join(FOLDERS)}."
        raise UsageError(problem, fix="Install the tools of the NVIDIA driver, or leave out --mps.")
    return str(Path(program).resolve())
