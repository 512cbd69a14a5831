"""SIGTERM and Ctrl-C: the process ends soon, says how to resume, and the resumed run has the same bytes."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import live_runs
import pytest
from fault_counts import CountFunction, choose_count
from forked_runs import MAX_SECONDS, ForkServer
from live_runs import get_logged_step, get_saved_step

pytestmark = pytest.mark.slow

CASES = [("language", "lstm"), ("language", "ngram"), ("classify", "transformer"), ("forecast", "feedforward")]
CASES += [("translate", "lstm")]


@pytest.mark.parametrize(("task", "family"), CASES)
def test_sigterm_at_random_moments_ends_the_process_and_changes_no_result(
    make_case, generator: random.Random, count_faults: CountFunction, task: str, family: str
):
    case = make_case(task, family)
    signals, folder = 0, case.new_folder()
    while signals < choose_count(2, 10):
        is_resumed = (folder / "config.yaml").exists()
        status, stderr = case.signal_at_random(folder, signal.SIGTERM, generator)
        if status == -signal.SIGTERM:  # before the first line of Seqwise was executed, or after the last
            assert (folder / "summary.json").exists() or not folder.exists()
            continue
        assert status in (0, 130), stderr
        if status:
            signals += 1
            has_run = (folder / "config.yaml").exists()
            *_, last = stderr.splitlines()
            # A command that starts does not know yet whether there is a run; one that is complete is not resumed.
            is_outside = last == "interrupted." and (is_resumed or (folder / "summary.json").exists())
            assert is_outside or (f"Resume with: seqwise train --resume {folder}" in last) == has_run
            assert has_run or not folder.exists()
        if status == 0:
            case.check(folder)
            folder = case.new_folder()
    case.finish(folder)
    count_faults("SIGTERM at a random moment, exit within 10 s", signals)


def test_ten_stops_in_one_epoch_change_no_result(make_case, count_faults: CountFunction):
    """Only the stops cause checkpoints. An epoch has 134 updates, whose state is passed from batch to batch."""
    case = make_case("language", "lstm", "--training.save-every", "1000000")
    folder, steps = case.new_folder(), []
    for number in range(10):
        process = case.start(folder)
        target = max([10 * number, *steps]) + 1
        process.wait_until(lambda: get_logged_step(folder) >= target)  # noqa: B023 - used at once
        process.send_signal(signal.SIGINT)
        status, stderr = process.finish(MAX_SECONDS)
        assert status == 130, stderr
        assert stderr.splitlines()[-1] == f"stopped and saved. Resume with: seqwise train --resume {folder}"
        assert not steps or f"resuming at step {steps[-1]:,}." in stderr
        steps.append(get_saved_step(folder))
        count_faults("Ctrl-C, ten times in one epoch")
    assert sorted(set(steps)) == steps
    case.finish(folder)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_data_is_read_leaves_nothing_behind(
    server: ForkServer, tmp_path: Path, book: Path, signal_number: int
):
    cache = tmp_path / "cache"
    (tmp_path / "long.txt").write_text(book.read_text() * 300)
    arguments = ["train", tmp_path / "long.txt", "--text.tokenizer", "characters", "--out", tmp_path / "run"]
    process = server.start(*arguments, environment={"SEQWISE_CACHE": str(cache)})
    # A file that is not empty: one that has just been created is not yet known to the block that removes it.
    process.wait_until(lambda: any(path.stat().st_size for path in cache.glob("tokens/*/.*.writing")))
    process.send_signal(signal_number)
    status, stderr = process.finish(MAX_SECONDS)
    assert (status, stderr.splitlines()[-1]) == (130, "interrupted.")
    assert not (tmp_path / "run").exists()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_whole_program_is_stopped_and_killed_with_the_same_result(make_case, count_faults: CountFunction):
    """Not a fork, but a program as users start it. While it imports PyTorch, it ends at once.

    The run has 400 updates: one of 150 may end before this process, beside others, sees its 20th update.
    """
    case = make_case("language", "lstm", "--budget", f"{64 * 400}-tokens", "--training.save-every", "10")
    folder = case.new_folder()
    process = live_runs.start(*case.build_command(folder))
    live_runs.wait_until(lambda: "libtorch" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(signal.SIGTERM)
    status, stderr = live_runs.finish(process)
    assert (status, stderr.splitlines()[-1]) == (130, "interrupted."), stderr  # on a busy machine it may read already
    assert not folder.exists()

    for signal_number, expected in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = live_runs.start(*case.build_command(folder))
        target = get_logged_step(folder) + 20
        live_runs.wait_until(lambda: get_logged_step(folder) >= target, process)  # noqa: B023 - used at once
        process.send_signal(signal_number)
        assert live_runs.finish(process)[0] == expected
    case.finish(folder)
    count_faults("SIGTERM and SIGKILL of a whole program", 3)
