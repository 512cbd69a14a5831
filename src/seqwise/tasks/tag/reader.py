"""Sentences with a tag per word: CoNLL columns, `.jsonl` with `tokens` and `tags`, and `builtin:code`.

Reading checks that every word has a tag, and that the tags keep one scheme. It knows nothing of vocabularies or models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seqwise.config import HELD_OUT
from seqwise.data.examples import Splits, find_training_duplicates, open_examples
from seqwise.data.findings import Findings
from seqwise.data.tables import get_format_suffix, parse_columns, read_table, read_text
from seqwise.errors import DataError, UsageError
from seqwise.tasks.tag.code import code_lines
from seqwise.tasks.tag.schemes import OUTSIDE, TITLES, Guess, breaches, guess_scheme, parts

SUFFIXES = (".conll", ".conll03", ".bio", ".iob", ".tsv", ".txt", ".jsonl", ".json", "")
DOCUMENT = "-DOCSTART-"
COMMENT = re.compile(r"#\s*[\w.:-]+\s*=\s")  # of CoNLL-U, before the words of a sentence
LINES = "One word and its tags per line, a blank line between sentences."
SHORT = 5  # words; shorter sentences occur twice by chance


@dataclass(frozen=True)
class Sentence:
    """Words and their tags, with the line of the first word. `step` is 1 where each word has a line of its own."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str = field(default="", repr=False)
    line: int = field(default=1, repr=False)
    step: int = field(default=0, repr=False)

    def place(self, at: int) -> tuple[str, int]:
        """File and line of word number `at`."""
        return self.file, self.line + at * self.step


@dataclass
class Tagged:
    """Sentences in three splits, and how their tags mark spans."""

    splits: Splits[Sentence]
    scheme: str
    why: str

    @property
    def marks_spans(self) -> bool:
        return self.scheme != "plain"


def open_tagged(
    spec: str | Path,
    columns: str | None = None,
    scheme: str = "auto",
    on_empty: str = "stop",
    valid_fraction: float = HELD_OUT,
    test_fraction: float = HELD_OUT,
) -> Tagged:
    """Read everything, decide the splits, find the scheme of the tags, and check them against it."""
    chosen = parse_columns(columns)

    def read(path: Path, findings: Findings) -> list[Sentence]:
        if get_format_suffix(path) in (".jsonl", ".json"):
            return _read_json(path, findings, chosen, on_empty)
        return read_columns(path, findings, chosen)

    splits = open_examples(spec, read, SUFFIXES, BUILTINS, valid_fraction, test_fraction)
    guess = guess_scheme(sentence.tags for sentence in splits.all_examples())
    if scheme != "auto":
        guess = Guess(scheme, "it was asked for")
    if guess.scheme != "plain":
        splits.parts = {split: _checked(some, guess, splits.findings) for split, some in splits.parts.items()}
    splits.findings.raise_errors()
    _compare(splits, guess.scheme)
    return Tagged(splits, guess.scheme, guess.why)


# CoNLL columns


def read_columns(path: Path, findings: Findings, columns: Sequence[str] | None = None) -> list[Sentence]:
    """Sentences of a file with one word per line; the word is the first column, its tag the last."""
    lines = read_text(path).split("\n")
    tabbed = next(("\t" in line for line in lines if line.strip() and not _passed_over(line)), False)
    found: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    first, width, wide, places = 0, 0, 0, (0, -1)  # line of the sentence; columns, the line that told, which
    for number, line in enumerate([*lines, ""], start=1):
        if not line.strip() or line.startswith(DOCUMENT):
            if words:
                found.append(Sentence(tuple(words), tuple(tags), str(path), first, 1))
                words, tags = [], []
            if line.startswith(DOCUMENT):
                findings.warn(f"document marks ({DOCUMENT}), which are no sentences", path, number)
            continue
        if not words and COMMENT.match(line):
            findings.warn("comment lines, which are skipped", path, number)
            continue
        fields = line.rstrip().split("\t") if tabbed else line.split()
        if not width:
            width, wide = len(fields), number
            places = _places(columns, width, path, number)
        if not words:
            first = number
        problem = _wrong(fields, width, places, wide)
        if problem:
            findings.error(problem, repair=LINES, file=path, line=number)
        words.append(fields[0] if problem else fields[places[0]].strip())
        tags.append(OUTSIDE if problem else fields[places[1]].strip())
    return found


def _passed_over(line: str) -> bool:
    return line.startswith(DOCUMENT) or COMMENT.match(line) is not None


def _places(columns: Sequence[str] | None, width: int, path: Path, line: int) -> tuple[int, int]:
    """Which column is the word and which the tag."""
    if width < 2:
        raise DataError(
            "expected a word and its tag, found one column: the tags are missing.", repair=LINES, file=path, line=line
        )
    if columns is None:
        return 0, width - 1
    if len(columns) != 2 or not all(column.isdigit() for column in columns):
        raise UsageError(
            f"--columns: expected the numbers of two columns, word and tag, received {','.join(columns)}.",
            repair=f"Columns count from 1: --columns 1,{width}",
        )
    word, tag = (int(column) - 1 for column in columns)
    for at in (word, tag):
        if not 0 <= at < width:
            raise DataError(
                f"there is no column {at + 1}: the line has {width}.", repair="Change --columns.", file=path, line=line
            )
    return word, tag


def _wrong(fields: list[str], width: int, places: tuple[int, int], first: int) -> str:
    """What is wrong with a line, if anything."""
    if len(fields) != width:
        missing = ": a tag is missing" if len(fields) < width else ""
        return f"expected {width} columns as in line {first}, found {len(fields)}{missing} ({' '.join(fields)[:40]!r})."
    if not fields[places[0]].strip():
        return "the word is empty."
    return "" if fields[places[1]].strip() else f"the word {fields[places[0]]!r} has no tag."


# JSON


def _read_json(path: Path, findings: Findings, columns: Sequence[str] | None, on_empty: str) -> list[Sentence]:
    found = []
    for row in read_table(path, ("tokens", "tags"), findings, columns).rows:
        words, tags = row.values["tokens"], row.values["tags"]
        problem, repair = _wrong_lists(words, tags, on_empty)
        if problem:
            findings.error(problem, repair=repair, file=path, line=row.line)
        elif not words:
            findings.warn("sentences without words, which are dropped", path, row.line)
        else:
            found.append(Sentence(tuple(words), tuple(tags), row.file, row.line))
    return found


def _wrong_lists(words: object, tags: object, on_empty: str) -> tuple[str, str]:
    """(what is wrong with a sentence, its repair), both empty if nothing is."""
    shape = 'Each line must be one object: {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]}'
    for name, value in (("tokens", words), ("tags", tags)):
        if not isinstance(value, list):
            return f"expected a list under {name!r}, found {type(value).__name__}.", shape
        wrong = next((each for each in value if not isinstance(each, str)), None)
        if wrong is not None:
            numbers = isinstance(wrong, int) and name == "tags"
            repair = "Write the names of the tags, not their numbers." if numbers else shape
            return f"expected strings under {name!r}, found {wrong!r}.", repair
        blank = next((at for at, each in enumerate(value) if not each.strip()), None)
        if blank is not None:
            return f"entry {blank + 1} of {name!r} is blank.", "Remove it from both lists."
    assert isinstance(words, list)
    assert isinstance(tags, list)
    if len(words) != len(tags):
        return f"{len(words)} tokens but {len(tags)} tags: they do not match.", "Give one tag per token."
    if not words and on_empty == "stop":
        return "the sentence has no words.", "Remove the line, or pass --data.on-empty drop to drop such lines."
    return "", ""


# Checks


def _checked(sentences: list[Sentence], guess: Guess, findings: Findings) -> list[Sentence]:
    """The same sentences, whose malformed tags are errors and whose breaches of the scheme are counted."""
    title = TITLES[guess.scheme]
    for sentence in sentences:
        bad = [at for at, tag in enumerate(sentence.tags) if parts(tag) is None]
        for at in bad:
            file, line = sentence.place(at)
            findings.error(
                f"the tag {sentence.tags[at]!r} of {sentence.words[at]!r} is not {title} ({guess.why}).",
                repair="Tags that mark spans are O, B-TYPE and I-TYPE (with BIOES also E-TYPE and S-TYPE). "
                "If these mark no spans: --tag.scheme plain",
                file=file,
                line=line,
            )
        for at, what in breaches(sentence.tags, guess.scheme) if not bad else ():
            known = next((key for key in findings.warnings if key.startswith(f"tags that {title} ")), "")
            findings.warn(
                known or f"tags that {title} does not allow where they stand, such as {what}; "
                "they are read as conlleval reads them", *sentence.place(at)
            )  # fmt: skip
    return sentences


def _compare(splits: Splits[Sentence], scheme: str) -> None:
    """Count what is in the held-out splits and should not, or cannot be learned."""

    def name(tag: str) -> str:
        return tag if scheme == "plain" else (parts(tag) or ("", ""))[1]

    known = {name(tag) for sentence in splits.parts["train"] for tag in sentence.tags}
    for split in ("valid", "test"):
        for sentence in splits.parts.get(split, []):
            for at, tag in enumerate(sentence.tags):
                if name(tag) not in known and name(tag):
                    splits.findings.warn(
                        f"tags of the {split} split are {name(tag)!r}, never seen in training; they count as errors",
                        *sentence.place(at),
                    )
    for split, sentence in find_training_duplicates(splits, lambda sentence: sentence.words):
        if len(sentence.words) >= SHORT:
            splits.findings.warn(
                f"sentences of {SHORT} words or more in {split} are in train too; they are kept",
                sentence.file,
                sentence.line,
            )


def in_pieces(sentences: Sequence[Sentence], longest: int) -> list[Sentence]:
    """Sentences longer than `longest` as several; no word is lost."""
    pieces: list[Sentence] = []
    for sentence in sentences:
        for begin in range(0, len(sentence.words), longest):
            words, tags = sentence.words[begin : begin + longest], sentence.tags[begin : begin + longest]
            pieces.append(replace(sentence, words=words, tags=tags, line=sentence.place(begin)[1]))
    return pieces


def counts_of(sentences: Sequence[Sentence]) -> Counter[str]:
    """How often each spelling occurs."""
    return Counter(word for sentence in sentences for word in sentence.words)


def _code() -> list[Sentence]:
    return [
        Sentence(tuple(word for word, _ in line.tokens), tuple(kind for _, kind in line.tokens), line.file, line.line)
        for line in code_lines()
    ]


BUILTINS = {
    "code": (_code, "logical lines of the standard library's source, with the kinds of their tokens as tags"),
}
