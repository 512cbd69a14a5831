"""The share of its time in which a process waits for a core, from the statistics of Linux's scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.compare.run import waiting
from seqwise.compare.run.waiting import measure_waiting


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(waiting, "THREADS_FOLDER", tmp_path)
    return tmp_path


def write_times(threads: Path, thread: str, executed: int, waited: int) -> None:
    (threads / thread).mkdir(exist_ok=True)
    (threads / thread / "schedstat").write_text(f"{executed} {waited} 7\n")


def test_all_threads_count_from_the_start_of_the_block(threads: Path):
    write_times(threads, "1", executed=1000, waited=900)
    with measure_waiting() as get_waiting_share:
        write_times(threads, "1", executed=1300, waited=1000)
        write_times(threads, "2", executed=100, waited=100)  # a new thread
        assert get_waiting_share() == 200 / 600


def test_the_share_is_unknown_without_statistics(threads: Path):
    (threads / "1").mkdir()
    with measure_waiting() as get_waiting_share:
        assert get_waiting_share() is None


def test_this_system_is_measured():
    with measure_waiting() as get_waiting_share:
        sum(range(100_000))
        share = get_waiting_share()
    assert share is None or 0 <= share < 1
