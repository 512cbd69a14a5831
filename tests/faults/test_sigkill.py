"""Training runs that are killed and resumed end byte-identical to uninterrupted ones: weights, state and metrics."""

from __future__ import annotations

import random
import signal

import pytest
from fault_cases import CASES
from fault_counts import CountFunction, choose_count

pytestmark = pytest.mark.slow

INSIDE_WRITES = "SIGKILL inside a write, rename, fsync or removal of a run or the cache"
# Three checkpoints of a network, the last of which replaces the first; or everything of an n-gram model.
SHORT = {"lstm": ["--budget", f"{64 * 9}-tokens", "--training.validate-every", "4"], "ngram": []}


@pytest.mark.parametrize(("task", "family"), CASES)
def test_kills_at_random_moments_change_no_result(
    make_case, generator: random.Random, count_faults: CountFunction, task: str, family: str
):
    """Each process is killed after a random time, which may be before the run exists, until it ends by itself."""
    case = make_case(task, family)
    kills, folder = 0, case.new_folder()
    while kills < choose_count(2, 20):
        status, stderr = case.signal_at_random(folder, signal.SIGKILL, generator)
        assert status in (0, -signal.SIGKILL), stderr
        kills += status != 0
        if status == 0:
            case.check(folder)
            folder = case.new_folder()
    case.finish(folder)
    count_faults("SIGKILL at a random moment of a run (7 tasks, 4 groups of models)", kills)


@pytest.mark.parametrize("family", ["lstm", "ngram"])
def test_a_kill_at_any_write_of_a_run_changes_no_result(
    make_case, generator: random.Random, count_faults: CountFunction, family: str
):
    """Each process starts a new run with an empty cache and is killed at another of its operations on files."""
    case = make_case("language", family, *SHORT[family])
    operations = case.list_operations()
    stride = choose_count(16, 1)
    for at in range(1 + generator.randrange(stride), len(operations) + 1, stride):
        folder = case.new_folder()
        status, stderr = case.start_with_fault(folder, "kill", at).finish()
        assert status == -signal.SIGKILL, stderr
        case.finish(folder)
        count_faults(INSIDE_WRITES)
    assert {line.split()[0] for line in operations} >= {"open", "write", "fsync", "rename", "mkdir", "save_file"}


def test_a_run_killed_in_one_save_after_another_changes_no_result(make_case, count_faults: CountFunction):
    """The n-th process of one run is killed at its n-th operation on files."""
    case = make_case("language", "lstm")
    folder = case.new_folder()
    assert case.start_with_fault(folder, "kill", 80).finish()[0] == -signal.SIGKILL
    for at in range(1, choose_count(12, 60)):
        status, stderr = case.start_with_fault(folder, "kill", at).finish()
        assert status == -signal.SIGKILL, stderr
        count_faults(INSIDE_WRITES)
    case.finish(folder)
