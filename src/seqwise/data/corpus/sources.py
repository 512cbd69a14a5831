"""`open_corpus`: the user's data → a `Corpus` with three splits that can be streamed any number of times.

Reads `.txt`, and `.jsonl`, `.json` and `.parquet` with `text`, gzip of these, folders of them, `hf:NAME`,
`builtin:docs` and `builtin:code`. It knows nothing of tokens.
"""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.config import HELD_OUT_FRACTION
from seqwise.data.encodings import note_encoding
from seqwise.data.examples import (
    SPLIT_FILES,
    SPLITS,
    TooShortError,
    describe_fractions,
    group_by_split,
    parse_split_name,
    space_splits_evenly,
)
from seqwise.data.hub import fetch_if_hub
from seqwise.data.limits import iterate_with_limits
from seqwise.data.opening import is_gzip
from seqwise.data.reading import (
    Document,
    JsonLines,
    Source,
    SourceSummary,
    TextFile,
    get_format_suffix,
    list_data,
    missing_text_error,
    name_file_type,
)
from seqwise.data.tables import OBJECT_SUFFIXES, join_list, read_objects
from seqwise.errors import DataError, Findings, pluralize, suggest
from seqwise.text.patterns import replace_surrogates

GZIP_RATIO = 3  # bytes of text per byte of gzip, an estimate for progress only
MIN_WHOLE_FILES = 100  # with so many text files, whole files are held out; with fewer, the end of each file
CODE_BYTES = 4_000_000  # maximum size of builtin:code
BLOCK_CHARACTERS = 1_000  # of a document of builtin:docs: small, so that the splits are similar


class Builtin(Source):
    """A text that is part of every CPython installation."""

    def __init__(self, name: str):
        if name not in BUILTINS:
            raise DataError(f"there is no built-in text {name!r}.", fix=suggest(name, BUILTINS))
        self.name, self.encoding = f"builtin:{name}", ""
        self.read, self.description = BUILTINS[name]

    def documents(self) -> Iterator[Document]:
        return self.read()


class TextColumn(Source):
    """The column `text` of a `.json` array or a Parquet file: many documents."""

    def documents(self) -> Iterator[Document]:
        """Yields every document that is not blank."""
        self.findings = findings = Findings()
        objects = read_objects(self.path, findings, self.encoding or None, ["text"])
        for line, content in iterate_with_limits(self.limits, objects):
            text = join_list(content.get("text")) if isinstance(content, dict) else None
            if not isinstance(text, str):
                raise missing_text_error(content, self.path, line)
            if text.strip():
                text = replace_surrogates(text.replace("\r\n", "\n"))
                yield Document(text if text.endswith("\n") else text + "\n", self.name, line)
        findings.raise_errors()


def _read_docs() -> Iterator[Document]:
    """Yields the topics of the language reference in sorted order, in blocks of whole paragraphs.

    Topics quote each other at length; repeated paragraphs are left out, so that no test text occurs in training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError("this Python lacks pydoc_data, so there is no builtin:docs.", fix="Give a file.") from None
    seen: set[str] = set()
    for name in sorted(topics):
        block, first_line, line = "", 1, 1
        for paragraph in topics[name].split("\n\n"):
            if not block:
                first_line = line
            line += paragraph.count("\n") + 2
            key = paragraph.strip()
            if key and key not in seen:
                block += paragraph.strip("\n") + "\n\n"
                seen.add(key)
            if len(block) >= BLOCK_CHARACTERS:
                yield Document(block, f"builtin:docs/{name}", first_line)
                block = ""
        if block:
            yield Document(block, f"builtin:docs/{name}", first_line)


def _read_code() -> Iterator[Document]:
    """Yields the top-level modules of the standard library in sorted order, up to CODE_BYTES."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    bytes_left = CODE_BYTES
    for path in sorted(folder.glob("*.py")):
        try:
            with tokenize.open(path) as file:
                text = file.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        bytes_left -= len(text.encode())
        if bytes_left < 0:
            return
        if text.strip():
            yield Document(text if text.endswith("\n") else text + "\n", str(path))
    if bytes_left == CODE_BYTES:
        raise DataError("this Python has no source of its standard library.", fix="Give a file.", file=folder)


BUILTINS = {
    "docs": (_read_docs, f"the language reference inside CPython, in blocks of about {BLOCK_CHARACTERS:,} characters"),
    "code": (_read_code, f"the top-level modules of the standard library, up to {CODE_BYTES / 1e6:g} MB"),
}

SummarizedSource = tuple[Source, SourceSummary]


@dataclass(frozen=True)
class Part:
    """The part of a source in a split: `size` bytes of a text file, or documents that `assign` puts into `split`."""

    source: Source
    size: int  # bytes
    start: int = 0  # first byte of a text file
    assign: Callable[[int], str] | None = None  # index of a document in the corpus → its split; None: all are in it
    split: str = ""
    first_index: int = 0  # of the source's first document in the corpus

    def documents(self) -> Iterator[Document]:
        """Yields the documents of this part."""
        if isinstance(self.source, TextFile):
            yield from self.source.documents(self.start, self.start + self.size)
            return
        for index, document in enumerate(self.source.documents(), start=self.first_index):
            if self.assign is None or self.assign(index) == self.split:
                yield document


@dataclass
class Corpus:
    """Texts in three splits."""

    name: str
    split_rule: str  # how the splits were made, as a sentence
    fingerprint: str  # hash of the content of each split
    parts: dict[str, list[Part]] = field(repr=False)  # by split
    files: list[str] = field(repr=False)
    has_predefined_splits: bool = False  # the data came with a test split; other splits may be held out
    findings: Findings = field(default_factory=Findings, repr=False)  # such as files that are converted to UTF-8

    def documents(self, split: str) -> Iterator[Document]:
        """Streams a split. One document or chunk is in memory at a time."""
        for part in self.parts[split]:
            yield from part.documents()

    def texts(self, split: str, progress: ProgressCallback = no_progress) -> Iterator[str]:
        """Streams the texts of a split; `progress` counts their characters, which are at most as many as the bytes."""
        done, total = 0, self.size(split)
        for document in self.documents(split):
            yield document.text
            done += len(document.text)
            progress(min(done, total), total)

    def size(self, split: str) -> int:
        """Returns the bytes of text (UTF-8) of a split."""
        return sum(part.size for part in self.parts[split])

    def sample(self, split: str = "train") -> str:
        """Returns the beginning of a split: at most 100,000 characters."""
        text = ""
        for next_text in self.texts(split):
            text += next_text[: 100_000 - len(text)]
            if len(text) >= 100_000:
                break
        return text


def open_corpus(
    spec: str | Path,
    valid_fraction: float = HELD_OUT_FRACTION,
    test_fraction: float = HELD_OUT_FRACTION,
    split_by_name: bool = True,
    encoding: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Corpus:
    """Reads and checks everything once, and decides the splits: by the names of files, else by the fractions."""
    if not str(spec).strip():
        raise DataError("no data is named.", fix="Give a file, a folder, builtin:docs or builtin:code.")
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if str(spec).startswith("builtin:"):
        builtin = Builtin(str(spec).removeprefix("builtin:"))
        return _build_corpus(str(spec), {"train": [builtin]}, fractions, f"{builtin.description}; ")
    path = Path(fetch_if_hub(str(spec)))
    files = list_data(path)
    sources = {file: source for file in files if (source := _open_source(file, encoding)) is not None}
    if not sources:
        problem = f"{name_file_type(path)} are not read."
        if path.is_dir():
            others = pluralize(len(files), "other files")
            problem = f"the folder contains no text ({others})." if files else "the folder is empty."
        fix = "Give a .txt file, .jsonl, .json or .parquet with `text`, gzip of these, or a folder of them."
        raise DataError(problem, fix=fix, file=path)
    groups = (group_by_split(sources, path) if path.is_dir() else None) or {"train": list(sources)}
    split_files = [file for group in groups.values() for file in group]
    ignored = sorted(set(sources).difference(split_files))
    if not split_by_name:
        groups = {"train": [*split_files, *ignored]}
    sources_by_split = {split: [sources[file] for file in group] for split, group in groups.items()}
    corpus = _build_corpus(str(spec), sources_by_split, fractions, progress=progress)
    if ignored and split_by_name:
        corpus.split_rule += f" {pluralize(len(ignored), 'files whose names contain no split are not read')}."
    return corpus


def open_unsplit(spec: str | Path, encoding: str | None = None) -> Corpus:
    """Opens all of the data under the name `all`, whatever the files of a folder are called."""
    return merge_splits(open_corpus(spec, 0.0, 0.0, split_by_name=False, encoding=encoding))


def merge_splits(corpus: Corpus) -> Corpus:
    """Returns the whole corpus under the name `all`; nothing is read again."""
    parts = [part for split in SPLITS for part in corpus.parts.get(split, [])]
    sizes: Counter[Source] = Counter()
    for part in parts:
        sizes[part.source] += part.size
    ranks = {name: rank for rank, name in enumerate(corpus.files)}
    merged_parts = sorted((Part(*each) for each in sizes.items()), key=lambda part: ranks[part.source.name])
    parts_by_split, fingerprint = {"all": merged_parts}, f"{corpus.fingerprint}-all"
    return Corpus(corpus.name, "all of it.", fingerprint, parts_by_split, corpus.files, findings=corpus.findings)


def _build_corpus(
    name: str,
    sources: dict[str, list[Source]],
    fractions: dict[str, float],
    description: str = "",
    progress: ProgressCallback = no_progress,
) -> Corpus:
    """Builds a corpus from the sources of each split; splits without a source are taken out of the training sources."""
    missing = {split: 0.0 if split in sources else fractions[split] for split in ("valid", "test")}
    groups: dict[str, list[SummarizedSource]] = {}
    report, findings = _create_byte_counter(sources, progress), Findings()
    for split, group in sources.items():
        groups[split] = [(source, summary) for source in group if (summary := source.summarize(report)).sizes]
        for source in group:
            if isinstance(source, TextColumn):
                findings.extend(source.findings)
            elif source.encoding:
                note_encoding(findings, source.path, source.encoding)
        if not groups[split]:
            problem = "the file is empty." if len(group) == 1 else f"all {len(group)} files are empty."
            raise DataError(problem, fix="Give a file with text in it.", file=group[0].name)
    parts = {split: [Part(source, sum(summary.sizes)) for source, summary in groups.get(split, [])] for split in SPLITS}
    # The wording of the rule is part of the fingerprint: changing it would change that of all data.
    rule = "splits as the files are named" if len(sources) > 1 else "all of it is one split"
    if any(missing.values()):
        held_out_parts, held_out_rule = _hold_out(name, groups["train"], missing)
        parts = {split: held_out_parts.get(split) or parts[split] for split in SPLITS}
        named_splits = "" if len(sources) == 1 else f"{', '.join(sources)} as the files are named; "
        rule = f"{description}{named_splits}{held_out_rule}"
    files = [source.name for group in groups.values() for source, _ in group]
    digest = hashlib.blake2b(rule.encode(), digest_size=16)
    for split in sorted(groups):
        digest.update(split.encode())
        for source, summary in groups[split]:
            digest.update(f"{type(source).__name__} {summary.digest}".encode())
    return Corpus(name, f"{rule}.", digest.hexdigest(), parts, files, "test" in sources, findings)


def _create_byte_counter(sources: dict[str, list[Source]], progress: ProgressCallback) -> Callable[[int], None]:
    """Returns the function that adds up the bytes that were read, and reports them with their estimated total."""
    files = [source.path for group in sources.values() for source in group if not isinstance(source, Builtin)]
    total, done = sum(path.stat().st_size * (GZIP_RATIO if is_gzip(path) else 1) for path in files), 0

    def report(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        progress(min(done, total), total)

    return report


def _hold_out(name: str, group: list[SummarizedSource], missing: dict[str, float]) -> tuple[dict[str, list[Part]], str]:
    """Takes the missing splits out of the training sources; returns the parts of each split and the rule."""
    shares = describe_fractions(missing)
    splits = [split for split in SPLITS if split == "train" or missing[split]]
    parts: dict[str, list[Part]] = {split: [] for split in SPLITS}
    if all(isinstance(source, TextFile) for source, _ in group) and len(group) < MIN_WHOLE_FILES:
        for source, summary in group:
            for split, part in _cut_file(source, summary.sizes[0], missing).items():  # type: ignore[arg-type]
                parts[split].append(part)
        if not all(parts[split] for split in splits):
            problem = f"the text is too short to split: {sum(summary.sizes[0] for _, summary in group):,} bytes."
            raise TooShortError(problem, fix=f"Give a longer text, or {SPLIT_FILES}", file=name)
        subject = "the text" if len(group) == 1 else "each file"
        return parts, f"the end of {subject} is held out, cut at line breaks ({shares})"
    count = sum(len(summary.sizes) for _, summary in group)
    if count < len(splits):
        problem = f"{pluralize(count, 'documents are too few')} to hold some out for validation and testing."
        raise TooShortError(problem, fix=f"Give more documents, or {SPLIT_FILES}", file=name)
    assign = space_splits_evenly(count, missing["valid"], missing["test"])
    first_index = 0
    for source, (sizes, _) in group:
        for split in splits:
            size = sum(size for index, size in enumerate(sizes, start=first_index) if assign(index) == split)
            if size:
                parts[split].append(Part(source, size, 0, assign, split, first_index))
        first_index += len(sizes)
    return parts, f"whole documents are held out at even distances among {count:,} ({shares})"


def _cut_file(source: TextFile, size: int, missing: dict[str, float]) -> dict[str, Part]:
    """Cuts a text file into train | valid | test, in this order; a very short text may lack some of them."""
    cuts = [size]
    for split in ("test", "valid"):
        target = int(size * (1 - missing["test"] - (missing["valid"] if split == "valid" else 0)))
        cut = source.find_cut(target, max(1, (size - target) // 2)) if missing[split] else cuts[0]
        cuts.insert(0, min(cut, cuts[0]))
    bounds = zip(SPLITS, [0, *cuts], cuts)
    return {split: Part(source, stop - start, start) for split, start, stop in bounds if start < stop}


def _open_source(path: Path, encoding: str | None) -> Source | None:
    """Returns the source for a file by its suffix, or None if it is not read; `eng.train` is text too."""
    suffix = get_format_suffix(path)
    if suffix == ".jsonl":
        return JsonLines(path, encoding)
    if suffix in OBJECT_SUFFIXES:
        return TextColumn(path, encoding)
    is_text = suffix == ".txt" or (suffix and parse_split_name(Path(suffix)) is not None)
    return TextFile(path, encoding) if is_text else None
