"""Files of vectors: saving and loading changes nothing, and gensim and Seqwise read each other's files."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from pathlib import Path

import gensim
import numpy as np
import pytest

from seqwise.errors import SaveError, UsageError
from seqwise.vectors.formats import KINDS, binary, load_vectors, resolve_output_kind, save_vectors, text
from seqwise.vectors.keyed import KeyedVectors, Subwords

WORDS = ["the", "été", "北京", "</s>", "no\u00a0break", "12", "a.b"]


@pytest.fixture
def keyed() -> KeyedVectors:
    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
    matrix[0] = [0, 1e-30, -1e30, 1 / 3, 16777217]
    return KeyedVectors(WORDS, matrix, about={"method": "skipgram"})


@pytest.fixture(params=["plain", "compiled"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small files are read in Python, large ones by compiled code; with "compiled", small ones too."""
    if request.param == "compiled":
        monkeypatch.setattr(text, "MIN_COMPILED_BYTES", -1)
    return str(request.param)


def is_same(a: KeyedVectors, b: KeyedVectors) -> bool:
    return a.words == b.words and np.array_equal(a.matrix, b.matrix)


def load_with_gensim(path: Path, **options) -> KeyedVectors:
    gensim_vectors = gensim.models.KeyedVectors.load_word2vec_format(str(path), **options)
    return KeyedVectors(gensim_vectors.index_to_key, gensim_vectors.vectors)


@pytest.mark.parametrize("name", ["v.safetensors", "v.bin", "v.vec", "v.txt", "v.vec.gz", "v.txt.gz", "v.bin.gz"])
def test_every_format_preserves_all_bits(name: str, keyed: KeyedVectors, tmp_path: Path, reader: str):
    keyed.save(tmp_path / name)
    assert is_same(KeyedVectors.load(tmp_path / name), keyed)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("kind", KINDS)
def test_the_format_can_be_set_explicitly(kind: str, keyed: KeyedVectors, tmp_path: Path):
    save_vectors(tmp_path / "vectors", keyed, kind)
    assert is_same(load_vectors(tmp_path / "vectors", kind), keyed)


def test_the_first_line_determines_the_format_without_a_suffix(keyed: KeyedVectors, tmp_path: Path):
    for kind in ("word2vec-text", "glove"):
        save_vectors(tmp_path / "vectors", keyed, kind)
        assert is_same(load_vectors(tmp_path / "vectors"), keyed)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("v.txt", None, {}),
        ("v.vec", None, {}),
        ("v.txt.gz", None, {}),
        ("v.bin", None, {"binary": True}),
        ("v.txt", "glove", {"no_header": True}),
    ],
)
def test_gensim_loads_what_is_written(name: str, kind: str | None, options: dict, keyed: KeyedVectors, tmp_path: Path):
    keyed.save(tmp_path / name, kind)
    assert is_same(load_with_gensim(tmp_path / name, **options), keyed)


@pytest.mark.parametrize(
    ("name", "options"),
    [("v.txt", {}), ("v.vec", {}), ("v.txt.gz", {}), ("v.bin", {"binary": True}), ("g.txt", {"write_header": False})],
)
def test_files_of_gensim_are_loaded(name: str, options: dict, keyed: KeyedVectors, tmp_path: Path, reader: str):
    gensim_vectors = gensim.models.KeyedVectors(keyed.dim)
    gensim_vectors.add_vectors(list(keyed.words), keyed.matrix)
    gensim_vectors.save_word2vec_format(str(tmp_path / name), **options)
    assert is_same(load_vectors(tmp_path / name), keyed)


def test_safetensors_keep_everything(keyed: KeyedVectors, tmp_path: Path):
    grams = Subwords(3, 5, np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32))
    words = ["with space", "line\nbreak", "\ud800", ""]
    original = KeyedVectors(words, keyed.matrix[:4], np.array([9, 7, 5, 3]), grams, {"settings": {"dim": 5}})
    original.save(tmp_path / "v.safetensors")
    loaded = KeyedVectors.load(tmp_path / "v.safetensors")
    assert is_same(loaded, original)
    assert loaded.counts is not None
    assert loaded.counts.tolist() == [9, 7, 5, 3]
    assert loaded.about == {"settings": {"dim": 5}}
    assert loaded.vector("unheard").tolist() == original.vector("unheard").tolist()


def test_file_permissions_follow_the_umask(keyed: KeyedVectors, tmp_path: Path):
    for name in ("v.safetensors", "v.bin"):
        keyed.save(tmp_path / name)
    (tmp_path / "plain").touch()
    assert {path.stat().st_mode for path in tmp_path.iterdir()} == {(tmp_path / "plain").stat().st_mode}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("the 1 2\n. . . 3 4\nat name@domain.com 5 6\n", ("the", ". . .", "at name@domain.com")),  # GloVe 840B
        ("\ufeff2 2\r\nthe 1 2\r\n\r\nof 3 4", ("the", "of")),
        ("2 2\nthe 1 2 \nof 3 4 \n", ("the", "of")),  # fastText ends lines with a space
        ("the\t1\t2\nof  +3e0  4.\n", ("the", "of")),
        ("1 1 2\n2 3 4\n", ("1", "2")),
        ("no\u00a0break 1 2\n\u2028 3 4\n", ("no\u00a0break", "\u2028")),
        ("a\x0bb 1 2\n\x0c 3 4\n\x1c\x85 5 6\n", ("a\x0bb", "\x0c", "\x1c\x85")),
        (" the 1 2\t\n of\t 3 4 \r\n", ("the", "of")),
        ("of 1 2\nNo 4 ever 3 4\nin 5 6\n", ("of", "No 4 ever", "in")),
    ],
)
def test_irregular_files_of_other_programs_are_read(content: str, words: tuple, tmp_path: Path, reader: str):
    path = tmp_path / "v.txt"
    path.write_bytes(content.encode())
    loaded = load_vectors(path)
    assert loaded.words == words
    assert loaded.matrix[:2].tolist() == [[1, 2], [3, 4]]


def test_parsed_numbers_equal_those_of_float(tmp_path: Path, reader: str):
    rng = np.random.default_rng(5)
    numbers = [f"{value:.{digits}g}" for value, digits in zip(rng.normal(size=300), rng.integers(1, 19, 300))]
    numbers += [f"{value:e}" for value in 10.0 ** rng.uniform(-44, 38, 100)]
    numbers += [
        "-0",
        "0.0",
        "-.5",
        "5.",
        "1E5",
        "+7",
        "000000000000000000000001",
        "9007199254740993",
        "1e-400",
        "123456e30",
    ]
    (tmp_path / "v.vec").write_text(f"{len(numbers)} 1\n" + "".join(f"w{i} {x}\n" for i, x in enumerate(numbers)))
    expected = np.array([[float(number)] for number in numbers]).astype(np.float32)
    loaded = load_vectors(tmp_path / "v.vec").matrix
    assert np.array_equal(loaded, expected)
    assert np.signbit(loaded).tolist() == np.signbit(expected).tolist()


def test_the_c_programs_line_breaks_between_vectors_are_read(tmp_path: Path):
    rows = np.array([[1, 2], [3, 4]], dtype="<f4")
    content = b"2 2\n" + b"".join(word + b" " + row.tobytes() + b"\n" for word, row in zip((b"the", b"of"), rows))
    (tmp_path / "v.bin").write_bytes(content)
    loaded = load_vectors(tmp_path / "v.bin")
    assert (loaded.words, loaded.matrix.tolist()) == (("the", "of"), [[1, 2], [3, 4]])


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_the_first_vector_of_a_repeated_word_is_used_with_a_warning(name: str, tmp_path: Path):
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("d", 6)]
    if name == "v.txt":
        content = b"6 1\n" + b"".join(f"{word} {number}\n".encode() for word, number in rows)
    else:
        content = b"6 1\n" + b"".join(word.encode() + b" " + np.float32(number).tobytes() for word, number in rows)
    (tmp_path / name).write_bytes(content)
    messages: list[str] = []
    loaded = load_vectors(tmp_path / name, log=messages.append)
    assert (loaded.words, loaded.matrix[:, 0].tolist()) == (("a", "b", "c", "d"), [1, 2, 4, 6])
    assert messages == ["2 of 6 lines repeat a word, whose first vector is used: 'a', 'b'"]
    with pytest.warns(UserWarning, match="2 of 6 lines repeat a word"):
        KeyedVectors.load(tmp_path / name)


def test_large_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str):
    monkeypatch.setattr(text, "BLOCK_BYTES", 1000)
    monkeypatch.setattr("seqwise.vectors.formats.binary.BLOCK_BYTES", 1000)
    matrix = np.random.default_rng(0).normal(size=(2000, 7)).astype(np.float32)
    keyed = KeyedVectors([f"w{number}" for number in range(2000)], matrix)
    for name in ("v.txt", "v.bin", "v.txt.gz", "v.bin.gz"):
        reports: list[tuple[int, int]] = []
        keyed.save(tmp_path / name)
        assert is_same(
            load_vectors(tmp_path / name, progress=lambda *report, reports=reports: reports.append(report)), keyed
        )
        size = os.path.getsize(tmp_path / name)
        assert reports == sorted(reports)
        assert reports[-1] == (size, size)


def test_compressed_files_are_reproducible(keyed: KeyedVectors, tmp_path: Path):
    keyed.save(tmp_path / "a.txt.gz")
    keyed.save(tmp_path / "b.txt.gz")
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()).startswith(b"7 5\nthe 0 ")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("New York", "it contains ' '"),
        ("tab\tbed", r"it contains '\\t'"),
        ("line\nbreak", r"it contains '\\n'"),
        ("", "it is empty"),
        ("half\ud800", r"it contains '\\ud800'"),
        ("a\0b", r"it contains '\\x00'"),
    ],
)
@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_unsupported_words_raise_an_error_before_writing(name, word: str, reason, tmp_path: Path):
    with pytest.raises(UsageError, match=f"cannot be written in this format: {reason}"):
        KeyedVectors(["a", word], np.ones((2, 2))).save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.safetensors"])
def test_a_failed_write_leaves_the_old_file(name: str, keyed: KeyedVectors, tmp_path: Path, monkeypatch):
    keyed.save(tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(SaveError, match="the disk is full"):
        KeyedVectors(["x"], np.ones((1, 2))).save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("v.model", None, "does not determine the format"),
        ("v.safetensors.gz", None, "cannot be compressed"),
        ("v.txt", "word2vec", "Perhaps you meant 'word2vec-text'"),
        ("none/v.txt", None, "folder does not exist"),
        ("folder.txt", None, "expected a file, received a folder"),
    ],
)
def test_an_unclear_output_format_raises_an_error(name: str, kind: str | None, message: str, keyed, tmp_path: Path):
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(UsageError, match=message):
        resolve_output_kind(tmp_path / name, kind)
    with pytest.raises(UsageError, match=message):
        keyed.save(tmp_path / name, kind)


def test_an_unwritable_file_raises_an_error_before_the_work(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UsageError, match="no permission"):
        resolve_output_kind(tmp_path / "v.bin")


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.safetensors"])
def test_links_and_pipes_are_written_through(name: str, keyed: KeyedVectors, tmp_path: Path):
    (tmp_path / "real").touch()
    (tmp_path / name).symlink_to("real")
    keyed.save(tmp_path / name)
    assert (tmp_path / name).is_symlink()
    assert is_same(load_vectors(tmp_path / name), keyed)
    pipe = tmp_path / f"pipe{name}"
    received = []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    keyed.save(pipe)
    reader.join(10)
    assert pipe.is_fifo()
    (tmp_path / f"copy{name}").write_bytes(received[0])
    assert is_same(load_vectors(tmp_path / f"copy{name}"), keyed)


def test_the_temporary_file_of_safetensors_is_not_beside_the_vectors(keyed: KeyedVectors, tmp_path: Path, monkeypatch):
    """safetensors writes to a file with a random name beside the one it was given, which an error may leave behind."""

    def save_half(tensors, path, metadata):
        (path.parent / ".tmpX1y2Z3").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(binary, "save_file", save_half)
    with pytest.raises(SaveError, match="the disk is full"):
        keyed.save(tmp_path / "v.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_every_supported_word_survives_a_round_trip(name: str, tmp_path: Path, reader: str):
    words = [chr(code) for code in range(1, 0x3000) if chr(code) not in " \t\n\r"]
    keyed = KeyedVectors(words, np.arange(len(words) * 2).reshape(-1, 2))
    keyed.save(tmp_path / name)
    assert is_same(load_vectors(tmp_path / name), keyed)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_words_that_are_not_utf8_are_left_out_of_binary_files_and_counted(end: bytes, tmp_path: Path):
    words = [b"a", b"\xe9t\xe9", b"b", "é".encode()[:1], b"c"]
    rows = [word + b" " + np.float32([number, -number]).tobytes() + end for number, word in enumerate(words)]
    (tmp_path / "v.bin").write_bytes(b"5 2\n" + b"".join(rows))
    messages: list[str] = []
    loaded = load_vectors(tmp_path / "v.bin", log=messages.append)
    assert (loaded.words, loaded.matrix.tolist()) == (("a", "b", "c"), [[0, 0], [2, -2], [4, -4]])
    assert messages == ["2 of 5 words are not UTF-8 text and were left out."]


def test_a_few_words_that_are_not_utf8_are_left_out_of_text_and_counted(tmp_path: Path, reader: str):
    lines = [f"w{number} {number}\n".encode() for number in range(300)]
    lines[7] = b"\xe9t\xe9 7\n"
    (tmp_path / "v.vec").write_bytes(b"300 1\n" + b"".join(lines))
    messages: list[str] = []
    loaded = load_vectors(tmp_path / "v.vec", log=messages.append)
    assert (len(loaded), "w7" in loaded, loaded["w8"].tolist()) == (299, False, [8])
    assert messages == ["1 of 300 words are not UTF-8 text and were left out."]


def test_invalid_ngram_lengths_raise_an_error(tmp_path: Path):
    from safetensors.numpy import load_file, save_file

    path = tmp_path / "v.safetensors"
    KeyedVectors(["a"], np.ones((1, 2)), subwords=Subwords(3, 5, np.ones((4, 2)))).save(path)
    for min_n, max_n in (("5", "3"), ("0", "3"), ("-2", "-1")):
        metadata = {"format": "seqwise-vectors", "about": "{}", "least": min_n, "most": max_n}
        save_file(load_file(path), path, metadata)
        with pytest.raises(UsageError, match=f"damaged: expected n-grams of 1 character or more.*{min_n} to {max_n}"):
            load_vectors(path)
