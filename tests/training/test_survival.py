"""Runs that are killed, interrupted or damaged go on as if nothing had happened, bit for bit.

The scenes are played by real processes, two at a time; each test then looks at what one of them left behind.
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
from live_runs import SEQWISE, SMALL, finish, kill_often, logged_step, outcome, run, saved_step, start, wait_until

pytestmark = pytest.mark.slow  # `test_training_run.py` checks the same inside one process

STEPS, SAVE = 400, 4
FAMILIES = {"lstm": "streams", "transformer": "windows"}


@pytest.fixture(scope="module")
def text(tmp_path_factory, book) -> Path:
    """A text of about 130 updates, so that the runs see three epochs."""
    path = tmp_path_factory.mktemp("survival") / "text.txt"
    path.write_text("".join(book.read_text().splitlines(keepends=True)[:200]))
    return path


def fresh(text: Path, family: str, folder: Path, save_every: int = SAVE) -> list[str | Path]:
    often = ["--training.save-every", str(save_every), "--training.validate-every", "50"]
    return ["train", text, "--model", family, *SMALL, *often, "--budget", f"{64 * STEPS}-tokens", "--out", folder]


def killed(text: Path, family: str, folder: Path, kills: int) -> Path:
    seed = random.SystemRandom().randrange(2**32)
    print(f"{family}: seed of the random kills is {seed}")  # noqa: T201 - to play it again
    kill_often(fresh(text, family, folder), folder, STEPS, kills, random.Random(seed))
    return folder


def uninterrupted(text: Path, family: str, folder: Path) -> Path:
    status, said = run(*fresh(text, family, folder))
    assert status == 0, said
    return folder


def interrupted(text: Path, folder: Path) -> tuple[Path, list[tuple[int, str, int, int]]]:
    """SIGINT, resumed, SIGTERM, resumed to the end. No checkpoint is due but those the signals ask for."""
    words, seen = fresh(text, "lstm", folder, save_every=10**6), []
    for number, target in ((signal.SIGINT, 60), (signal.SIGTERM, 180)):
        process = start(*words)
        wait_until(lambda: logged_step(folder) >= target, process)  # noqa: B023 - used at once
        process.send_signal(number)
        seen.append((*finish(process), saved_step(folder), logged_step(folder)))
        words = ["train", "--resume", folder]
    seen.append((*run(*words), saved_step(folder), logged_step(folder)))
    return folder, seen


def truncated(whole: Future[Path], folder: Path) -> tuple[Path, int, str]:
    """A copy of the whole run whose newest checkpoint has lost its end."""
    shutil.copytree(whole.result(), folder)
    newest = folder / f"checkpoints/step-{saved_step(folder)}/tensors.safetensors"
    os.truncate(newest, newest.stat().st_size // 2)
    return folder, *run("train", "--resume", folder)


@pytest.fixture(scope="module")
def scenes(text, tmp_path_factory):
    stage = tmp_path_factory.mktemp("scenes")
    with ThreadPoolExecutor(2) as pool:
        yield {
            "stage": stage,
            "lstm killed": pool.submit(killed, text, "lstm", stage / "killed-lstm", 10),
            "transformer killed": pool.submit(killed, text, "transformer", stage / "killed-transformer", 3),
            "lstm": (whole := pool.submit(uninterrupted, text, "lstm", stage / "lstm")),
            "transformer": pool.submit(uninterrupted, text, "transformer", stage / "transformer"),
            "killed in writes": pool.submit(killed_in_writes, text, stage),
            "interrupted": pool.submit(interrupted, text, stage / "interrupted"),
            "truncated": pool.submit(truncated, whole, stage / "truncated"),
        }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_killed_again_and_again_ends_with_the_same_bits(scenes, family):
    """Ten kills for the LSTM on streams, three for the Transformer on shuffled windows."""
    whole = outcome(scenes[family].result())
    assert whole["step"] == STEPS
    assert whole["ended"] == "the budget is spent"
    assert outcome(scenes[f"{family} killed"].result()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_killed_thirty_times_ends_with_the_same_bits(text, tmp_path, scenes, family):
    assert outcome(killed(text, family, tmp_path / "run", 30)) == outcome(scenes[family].result())


def test_ctrl_c_and_sigterm_finish_the_step_save_and_print_how_to_resume(scenes):
    folder, seen = scenes["interrupted"].result()
    for status, said, saved, logged in seen[:2]:
        assert status == 130
        assert said.rstrip().splitlines()[-1] == f"stopped and saved. Resume with: seqwise train --resume {folder}"
        assert saved >= logged > 0
    assert f"resuming at step {seen[0][2]:,}." in seen[1][1]
    assert f"resuming at step {seen[1][2]:,}." in seen[2][1]
    assert seen[2][0] == 0


def test_an_interrupted_run_ends_with_the_same_bits(scenes):
    assert outcome(scenes["interrupted"].result()[0]) == outcome(scenes["lstm"].result())


def test_a_truncated_newest_checkpoint_is_skipped_and_the_run_ends_with_the_same_bits(scenes):
    folder, status, said = scenes["truncated"].result()
    assert status == 0, said
    assert said.count(f"step-{STEPS} is damaged (tensors.safetensors has ") == 1
    assert f"resuming at step {STEPS - SAVE}." in said
    assert outcome(folder) == outcome(scenes["lstm"].result())


# Kills inside the writes. One process imports everything, then each life is a fork of it, which saves the imports.
DRIVER = """
import os, signal, sys
import torch._dynamo  # which optimisers import when they are first used
from pathlib import Path
from seqwise.cli.main import main
from seqwise.training import checkpoints, distribution, loop, training_run
from seqwise.cli import train, progress

def deadly(function, calls, last):
    def call(*args, **kwargs):
        calls.append(function.__name__)
        if len(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

def life(words, last=0):
    child = os.fork()
    if not child:
        calls = []
        os.fsync = deadly(os.fsync, calls, last)
        for name in ("mkdir", "rename", "replace"):
            setattr(Path, name, deadly(getattr(Path, name), calls, last))
        checkpoints.save_file = deadly(checkpoints.save_file, calls, last)
        os._exit(main(words))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

whole, cut, *words = sys.argv[1:]
assert life([*words, "--out", whole]) == 0
assert life([*words, "--out", cut], 12) == -signal.SIGKILL
for call in range(1, 41):
    assert life(["train", "--resume", cut], call) == -signal.SIGKILL, call
assert life(["train", "--resume", cut]) == 0
"""


def killed_in_writes(text: Path, stage: Path) -> tuple[int, str]:
    words = ["train", text, "--model", "lstm", *SMALL, "--budget", f"{64 * 200}-tokens"]
    words += ["--training.save-every", "2", "--training.validate-every", "25"]
    return run(stage / "uncut", stage / "cut", *words, before=[sys.executable, "-c", DRIVER])


def test_a_kill_inside_any_write_of_a_run_changes_nothing(scenes):
    """Forty lives; the n-th ends just before its n-th call that touches the disk."""
    status, said = scenes["killed in writes"].result()
    assert status == 0, said
    assert "damaged" not in said
    cut, uncut = scenes["stage"] / "cut", scenes["stage"] / "uncut"
    assert outcome(cut) == outcome(uncut)
    assert sorted(os.listdir(cut)) == sorted(os.listdir(uncut))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_is_read_leaves_nothing_behind(tmp_path, book, monkeypatch, number):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "long.txt").write_text(book.read_text() * 300)
    process = start("train", tmp_path / "long.txt", *SMALL, "--out", tmp_path / "run")
    wait_until(lambda: bool(list(tmp_path.glob("cache/tokens/*/.*.writing"))), process)
    process.send_signal(number)
    status, said = finish(process)
    assert (status, said.splitlines()[-1]) == (130, "interrupted.")
    assert not (tmp_path / "run").exists()
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


FULL = """
place=$1; shift
mount -t tmpfs -o size=800k tmpfs "$place" || exit 77
"$@" --out "$place/run" 2> "$place.said"; echo $? > "$place.statuses"
ls -A "$place/run/checkpoints" > "$place.kept"
mount -o remount,size=20m "$place"
"${@:1:3}" train --resume "$place/run"; echo $? >> "$place.statuses"
cp -r "$place/run" "$place.run"
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="a small disk needs unshare of util-linux")
def test_a_full_disk_is_one_message_and_the_run_can_be_resumed_later(text, tmp_path):
    """The disk holds one checkpoint of this model, but not two."""
    (tmp_path / "disk").mkdir()
    words = ["train", text, "--model", "lstm", *SMALL, "--network.width", "64", "--budget", f"{64 * 30}-tokens"]
    script = ["unshare", "-rm", "bash", "-c", FULL, "bash", str(tmp_path / "disk"), *SEQWISE]
    status, _ = run(*words, "--training.save-every", "10", before=script)
    if status == 77 or not (tmp_path / "disk.statuses").exists():
        pytest.skip("this system does not let a user mount a small disk")
    assert (tmp_path / "disk.statuses").read_text().split() == ["1", "0"]
    assert (tmp_path / "disk.kept").read_text().split() == ["step-10"]
    said = [line for line in (tmp_path / "disk.said").read_text().splitlines() if "rule" not in line][-2:]
    assert said[0] == f"error: {tmp_path}/disk/run/checkpoints/step-20: cannot write: the disk is full."
    assert "--resume" in said[1]
    status, said = run(*words, "--training.save-every", "10", "--out", tmp_path / "whole")
    assert outcome(tmp_path / "disk.run") == outcome(tmp_path / "whole")
