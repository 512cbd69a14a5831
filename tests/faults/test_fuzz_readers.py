"""Damaged files: every reader returns a result or raises a `SeqwiseError`; it never fails otherwise, hangs or swells.

Some thousands of inputs, 100,000 with SEQWISE_FAULTS=full. Each is determined by its reader and its seed; a failure
shows the command that repeats it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pytest
from fault_counts import CountFunction
from fuzz import Outcome, fuzz, list_jobs, write_samples
from fuzz_mutations import STRUCTURED, mutate
from fuzz_readers import JSON, JSONL, TEXT, make_archive, make_array, make_image, pack
from fuzz_saved import READERS, SETTINGS
from safetensors.numpy import save

IS_LONG = os.environ.get("SEQWISE_FAULTS") == "full"
NUM_INPUTS = 100_000 if IS_LONG else 3_000
NUM_PROCESSES = max(2, os.cpu_count() or 2)
JOBS_PER_PROCESS = 4


@pytest.mark.slow
def test_damaged_files_are_read_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture, count_faults: CountFunction
) -> None:
    write_samples(tmp_path, READERS)
    jobs = list_jobs(READERS, NUM_INPUTS, size=1_000 if IS_LONG else 10_000)
    size = JOBS_PER_PROCESS if IS_LONG else (len(jobs) + 1) // NUM_PROCESSES
    shares = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    outcome, started = Outcome(), time.monotonic()
    with ThreadPoolExecutor(NUM_PROCESSES) as pool:
        running = [pool.submit(fuzz, share, tmp_path, outcome) for share in shares]
        for number, finished in enumerate(as_completed(running), start=1):
            finished.result()
            with capsys.disabled():
                seconds, failed = time.monotonic() - started, len(outcome.failures)
                sys.stderr.write(
                    f"fuzzing: {number} of {len(shares)} parts, {seconds:.0f} s, {failed} kinds of failures\n"
                )
    with capsys.disabled():
        sys.stderr.write(outcome.format_table() + "\n")
    count_faults(f"damaged input of a reader ({len(READERS)} readers)", outcome.num_inputs)
    assert outcome.num_inputs >= 0.99 * NUM_INPUTS
    assert not outcome.failures, "\n" + outcome.format_failures()
    unread = [name for name in READERS if not outcome.accepted.get(name)]
    assert not unread, f"no damaged file of these readers was read: the damage is too coarse to test much: {unread}"


VALID = {
    "json": JSON.encode(),
    "jsonl": JSONL.encode(),
    "yaml": SETTINGS.encode(),
    "safetensors": save({"a": np.ones((2, 2), np.float32)}),
    "npy": make_array(np.ones((2, 3), np.float32)),
    "zip": make_archive({"0.png": make_image(), "1.npy": make_array(np.ones(3, np.float32))}),
    "gz": pack(TEXT),
}


@pytest.mark.parametrize("form", VALID)
def test_the_same_seed_gives_the_same_damage_inside_the_format(form: str) -> None:
    data, damage = VALID[form], STRUCTURED[form]
    inputs = [[damage(data, random.Random(seed)) for seed in range(30)] for _ in range(2)]
    assert inputs[0] == inputs[1]
    assert len({data, *inputs[0]}) > 20
    assert all(len(mutate(data, form, random.Random(seed))) < 4 << 20 for seed in range(100))


def test_a_failing_reader_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that raises another error, takes too long or needs too much memory does not pass."""
    import fuzz
    from fuzz_readers import Reader, write_files

    def read(folder: Path) -> object:
        content = (folder / "a.txt").read_text()
        if content == "error":
            raise KeyError("x")
        if content == "hang":
            while True:
                pass
        return bytearray(400 << 20) if content == "memory" else content

    monkeypatch.setattr(fuzz, "MAX_SECONDS", 0.2)
    fuzz.signal.signal(fuzz.signal.SIGPROF, fuzz.raise_out_of_time)
    reader = Reader(write_files(a__txt="valid"), {"a.txt": "text"}, read)
    kinds = {}
    for content in ("valid", "error", "hang", "memory"):
        (tmp_path / "a.txt").write_text(content)
        kinds[content] = fuzz.read_one(reader, tmp_path)["kind"]
    assert kinds == {"valid": "accepted", "error": "exception", "hang": "hang", "memory": "memory"}
