"""Run folders that two processes want to write, that contain links, or that are damaged."""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path

import pytest
from fault_counts import CountFunction, choose_count
from forked_runs import ForkServer, TrainingCase
from live_runs import get_logged_step, get_saved_step

pytestmark = pytest.mark.slow


@pytest.fixture
def stopped_run(make_case) -> tuple[TrainingCase, Path]:
    """A run that was stopped half way, with two checkpoints."""
    case = make_case("language", "lstm")
    folder = case.new_folder()
    process = case.start(folder)
    process.wait_until(lambda: get_logged_step(folder) >= 50)
    process.send_signal(signal.SIGTERM)
    status, stderr = process.finish()
    assert status == 130, stderr
    return case, folder


def test_of_two_resumes_of_one_run_the_second_is_refused(stopped_run, count_faults: CountFunction):
    case, folder = stopped_run
    first = case.start(folder)
    first.wait_until(lambda: str(first.pid) in ((folder / ".lock").read_text() if (folder / ".lock").exists() else ""))
    first.send_signal(signal.SIGSTOP)
    second, stderr = case.start(folder).finish()
    first.send_signal(signal.SIGCONT)
    assert second == 2, stderr
    assert f"error: {folder} is locked: process {first.pid} on {platform.node()} has been writing it" in stderr
    assert "Wait until that command ends, or stop it" in stderr
    assert first.finish()[0] == 0
    case.check(folder)
    count_faults("two resumes of one run")


def test_resumes_that_start_at_the_same_time_change_no_result(make_case, count_faults: CountFunction):
    """One of them trains; the others are refused, or find the run complete."""
    case = make_case("language", "lstm", "--budget", f"{64 * 9}-tokens")
    for _ in range(choose_count(2, 20)):
        folder = case.new_folder()
        process = case.start(folder)
        process.wait_until((folder / "config.yaml").exists)
        process.send_signal(signal.SIGKILL)
        process.finish()
        results = [process.finish() for process in [case.start(folder) for _ in range(3)]]
        assert 0 in [status for status, _ in results]
        assert all(status == 0 or (status == 2 and "is locked" in stderr) for status, stderr in results), results
        case.check(folder)
        count_faults("two resumes of one run", 2)


def test_nothing_is_written_or_removed_through_a_link_in_place_of_the_checkpoints(
    stopped_run, tmp_path: Path, count_faults: CountFunction
):
    case, folder = stopped_run
    elsewhere = tmp_path / "elsewhere"
    (folder / "checkpoints").rename(elsewhere)
    (elsewhere / "step-1000000").mkdir()
    (elsewhere / "step-1000000" / "thesis.txt").write_text("years of work")
    (folder / "checkpoints").symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    status, stderr = case.start(folder).finish()
    assert status == 2, stderr
    assert f"{folder}/checkpoints is a link to {elsewhere}, outside of {folder}" in stderr
    assert sorted(elsewhere.rglob("*")) == before
    count_faults("link in place of the checkpoints")

    (elsewhere / "step-1000000" / "thesis.txt").unlink()
    (elsewhere / "step-1000000").rmdir()
    (folder / "checkpoints").unlink()
    elsewhere.rename(folder / "checkpoints")
    case.finish(folder)


def flip_bit(path: Path, share: float) -> None:
    """Changes one bit of a file at a share of its length."""
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 1
    path.write_bytes(content)


def truncate(path: Path, share: float) -> None:
    os.truncate(path, int(share * path.stat().st_size))


@pytest.mark.parametrize("damage", [flip_bit, truncate])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_is_skipped_and_changes_no_result(
    stopped_run, count_faults: CountFunction, name: str, damage
):
    case, folder = stopped_run
    step = get_saved_step(folder)
    damage(folder / f"checkpoints/step-{step}/{name}", 0.7)
    status, stderr = case.start(folder).finish()
    assert status == 0, stderr
    assert stderr.count(f"step-{step} is damaged (") == 1
    assert "resuming at step" in stderr
    case.check(folder)
    count_faults("damaged checkpoint, weights file or token store")


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_damaged_weights_are_refused(make_case, server: ForkServer, count_faults: CountFunction, share: float):
    case = make_case("language", "lstm", "--budget", f"{64 * 9}-tokens")
    folder = case.root / "run-1"
    flip_bit(folder / "model.safetensors", share)
    status, stderr = server.run("predict", folder, "the ")
    assert status == 2, stderr
    assert f"error: {folder}/model.safetensors: the weights cannot be read: " in stderr
    assert "Traceback" not in stderr
    count_faults("damaged checkpoint, weights file or token store")


@pytest.mark.parametrize("damage", [flip_bit, truncate])
@pytest.mark.parametrize("suffix", [".bin", ".json"])
def test_a_damaged_token_store_is_created_again(
    make_case, tmp_path: Path, count_faults: CountFunction, suffix: str, damage
):
    case = make_case("language", "lstm", "--budget", f"{64 * 9}-tokens")
    environment = {"SEQWISE_CACHE": str(tmp_path / "cache")}
    folder = case.new_folder()
    assert case.start(folder, environment=environment).finish()[0] == 0
    case.check(folder)
    (store,) = (tmp_path / "cache").rglob(f"train{suffix}")
    content = store.read_bytes()
    damage(store, 0.6)
    folder = case.new_folder()
    status, stderr = case.start(folder, environment=environment).finish()
    assert status == 0, stderr
    assert "damaged" in stderr
    assert store.read_bytes() == content
    case.check(folder)
    count_faults("damaged checkpoint, weights file or token store")
