"""Damaged caches: every block of tokens is checked when it is used, and what is damaged is created again."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from short_runs import train
from stores import write_store

from seqwise.data.corpus import store as store_module
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import Corpus, open_corpus
from seqwise.data.corpus.store import TokenStore
from seqwise.data.hub import fetch_hub_data
from seqwise.data.in_memory import save_data
from seqwise.digests import add_digest, read_object
from seqwise.errors import DataError
from seqwise.text.tokenizer import Tokenizer

TEXT = "".join(f"the café number {number} is open, isn't it?\n" for number in range(2000))
IDS = np.random.default_rng(0).integers(0, 60_000, 5_000)
BLOCK = 1024  # bytes, in these tests


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store_module, "BLOCK_BYTES", BLOCK)
    return tmp_path / "cache"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text.txt").write_text(TEXT)
    return open_corpus(tmp_path / "text.txt")


@pytest.fixture
def tokenizer(corpus: Corpus) -> Tokenizer:
    return Tokenizer.train("words", corpus.texts("train"))


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def test_opening_reads_no_tokens_and_each_block_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_store(tmp_path / "train", IDS)
    num_bytes = 0
    preadv = os.preadv

    def count_bytes(descriptor: int, views: list[memoryview], offset: int) -> int:
        nonlocal num_bytes
        num_bytes += sum(map(len, views))
        return preadv(descriptor, views, offset)

    monkeypatch.setattr(os, "preadv", count_bytes)
    store = TokenStore(tmp_path / "train")
    assert num_bytes == 0
    store.read(600, 4)  # within the second block
    assert num_bytes == BLOCK + 8
    store.read(700, 4)
    assert num_bytes == BLOCK + 16
    store.read_sequences([510, 4_998, 0], 2)  # the blocks 0 and 9, which is the last and shorter
    assert num_bytes == 2 * BLOCK + (2 * 5_000 - 9 * BLOCK) + 16 + 3 * 4


def test_only_the_damaged_block_is_an_error(tmp_path: Path):
    write_store(tmp_path / "train", IDS)
    flip_bit(tmp_path / "train.bin", 3 * BLOCK + 5)
    store = TokenStore(tmp_path / "train")
    assert store.read(0, 1500).tolist() == IDS[:1500].tolist()
    assert store.read(2048, 2952).tolist() == IDS[2048:].tolist()
    with pytest.raises(DataError, match=r"train\.bin: .*damaged: bytes 3,072 to 4,096 do not match their digest"):
        store.read(2047, 2)
    assert store.read(2048, 2).tolist() == IDS[2048:2050].tolist()


def test_every_flipped_bit_of_the_tokens_is_found(tmp_path: Path):
    write_store(tmp_path / "train", IDS)
    for position in random.Random(0).sample(range(2 * len(IDS)), 200):
        flip_bit(tmp_path / "train.bin", position)
        with pytest.raises(DataError, match="do not match their digest"):
            TokenStore(tmp_path / "train").read(position // 2, 1)
        flip_bit(tmp_path / "train.bin", position)
    assert TokenStore(tmp_path / "train").read(0, len(IDS)).tolist() == IDS.tolist()


def write_old_info(path: Path, **values: Any) -> None:
    """Replaces the JSON file of a store by that of a version without digests."""
    info = {key: value for key, value in read_object(path).items() if key != "digests"}
    path.write_text(json.dumps({**info, **values}))


def test_a_store_without_digests_is_read_and_its_ids_are_checked(tmp_path: Path):
    write_store(tmp_path / "train", np.arange(1000), vocabulary=1000)
    write_old_info(tmp_path / "train.json")
    assert TokenStore(tmp_path / "train").read(0, 1000).tolist() == list(range(1000))
    write_old_info(tmp_path / "train.json", vocabulary=999)
    with pytest.raises(DataError, match="it has the id 999, but the vocabulary has 999"):
        TokenStore(tmp_path / "train").read(998, 1)


def test_tokens_damaged_while_they_are_used_are_created_again(corpus: Corpus, tokenizer: Tokenizer, cache: Path):
    expected = prepare_stores(corpus, tokenizer)["train"]
    ids = expected.read(0, len(expected)).tolist()
    file, messages = next(cache.rglob("train.bin")), list[str]()
    content = file.read_bytes()
    store = prepare_stores(corpus, tokenizer, log=messages.append)["train"]
    store.read(0, 10)
    flip_bit(file, 5 * BLOCK)
    assert messages == []
    assert store.read(0, len(store)).tolist() == ids
    assert len(messages) == 1
    assert messages[0].startswith("the cached tokens of train are damaged (")
    assert messages[0].endswith("do not match their digest); they are created again.")
    assert file.read_bytes() == content
    assert store.info == expected.info
    file.write_bytes(content[:-100])
    store._is_checked = bytearray(len(store._is_checked))
    assert store.read(len(store) - 10, 10).tolist() == ids[-10:]
    assert "it ends at byte" in messages[1]


def test_tokens_of_an_old_store_that_are_created_again_have_digests(corpus: Corpus, tokenizer: Tokenizer, cache: Path):
    ids = (first := prepare_stores(corpus, tokenizer)["train"]).read(0, len(first)).tolist()
    file, messages = next(cache.rglob("train.bin")), list[str]()
    write_old_info(file.with_suffix(".json"))
    file.write_bytes(b"\xff" * 2 + file.read_bytes()[2:])
    store = prepare_stores(corpus, tokenizer, log=messages.append)["train"]
    assert store.info.digests == ()
    assert store.read(0, len(store)).tolist() == ids
    assert "it has the id 65,535" in messages[0]
    assert store.info.digests == first.info.digests


def test_tokens_of_a_text_that_has_changed_are_not_used(
    corpus: Corpus, tokenizer: Tokenizer, cache: Path, tmp_path: Path
):
    store = prepare_stores(corpus, tokenizer, log=lambda message: None)["train"]
    file = next(cache.rglob("train.bin"))
    flip_bit(file, 5)
    (tmp_path / "text.txt").write_text(TEXT.replace("open", "shut"))
    with pytest.raises(DataError, match="the text has changed since it was opened"):
        store.read(0, 10)
    assert not file.with_suffix(".json").exists(), "the next start creates it again"


INFOS: dict[str, Any] = {
    "empty": "",
    "an empty object": {},
    "a list": [],
    "null": None,
    "nested": "[" * 100_000,
    "negative tokens": {"tokens": -5},
    "negative words": {"words": -1},
    "tokens as text": {"tokens": "5"},
    "a fraction of tokens": {"tokens": 1.5},
    "true": {"lines": True},
    "10^18 tokens": {"tokens": 10**18},
    "10^21 tokens": {"tokens": 10**21},
    "10^400 tokens": {"tokens": 10**400},
    "no vocabulary": {"vocabulary": 0},
    "another vocabulary": {"vocabulary": 70_000},
    "another text": {"corpus": "x"},
    "a key too many": {"size": 1},
    "a digest too few": {"digests": ["0" * 32]},
    "digests as a number": {"digests": 3},
    "another format": {"format": 7},
}


@pytest.mark.parametrize("name", INFOS)
def test_a_damaged_json_file_is_created_again_with_a_message(
    name: str, corpus: Corpus, tokenizer: Tokenizer, cache: Path
):
    store = prepare_stores(corpus, tokenizer)["valid"]
    ids, file = store.read(0, len(store)).tolist(), next(cache.rglob("valid.json"))
    content, change = file.read_text(), INFOS[name]
    if isinstance(change, dict) and change:
        file.write_text(json.dumps(add_digest({**read_object(file), **change})))
    else:
        file.write_text(change if isinstance(change, str) else json.dumps(change))
    messages: list[str] = []
    store = prepare_stores(corpus, tokenizer, log=messages.append)["valid"]
    assert store.read(0, len(store)).tolist() == ids
    assert len(messages) == 1
    assert messages[0].startswith(f"the cached tokens of valid are damaged ({file.with_suffix('')}: ")
    assert file.read_text() == content


def test_an_incomplete_store_is_created_without_a_message(corpus: Corpus, tokenizer: Tokenizer, cache: Path):
    prepare_stores(corpus, tokenizer)
    next(cache.rglob("valid.json")).unlink()
    messages: list[str] = []
    prepare_stores(corpus, tokenizer, log=messages.append)
    assert messages == []


def test_training_with_damaged_tokens_says_so_and_ends_with_the_same_weights(book, tmp_path, cache, capsys):
    arguments = [book, "--model", "ngram", "--text.tokenizer", "characters"]
    assert train(*arguments, "--out", tmp_path / "first") == 0
    for file in cache.rglob("*.bin"):
        flip_bit(file, 3)
    capsys.readouterr()
    assert train(*arguments, "--out", tmp_path / "second") == 0
    stderr = capsys.readouterr().err
    assert stderr.count("the cached tokens of train are damaged (") == 1
    assert stderr.count("the cached tokens of valid are damaged (") == 1
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second"))
    assert first == second


def test_damaged_data_in_memory_is_saved_again(cache: Path):
    rows = [("good", "yes"), ("bad", "no")]
    path = Path(save_data(rows, ("text", "label")))
    content = path.read_bytes()
    flip_bit(path, 12)
    assert Path(save_data(rows, ("text", "label"))) == path
    assert path.read_bytes() == content
    assert len(list(path.parent.parent.iterdir())) == 1


def test_damaged_files_of_the_hub_are_written_again(monkeypatch: pytest.MonkeyPatch):
    datasets = pytest.importorskip("datasets")
    part = datasets.Dataset.from_dict({"text": ["a", "b"], "label": ["x", "y"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config=None: datasets.DatasetDict({"train": part}))
    file = fetch_hub_data("hf:films") / "train.jsonl"
    content = file.read_bytes()
    flip_bit(file, 3)
    with pytest.warns(UserWarning, match="is damaged; its files are written again"):
        fetch_hub_data("hf:films")
    assert file.read_bytes() == content
    file.unlink()
    with pytest.warns(UserWarning, match="is damaged; its files are written again"):
        fetch_hub_data("hf:films")
    assert file.read_bytes() == content
    (file.parent / ".complete").write_text("")  # as an earlier version left it
    fetch_hub_data("hf:films")
