"""Counting pairs of words: the counts of a dictionary for any amount of memory, without files left behind."""

from __future__ import annotations

import errno
import tracemalloc
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from seqwise.errors import DataError, SaveError
from seqwise.vectors.glove import cooccurrence
from seqwise.vectors.glove.cooccurrence import (
    MEMORY,
    PairCounter,
    PairCounts,
    SortedRuns,
    choose_dense_rows,
    hash_pairs,
    invert_keys,
)


def draw_ids(num_words: int, vocabulary: int, seed: int = 0) -> np.ndarray:
    """Returns sentences of 1 to 30 words; small ids are frequent."""
    random = np.random.default_rng(seed)
    ids = np.int32(vocabulary * random.random(num_words) ** 3)
    ids[np.cumsum(random.integers(2, 32, num_words // 16)) % num_words] = -1
    return ids


def count_with_dictionary(ids: np.ndarray, window: int) -> dict[tuple[int, int], float]:
    """Returns the whole symmetric matrix by its definition: each word is paired with its neighbours on both sides."""
    counts: dict[tuple[int, int], float] = defaultdict(float)
    sentences = np.split(ids, np.flatnonzero(ids < 0))
    for sentence in ([int(word) for word in part if word >= 0] for part in sentences):
        for position, word in enumerate(sentence):
            for neighbour in range(max(0, position - window), min(len(sentence), position + window + 1)):
                if neighbour != position:
                    counts[word, sentence[neighbour]] += 1 / abs(neighbour - position)
    return counts


def to_dictionary(counts: PairCounts) -> dict[tuple[int, int], float]:
    entries = counts.read(0, counts.size)
    return {(int(entry["row"]), int(entry["column"])): float(entry["count"]) for entry in entries}


def select_upper_triangle(matrix: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    return {pair: count for pair, count in matrix.items() if pair[0] <= pair[1]}


def count_pairs(blocks, vocabulary: int, window: int, folder: Path, memory: int = MEMORY) -> PairCounts:
    counter = PairCounter(vocabulary, window, folder, memory)
    for _ in counter.count(blocks):
        pass
    return counter.counts


def count_to_dictionary(ids: np.ndarray, *arguments, **options) -> dict[tuple[int, int], float]:
    return to_dictionary(count_pairs([ids], *arguments, **options))


def test_the_counts_of_a_sentence_equal_hand_computed_ones(tmp_path):
    # 0 1 0 | 2 1, window 2: 0 and 1 are neighbours twice; 0 is at a distance of 2 from itself, counted from both sides.
    ids = np.array([0, 1, 0, -1, 2, 1, -1], dtype=np.int32)
    assert count_to_dictionary(ids, 3, 2, tmp_path) == {(0, 1): 2.0, (0, 0): 1.0, (1, 2): 1.0}


@pytest.mark.parametrize("window", [1, 5, 12])
@pytest.mark.parametrize("memory", [1, 64 << 10, MEMORY])
def test_counts_equal_those_of_a_dictionary_for_any_memory_size(tmp_path, window, memory):
    ids = draw_ids(1_500, vocabulary=700)
    expected = select_upper_triangle(count_with_dictionary(ids, window))
    assert count_to_dictionary(ids, 700, window, tmp_path, memory=memory) == pytest.approx(expected, rel=1e-6)


def test_a_small_hash_table_spills_many_runs_without_loss(tmp_path, monkeypatch):
    run_sizes = []
    append = SortedRuns.append
    monkeypatch.setattr(
        SortedRuns, "append", lambda self, entries: (run_sizes.append(len(entries)), append(self, entries))[1]
    )
    ids = draw_ids(6_000, vocabulary=2_000)
    counts = count_to_dictionary(ids, 2_000, 5, tmp_path, memory=8 << 10)
    assert len(run_sizes) > 100
    assert max(run_sizes) < 512
    assert counts == pytest.approx(select_upper_triangle(count_with_dictionary(ids, 5)), rel=1e-6)


def test_key_ranges_that_do_not_fit_the_table_are_halved(tmp_path, monkeypatch):
    # The first ranges are made ten times too wide.
    results = []
    merge_range = cooccurrence._merge_range
    monkeypatch.setattr(
        cooccurrence, "_merge_range", lambda *arguments: (results.append(merge_range(*arguments)), results[-1])[1]
    )
    monkeypatch.setattr(cooccurrence, "MERGE_LOAD", 10.0)
    ids = draw_ids(1_500, vocabulary=700)
    counts = count_to_dictionary(ids, 700, 5, tmp_path, memory=8 << 10)
    assert results.count(None) >= 3
    assert counts == pytest.approx(select_upper_triangle(count_with_dictionary(ids, 5)), rel=1e-6)


def test_the_block_size_does_not_change_the_counts(tmp_path):
    ids = draw_ids(5_000, vocabulary=300)
    ends = np.flatnonzero(ids < 0) + 1
    blocks = np.split(ids, ends[::7])
    counts = to_dictionary(count_pairs(blocks, 300, 5, tmp_path))
    assert counts == count_to_dictionary(ids, 300, 5, tmp_path)


def test_memory_stays_within_the_budget(tmp_path):
    # 700,000 ids in which hardly a pair occurs twice: 3.4 million entries, which would take 55 MB as sums in one table.
    random = np.random.default_rng(0)
    blocks = lambda: (random.integers(0, 1 << 20, 70_000, dtype=np.int32) for _ in range(10))  # noqa: E731
    budget = 8 << 20
    count_pairs([np.array([0, 1], dtype=np.int32)], 2, 5, tmp_path)  # compile outside the measurement
    tracemalloc.start()
    counts = count_pairs(blocks(), 1 << 20, 5, tmp_path, memory=budget)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.size > 3_000_000
    assert counts.path.stat().st_size == 12 * counts.size
    assert budget / 2 < peak < budget + (5 << 20)  # buffers for reading and writing are extra


def test_hash_keys_are_invertible_and_uniform():
    rows, columns = np.meshgrid(np.arange(1000, dtype=np.uint64), np.arange(70_000, 71_000, dtype=np.uint64))
    keys = hash_pairs(rows.ravel(), columns.ravel())
    assert all(np.array_equal(a, b.ravel()) for a, b in zip(invert_keys(keys), (rows, columns)))
    share = np.bincount((keys >> np.uint64(56)).astype(int), minlength=256) / len(keys)
    assert np.abs(share * 256 - 1).max() < 0.1


def test_the_order_is_shuffled_and_the_same_every_time(tmp_path):
    ids = draw_ids(20_000, vocabulary=1_000)
    first, second = (
        list(count_to_dictionary(ids, 1_000, 5, tmp_path)),
        list(count_to_dictionary(ids, 1_000, 5, tmp_path, memory=20_000)),
    )
    assert first == second
    rows = np.array(first)[:, 0]
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) < 0.05


@pytest.mark.parametrize(("vocabulary", "cells"), [(5, 100), (100, 50), (1000, 3000), (30_000, 1 << 20)])
def test_dense_rows_use_most_of_the_available_cells(vocabulary, cells):
    starts = choose_dense_rows(vocabulary, cells)
    triangle_cells = vocabulary * (vocabulary + 1) // 2
    assert starts[-1] <= cells
    assert starts[-1] == triangle_cells or starts[-1] > 0.8 * cells
    assert np.all(np.diff(starts) > 0)


@pytest.mark.parametrize("ids", [[], [-1, -1], [0, -1, 1, -1, 2, -1]])
def test_a_corpus_without_pairs_raises_an_error(tmp_path, ids):
    with pytest.raises(DataError, match="no line has two words of the vocabulary"):
        count_pairs([np.array(ids, dtype=np.int32)], 3, 5, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_id_outside_the_vocabulary_raises_an_error(tmp_path):
    with pytest.raises(ValueError, match="id 3 in a vocabulary of 3"):
        count_pairs([np.array([0, 3], dtype=np.int32)], 3, 5, tmp_path)


class FullDisk:
    """A file that accepts the first writes and then fails as on a full disk."""

    def __init__(self, file, writes: int):
        self.file, self.writes_left = file, writes

    def write(self, data):
        self.writes_left -= 1
        if self.writes_left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_raises_a_save_error(tmp_path, monkeypatch):
    create_file = cooccurrence.tempfile.TemporaryFile
    monkeypatch.setattr(cooccurrence.tempfile, "TemporaryFile", lambda dir: FullDisk(create_file(dir=dir), writes=3))
    with pytest.raises(SaveError, match=r"the disk is full after [\d.]+ MB of counted pairs") as excinfo:
        count_to_dictionary(draw_ids(20_000, 2_000), 2_000, 5, tmp_path, memory=20_000)
    assert "Make room there" in excinfo.value.fix


def test_a_folder_that_cannot_be_created_raises_a_save_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SaveError, match="file/inside: Not a directory"):
        count_to_dictionary(draw_ids(100, 10), 10, 5, tmp_path / "file" / "inside")


def test_progress_counts_every_id(tmp_path):
    reports = list(PairCounter(50, 2, tmp_path).count([draw_ids(200_000, 50)]))
    assert reports == sorted(reports)
    assert len(reports) >= 3
    assert reports[-1] == 200_000


def test_a_truncated_file_of_pairs_raises_an_error(tmp_path):
    counts = count_pairs([draw_ids(1_000, 50)], 50, 5, tmp_path)
    counts.path.write_bytes(counts.path.read_bytes()[:-5])
    with pytest.raises(DataError, match="ends too early"):
        counts.read(0, counts.size)
