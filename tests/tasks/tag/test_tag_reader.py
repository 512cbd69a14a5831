"""Reading tagged sentences: columns, JSON, splits, and code with the kinds of its tokens."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.tasks.tag.code import find_code_tokens, read_code_lines, tokenize_module
from seqwise.tasks.tag.reader import TaggedSplits, read_tagged_data
from seqwise.tasks.tag.spans import split_long_sentences

SENTENCES = "EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n\nYes UH O\n\nNo UH O\n"


def read_data(path: str | Path, **settings) -> TaggedSplits:
    return read_tagged_data(path, Settings(**settings))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a.tsv", "a.train", "a", "a.unheard", "a.conll.gz"])
@pytest.mark.parametrize(
    "change", [str, lambda t: t.replace("\n", "\r\n"), lambda t: "\ufeff" + t, lambda t: t.replace(" ", "\t")]
)
def test_columns_are_read_with_any_suffix_and_line_ending(tmp_path: Path, name: str, change):
    splits = read_data(write(tmp_path / name, change(SENTENCES)))
    tags_by_words = {sentence.words: sentence.tags for sentence in splits.all_examples()}
    assert tags_by_words[("EU", "rejects")] == ("B-ORG", "O")
    assert tags_by_words[("Peter", "Blackburn")] == ("B-PER", "I-PER")
    assert len(tags_by_words) == 4
    assert splits.scheme == "bio"


def test_other_columns_can_be_read(tmp_path: Path):
    splits = read_data(write(tmp_path / "a.conll", SENTENCES), columns="1,2")
    assert splits.scheme == "plain"
    assert {tag for sentence in splits.all_examples() for tag in sentence.tags} == {"NNP", "VBZ", "UH"}


def test_a_word_has_its_line_number(tmp_path: Path):
    splits = read_data(write(tmp_path / "a.conll", SENTENCES))
    peter = next(s for s in splits.all_examples() if s.words[0] == "Peter")
    assert peter.get_location(0) == (str(tmp_path / "a.conll"), 4)
    assert peter.get_location(1)[1] == 5


def test_document_markers_and_comments_are_skipped(tmp_path: Path):
    text = "-DOCSTART- -X- O\n\n# sent_id = 1\nEU NNP B-ORG\n# SYM O\n\n" + SENTENCES
    splits = read_data(write(tmp_path / "a.conll", text))
    assert ("EU", "#") in {sentence.words for sentence in splits.all_examples()}
    messages = " ".join(splits.findings.note_messages())
    assert "1 document marker (-DOCSTART-), which is not a sentence" in messages
    assert "1 comment line, which is skipped" in messages


def test_file_names_of_the_conll_task_define_the_splits(tmp_path: Path):
    for name in ("eng.train", "eng.testa", "eng.testb"):
        write(tmp_path / name, SENTENCES)
    splits = read_data(tmp_path)
    assert {split: len(sentences) for split, sentences in splits.parts.items()} == {"train": 4, "valid": 4, "test": 4}
    assert splits.has_predefined_splits


def test_json_is_read(tmp_path: Path):
    rows = [{"tokens": ["EU", str(i)], "tags": ["S-ORG", "O"]} for i in range(4)]
    splits = read_data(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))))
    assert splits.scheme == "bioes"
    assert sorted(sentence.words[1] for sentence in splits.all_examples()) == ["0", "1", "2", "3"]


def test_the_fingerprint_depends_on_the_content_only(tmp_path: Path):
    first, same_content = write(tmp_path / "a.conll", SENTENCES), write(tmp_path / "b" / "b.txt", SENTENCES)
    other_content = write(tmp_path / "c.conll", SENTENCES.replace("B-ORG", "B-LOC"))
    assert read_data(first).fingerprint == read_data(same_content).fingerprint
    assert read_data(first).fingerprint != read_data(other_content).fingerprint


def test_no_word_is_lost_when_sentences_are_split(tmp_path: Path):
    sentences = read_data(
        write(tmp_path / "a.conll", "".join(f"w{i} O\n" for i in range(7)) + "\na X\n\nb X\n\nc Y\n"),
        tag={"scheme": "plain"},
    ).all_examples()
    segments = split_long_sentences(sentences, 3)
    assert [word for segment in segments for word in segment.words] == [w for s in sentences for w in s.words]
    assert max(len(segment.words) for segment in segments) == 3
    assert [segment.get_location(0)[1] for segment in segments if segment.words[0].startswith("w")] == [1, 4, 7]


CODE = """import os, sys as system
from json import dumps
class Shape(Base):
    def area(self, scale=1.5, *rest):
        # a comment alone
        value = os.path.join(self.name, key=dumps(scale))  # behind code
        return f"{value} and" "more"
def größe(x): return größe(x)
"""


def test_names_in_code_have_the_kind_the_parser_finds():
    lines = {line.line: dict(zip(line.words, line.tags)) for line in tokenize_module(CODE, "shape.py")}
    assert lines[1] == {
        "import": "keyword",
        "os": "module",
        ",": "operator",
        "sys": "module",
        "as": "keyword",
        "system": "variable",
    }
    assert (lines[2]["json"], lines[2]["dumps"]) == ("module", "imported")
    assert (lines[3]["Shape"], lines[3]["Base"]) == ("class", "variable")
    assert (lines[4]["area"], lines[4]["self"], lines[4]["scale"], lines[4]["rest"]) == ("function", *["parameter"] * 3)
    assert lines[4]["1.5"] == "number"
    expected = {
        "value": "variable",
        "os": "module",
        "path": "attribute",
        "join": "method",
        "self": "variable",
        "name": "attribute",
        "key": "argument",
        "dumps": "call",
        "# behind code": "comment",
    }
    assert {word: lines[6][word] for word in expected} == expected
    assert lines[7] == {"return": "keyword", 'f"{value} and"': "string", '"more"': "string"}


def test_byte_offsets_of_the_parser_become_columns():
    (line,) = tokenize_module("def größe(xä): return größe(xä)\n", "a.py")
    assert [kind for word, kind in zip(line.words, line.tags) if word in ("größe", "xä")] == [
        "function",
        "parameter",
        "call",
        "variable",
    ]


def test_the_builtin_code_is_reproducible_and_has_no_duplicates():
    lines = read_code_lines()
    assert lines == read_code_lines()
    assert len(lines) > 2000
    assert len({line.words for line in lines}) == len(lines)
    assert {kind for line in lines for kind in line.tags} == {
        *("keyword", "operator", "number", "string", "comment", "variable", "parameter", "argument", "attribute"),
        *("call", "method", "function", "class", "module", "imported"),
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = f('a b')", ["x", "=", "f", "(", "'a b'", ")"]),
        ("def f(a", ["def", "f", "(", "a"]),  # not finished
        ("", []),
    ],
)
def test_a_line_of_code_is_split_into_python_tokens(text: str, words: list[str]):
    assert [text[begin:end] for begin, end in find_code_tokens(text) or []] == words


def test_text_that_is_not_python_has_no_code_tokens():
    assert find_code_tokens("'''open") is None
