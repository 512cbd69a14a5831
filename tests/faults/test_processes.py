"""Several processes: a number that changes at each resume changes no result; one that hangs is named."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import defaultdict
from pathlib import Path

import live_runs
import pytest
import torch
from fault_cases import TASKS, build_arguments
from fault_counts import CountFunction, choose_count, is_full
from forked_runs import ForkedRun, ForkServer
from live_runs import get_saved_step
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

WORLD_SIZES = (1, 2, 4, 3, 1)
BATCH_SIZE = 6  # which four processes cannot divide evenly
HANG_SECONDS = 15  # on a busy machine, compiling keeps a process from responding for some seconds
CASES = [(task, "lstm") for task in TASKS] if is_full() else [("language", "lstm")]
CASES += [("classify", "transformer")]


def start(server: ForkServer, size: int, *arguments: str | Path, samples: Path) -> list[ForkedRun]:
    """Starts the processes of a run, with the environment variables of torchrun."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if size > 1 else {}
    processes = []
    for rank in range(size):
        environment = {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}
        processes.append(server.start("train", *arguments, environment=environment, record=str(samples)))
    return processes


def read_samples(path: Path) -> dict[int, list[int]]:
    """Returns step → the positions of its samples in the data, sorted; a step must not be repeated."""
    samples = defaultdict(list)
    processes: dict[int, list[int]] = defaultdict(list)
    for step, rank, positions in map(json.loads, path.read_text().splitlines()):
        assert rank not in processes[step], f"step {step} was repeated"
        processes[step].append(rank)
        samples[step] += positions
    return {step: sorted(positions) for step, positions in samples.items()}


@pytest.mark.parametrize(("task", "family"), CASES)
def test_the_number_of_processes_may_change_at_each_resume(
    server: ForkServer, tmp_path: Path, count_faults: CountFunction, task: str, family: str
):
    arguments = build_arguments(tmp_path / "data", task, family)
    # The masks of dropout depend on the process.
    arguments += ["--network.dropout", "0", *(["--classify.word-dropout", "0"] if task == "classify" else [])]
    arguments += ["--training.batch-size", str(BATCH_SIZE), "--training.save-every", "1"]
    (alone,) = start(server, 1, *arguments, "--out", tmp_path / "alone", samples=tmp_path / "alone.samples")
    status, stderr = alone.finish()
    assert status == 0, stderr
    num_steps = get_saved_step(tmp_path / "alone")

    folder = tmp_path / "run"
    command: list[str | Path] = [*arguments, "--out", folder]
    for number, size in enumerate(WORLD_SIZES, start=1):
        processes = start(server, size, *command, samples=tmp_path / "samples")
        if number < len(WORLD_SIZES):
            target = num_steps * number // (len(WORLD_SIZES) + 1)
            processes[0].wait_until(lambda: get_saved_step(folder) >= target)  # noqa: B023 - used at once
            processes[0].send_signal(signal.SIGTERM)
            count_faults("resume with another number of processes")
        results = [process.finish() for process in processes]
        expected = 130 if number < len(WORLD_SIZES) else 0
        assert [status for status, _ in results] == [expected] * size, "\n".join(stderr for _, stderr in results)
        command = ["--resume", folder]

    assert get_saved_step(folder) == num_steps
    assert read_samples(tmp_path / "samples") == read_samples(tmp_path / "alone.samples")
    actual, expected = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "alone"))
    assert actual.keys() == expected.keys()
    for name in actual:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-3, atol=1e-4, msg=name)
    losses = [
        [json.loads(line)["loss"] for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (folder, tmp_path / "alone")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("rank", range(choose_count(1, 2)))
def test_a_process_that_hangs_is_named_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ForkServer, count_faults: CountFunction, rank: int
):
    """The processes are real ones, of --nproc 2; one of the workers is stopped."""
    monkeypatch.setenv("SEQWISE_HANG_SECONDS", str(HANG_SECONDS))
    folder, arguments = tmp_path / "run", build_arguments(tmp_path / "data", "language", "lstm")
    launcher = live_runs.start("train", *arguments, "--budget", "1h", "--out", folder, "--nproc", "2")
    live_runs.wait_until(lambda: get_saved_step(folder) >= 10, launcher)
    workers = list_children(launcher.pid)
    os.kill(workers[rank], signal.SIGSTOP)
    status, stderr = live_runs.finish(launcher)
    assert status == 1
    assert f"error: process {rank + 1} of 2 has not responded for {HANG_SECONDS} s." in stderr
    assert f"Resume with: seqwise train --resume {folder}" in stderr
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    status, stderr = server.run("train", "--resume", folder, "--budget", f"{64 * (get_saved_step(folder) + 9)}-tokens")
    assert status == 0, stderr
    count_faults("process of several that is stopped (SIGSTOP), detected and named")


def list_children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
