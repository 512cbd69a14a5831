"""Texts with labels: `.csv`, `.tsv`, `.jsonl` with `text` and `label`, `text<TAB>label`, and `builtin:modules`.

A label is a string whatever it was in the file. What is read here is checked as a whole: every split together. It
knows nothing of tokens or of models.
"""

from __future__ import annotations

import ast
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise.data.examples import Splits, find_training_duplicates, open_examples
from seqwise.data.findings import Findings
from seqwise.data.tables import HEADER_READ_AS_EXAMPLE, Row, Table, parse_columns, read_table
from seqwise.errors import DataError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".txt")
UNBALANCED = 10  # times the rarest label that the most frequent one may have before the user is told
FEWEST = 4  # words of a docstring that can tell a module

# Parts of the standard library with many docstrings, the same in every Python that is supported. Label → where it is.
MODULES = {
    **{name: name for name in ("asyncio", "email", "http", "importlib", "inspect", "logging", "multiprocessing")},
    **{name: name for name in ("tkinter", "turtle", "unittest", "xml")},
    "decimal": "_pydecimal",
}


@dataclass(frozen=True)
class LabelledText:
    """One text, its label, and where it stands."""

    text: str
    label: str
    file: str
    line: int


def open_labelled(
    spec: str, columns: str | None = None, on_empty: str = "stop", fractions: tuple[float, float] = (0.05, 0.05)
) -> Splits[LabelledText]:
    """All splits, read and checked; what does not stop is in `splits.findings`."""
    wanted = parse_columns(columns)

    def read(path: Path, findings: Findings) -> list[LabelledText]:
        return read_labelled(path, findings, wanted, on_empty)

    builtins = {"modules": (builtin_modules, "docstrings of the standard library, without the names of their modules")}
    splits = open_examples(spec, read, SUFFIXES, builtins, *fractions)
    _keep_single_labels(splits)
    return splits


def read_labelled(
    path: Path, findings: Findings, columns: Sequence[str] | None = None, on_empty: str = "stop"
) -> list[LabelledText]:
    """The examples of one file."""
    table = read_table(path, ("text", "label"), findings, columns)
    if not table.has_header:
        _suspect_header(table, findings, columns)
    return [example for row in table.rows if (example := _example(row, findings, on_empty)) is not None]


def _example(row: Row, findings: Findings, on_empty: str) -> LabelledText | None:
    text, label = row.values["text"], as_label(row.values["label"])
    if not isinstance(text, str) or label is None:
        wrong = f"expected a string, a number or true or false as label, found {_kind(row.values['label'])}."
        if not isinstance(text, str):
            wrong = f"expected a string under text, found {_kind(text)}."
        findings.error(
            wrong, repair='Each line must be like: {"text": "…", "label": "…"}', file=row.file, line=row.line
        )
        return None
    empty = [name for name, value in (("text", text), ("label", label)) if not value.strip()]
    if not empty:
        return LabelledText(text.strip(), label.strip(), row.file, row.line)
    if on_empty == "drop":
        findings.warn(f"examples with an empty {empty[0]}, which are dropped", row.file, row.line)
    else:
        findings.error(
            f"the {' and the '.join(empty)} of this example {'are' if len(empty) > 1 else 'is'} empty.",
            repair="Fill it in or remove the line, or pass --data.on-empty drop to drop such examples and count them.",
            file=row.file,
            line=row.line,
        )
    return None


def as_label(value: Any) -> str | None:
    """A label as a string; numbers and truth values as JSON spells them. None for what can be no label."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (bool, int, float)) else None


def _kind(value: Any) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _suspect_header(table: Table, findings: Findings, columns: Sequence[str] | None) -> None:
    """A first line whose label never comes again, while the others do, is a header of unknown names."""
    counts = Counter(as_label(row.values["label"]) for row in table.rows)
    first = table.rows[0] if table.rows else None
    if (
        first is None
        or counts[as_label(first.values["label"])] > 1
        or len(counts) < 2
        or 1 in list(counts.values())[1:]
    ):
        return
    text, label = str(first.values["text"])[:40], first.values["label"]
    if columns is not None:
        if HEADER_READ_AS_EXAMPLE not in findings.warnings:
            findings.warn(
                f"first lines with a label found nowhere else ({label!r}), which are read as examples", first.file, 1
            )
        return
    findings.error(
        f"the first line looks like a header: the label {label!r} occurs nowhere else in the file.",
        repair=f"If it is one, name the columns: --columns '{text},{label}'. If it is an example: --columns 1,2",
        file=first.file,
        line=first.line,
    )


def _keep_single_labels(splits: Splits[LabelledText]) -> None:
    """A label that the division of a file took out of the training examples altogether goes back into them."""
    train = splits.parts["train"]
    known = {example.label for example in train}
    files = {example.file for example in train}
    for split in ("valid", "test"):
        for example in list(splits.parts.get(split, [])):
            if example.label not in known and example.file in files:
                splits.parts[split].remove(example)
                train.append(example)
                what = "examples held out with all of their label, which are put back into training"
                splits.findings.warn(what, example.file, example.line)
        if split in splits.parts and not splits.parts[split]:
            splits.parts[split] = _spared(train)


def _spared(train: list[LabelledText]) -> list[LabelledText]:
    """An example taken out of training that leaves others of its label there, if there is one."""
    counts = Counter(example.label for example in train)
    places = (place for place, example in enumerate(train) if counts[example.label] > 1)
    return [train.pop(place) for place in [next(places, None)] if place is not None]


def labels_of(splits: Splits[LabelledText]) -> list[str]:
    """The labels of the training split in order: numbers by value, others by spelling."""
    return ordered({example.label for example in splits.parts["train"]})


def ordered(labels: set[str]) -> list[str]:
    numbers = all(re.fullmatch(r"-?\d+(\.\d+)?", label) for label in labels)
    return sorted(labels, key=lambda label: (float(label) if numbers else 0.0, label))


def check_labels(splits: Splits[LabelledText]) -> None:
    """Errors and remarks that only a look at all examples tells."""
    findings, train = splits.findings, splits.parts["train"]
    counts = Counter(example.label for example in train)
    if len(counts) < 2:
        findings.error(
            f"all {len(train):,} training examples have one label, {next(iter(counts))!r}: there is nothing to learn.",
            repair="Give examples of at least two labels.",
            file=train[0].file,
        )
    elif len(counts) > len({example.text for example in train}):
        findings.error(
            f"{len(counts):,} different labels but fewer different texts: the columns may be the wrong way round.",
            repair="Name the column of the text first, then that of the label: --columns 2,1",
            file=train[0].file,
        )
    elif not all(splits.parts.values()):
        findings.error(
            f"{len(train)} examples are too few to hold some out: no label has two to spare.",
            repair="Give more examples of each label, or train.*, valid.* and test.* in one folder.",
            file=train[0].file,
        )
    refuse_unknown_labels([e for split in ("valid", "test") for e in splits.parts.get(split, [])], counts, findings)
    findings.raise_errors()
    for split, example in find_training_duplicates(splits, lambda example: example.text):
        findings.warn(
            f"texts of {split} are in train too: what was learned by heart is measured", example.file, example.line
        )
    for example in _contradicted(train):
        findings.warn("texts of train come with different labels; all are kept", example.file, example.line)
    (most, many), (least, few) = counts.most_common(1)[0], counts.most_common()[-1]
    if many > UNBALANCED * few:
        findings.warn(
            f"label is rare: {least!r} has {few:,} of {len(train):,} training examples, {most!r} has {many:,}; "
            "accuracy says little then, macro_f1 more; --classify.class-weights balanced makes them weigh alike"
        )


def refuse_unknown_labels(
    examples: Sequence[LabelledText], known: Counter[str] | Sequence[str], findings: Findings
) -> None:
    """An error for each label that training does not know: it could never be predicted."""
    for example in examples:
        if example.label not in known:
            findings.error(
                f"the label {example.label!r} does not occur in the training examples, so it can never be predicted.",
                repair=f"Training knows: {', '.join(ordered(set(known)))[:200]}.",
                file=example.file,
                line=example.line,
            )


def _contradicted(examples: Sequence[LabelledText]) -> Iterator[LabelledText]:
    """Examples whose text came before with another label."""
    first: dict[str, str] = {}
    for example in examples:
        if first.setdefault(example.text, example.label) != example.label:
            yield example


def builtin_modules() -> list[LabelledText]:
    """Docstring → module, for some modules of the standard library. A docstring that came before is left out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    seen: set[str] = set()
    found = []
    for label in sorted(MODULES):
        place = folder / MODULES[label]
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        for path in files:
            for text, line in _docstrings(path, label):
                if text not in seen:
                    seen.add(text)
                    found.append(LabelledText(text, label, f"builtin:modules/{path.relative_to(folder)}", line))
    if len({example.label for example in found}) < 2:
        raise DataError("this Python has no source of its standard library.", repair="Give a file.", file=folder)
    return found


def _docstrings(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """(text, line) of the functions and classes of a file. The module's own name would give it away."""
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
            if len(text.split()) >= FEWEST:
                yield text, node.lineno
