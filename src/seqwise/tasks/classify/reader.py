"""Reads labelled texts: `.csv`, `.tsv`, `.jsonl` with `text` and `label`, `text<TAB>label`, a folder or a file per
label, and `builtin:modules`.

Labels become strings: the number 1 is the label "1". Checks of all splits together are here too. The module knows
nothing of tokens or models.
"""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from seqwise.config import Settings
from seqwise.data.examples import SPLIT_FILES, Splits, find_training_duplicates, read_examples
from seqwise.data.json_objects import BLANK_LINES
from seqwise.data.limits import limited
from seqwise.data.tables import (
    HEADER_READ_AS_EXAMPLE,
    Row,
    join_list,
    read_table,
    split_commas,
)
from seqwise.data.tables import SUFFIXES as TABLE_SUFFIXES
from seqwise.data.text_lines import read_lines, read_text
from seqwise.errors import DataError, Findings, pluralize
from seqwise.tasks.classify.folders import LabelledFiles, find_labelled_files

SUFFIXES = (*TABLE_SUFFIXES, ".txt")
MAX_IMBALANCE = 10  # a larger ratio of the most frequent to the rarest label gives a warning
# Labels that are many different numbers may be scores to predict (regression), not classes.
MAX_NUMERIC_LABELS = 10  # more give a warning
MAX_SCORES, MIN_EXAMPLES_PER_SCORE = 20, 5  # more, with fractions or fewer examples each on average, are an error
NUMBER = re.compile(r"-?\d+(\.\d+)?")
# The description is part of the fingerprint of the data: it cannot change.
BUILTIN_DESCRIPTION = "docstrings of the standard library, without the names of their modules"
MIN_WORDS = 4  # of a docstring; shorter ones are left out

# Parts of the standard library with many docstrings, the same in every supported Python: label → file or folder.
MODULES = {
    **{name: name for name in ("asyncio", "email", "http", "importlib", "inspect", "logging", "multiprocessing")},
    **{name: name for name in ("tkinter", "turtle", "unittest", "xml")},
    "decimal": "_pydecimal",
}


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text, its label, and its location."""

    text: str
    label: str
    file: str
    line: int


@limited
def read_labelled_data(spec: str, settings: Settings) -> Splits[LabelledText]:
    """Reads labelled texts and divides them into splits; warnings are in `findings` of the result."""
    columns, data = split_commas(settings.columns), settings.data
    if settings.classify.stratify is None:
        settings.classify.stratify = True
    findings = Findings()
    labelled_files = None if spec.startswith("builtin:") else find_labelled_files(Path(spec), findings)

    def read_file(path: Path, findings: Findings) -> list[LabelledText]:
        if labelled_files is not None:
            return read_labelled_file(path, findings, labelled_files, data.on_empty, data.encoding)
        return read_labelled_table(path, findings, columns, data.on_empty, data.encoding)

    splits = read_examples(
        spec,
        read_file,
        SUFFIXES,
        {"modules": (read_docstrings, BUILTIN_DESCRIPTION)},
        data.valid_fraction,
        data.test_fraction,
        labelled_files.splits if labelled_files else None,
        (lambda example: example.label) if settings.classify.stratify else None,
    )
    splits.findings.extend(findings)
    _move_unseen_labels_to_train(splits)
    return splits


def read_labelled_file(
    path: Path, findings: Findings, files: LabelledFiles, on_empty: str, encoding: str | None = None
) -> list[LabelledText]:
    """Returns the examples of a file with one label: its lines, or the whole text."""
    examples = []
    is_per_line = files.is_text_per_line
    for line, text in (
        read_lines(path, findings, encoding) if is_per_line else [(1, read_text(path, findings, encoding))]
    ):
        if is_per_line and not text.strip():
            findings.note(BLANK_LINES, path, line)
            continue
        row = Row({"text": text, "label": files.labels[path]}, str(path), line)
        if (example := _parse_row(row, findings, on_empty)) is not None:
            examples.append(example)
    return examples


def read_labelled_table(
    path: Path,
    findings: Findings,
    columns: Sequence[str] | None = None,
    on_empty: str = "stop",
    encoding: str | None = None,
) -> list[LabelledText]:
    """Returns the examples of a table."""
    table = read_table(path, ("text", "label"), findings, columns, encoding)
    examples, counts, first_row = [], Counter[str | None](), None  # counts: of each label
    for row in table.rows:
        first_row = first_row or row
        counts[format_label(row.values["label"])] += 1
        if (example := _parse_row(row, findings, on_empty)) is not None:
            examples.append(example)
    if first_row is not None and not table.has_header:
        _check_first_line(first_row, counts, findings, columns)
    return examples


def _parse_row(row: Row, findings: Findings, on_empty: str) -> LabelledText | None:
    """Returns the example of a row; None after adding an error or a warning if it is incomplete."""
    text, label = join_list(row.values["text"]), format_label(row.values["label"])
    if not isinstance(text, str) or label is None:
        name, expected = (
            ("label", "a string, a number or true or false") if isinstance(text, str) else ("text", "a string")
        )
        problem = f"expected {expected} under {name}, found {json.dumps(row.values[name])[:40]}."
        fix = 'Each line must be like: {"text": "…", "label": "…"}'
        findings.error(problem, fix=fix, file=row.file, line=row.line)
        return None
    empty = [name for name, value in (("text", text), ("label", label)) if not value.strip()]
    if not empty:
        return LabelledText(text.strip(), label.strip(), row.file, row.line)
    if on_empty == "drop":
        findings.warn(f"examples with an empty {empty[0]}, which are dropped", row.file, row.line)
    else:
        findings.error(
            f"the {' and the '.join(empty)} of this example {'are' if len(empty) > 1 else 'is'} empty.",
            fix="Fill it in or remove the line, or pass --data.on-empty drop to drop such examples and count them.",
            file=row.file,
            line=row.line,
        )
    return None


def format_label(value: Any) -> str | None:
    """Returns a label as a string, numbers and booleans as JSON spells them; None for anything else."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (bool, int, float)) else None


def _check_first_line(
    first: Row, counts: Counter[str | None], findings: Findings, columns: Sequence[str] | None
) -> None:
    """Reports a first line that is probably a header: its label never occurs again, while all others do."""
    if len(counts) < 2 or counts[format_label(first.values["label"])] > 1 or 1 in list(counts.values())[1:]:
        return
    text, label = str(first.values["text"])[:40], first.values["label"]
    if columns is None:
        findings.error(
            f"the first line looks like a header: the label {label!r} occurs nowhere else in the file.",
            fix=f"If it is one, name the columns: --columns '{text},{label}'. If it is an example: --columns 1,2",
            file=first.file,
            line=first.line,
        )
    elif HEADER_READ_AS_EXAMPLE not in findings.warnings:
        warning = f"first lines with a label that occurs nowhere else ({label!r}), which are read as examples"
        findings.warn(warning, first.file, 1)


def _move_unseen_labels_to_train(splits: Splits[LabelledText]) -> None:
    """Moves held-out examples back to training if splitting a file has removed all examples of their label from it."""
    train = splits.parts["train"]
    training_labels = {example.label for example in train}
    training_files = {example.file for example in train}
    for split in ("valid", "test"):
        for example in list(splits.parts.get(split, [])):
            if example.label not in training_labels and example.file in training_files:
                splits.parts[split].remove(example)
                train.append(example)
                warning = "held-out examples whose label would be missing in training, which are put back into training"
                splits.findings.warn(warning, example.file, example.line)
        if split in splits.parts and not splits.parts[split]:  # hold out the first example whose label occurs again
            counts = Counter(example.label for example in train)
            replaceable = (index for index, example in enumerate(train) if counts[example.label] > 1)
            splits.parts[split] = [train.pop(index) for index in list(replaceable)[:1]]


def sort_labels(labels: set[str]) -> list[str]:
    """Returns the labels in order: by value if all are numbers, otherwise by spelling."""
    is_numeric = all(map(NUMBER.fullmatch, labels))
    return sorted(labels, key=lambda label: (float(label) if is_numeric else 0.0, label))


def check_labels(splits: Splits[LabelledText]) -> None:
    """Raises errors and adds warnings about all examples together."""
    findings, train = splits.findings, splits.parts["train"]
    counts = Counter(example.label for example in train)
    problem = fix = ""
    if len(counts) < 2:
        problem = f"all {len(train):,} training examples have one label, {train[0].label!r}: there is nothing to learn."
        fix = "Give examples of at least two labels."
    elif len(counts) > len({example.text for example in train}):
        problem = f"{len(counts):,} different labels but fewer different texts: the columns may be swapped."
        fix = "Name the column of the text first, then that of the label: --columns 2,1"
    elif not all(splits.parts.values()):
        count = pluralize(len(splits.all_examples()), "examples are too few")
        problem = f"{count} to hold some out: too few labels have more than one example."
        fix = f"Give more examples of each label, or {SPLIT_FILES}"
    if problem:
        findings.error(problem, fix=fix, file=train[0].file)
    report_numeric_labels(counts, findings, train[0].file)
    reject_unknown_labels([e for split in ("valid", "test") for e in splits.parts.get(split, [])], counts, findings)
    findings.raise_errors()
    for split, example in find_training_duplicates(splits, lambda example: example.text):
        findings.warn(f"texts of {split} are in train too, so they may be memorised", example.file, example.line)
    first_labels: dict[str, str] = {}
    for example in train:
        if first_labels.setdefault(example.text, example.label) != example.label:
            findings.warn("texts of train come with different labels; all are kept", example.file, example.line)
    (frequent, num_frequent), (rare, num_rare) = counts.most_common(1)[0], counts.most_common()[-1]
    if num_frequent > MAX_IMBALANCE * num_rare:
        findings.warn(
            f"label is rare: {rare!r} has {num_rare:,} of {len(train):,} training examples, "
            f"{frequent!r} has {num_frequent:,}; "
            "macro_f1 says more than accuracy then; --classify.class-weights balanced gives all labels equal weight"
        )


def report_numeric_labels(counts: Counter[str], findings: Findings, file: str) -> None:
    """Adds an error or a warning about labels that look like scores: many numbers, whose order a classifier ignores."""
    if len(counts) <= MAX_NUMERIC_LABELS or not all(map(NUMBER.fullmatch, counts)):
        return
    labels = sort_labels(set(counts))
    numbers = f"{len(labels):,} different numbers ({', '.join(labels[:3])} … {labels[-1]})"
    has_fractions = any(float(label) % 1 for label in labels)
    if len(labels) > MAX_SCORES and (has_fractions or counts.total() < MIN_EXAMPLES_PER_SCORE * len(labels)):
        findings.error(
            f"the labels are {numbers}, which looks like a score to predict (regression), not like classes.",
            fix="Group the numbers into a few classes, such as low and high, or name another column: --columns "
            "TEXT,LABEL. If each number is the name of a class, write it as a word: class17 instead of 17.",
            file=file,
        )
    else:
        warning = (
            f"column of labels has {numbers}, which are read as names: a classifier does not know that 4 is near 5"
        )
        findings.warn(f"{warning}; if they are scores, group them into a few classes", file)


def reject_unknown_labels(examples: Sequence[LabelledText], labels: Collection[str], findings: Findings) -> None:
    """Adds an error for each label that does not occur in training: it could never be predicted."""
    for example in examples:
        if example.label not in labels:
            findings.error(
                f"the label {example.label!r} does not occur in the training examples, so it can never be predicted.",
                fix=f"The training labels are: {', '.join(sort_labels(set(labels)))[:200]}.",
                file=example.file,
                line=example.line,
            )


# Built-in data


@cache
def read_docstrings() -> tuple[LabelledText, ...]:
    """Returns the examples of `builtin:modules`, parsed once: a comparison reads its data for every trial."""
    return tuple(iterate_docstrings())


def iterate_docstrings() -> Iterator[LabelledText]:
    """Yields the distinct docstrings of `builtin:modules`, labelled with their modules; nothing is downloaded."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    seen: set[str] = set()
    num_modules = 0
    for module in sorted(MODULES):
        source, num_seen = folder / MODULES[module], len(seen)
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source.with_suffix(".py")]:
            for text, line in _parse_docstrings(path, module):
                if text not in seen:
                    seen.add(text)
                    yield LabelledText(text, module, f"builtin:modules/{path.relative_to(folder)}", line)
        num_modules += len(seen) > num_seen
    if num_modules < 2:
        raise DataError("this Python has no source of its standard library.", fix="Pass a file.", file=folder)


def _parse_docstrings(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """Yields (docstring, line) of the functions and classes of a file, with … for the name of the module."""
    if "test" in path.parts or not path.is_file():
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            text = " ".join((ast.get_docstring(node) or "").split())
            text = re.sub(rf"(?i){module}", "…", text)
            if len(text.split()) >= MIN_WORDS:
                yield text, node.lineno
