"""The token store: writing, reading, damaged and truncated files, full disks."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stores import write_store

from seqwise.data.corpus.store import StoreInfo, StoreWriter, TokenStore
from seqwise.digests import read_object
from seqwise.errors import DataError, SaveError

INFO = StoreInfo(0, 0, 0, 0, 0, 10, "tokenizer", "corpus")


@pytest.mark.parametrize(("vocabulary", "width"), [(2, 2), (65_536, 2), (65_537, 4)])
def test_ids_are_restored_and_use_the_smallest_integer_type(vocabulary: int, width: int, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, vocabulary, 1000)
    ids[0] = vocabulary - 1
    store = write_store(tmp_path / "train", ids, vocabulary)
    assert len(store) == 1000
    assert store.read(0, 1000).dtype == np.int64
    assert store.read(0, 1000).tolist() == ids.tolist()
    assert store.read(990, 10).tolist() == ids[990:].tolist()
    assert store.read_sequences([5, 0, 5], 3).tolist() == [ids[5:8].tolist(), ids[:3].tolist(), ids[5:8].tolist()]
    assert (tmp_path / "train.bin").stat().st_size == 1000 * width


def test_chunks_are_appended_and_counts_are_saved(tmp_path: Path) -> None:
    info = StoreInfo(5, 4, 30, 2, 1, 10, "tokenizer", "corpus", "valid")
    with StoreWriter(tmp_path / "valid", 10) as writer:
        for chunk in ([1, 2], [], [3, 4, 5]):
            writer.append(np.array(chunk, dtype=np.int64))
        store = writer.finish(info)
    assert store.read(0, 5).tolist() == [1, 2, 3, 4, 5]
    assert replace(TokenStore(tmp_path / "valid").info, digests=()) == info
    assert sorted(path.name for path in tmp_path.iterdir()) == ["valid.bin", "valid.json"]


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 11), (10, 1)])
def test_reading_out_of_range_is_an_error(start: int, count: int, tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        write_store(tmp_path / "train", np.arange(10)).read(start, count)


def test_an_unfinished_store_leaves_no_files(tmp_path: Path) -> None:
    def write_and_interrupt() -> None:
        with StoreWriter(tmp_path / "train", 10) as writer:
            writer.append(np.arange(10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_interrupt()
    assert list(tmp_path.iterdir()) == []


def truncate(folder: Path) -> None:
    with (folder / "train.bin").open("r+b") as file:
        file.truncate(7)


def append_bytes(folder: Path) -> None:
    with (folder / "train.bin").open("ab") as file:
        file.write(b"xx")


def change_format(folder: Path) -> None:
    info = read_object(folder / "train.json")
    (folder / "train.json").write_text(json.dumps({**info, "format": 99}))


def replace_by_folder(folder: Path) -> None:
    (folder / "train.json").unlink()
    (folder / "train.json").mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "has 7 bytes instead of 20"),
        (append_bytes, "has 22 bytes instead of 20"),
        (lambda folder: (folder / "train.bin").unlink(), r"train\.bin: .* it is missing"),
        (lambda folder: (folder / "train.json").unlink(), r"train\.json: .* it is missing"),
        (lambda folder: (folder / "train.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "train.json").write_text("{}"), "cannot be read"),
        (change_format, "has format 99, not 1"),
        (replace_by_folder, r"train\.json: the token store cannot be read: Is a directory"),
    ],
)
def test_a_damaged_store_is_detected(damage, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    write_store(tmp_path / "train", np.arange(10))
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        TokenStore(tmp_path / "train")


def test_a_store_truncated_while_it_is_read_is_detected(tmp_path: Path) -> None:
    store = write_store(tmp_path / "train", np.arange(10))
    truncate(tmp_path)
    with pytest.raises(DataError, match="it ends at byte"):
        store.read(0, 10)


@pytest.mark.parametrize("count", [10, 100_000])  # noticed when the file is flushed; noticed while it is written
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported_and_the_old_store_is_kept(count: int, tmp_path: Path) -> None:
    def write_too_much() -> None:
        with StoreWriter(tmp_path / "train", 10) as writer:
            writer._file = open("/dev/full", "wb")  # noqa: SIM115
            writer.append(np.arange(count))
            writer.finish(INFO)

    write_store(tmp_path / "train", np.arange(10))
    with pytest.raises(SaveError, match="the disk is full") as excinfo:
        write_too_much()
    assert isinstance(excinfo.value.__cause__, OSError)
    assert excinfo.value.__cause__.errno == errno.ENOSPC
    assert "SEQWISE_CACHE" in excinfo.value.fix
    assert TokenStore(tmp_path / "train").read(0, 10).tolist() == list(range(10))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="cannot write"):
        StoreWriter(tmp_path / "file" / "train", 10)


@pytest.mark.parametrize("chunk_size", [1, 3, 1 << 22])
def test_ids_are_counted_in_chunks(chunk_size: int, tmp_path: Path) -> None:
    assert write_store(tmp_path / "train", np.array([1, 3, 3, 0, 3])).count_tokens(5, chunk_size).tolist() == [
        1,
        1,
        0,
        3,
        0,
    ]
