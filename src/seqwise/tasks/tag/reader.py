"""Reads tagged sentences: CoNLL columns, `.jsonl` with `tokens` and `tags`, and `builtin:code`.

Checks that every word has a tag and that the tags follow one scheme. The module knows nothing of vocabularies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from seqwise.config import DataSettings, Settings
from seqwise.data.examples import Splits, find_training_duplicates, read_examples
from seqwise.data.limits import limited
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import OBJECT_SUFFIXES, read_table, split_commas
from seqwise.data.text_lines import read_lines
from seqwise.errors import DataError, Findings, UsageError
from seqwise.tasks.tag.code import find_code_tokens, read_code_lines
from seqwise.tasks.tag.spans import OUTSIDE, SCHEME_NAMES, Sentence, find_violations, guess_scheme, parse_tag
from seqwise.tasks.task import Preprocessor
from seqwise.text.pipelines import find_word_offsets

SUFFIXES = (".conll", ".conll03", ".bio", ".iob", ".tsv", ".txt", *OBJECT_SUFFIXES, "")
DOCUMENT_START = "-DOCSTART-"
COMMENT = re.compile(r"#\s*[\w.:-]+\s*=\s")  # CoNLL-U comments, before the words of a sentence
COLUMN_FIX = "Write one word and its tags per line, and a blank line between sentences."
# The description is part of the fingerprint of the data: it cannot change.
CODE_DESCRIPTION = "logical lines of the standard library's source, with the kinds of their tokens as tags"
BUILTINS = {"code": (cache(read_code_lines), CODE_DESCRIPTION)}  # parsed once: a comparison reads it for every trial
JSON_FIX = 'Each line must be one object: {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}'
MIN_REPEATED_WORDS = 5  # shorter sentences occur twice by chance


@dataclass
class TaggedSplits(Splits[Sentence]):
    """Tagged sentences in three splits, with their scheme and the reason why it was chosen."""

    scheme: str = "plain"
    reason: str = ""

    @property
    def has_spans(self) -> bool:
        """Whether tags mark spans of words, rather than single words."""
        return self.scheme != "plain"


@limited
def read_tagged_data(spec: str | Path, settings: Settings) -> TaggedSplits:
    """Reads all sentences, divides them into splits, determines the scheme, and checks the tags against it."""
    columns, data = split_commas(settings.columns), settings.data

    def read_file(path: Path, findings: Findings) -> list[Sentence]:
        if get_format_suffix(path) in OBJECT_SUFFIXES:
            return _read_json(path, findings, columns, data)
        return _read_columns(path, findings, columns, data.encoding)

    splits = read_examples(spec, read_file, SUFFIXES, BUILTINS, data.valid_fraction, data.test_fraction)
    scheme, reason = str(settings.tag.scheme), "--tag.scheme says so"
    if scheme == "auto":
        scheme, reason = guess_scheme(sentence.tags for sentence in splits.all_examples())
    tagged_splits = TaggedSplits(**vars(splits), scheme=scheme, reason=reason)
    if tagged_splits.has_spans:
        _check_tags(tagged_splits)
    tagged_splits.findings.raise_errors()
    _warn_about_splits(tagged_splits)
    return tagged_splits


# CoNLL columns


def _read_columns(
    path: Path, findings: Findings, columns: Sequence[str] | None, encoding: str | None
) -> list[Sentence]:
    """Reads a file with one word per line; by default the word is the first column and its tag the last."""
    has_tabs: bool | None = None  # decided by the first line with a word
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    sentence_line = num_columns = first_line = word_column = tag_column = 0
    document = -1
    for line, content in chain(read_lines(path, findings, encoding), [(0, "")]):
        if not content.strip() or content.startswith(DOCUMENT_START):
            if words:
                sentences.append(Sentence(tuple(words), tuple(tags), str(path), sentence_line, 1, document))
                words, tags = [], []
            if content.startswith(DOCUMENT_START):
                document += 1
                findings.note(f"document markers ({DOCUMENT_START}), which are not sentences", path, line)
            continue
        if not words and COMMENT.match(content):
            findings.note("comment lines, which are skipped", path, line)
            continue
        has_tabs = "\t" in content if has_tabs is None else has_tabs
        fields = content.rstrip().split("\t") if has_tabs else content.split()
        if not num_columns:
            num_columns, first_line = len(fields), line
            word_column, tag_column = _parse_columns(columns, num_columns, path, line)
        if not words:
            sentence_line = line
        word, tag = fields[0], OUTSIDE
        if len(fields) != num_columns:
            missing = ": a tag is missing" if len(fields) < num_columns else ""
            expected = f"expected {num_columns} columns as in line {first_line}"
            problem = f"{expected}, found {len(fields)}{missing} ({' '.join(fields)[:40]!r})."
            findings.error(problem, fix=COLUMN_FIX, file=path, line=line)
        else:
            word, tag = fields[word_column].strip(), fields[tag_column].strip()
            if not word or not tag:
                problem = f"the word {word!r} has no tag." if word else "the word is empty."
                findings.error(problem, fix=COLUMN_FIX, file=path, line=line)
        words.append(word)
        tags.append(tag or OUTSIDE)
    return sentences


def _parse_columns(columns: Sequence[str] | None, num_columns: int, path: Path, line: int) -> tuple[int, int]:
    """Returns the indices of the columns with the word and the tag."""
    if num_columns < 2:
        problem = "expected a word and its tag, found one column: the tags are missing."
        raise DataError(problem, fix=COLUMN_FIX, file=path, line=line)
    if columns is None:
        return 0, num_columns - 1
    if len(columns) != 2 or not all(column.isdigit() for column in columns):
        raise UsageError(
            f"--columns: expected the numbers of two columns, word and tag, received {','.join(columns)}.",
            fix=f"Columns count from 1: --columns 1,{num_columns}",
        )
    for column in columns:
        if not 1 <= int(column) <= num_columns:
            problem = f"there is no column {int(column)}: the line has {num_columns}."
            raise DataError(problem, fix="Change --columns.", file=path, line=line)
    return int(columns[0]) - 1, int(columns[1]) - 1


# JSON


def _read_json(path: Path, findings: Findings, columns: Sequence[str] | None, settings: DataSettings) -> list[Sentence]:
    """Reads a file with one object per sentence: a list of tokens and a list of tags."""
    sentences = []
    for row in read_table(path, ("tokens", "tags"), findings, columns, settings.encoding).rows:
        words, tags = row.values["tokens"], row.values["tags"]
        problem, fix = _find_list_problem("tokens", words)
        if not problem:
            problem, fix = _find_list_problem("tags", tags)
        if not problem and len(words) != len(tags):
            problem = f"{len(words)} tokens but {len(tags)} tags: they do not match."
            fix = "Give one tag per token."
        if not problem and not words and settings.on_empty == "stop":
            problem = "the sentence has no words."
            fix = "Remove the line, or pass --data.on-empty drop to drop such lines."
        if problem:
            findings.error(problem, fix=fix, file=path, line=row.line)
        elif not words:
            findings.warn("sentences without words, which are dropped", path, row.line)
        else:
            sentences.append(Sentence(tuple(words), tuple(tags), row.file, row.line))
    return sentences


def _find_list_problem(name: str, values: object) -> tuple[str, str]:
    """Returns the problem of a value that should be a list of strings, and its fix; both "" if it is one."""
    if not isinstance(values, list):
        return f"expected a list under {name!r}, found {type(values).__name__}.", JSON_FIX
    for index, value in enumerate(values):
        if not isinstance(value, str):
            is_tag_id = isinstance(value, int) and name == "tags"
            fix = "Write the names of the tags, not their numbers." if is_tag_id else JSON_FIX
            return f"expected strings under {name!r}, found {value!r}.", fix
        if not value.strip():
            return f"entry {index + 1} of {name!r} is blank.", "Remove it from both lists."
    return "", ""


# Checks


def _check_tags(splits: TaggedSplits) -> None:
    """Reports malformed tags as errors, and counts tags that the scheme does not allow at their position."""
    scheme, findings = SCHEME_NAMES[splits.scheme], splits.findings
    for sentence in splits.all_examples():
        malformed_indices = [index for index, tag in enumerate(sentence.tags) if parse_tag(tag) is None]
        for index in malformed_indices:
            file, line = sentence.get_location(index)
            findings.error(
                f"the tag {sentence.tags[index]!r} of {sentence.words[index]!r} is not {scheme} ({splits.reason}).",
                fix="Tags that mark spans are O, B-TYPE and I-TYPE (with BIOES also E-TYPE and S-TYPE). "
                "If these mark no spans: --tag.scheme plain",
                file=file,
                line=line,
            )
        if malformed_indices:
            continue
        for index, description in find_violations(sentence.tags, splits.scheme):
            prefix = f"tags that {scheme} does not allow at their position, such as "
            # One warning for all of them, with the first as the example.
            warning = next((existing for existing in findings.warnings if existing.startswith(prefix)), "")
            warning = warning or f"{prefix}{description}; they are read as conlleval reads them"
            findings.warn(warning, *sentence.get_location(index))


def _warn_about_splits(splits: TaggedSplits) -> None:
    """Adds warnings about tags that training does not have, and about held-out sentences that training has too."""

    def get_class(tag: str) -> str:
        """Returns the type of a span, or the tag itself."""
        return (parse_tag(tag) or ("", ""))[1] if splits.has_spans else tag

    known_classes = {get_class(tag) for sentence in splits.parts["train"] for tag in sentence.tags}
    for split in ("valid", "test"):
        for sentence in splits.parts.get(split, []):
            for index, tag in enumerate(sentence.tags):
                name = get_class(tag)
                if name and name not in known_classes:
                    splits.findings.warn(
                        f"tags of the {split} split are {name!r}, never seen in training; they count as errors",
                        *sentence.get_location(index),
                    )
    for split, sentence in find_training_duplicates(splits, lambda sentence: sentence.words):
        if len(sentence.words) >= MIN_REPEATED_WORDS:
            splits.findings.warn(
                f"sentences of {MIN_REPEATED_WORDS} words or more in {split} are in train too; they are kept",
                sentence.file,
                sentence.line,
            )


def count_words(sentences: Sequence[Sentence]) -> Counter[str]:
    """Returns how often each word occurs."""
    return Counter(word for sentence in sentences for word in sentence.words)


def find_token_offsets(text: str, preprocessor: Preprocessor) -> list[tuple[int, int]]:
    """Returns (start, end) of each word: Python's tokens for a run on code, else words and punctuation marks."""
    offsets = find_code_tokens(text) if preprocessor.attributes.get("code") else None
    return find_word_offsets(text) if offsets is None else offsets
