"""Reading tables in all formats and layouts."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import HEADER_READ_AS_EXAMPLE, Table, read_table, split_commas
from seqwise.errors import DataError, Findings, pluralize

NAMES = ("text", "label")


def write_and_read_table(
    folder: Path, name: str, content: str | bytes, columns: str | None = None
) -> tuple[Table, Findings]:
    path, findings = folder / name, Findings()
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    table = read_table(path, NAMES, findings, split_commas(columns))
    return replace(table, rows=list(table.rows)), findings


def read_rows(folder: Path, name: str, content: str | bytes, columns: str | None = None) -> list[tuple[str, str, int]]:
    result, findings = write_and_read_table(folder, name, content, columns)
    findings.raise_errors()
    return [(row.values["text"], row.values["label"], row.line) for row in result.rows]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "text,label\ngood,1\nbad,0\n", None),
        ("a.csv", "label,text\n1,good\n0,bad\n", None),
        ("a.csv", "Text, LABEL\ngood,1\nbad,0", None),
        ("a.csv", "text,label\r\ngood,1\r\nbad,0\r\n", None),
        ("a.csv", "text,label\rgood,1\rbad,0\r", None),
        ("a.csv", b"\xef\xbb\xbftext,label\ngood,1\nbad,0\n", None),
        ("a.csv", 'text,label\n"good",1\n"bad","0"\n', None),
        ("a.CSV.gz", "text,label\ngood,1\nbad,0\n", None),
        ("a.tsv", "text\tlabel\ngood\t1\nbad\t0\n", None),
        ("a.tsv", "id\tlabel\ttext\n7\t1\tgood\n8\t0\tbad\n", None),
        ("a.csv", "id,stars,review\n7,1,good\n8,0,bad\n", "review,stars"),
        ("a.csv", "text,label,extra\ngood,1,x\nbad,0,y\n", "1,2"),
        ("a.jsonl", '{"text": "q", "r": "good", "stars": "1"}\n{"r": "bad", "stars": "0"}', "r,stars"),
        ("a.jsonl.gz", '{"text": "good", "label": "1"}\r\n{"text": "bad", "label": "0"}\r\n', None),
    ],
)  # fmt: skip
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, content: str | bytes, columns: str | None):
    first = 1 if name.startswith("a.jsonl") else 2
    assert read_rows(tmp_path, name, content, columns) == [("good", "1", first), ("bad", "0", first + 1)]


@pytest.mark.parametrize("columns", [None, "1,2"])
def test_a_file_without_a_header_is_read_from_its_first_line(tmp_path: Path, columns: str | None):
    assert read_rows(tmp_path, "a.tsv", "good\t1\nbad\t0\n", columns) == [("good", "1", 1), ("bad", "0", 2)]
    assert read_rows(tmp_path, "a.txt", "good\t1\n", columns) == [("good", "1", 1)]
    assert read_rows(tmp_path, "a.csv", "good,1\n", columns) == [("good", "1", 1)]


def test_columns_by_number_may_be_in_any_order_and_incomplete(tmp_path: Path):
    assert read_rows(tmp_path, "a.tsv", "7\t1\tgood\n8\t0\tbad\n", "3,2") == [("good", "1", 1), ("bad", "0", 2)]


def test_quoted_fields_may_contain_separators_quotes_and_line_breaks_and_line_numbers_stay_correct(tmp_path: Path):
    content = 'text,label\r\n"one, ""two""\r\nthree",a\r\nfour,b\r\n'
    assert read_rows(tmp_path, "a.csv", content) == [('one, "two"\nthree', "a", 2), ("four", "b", 4)]


def test_quotes_in_tab_separated_files_are_text(tmp_path: Path):
    assert read_rows(tmp_path, "a.tsv", '"good\t1\nb"a"d\t0\n') == [('"good', "1", 1), ('b"a"d', "0", 2)]


def test_unicode_line_separators_are_text(tmp_path: Path):
    assert read_rows(tmp_path, "a.tsv", "go\x0bo\x85d\u2028\t1\n") == [("go\x0bo\x85d\u2028", "1", 1)]
    assert read_rows(tmp_path, "a.csv", "go\x0co\u2029d,1\n") == [("go\x0co\u2029d", "1", 1)]


def test_json_values_keep_their_type_and_lone_surrogates_are_replaced(tmp_path: Path):
    result, _ = write_and_read_table(tmp_path, "a.jsonl", r'{"text": ["\ud800a", "\ud83d\ude00"], "label": true}')
    assert result.rows[0].values == {"text": ["�a", "😀"], "label": True}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_blank_lines_are_counted_except_at_the_end(tmp_path: Path, name: str):
    lines = {
        "a.csv": ["a,1", "b,0"],
        "a.tsv": ["a\t1", "b\t0"],
        "a.jsonl": ['{"text": "a", "label": 1}', '{"text": "b", "label": 0}'],
    }
    result, findings = write_and_read_table(tmp_path, name, "\n\n".join(lines[name]) + "\n\n\n")
    assert [row.line for row in result.rows] == [1, 3]
    assert findings.note_messages() == [f"1 blank line, which is skipped ({tmp_path / name}:2)."]


@pytest.mark.parametrize(("name", "content"), [("a.csv", "a,1\n,\nb,0\n"), ("a.tsv", "a\t1\n\t\nb\t0\n")])
def test_a_row_of_empty_fields_is_a_row(tmp_path: Path, name: str, content: str):
    assert read_rows(tmp_path, name, content) == [("a", "1", 1), ("", "", 2), ("b", "0", 3)]


def test_rows_with_missing_or_extra_fields_are_reported_with_their_lines(tmp_path: Path):
    _, findings = write_and_read_table(tmp_path, "a.csv", "text,label\none, two,1\ngood,1\nbad\n")
    assert [(error.line, error.problem) for error in findings.errors] == [
        (2, "expected 2 fields as in line 1, found 3."),
        (4, "expected 2 fields as in line 1, found 1."),
    ]
    assert "must be quoted" in findings.errors[0].fix


def test_an_unclosed_quote_is_reported_where_it_is_opened(tmp_path: Path):
    _, findings = write_and_read_table(tmp_path, "a.csv", 'text,label\ngood,1\n"bad,0\nfine,1\n')
    assert [(error.line, error.problem) for error in findings.errors] == [
        (3, "a quote is opened here and never closed.")
    ]
    assert [row.line for row in write_and_read_table(tmp_path, "b.csv", '"never closed,1\n')[0].rows] == []


def test_wrong_quotes_are_reported_together_with_wrong_columns(tmp_path: Path):
    path, findings = tmp_path / "a.csv", Findings()
    path.write_text('"title"x\ntext,label\none,two,three\n"a"b,2\n"never closed,3\n')
    with pytest.raises(DataError, match="there is no column 'x'"):
        read_table(path, NAMES, findings, ["x", "y"])
    assert [error.line for error in findings.errors] == [1, 4, 5]


def test_reading_continues_after_a_misplaced_quote(tmp_path: Path):
    result, findings = write_and_read_table(tmp_path, "a.csv", 'text,label\n"good"x,1\nbad,0\n"a\nb"c,1\nfine,1\n')
    assert [error.line for error in findings.errors] == [2, 4]
    assert "read up to line 5" in findings.errors[1].problem
    assert [row.line for row in result.rows] == [3, 6]


@pytest.mark.parametrize(
    ("name", "content", "columns", "parts"),
    [
        ("a.csv", "", None, ["a.csv: the file is empty", "text, label"]),
        ("a.csv", "\n \n", None, ["a.csv: the file is empty"]),
        ("a.jsonl", "\n\n", None, ["a.jsonl: the file is empty", '{"text": …, "label": …}']),
        ("a.csv", "sentence,label\ngood,1\n", None, ["a.csv:1: ", "no column text", "--columns sentence,label"]),
        ("a.csv", "\nreview,label\ngood,1\n", None, ["a.csv:2: ", "no column text"]),
        ("a.csv", "Stars,Text,Id\n1,good,7\n", None, ["no column label", "--columns Text,Stars"]),
        ("a.tsv", "good\nbad\n", None, ["found 1 column", "separated by commas, semicolons, tabs"]),
        ("a.csv", "text,label,text\ngood,1,x\n", None, ["a.csv:1: two columns are called 'text': 1 and 3"]),
        ("a.csv", "\nText,label,text\ngood,1,x\n", None, ["a.csv:2: two columns are called 'text'"]),
        ("a.csv", "r,s,r\ngood,1,x\n", "r,s", ["a.csv:1: two columns are called 'r'"]),
        ("a.csv", b"\xd0\xe2,1\n", None, ["a.csv:1: byte 0xD0", "--data.encoding"]),
        ("a.csv", "1,good,x\n", None, ["found 3 columns", "--columns 1,2"]),
        ("a.csv", "review,stars\ngood,1\n", "reveiw,stars", ["no column 'reveiw'", "Perhaps you meant 'review'"]),
        ("a.csv", "good,1\n", "1,3", ["no column 3: the first line has 2"]),
        ("a.csv", "good,1\n", "0,1", ["no column 0"]),
        ("a.csv", "good,1\n", "²,1", ["no column '²'"]),
        ("a.csv", "good,1\n", "text", ["--columns: expected 2 (text, label), received 1"]),
        ("a.jsonl", "{}", "text", ["--columns: expected 2 (text, label), received 1"]),
    ],
)  # fmt: skip
def test_unreadable_tables_are_rejected(tmp_path: Path, name: str, content, columns: str | None, parts: list[str]):
    with pytest.raises(DataError) as excinfo:
        write_and_read_table(tmp_path, name, content, columns)
    assert all(part in str(excinfo.value) for part in parts), str(excinfo.value)


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('{"text": "a"', "not valid JSON"),
        ('{"text": "a"}', "expected label, found text"),
        ("[1]", "expected text, label, found list"),
        ("{}", "found an empty object"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_wrong_lines_of_json_are_reported_with_their_number(tmp_path: Path, line: str, part: str):
    result, findings = write_and_read_table(tmp_path, "a.jsonl", f'{{"text": "good", "label": 1}}\n{line}\n')
    assert [row.line for row in result.rows] == [1]
    assert [error.line for error in findings.errors] == [2]
    assert part in findings.errors[0].problem


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\ngood,1\ntext,label\nbad,0\n"),
        ("a.tsv", "text\tlabel\ngood\t1\ntext\tlabel\nbad\t0\n"),
    ],
)
def test_a_repeated_header_is_an_error_with_its_line(tmp_path: Path, name: str, content: str):
    _, findings = write_and_read_table(tmp_path, name, content)
    assert [(error.line, error.problem) for error in findings.errors] == [(3, "the header of line 1 is repeated.")]


def test_columns_without_a_name_may_be_several_and_numbers_choose_among_equal_names(tmp_path: Path):
    assert read_rows(tmp_path, "a.csv", "text,label,,\ngood,1,,\n") == [("good", "1", 2)]
    assert read_rows(tmp_path, "a.csv", "text,label,text\ngood,1,x\n", "1,2") == [("good", "1", 2)]


def test_a_key_that_occurs_twice_in_an_object_is_an_error(tmp_path: Path):
    _, findings = write_and_read_table(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n{"text": "a", "text": "b"}\n')
    assert [(error.line, error.problem) for error in findings.errors] == [
        (2, "not valid JSON: the key 'text' occurs twice in one object.")
    ]


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("|", "vertical bars"), ("\t", "tabs")])
def test_another_separator_is_detected_and_reported(tmp_path: Path, separator: str, word: str):
    content = "text,label\n" + '"good, really",1\nbad,0\n'.replace(",1", f"{separator}1")
    content = content.replace("text,", f"text{separator}").replace("bad,", f"bad{separator}")
    table, findings = write_and_read_table(tmp_path, "a.csv", content)
    assert [row.values for row in table.rows] == [{"text": "good, really", "label": "1"}, {"text": "bad", "label": "0"}]
    path = tmp_path / "a.csv"
    assert findings.note_messages() == [f"1 file (.csv) with {word} between fields ({path})."]


def test_commas_in_texts_do_not_make_a_text_file_comma_separated(tmp_path: Path):
    rows = read_rows(tmp_path, "a.txt", "one, two\t1\nthree, four\t0\n")
    assert rows == [("one, two", "1", 1), ("three, four", "0", 2)]


@pytest.mark.parametrize(
    ("content", "line", "part"),
    [
        ('[{"text": "good", "label": 1},\n {"text": "bad", "label": 0}', 2, "the array is not closed"),
        ('[{"text": "good", "label": 1}\n\n {"text": "bad", "label": 0}]', 3, "expected a comma"),
        ('[{"text": "good", "label": 1},\n {"text": "bad", label: 0}]', 2, "property name"),
        ('[{"text": "good", "label": 1}]\n[]', 2, "text follows the end"),
        ('[{"text": "good", "label": 1},\n {"text": "bad"}]', 2, "expected label, found text"),
    ],
)
def test_a_damaged_json_array_is_reported_with_its_line(tmp_path: Path, content: str, line: int, part: str):
    _, findings = write_and_read_table(tmp_path, "a.json", content)
    assert [(error.line, part in error.problem) for error in findings.errors] == [(line, True)]


@pytest.mark.parametrize(
    ("rows", "columns", "parts"),
    [
        ([{"stars": "1", "text": "good"}] * 3, None, ["no column label; there are stars", "--columns text,stars"]),
        ([{"review": "good", "stars": "1"}] * 3, None, ["no column text or label", "--columns review,stars"]),
        ([{"review": "good", "stars": "1"}] * 3, "reveiw,stars", ["no column 'reveiw'", "Perhaps you meant 'review'"]),
    ],
)  # fmt: skip
def test_a_column_that_no_object_has_is_one_error(
    tmp_path: Path, rows: list[dict], columns: str | None, parts: list[str]
):
    with pytest.raises(DataError) as excinfo:
        write_and_read_table(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)), columns)
    assert str(excinfo.value).startswith(f"{tmp_path / 'a.jsonl'}: there is ")
    assert [part for part in parts if part not in str(excinfo.value)] == []


def test_the_suffix_of_a_gzip_file_is_the_one_before_gz():
    assert [get_format_suffix(Path(name)) for name in ("a.tsv.gz", "a.CSV", "a.gz", "a")] == [".tsv", ".csv", "", ""]


WITH_HEADER = "review,mood\nthe film is good,1\nthe film is bad,0\n"


@pytest.mark.parametrize(
    ("content", "columns", "warns"),
    [
        (WITH_HEADER, "1,2", True),
        (WITH_HEADER, "review,mood", False),
        (WITH_HEADER.partition("\n")[2], "1,2", False),  # the first line is like the others
        ("dog,Hund\ncat,Katze\ncow,Kuh\n", "1,2", False),  # all fields are single words
        ("fine,yes\nthe film is good,yes\nthe film is bad,no\n", "1,2", False),  # its label occurs again
    ],
)
def test_a_header_read_as_an_example_gives_a_warning(tmp_path: Path, content: str, columns: str, warns: bool):
    _, findings = write_and_read_table(tmp_path, "a.csv", content, columns)
    assert findings.warning_messages() == (
        [f"{pluralize(1, HEADER_READ_AS_EXAMPLE)} ({tmp_path / 'a.csv'}:1)."] if warns else []
    )


def test_the_suffix_json_is_read_as_json_lines(tmp_path: Path):
    assert read_rows(tmp_path, "a.json", '{"text": "good", "label": "1"}\n') == [("good", "1", 1)]
