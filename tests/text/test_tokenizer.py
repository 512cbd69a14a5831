"""Tokenisers of all kinds: decoding, offsets, vocabularies, special tokens, saving and loading, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqwise.config import TOKENIZERS
from seqwise.errors import DataError, UsageError
from seqwise.text.pipelines import split_into_chunks
from seqwise.text.tokenizer import Tokenizer

TEXT = """It doesn't matter, and we're late: the train left at 10.30.
"Can't you see?" said the man -- it was the state-of-the-art train, worth $1,000.

The man saw the train; the train saw the man.
"""
SIZES = {"bpe": 300, "wordpiece": 90}

any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
known_text = st.text(st.sampled_from(sorted(set(TEXT))), max_size=80)


def train_tokenizer(kind: str, **options: object) -> Tokenizer:
    return Tokenizer.train(kind, [TEXT] * 3, size=SIZES.get(kind), **options)  # type: ignore[arg-type]


BY_KIND = {kind: train_tokenizer(kind) for kind in TOKENIZERS}


@given(known_text)
def test_character_tokens_decode_to_the_same_text(text: str) -> None:
    tokenizer = BY_KIND["characters"]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(any_text)
def test_bpe_tokens_decode_to_the_same_text(text: str) -> None:
    tokenizer = BY_KIND["bpe"]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@given(any_text)
def test_an_unknown_character_is_one_replacement_character(text: str) -> None:
    tokenizer = BY_KIND["characters"]
    expected = "".join(character if character in TEXT else "�" for character in text)
    assert tokenizer.decode(tokenizer.encode(text).ids) == expected


@pytest.mark.parametrize("kind", ["characters", "words", "spaces"])
@given(text=st.one_of(known_text, any_text))
@example(text="<eos>")
def test_each_known_token_equals_the_text_at_its_offsets(kind: str, text: str) -> None:
    tokenizer = BY_KIND[kind]
    encoding = tokenizer.encode(text)
    for number, (start, stop) in zip(encoding.ids, encoding.offsets):
        token = tokenizer.token(number)
        assert token == "<unk>" or text[start:stop] in (["<eos>", "\n"] if token == "<eos>" else [token])


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(text=any_text)
def test_offsets_increase_and_omit_only_blanks(kind: str, text: str) -> None:
    encoding = BY_KIND[kind].encode(text)
    covered = np.zeros(len(text), dtype=bool)
    last = 0
    for start, stop in encoding.offsets:
        assert last <= start <= stop <= len(text) or kind == "bpe"  # pieces of one character share its position
        covered[start:stop] = True
        last = start
    assert all(text[position].isspace() for position in np.flatnonzero(~covered))


@given(any_text)
def test_bpe_offsets_cover_the_characters_of_a_token(text: str) -> None:
    encoding = BY_KIND["bpe"].encode(text)
    starts = encoding.offsets[:, 0]
    assert (np.diff(starts) >= 0).all()
    assert len(set(starts) & set(range(len(text)))) == len(set(starts))


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(first=any_text, second=any_text)
@settings(max_examples=50)
def test_a_text_split_after_a_line_break_has_the_same_tokens(kind: str, first: str, second: str) -> None:
    tokenizer = BY_KIND[kind]
    expected = tokenizer.encode(f"{first}\n{second}").ids
    actual = np.concatenate(tokenizer.encode_many([f"{first}\n", second]))
    assert expected.tolist() == actual.tolist()


@given(any_text, st.integers(1, 20))
def test_chunks_joined_are_the_text(text: str, size: int) -> None:
    parts = list(split_into_chunks(text, size))
    assert "".join(parts) == text
    assert all(0 < len(part) <= size for part in parts)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_encode_and_encode_many_agree(kind: str) -> None:
    texts = [TEXT, "", "the train\n", "zebra 日本"]
    for ids, text in zip(BY_KIND[kind].encode_many(texts), texts):
        assert ids.dtype == np.int64
        assert ids.tolist() == BY_KIND[kind].encode(text).ids.tolist()


@pytest.mark.parametrize("kind", ["characters", "words", "spaces"])
def test_ids_are_sorted_by_decreasing_frequency(kind: str) -> None:
    counts = np.bincount(BY_KIND[kind].encode(TEXT).ids, minlength=len(BY_KIND[kind]))
    assert (np.diff(counts) <= 0).all()


def test_the_kind_spaces_has_one_end_per_line_and_reads_unknown_words() -> None:
    tokenizer = Tokenizer.train("spaces", [" the <unk> cat \n\n the dog\n"])
    assert tokenizer.tokens(tokenizer.encode(" the <unk> bird\n\n").ids) == ["the", "<unk>", "<unk>", "<eos>", "<eos>"]
    assert sorted(tokenizer.tokens(range(len(tokenizer)))) == ["<eos>", "<unk>", "cat", "dog", "the"]
    assert (tokenizer.token(0), tokenizer.end) == ("<eos>", 0)
    assert tokenizer.decode(tokenizer.encode("the cat\nthe dog\n").ids) == "the cat\nthe dog\n"


@pytest.mark.parametrize("kind", ["characters", "words", "spaces"])
@given(text=any_text)
@example(text="<unk>")
def test_the_training_text_itself_has_no_unknown_token_but_those_written_in_it(kind: str, text: str) -> None:
    tokenizer = Tokenizer.train(kind, [text, " ab cd"])
    is_written = {"characters": False, "words": "<unk>" in text, "spaces": "<unk>" in text.split()}[kind]
    assert (tokenizer.unknown in tokenizer.encode(text).ids) == is_written


def test_rare_words_become_unknown_which_ranks_by_their_sum() -> None:
    tokenizer = Tokenizer.train("words", ["a a a b b c d e f g"], min_count=2)
    assert tokenizer.tokens(range(len(tokenizer))) == ["<unk>", "a", "b"]
    assert tokenizer.encode("b g z").ids.tolist() == [2, 0, 0]


def test_the_size_limits_the_whole_vocabulary() -> None:
    tokenizer = Tokenizer.train("words", ["a a a b b c\n"], size=5, specials=("<pad>",))
    assert tokenizer.tokens(range(len(tokenizer))) == ["<pad>", "a", "b", "<eos>", "<unk>"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_subword_vocabularies_reach_the_requested_size(kind: str) -> None:
    text = " ".join(f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnrst") + "\n"
    size = 320 if kind == "bpe" else 100
    assert len(Tokenizer.train(kind, [text] * 4, size=size, specials=("<pad>",))) == size


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_specials_have_the_first_ids_and_text_does_not_produce_them(kind: str) -> None:
    tokenizer = train_tokenizer(kind, specials=("<pad>", "<bos>"))
    assert (tokenizer.id("<pad>"), tokenizer.id("<bos>")) == (0, 1)
    if kind != "spaces":  # its texts may contain special tokens
        assert not set(tokenizer.encode("a <pad> <bos>").ids.tolist()) & {0, 1}


def test_bpe_writes_specials_between_the_exact_text() -> None:
    tokenizer = train_tokenizer("bpe", specials=("<bos>",))
    assert tokenizer.decode([0, *tokenizer.encode("é!").ids, 0]) == "<bos>é!<bos>"


def test_only_bpe_has_no_unknown_token() -> None:
    assert {kind: BY_KIND[kind].unknown is None for kind in TOKENIZERS} == {kind: kind == "bpe" for kind in TOKENIZERS}
    assert {kind: BY_KIND[kind].end is None for kind in TOKENIZERS} == {
        kind: kind in ("bpe", "characters") for kind in TOKENIZERS
    }


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_offsets_of_lowercased_text_are_those_of_the_original(kind: str) -> None:
    tokenizer = train_tokenizer(kind, lowercase=True)
    upper, lower = tokenizer.encode("İ THE TRAIN"), tokenizer.encode("i the train")
    assert upper.ids[-1] == lower.ids[-1]
    assert "TRAIN".endswith("İ THE TRAIN"[slice(*upper.offsets[-1])].strip())


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_loaded_tokenizer_equals_the_saved_one(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(kind, specials=("<pad>",), lowercase=True)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.kind, loaded.specials, loaded.lowercase) == (kind, ("<pad>",), True)
    assert loaded.encode(TEXT).ids.tolist() == tokenizer.encode(TEXT).ids.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_training_does_not_depend_on_the_process_or_on_chunks(kind: str) -> None:
    code = (
        "import sys; from seqwise.text.tokenizer import Tokenizer\n"
        "text, kind, size = sys.argv[1:]\n"
        "pieces = text.splitlines(keepends=True)\n"
        "print(Tokenizer.train(kind, pieces, size=int(size) or None).fingerprint)\n"
    )
    arguments = [sys.executable, "-c", code, TEXT * 3, kind, str(SIZES.get(kind, 0))]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == BY_KIND[kind].fingerprint


def test_different_vocabularies_have_different_fingerprints() -> None:
    assert len({tokenizer.fingerprint for tokenizer in BY_KIND.values()}) == len(TOKENIZERS)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("text", ["aaaa", "aaaa\naaaa\n"])
def test_a_text_of_one_symbol_is_rejected(kind: str, text: str) -> None:
    with pytest.raises(DataError, match="vocabulary of one symbol"):
        Tokenizer.train(kind, [text], size=SIZES.get(kind))


def test_a_text_of_one_repeated_word_is_rejected() -> None:
    with pytest.raises(DataError, match="vocabulary of one symbol"):
        Tokenizer.train("words", ["again again again\n"])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_an_empty_text_is_rejected(kind: str) -> None:
    with pytest.raises(DataError, match="empty"):
        Tokenizer.train(kind, [])


def test_an_unknown_kind_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="Perhaps you meant 'words'"):
        Tokenizer.train("word", [TEXT])


@pytest.mark.parametrize(("kind", "size"), [("bpe", 100), ("wordpiece", 3), ("characters", 1), ("words", 2)])
def test_too_small_a_vocabulary_is_rejected(kind: str, size: int) -> None:
    with pytest.raises(UsageError, match=r"too small|no room"):
        Tokenizer.train(kind, [TEXT], size=size)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ("[]", "damaged: expected a JSON object"),
        ('{"format": 1}', "damaged"),
        ('{"format": 99}', "has format 99; this version reads up to 1"),
        ('{"format": 1, "kind": "words", "lowercase": false, "specials": [], "tokenizer": {}}', "damaged"),
        (
            '{"format": 1, "kind": "word", "lowercase": false, "specials": [], "tokenizer": {}}',
            r"json: unknown kind 'word'\.\nPerhaps you meant 'words'\.$",
        ),
    ],
)
def test_a_damaged_or_newer_file_is_named(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(DataError, match=message) as excinfo:
        Tokenizer.load(file)
    assert str(excinfo.value).startswith(f"{file}: ")


def test_a_pattern_that_takes_long_to_compile_is_refused(tmp_path: Path) -> None:
    BY_KIND["words"].save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["tokenizer"]["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": f"(?i:{'x' * 20_000})"}, "behavior": "Removed", "invert": True}
        ],
    }
    del content["blake2b"]  # as in a file of an earlier version
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"damaged: a regular expression of 20,005 characters; expected at most 10,000"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_a_folder_instead_of_the_tokenizer_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: Is a directory\.\nCheck its permissions"):
        Tokenizer.load(tmp_path)


def test_a_vocabulary_without_consecutive_ids_is_rejected(tmp_path: Path) -> None:
    BY_KIND["words"].save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["tokenizer"]["model"]["vocab"]["the"] = 9999
    del content["blake2b"]  # as in a file of an earlier version
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"json: the ids of the vocabulary are not 0, 1, 2, …\nCopy it again"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_the_tokenizers_library_reads_the_saved_pipeline(tmp_path: Path) -> None:
    import tokenizers

    BY_KIND["words"].save(tmp_path / "tokenizer.json")
    inner = json.loads((tmp_path / "tokenizer.json").read_text())["tokenizer"]
    assert (
        tokenizers.Tokenizer.from_str(json.dumps(inner)).encode("the man").ids
        == BY_KIND["words"].encode("the man").ids.tolist()
    )


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_bytes_that_python_could_not_decode_are_one_unknown_character(kind: str) -> None:
    text = b"the \xe9 man".decode("utf-8", "surrogateescape")
    encoding = BY_KIND[kind].encode(text)
    assert "the" in BY_KIND[kind].decode(encoding.ids)
    assert text[slice(*encoding.offsets[-1])].endswith("n")
    assert BY_KIND[kind].encode_many([text])[0].tolist() == encoding.ids.tolist()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_word_of_a_million_letters_can_be_encoded(kind: str) -> None:
    assert len(BY_KIND[kind].encode("a" * 1_000_000).ids) >= 1


def test_text_imports_no_torch() -> None:
    code = "import seqwise.text, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_file_that_asks_for_endless_padding_is_read_without_it(tmp_path):
    path = tmp_path / "tokenizer.json"
    Tokenizer.train("words", ["the cat sat"]).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["blake2b"]  # as in files of versions without digests
    padding = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None}
    content["tokenizer"]["padding"] = {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert (
        Tokenizer.load(path).encode("the cat").ids.tolist() == Tokenizer.load(path).encode_many(["the cat"])[0].tolist()
    )
    assert len(Tokenizer.load(path).encode("the cat")) == 2


@pytest.mark.parametrize("kind", ["characters", "words", "wordpiece"])
def test_a_vocabulary_without_the_unknown_token_is_refused(tmp_path, kind):
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(kind, ["the cat sat"] * 3).save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["blake2b"]
    path.write_text(json.dumps(content).replace("<unk>", "<any>"), encoding="utf-8")
    if kind != "characters":
        content["tokenizer"]["model"]["unk_token"] = "<other>"
        path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json: the"):
        Tokenizer.load(path)
