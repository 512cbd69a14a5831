"""Full disks, caches that cannot be written, and two processes that write one cache at the same time."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from fault_cases import TASKS, build_arguments
from fault_counts import CountFunction, choose_count
from forked_runs import ForkServer, TrainingCase

pytestmark = pytest.mark.slow

NEEDS_ROOM = ("open", "write", "mkdir", "save_file", "rename", "fsync")  # operations that fail on a full disk
SHORT = ["--budget", f"{64 * 9}-tokens", "--training.validate-every", "4"]
PAGE = 4096  # bytes; a file system in memory counts in pages


def check_message(stderr: str) -> None:
    """Asserts that the message of a failed command names the cause, once, and what to do."""
    lines = stderr.splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("error:")]
    assert len(errors) == 1, stderr
    assert "the disk is full." in lines[errors[0]]
    assert "Make room there." in lines[errors[0] + 1]
    assert "Traceback" not in stderr


@pytest.mark.parametrize("family", ["lstm", "ngram"])
def test_a_full_disk_at_any_write_is_reported_and_the_run_continues_later(
    make_case, generator: random.Random, count_faults: CountFunction, family: str
):
    """The disk of the run and the cache is full from the n-th operation on, for each n."""
    case = make_case("language", family, *(SHORT if family == "lstm" else []))
    numbered = enumerate(case.list_operations(), start=1)
    places = [number for number, line in numbered if line.split()[0] in NEEDS_ROOM]
    stride = choose_count(16, 1)
    for at in places[generator.randrange(stride) :: stride]:
        folder = case.new_folder()
        status, stderr = case.start_with_fault(folder, "full disk", at).finish()
        assert status == 1, stderr
        check_message(stderr)
        assert folder.exists() == (folder / "config.yaml").exists(), "a folder without a run is left behind"
        case.finish(folder)
        count_faults("full disk from one write of a run or the cache on")


def run_on_small_disk(case: TrainingCase, options: str) -> int:
    """Trains on a disk that is too small, unless it is large enough; continues elsewhere; returns the first status."""
    folder = case.new_folder()
    folder.mkdir()
    arguments = ["train", *case.arguments, "--out", folder / "run"]
    status, stderr = case.server.run(*arguments, disk={"folder": str(folder), "options": options})
    copy = folder.with_name(f"{folder.name}.copy")
    if status:
        assert status == 1, stderr
        check_message(stderr)
        case.finish(copy / "run")
    else:
        case.check(copy / "run")
    shutil.rmtree(copy)
    return status


def test_a_run_on_a_disk_of_any_size_that_is_too_small_continues_on_a_larger_one(
    make_case, generator: random.Random, count_faults: CountFunction
):
    """Real file systems that end at each page, and at each number of files, until the run fits."""
    case = make_case("language", "lstm", *SHORT)
    for option, unit in (("size", PAGE), ("nr_inodes", 1)):
        number, num_full = 1 + generator.randrange(choose_count(8, 1)), 0
        while run_on_small_disk(case, f"{option}={(number + 1) * unit}"):
            number += choose_count(9, 1)
            num_full += 1
        assert num_full
        count_faults("file system that is too small, by one page or one file at a time", num_full)


@pytest.mark.parametrize("task", TASKS)
def test_with_a_cache_that_cannot_be_written_training_works_or_explains_what_to_set(
    server: ForkServer, tmp_path: Path, count_faults: CountFunction, task: str
):
    arguments = build_arguments(tmp_path / "data", task, "lstm")
    (cache := tmp_path / "cache").mkdir()
    options = {"environment": {"SEQWISE_CACHE": str(cache)}}
    disk = {"folder": str(cache), "read_only": True}
    status, stderr = server.run("train", *arguments, "--out", tmp_path / "empty", disk=disk, **options)
    count_faults("cache on a read-only file system")
    if task in ("language", "masked"):  # which have a token store
        assert status == 1, stderr
        assert "cannot write: the file system is read-only." in stderr
        assert "Or set SEQWISE_CACHE to a folder on another disk." in stderr
        assert not (tmp_path / "empty").exists()
        assert server.run("train", *arguments, "--out", tmp_path / "filled", **options)[0] == 0
        shutil.copytree(cache, tmp_path / "stores")
        disk = {**disk, "content": str(tmp_path / "stores")}
        status, stderr = server.run("train", *arguments, "--out", tmp_path / "read", disk=disk, **options)
    assert status == 0, stderr


def test_trainings_that_create_one_cache_at_the_same_time_have_the_same_result(
    make_case, tmp_path: Path, count_faults: CountFunction
):
    case = make_case("language", "transformer", *SHORT)
    for number in range(choose_count(3, 30)):
        folders = [case.new_folder(), case.new_folder()]
        cache = tmp_path / f"cache-{number}"
        processes = [case.start(folder, environment={"SEQWISE_CACHE": str(cache)}) for folder in folders]
        for process, folder in zip(processes, folders):
            status, stderr = process.finish()
            assert status == 0, stderr
            case.check(folder)
        assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".bin", ".json"}
        count_faults("two trainings that race for one cache")
