"""Finds texts whose labels are the names of their folders or files.

    pos/1.txt   neg/1.txt   train/pos/1.txt   test/neg/1.txt      a folder per label, a text per file
    pos.txt     neg.txt     train/pos.txt     test-neg.txt        a file per label, a text per line

Only names are read, and the first lines of one file per label, to recognise tables. The module knows nothing of
examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.examples import SPLIT_NAMES, SPLITS, group_by_split, parse_split_name
from seqwise.data.opening import open_binary
from seqwise.data.reading import get_format_suffix, list_data
from seqwise.data.tables import SUFFIXES as TABLE_SUFFIXES
from seqwise.errors import Findings

UNLABELLED = {"unsup", "unlabeled", "unlabelled"}  # folders of texts without a label, as in the IMDb reviews
OTHER_FILES = re.compile(r"(readme|licen[cs]e|changelog)\b.*", re.IGNORECASE)  # which are no examples
SPLIT_WORD = re.compile(rf"(^|[._\-\s]+)({'|'.join(SPLIT_NAMES)})(?=$|[._\-\s])", re.IGNORECASE)
NUM_LINES, MAX_BYTES = 20, 1 << 20  # lines of a file that are read to recognise a table, and their size
Labels = dict[Path, tuple[str, str]]  # file → its split and its label


@dataclass(frozen=True)
class LabelledFiles:
    """The files of each split, and the label of each file."""

    splits: Mapping[str, list[Path]]
    labels: Mapping[Path, str]
    is_text_per_line: bool  # otherwise a file is one text


def find_labelled_files(folder: Path, findings: Findings | None = None) -> LabelledFiles | None:
    """Returns the files of a folder that is organised by labels; None for other folders and for files."""
    files = list_data(folder) if folder.is_dir() else []
    texts = [path for path in files if get_format_suffix(path) in (".txt", "") and not OTHER_FILES.fullmatch(path.name)]
    if any(get_format_suffix(path) in TABLE_SUFFIXES for path in files):
        return None
    for find_labels in (_label_by_folder, _label_by_name):
        labels = find_labels(texts, folder)
        first_files = {label: path for path, (_, label) in reversed(labels.items())}
        if len(first_files) < 2 or any(map(_is_table, first_files.values())):
            continue
        splits = {split: [path for path, (file_split, _) in labels.items() if file_split == split] for split in SPLITS}
        for path in texts:
            if path not in labels and findings is not None:
                findings.warn("files without a label, which are not read", path)
        return LabelledFiles(
            {split: paths for split, paths in splits.items() if paths},
            {path: label for path, (_, label) in labels.items()},
            find_labels is _label_by_name,
        )
    return None


def _label_by_folder(files: Sequence[Path], folder: Path) -> Labels:
    """Returns split and label of each file by its folders.

    A folder that is common to all files, or named for a split, is not a label.
    """
    parents = {path: path.parent.relative_to(folder) for path in files}
    groups = group_by_split(sorted(set(parents.values())))
    splits = {parent: split for split, group in (groups or {}).items() for parent in group}
    names: dict[Path, list[str]] = {}
    for path, parent in parents.items():
        parts = list(parent.parts)
        if parent in splits:
            parts.remove(next(part for part in parts if parse_split_name(Path(part))))
        if parts and (parent in splits or not splits):
            names[path] = parts
    depth = 0
    while len({tuple(parts[: depth + 1]) for parts in names.values() if len(parts) > depth}) == 1:
        depth += 1
    return {
        path: (splits.get(parents[path], "train"), parts[depth])
        for path, parts in names.items()
        if len(parts) > depth and parts[depth].lower() not in UNLABELLED
    }


def _label_by_name(files: Sequence[Path], folder: Path) -> Labels:
    """Returns split and label of each file by its name.

    There are none unless every file has a label, and all files are in one folder, or in one folder per split.
    """
    groups = group_by_split(files, folder)
    labels: Labels = {}
    for split, paths in (groups or {"train": list(files)}).items():
        for path in paths:
            name = path.name.removesuffix(".gz").removesuffix(".txt")
            labels[path] = split, (SPLIT_WORD.sub("", name) if groups else name).strip("._- ")
    num_folders = len({path.parent for path in labels})
    return labels if num_folders in (1, len(groups or ())) and all(label for _, label in labels.values()) else {}


def _is_table(path: Path) -> bool:
    """Returns whether each of the first lines has exactly one tab, as in `text<TAB>label`."""
    with open_binary(path) as file:
        lines = [line for line in file.read(MAX_BYTES).split(b"\n")[:NUM_LINES] if line.strip()]
    return bool(lines) and all(line.count(b"\t") == 1 for line in lines)
