"""Token stores in the cache: written once, reused, rebuilt if damaged; token counts equal the published ones."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqwise.config import TOKENIZERS
from seqwise.data.corpus import preparation
from seqwise.data.corpus.preparation import get_cache_folder, prepare_stores
from seqwise.data.corpus.sources import Corpus, open_corpus
from seqwise.data.corpus.store import StoreWriter
from seqwise.errors import SaveError
from seqwise.text import pipelines
from seqwise.text.tokenizer import Tokenizer

SPLITS = ("train", "valid", "test")
TEXT = "".join(f"the café number {number} is open, isn't it?\n" for number in range(2000))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "text.txt").write_text(TEXT)
    return open_corpus(tmp_path / "text.txt")


def use_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets tokenisers encode 1,000 characters at a time, which is the default argument of `split_into_chunks`."""
    monkeypatch.setattr(pipelines.split_into_chunks, "__defaults__", (1_000,))


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_store_has_the_tokens_of_its_split(kind: str, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_chunks(monkeypatch)
    tokenizer = Tokenizer.train(kind, corpus.texts("train"), size=400 if kind in ("bpe", "wordpiece") else None)
    for split, store in prepare_stores(corpus, tokenizer).items():
        text = "".join(corpus.texts(split))
        assert store.read(0, len(store)).tolist() == tokenizer.encode(text).ids.tolist()
        assert store.info.words == len(text.split()) + text.count("\n")
        assert (store.info.characters, store.info.lines) == (len(text), text.count("\n"))
        assert store.info.split == split


@pytest.mark.parametrize("kind", ["bpe", "words", "spaces", "wordpiece"])
def test_the_store_of_a_long_text_equals_that_of_a_short_one(
    kind: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a certain length on, each distinct segment is encoded once; a run of letters may be longer than a chunk."""
    use_small_chunks(monkeypatch)
    text = "The cat sat,  on\tthe mat.\n" * 100 + "ab" * 3_000 + " end\n" + "It's a café\n" * 100
    (tmp_path / "a.txt").write_text(text)
    corpus = open_corpus(tmp_path / "a.txt")
    stores, contents = [], []
    for min_characters in (10**9, 0):
        monkeypatch.setattr(preparation, "MIN_COMPILED_CHARACTERS", min_characters)
        monkeypatch.setattr(pipelines, "MIN_COMPILED_CHARACTERS", min_characters)
        shutil.rmtree(cache, ignore_errors=True)
        tokenizer = Tokenizer.train(kind, corpus.texts("train"), 400 if kind in ("bpe", "wordpiece") else None)
        splits = prepare_stores(corpus, tokenizer)
        stores.append({split: store.info for split, store in splits.items()})
        contents.append([store.path.with_suffix(".bin").read_bytes() for store in splits.values()])
    assert stores[0] == stores[1]
    assert contents[0] == contents[1]


def test_words_split_between_chunks_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 100_000 + " " + "cd" * 70_000 + "\n")
    corpus = open_corpus(tmp_path / "a.txt", 0, 0)
    store = prepare_stores(corpus, Tokenizer.train("characters", corpus.texts("train")))["train"]
    assert (store.info.words, store.info.characters) == (3, 340_002)


def test_unknown_tokens_are_counted(corpus: Corpus) -> None:
    tokenizer = Tokenizer.train("words", corpus.texts("train"))
    known = set("".join(corpus.texts("train")).split())
    unseen = sum(str(number) not in known for number in range(2000))
    stores = prepare_stores(corpus, tokenizer)
    assert sum(store.info.unknown for store in stores.values()) == unseen
    assert unseen > 150
    assert stores["train"].info.unknown == 0


def test_progress_increases_to_the_total(corpus: Corpus) -> None:
    reports: list[tuple[int, int]] = []
    prepare_stores(corpus, Tokenizer.train("characters", corpus.texts("train")), lambda *pair: reports.append(pair))
    done = [pair[0] for pair in reports]
    assert done == sorted(done)
    assert reports[-1] == (len(TEXT.encode()), len(TEXT.encode()))


def test_a_prepared_store_is_reused(corpus: Corpus, cache: Path) -> None:
    tokenizer = Tokenizer.train("characters", corpus.texts("train"))
    first = prepare_stores(corpus, tokenizer)
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*.bin")}
    reports: list[tuple[int, int]] = []
    second = prepare_stores(corpus, tokenizer, lambda *pair: reports.append(pair))
    assert reports == []
    assert [second[split].info for split in SPLITS] == [first[split].info for split in SPLITS]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.bin")} == times
    prepare_stores(corpus, Tokenizer.train("words", corpus.texts("train")))
    assert len(list(cache.rglob("*.bin"))) == 6


def test_a_damaged_store_is_rebuilt(corpus: Corpus, cache: Path) -> None:
    tokenizer = Tokenizer.train("characters", corpus.texts("train"))
    expected = prepare_stores(corpus, tokenizer)["valid"].read(0, 100).tolist()
    store_file = next(cache.rglob("valid.bin"))
    store_file.write_bytes(store_file.read_bytes()[:50])
    with pytest.warns(UserWarning, match="the cached tokens of valid are damaged"):
        assert prepare_stores(corpus, tokenizer)["valid"].read(0, 100).tolist() == expected


def test_an_interrupted_preparation_leaves_no_partial_store(corpus: Corpus, cache: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_stores(corpus, Tokenizer.train("characters", corpus.texts("train")), interrupt)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_error_for_a_full_disk_says_how_much_is_needed(
    corpus: Corpus, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(StoreWriter):
        def __init__(self, path: Path, vocabulary: int):
            super().__init__(path, vocabulary)
            self._file = open("/dev/full", "wb")  # noqa: SIM115

    monkeypatch.setattr(preparation, "StoreWriter", FullDisk)
    with pytest.raises(SaveError, match=r"the disk is full. About 0\.1 MB are needed") as excinfo:
        prepare_stores(corpus, Tokenizer.train("characters", corpus.texts("train")))
    assert isinstance(excinfo.value.__cause__, OSError)
    assert excinfo.value.__cause__.errno == errno.ENOSPC
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_processes_may_prepare_the_same_text_at_the_same_time(corpus: Corpus, cache: Path) -> None:
    code = (
        "import sys\nfrom seqwise.data.corpus.sources import open_corpus\n"
        "from seqwise.data.corpus.preparation import prepare_stores\n"
        "from seqwise.text.tokenizer import Tokenizer\n"
        "corpus = open_corpus(sys.argv[1])\n"
        "store = prepare_stores(corpus, Tokenizer.train('words', corpus.texts('train')))['train']\n"
        "print(len(store), store.read(0, len(store)).sum())\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, corpus.name], stdout=subprocess.PIPE) for _ in range(3)]
    outputs = {run.communicate()[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(outputs) == 1
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 6


def test_the_environment_variable_sets_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWISE_CACHE", "/a/b")
    assert get_cache_folder() == Path("/a/b")
    monkeypatch.delenv("SEQWISE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert get_cache_folder() == Path("/x/seqwise")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert get_cache_folder() == Path("/h/.cache/seqwise")


# Line by line: 4 words and a line end, a line end alone (twice), 3 and 2 words with theirs, and one word whose line end
# is missing. The blanks at both ends of a line and the empty lines are as in WikiText, the N as in the Penn Treebank.
WIKITEXT = " the cat <unk> sat \n \n = Title = \n\nthe N\n  dog"


@pytest.mark.parametrize("compress", [False, True])
def test_tokens_are_counted_as_in_published_corpora(compress: bool, tmp_path: Path) -> None:
    texts = {"train": WIKITEXT, "valid": "the\tbird <unk>\r\n", "test": "\ndog dog\n\n"}
    for split, text in texts.items():
        data = text.encode()
        (tmp_path / f"x.{split}.txt{'.gz' if compress else ''}").write_bytes(gzip.compress(data) if compress else data)
    corpus = open_corpus(tmp_path)
    tokenizer = Tokenizer.train("spaces", corpus.texts("train"))
    # <eos> six times, = and the twice, the others once
    assert tokenizer.tokens(range(len(tokenizer))) == ["<eos>", "=", "the", "<unk>", "N", "Title", "cat", "dog", "sat"]
    stores = prepare_stores(corpus, tokenizer)
    texts_read = {split: " ".join(tokenizer.tokens(store.read(0, len(store)))) for split, store in stores.items()}
    assert texts_read == {
        "train": "the cat <unk> sat <eos> <eos> = Title = <eos> <eos> the N <eos> dog <eos>",
        "valid": "the <unk> <unk> <eos>",
        "test": "<eos> dog dog <eos> <eos>",
    }
    counts = {split: (store.info.tokens, store.info.words, store.info.lines) for split, store in stores.items()}
    assert counts == {"train": (16, 16, 6), "valid": (4, 4, 1), "test": (5, 5, 3)}
    assert [stores[split].info.unknown for split in SPLITS] == [1, 2, 0]


@pytest.mark.skipif("SEQWISE_DATA" not in os.environ, reason="set SEQWISE_DATA to the folder of benchmark data")
@pytest.mark.parametrize(
    ("name", "counts", "vocabulary"),
    [("ptb", [929_589, 73_760, 82_430], 10_000), ("wikitext2", [2_088_628, 217_646, 245_569], 33_278)],
)
def test_token_counts_equal_the_published_ones(name: str, counts: list[int], vocabulary: int) -> None:
    corpus = open_corpus(Path(os.environ["SEQWISE_DATA"]) / name)
    tokenizer = Tokenizer.train("spaces", corpus.texts("train"))
    assert len(tokenizer) == vocabulary
    stores = prepare_stores(corpus, tokenizer)
    assert [len(stores[split]) for split in SPLITS] == counts
    assert [stores[split].info.words for split in SPLITS] == counts
    frequencies = np.bincount(stores["train"].read(0, counts[0]), minlength=vocabulary)
    assert (np.diff(frequencies) <= 0).all()
