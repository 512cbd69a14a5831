"""Runs that are killed, interrupted or damaged and then resumed end with the same bits as an uninterrupted run.

The scenarios run in processes of their own, two at a time; each test checks the folder that one of them left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from live_runs import (
    SEQWISE,
    SMALL,
    finish,
    get_logged_step,
    get_saved_step,
    kill_and_resume,
    read_outcome,
    run,
    start,
    wait_until,
)

pytestmark = pytest.mark.slow  # `test_training_run.py` checks the same inside one process

STEPS, SAVE_EVERY = 400, 4
FAMILIES = {"lstm": "streams", "transformer": "windows"}


@pytest.fixture(scope="module")
def text(tmp_path_factory, book) -> Path:
    """A text of about 130 updates, so that the runs last three epochs."""
    path = tmp_path_factory.mktemp("survival") / "text.txt"
    path.write_text("".join(book.read_text().splitlines(keepends=True)[:200]))
    return path


def train_command(text: Path, family: str, folder: Path, save_every: int = SAVE_EVERY) -> list[str | Path]:
    intervals = ["--training.save-every", str(save_every), "--training.validate-every", "50"]
    return ["train", text, "--model", family, *SMALL, *intervals, "--budget", f"{64 * STEPS}-tokens", "--out", folder]


def run_with_kills(text: Path, family: str, folder: Path, kills: int) -> Path:
    seed = random.SystemRandom().randrange(2**32)
    print(f"{family}: seed of the random kills is {seed}")  # noqa: T201 - to reproduce it
    kill_and_resume(train_command(text, family, folder), folder, STEPS, kills, random.Random(seed))
    return folder


def run_uninterrupted(text: Path, family: str, folder: Path) -> Path:
    status, stderr = run(*train_command(text, family, folder))
    assert status == 0, stderr
    return folder


def run_with_interrupts(text: Path, folder: Path) -> tuple[Path, list[tuple[int, str, int, int]]]:
    """Interrupts by SIGINT, resumes, interrupts by SIGTERM, resumes to the end. Only the signals cause checkpoints."""
    arguments, stops = train_command(text, "lstm", folder, save_every=10**6), []
    for signal_number, target in ((signal.SIGINT, 60), (signal.SIGTERM, 180)):
        process = start(*arguments)
        wait_until(lambda: get_logged_step(folder) >= target, process)  # noqa: B023 - used at once
        process.send_signal(signal_number)
        stops.append((*finish(process), get_saved_step(folder), get_logged_step(folder)))
        arguments = ["train", "--resume", folder]
    stops.append((*run(*arguments), get_saved_step(folder), get_logged_step(folder)))
    return folder, stops


def resume_truncated(uninterrupted: Future[Path], folder: Path) -> tuple[Path, int, str]:
    """Resumes a copy of the uninterrupted run whose newest checkpoint has lost its end."""
    shutil.copytree(uninterrupted.result(), folder)
    newest = folder / f"checkpoints/step-{get_saved_step(folder)}/tensors.safetensors"
    os.truncate(newest, newest.stat().st_size // 2)
    return folder, *run("train", "--resume", folder)


@pytest.fixture(scope="module")
def scenarios(text, tmp_path_factory):
    root = tmp_path_factory.mktemp("scenarios")
    with ThreadPoolExecutor(2) as pool:
        yield {
            "root": root,
            "lstm killed": pool.submit(run_with_kills, text, "lstm", root / "killed-lstm", 10),
            "transformer killed": pool.submit(run_with_kills, text, "transformer", root / "killed-transformer", 3),
            "lstm": (uninterrupted := pool.submit(run_uninterrupted, text, "lstm", root / "lstm")),
            "transformer": pool.submit(run_uninterrupted, text, "transformer", root / "transformer"),
            "killed in writes": pool.submit(run_with_kills_in_writes, text, root),
            "interrupted": pool.submit(run_with_interrupts, text, root / "interrupted"),
            "truncated": pool.submit(resume_truncated, uninterrupted, root / "truncated"),
        }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_killed_again_and_again_ends_with_the_same_bits(scenarios, family):
    """Ten kills for the LSTM on streams, three for the Transformer on shuffled windows."""
    expected = read_outcome(scenarios[family].result())
    assert expected["step"] == STEPS
    assert expected["ended"] == "the budget is spent"
    assert read_outcome(scenarios[f"{family} killed"].result()) == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_killed_thirty_times_ends_with_the_same_bits(text, tmp_path, scenarios, family):
    assert read_outcome(run_with_kills(text, family, tmp_path / "run", 30)) == read_outcome(scenarios[family].result())


def test_ctrl_c_and_sigterm_finish_the_step_save_and_print_how_to_resume(scenarios):
    folder, stops = scenarios["interrupted"].result()
    for status, stderr, saved, logged in stops[:2]:
        assert status == 130
        assert stderr.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: seqwise train --resume {folder}"
        assert saved >= logged > 0
    assert f"resuming at step {stops[0][2]:,}." in stops[1][1]
    assert f"resuming at step {stops[1][2]:,}." in stops[2][1]
    assert stops[2][0] == 0


def test_an_interrupted_run_ends_with_the_same_bits(scenarios):
    assert read_outcome(scenarios["interrupted"].result()[0]) == read_outcome(scenarios["lstm"].result())


def test_a_truncated_newest_checkpoint_is_skipped_and_the_run_ends_with_the_same_bits(scenarios):
    folder, status, stderr = scenarios["truncated"].result()
    assert status == 0, stderr
    assert stderr.count(f"step-{STEPS} is damaged (tensors.safetensors has ") == 1
    assert f"resuming at step {STEPS - SAVE_EVERY}." in stderr
    assert read_outcome(folder) == read_outcome(scenarios["lstm"].result())


# Kills inside writes. One process imports everything; every training is a fork of it, which saves the time of imports.
DRIVER = """
import os, signal, sys
import torch._dynamo  # which optimisers import when they are first used
from pathlib import Path
from seqwise.cli.main import main
from seqwise.training import checkpoints, distribution, loop, training_run
from seqwise.cli import train, progress

def kill_at_call(function, calls, fatal_call):
    def call(*args, **kwargs):
        calls.append(function.__name__)
        if len(calls) == fatal_call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

def run_in_fork(arguments, fatal_call=0):
    child = os.fork()
    if not child:
        calls = []
        os.fsync = kill_at_call(os.fsync, calls, fatal_call)
        for name in ("mkdir", "rename", "replace"):
            setattr(Path, name, kill_at_call(getattr(Path, name), calls, fatal_call))
        checkpoints.save_file = kill_at_call(checkpoints.save_file, calls, fatal_call)
        os._exit(main(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

whole, killed, *arguments = sys.argv[1:]
assert run_in_fork([*arguments, "--out", whole]) == 0
assert run_in_fork([*arguments, "--out", killed], 12) == -signal.SIGKILL
for call in range(1, 41):
    assert run_in_fork(["train", "--resume", killed], call) == -signal.SIGKILL, call
assert run_in_fork(["train", "--resume", killed]) == 0
"""


def run_with_kills_in_writes(text: Path, root: Path) -> tuple[int, str]:
    arguments = ["train", text, "--model", "lstm", *SMALL, "--budget", f"{64 * 200}-tokens"]
    arguments += ["--training.save-every", "2", "--training.validate-every", "25"]
    return run(root / "whole", root / "killed", *arguments, program=[sys.executable, "-c", DRIVER])


def test_a_kill_inside_any_write_of_a_run_changes_nothing(scenarios):
    """Forty processes; the n-th is killed just before its n-th call that writes to the disk."""
    status, stderr = scenarios["killed in writes"].result()
    assert status == 0, stderr
    assert "damaged" not in stderr
    killed, uninterrupted = scenarios["root"] / "killed", scenarios["root"] / "whole"
    assert read_outcome(killed) == read_outcome(uninterrupted)
    assert sorted(os.listdir(killed)) == sorted(os.listdir(uninterrupted))


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_is_read_leaves_nothing_behind(tmp_path, book, monkeypatch, signal_number):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "long.txt").write_text(book.read_text() * 300)
    process = start("train", tmp_path / "long.txt", *SMALL, "--out", tmp_path / "run")
    wait_until(lambda: bool(list(tmp_path.glob("cache/tokens/*/.*.writing"))), process)
    process.send_signal(signal_number)
    status, stderr = finish(process)
    assert (status, stderr.splitlines()[-1]) == (130, "interrupted.")
    assert not (tmp_path / "run").exists()
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


FULL_DISK_SCRIPT = """
disk=$1; shift
mount -t tmpfs -o size=800k tmpfs "$disk" || exit 77
"$@" --out "$disk/run" 2> "$disk.stderr"; echo $? > "$disk.statuses"
ls -A "$disk/run/checkpoints" > "$disk.checkpoints"
mount -o remount,size=20m "$disk"
"${@:1:3}" train --resume "$disk/run"; echo $? >> "$disk.statuses"
cp -r "$disk/run" "$disk.run"
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="a small disk needs unshare of util-linux")
def test_a_full_disk_is_reported_once_and_the_run_can_be_resumed_later(text, tmp_path):
    """The disk holds one checkpoint of this model, but not two."""
    (tmp_path / "disk").mkdir()
    arguments = ["train", text, "--model", "lstm", *SMALL, "--network.width", "64", "--budget", f"{64 * 30}-tokens"]
    script = ["unshare", "-rm", "bash", "-c", FULL_DISK_SCRIPT, "bash", str(tmp_path / "disk"), *SEQWISE]
    status, _ = run(*arguments, "--training.save-every", "10", program=script)
    if status == 77 or not (tmp_path / "disk.statuses").exists():
        pytest.skip("this system does not let a user mount a small disk")
    assert (tmp_path / "disk.statuses").read_text().split() == ["1", "0"]
    assert (tmp_path / "disk.checkpoints").read_text().split() == ["step-10"]
    stderr = [line for line in (tmp_path / "disk.stderr").read_text().splitlines() if "rule" not in line][-2:]
    assert stderr[0] == f"error: {tmp_path}/disk/run/checkpoints/step-20: cannot write: the disk is full."
    assert "--resume" in stderr[1]
    status, stderr = run(*arguments, "--training.save-every", "10", "--out", tmp_path / "whole")
    assert read_outcome(tmp_path / "disk.run") == read_outcome(tmp_path / "whole")
