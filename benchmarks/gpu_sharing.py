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
from contextlib import contextmanager, suppress
from pathlib import Path

from seqwise.errors import UsageError

CONTROL = "nvidia-cuda-mps-control"  # comes with the driver
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"  # environment variable: the part of the GPU that a process has
FOLDERS = ("/usr/bin", "/usr/local/nvidia/bin")  # where containers have it, which may not be on the path
TIMEOUT = 60.0


@contextmanager
def share_gpu(log_folder: Path) -> Iterator[dict[str, str]]:
    """Runs the service inside the block; yields the environment variables with which a process uses it."""
    program = find_control()
    log_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="seqwise-mps-") as pipes:  # the path of a socket must be short
        variables = {"CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": str(log_folder.resolve())}
        environment = {**os.environ, **variables}
        log = log_folder / "start.log"  # not a pipe, which the daemon would keep open
        try:
            with open(log, "wb") as file:
                subprocess.run([program, "-d"], env=environment, stdout=file, stderr=file, check=True, timeout=TIMEOUT)
        except subprocess.SubprocessError:
            problem = f"the Multi-Process Service did not start: {log.read_text(errors='replace').strip()}"
            raise UsageError(problem, fix="Leave out --mps; the runs then take turns on the GPU.") from None
        try:
            yield variables
        finally:
            with suppress(subprocess.TimeoutExpired):  # it may wait for a process that hangs
                subprocess.run([program], input="quit -t 5\n", env=environment, text=True, check=False, timeout=TIMEOUT)


def find_control() -> str:
    """Returns the path of the program that starts the service."""
    program = shutil.which(CONTROL) or shutil.which(CONTROL, path=os.pathsep.join(FOLDERS))
    if program is None:
        problem = f"--mps needs {CONTROL}, which is neither on the path nor in {' or '.join(FOLDERS)}."
        raise UsageError(problem, fix="Install the tools of the NVIDIA driver, or leave out --mps.")
    return program
