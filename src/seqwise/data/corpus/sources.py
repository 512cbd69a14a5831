"""`open_corpus`: the user's data → a `Corpus` with three splits that can be streamed any number of times.

Reads `.txt`, `.jsonl` with `text`, gzip of either, folders of these, and `builtin:docs`, `builtin:code`. It knows
nothing of tokens.
"""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seqwise.config import HELD_OUT
from seqwise.data.reading import (
    Document,
    JsonLines,
    SourceSummary,
    TextFile,
    get_format_suffix,
    list_files,
    missing_file_error,
    read_error,
    summarize_documents,
)
from seqwise.data.splitting import (
    SPLITS,
    TooShortError,
    describe_fractions,
    evenly_spaced_splits,
    group_by_split,
    parse_split_name,
)
from seqwise.errors import DataError, suggest

Summaries = Mapping[str, SourceSummary]  # by the name of the source
MIN_WHOLE_FILES = 100  # a folder with so many text files is split by files, not inside each file
CODE_BYTES = 4_000_000
BLOCK = 1_000  # characters of a document of the language reference: small, so that the splits are similar


class Builtin:
    """A built-in collection of documents."""

    is_divisible = False

    def __init__(self, name: str):
        if name not in BUILTINS:
            raise DataError(f"there is no built-in text {name!r}.", repair=suggest(name, BUILTINS))
        self.name = f"builtin:{name}"
        self.documents, self.description = BUILTINS[name]

    def summarize(self) -> SourceSummary:
        return summarize_documents(self.documents())


def _docs() -> Iterator[Document]:
    """Yield the topics of the language reference in sorted order, in blocks of whole paragraphs.

    Topics quote each other at length; repeated paragraphs are left out, so that no test text occurs in training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError("this Python lacks pydoc_data, so there is no builtin:docs.", repair="Give a file.") from None
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
            if len(block) >= BLOCK:
                yield Document(block, f"builtin:docs/{name}", first_line)
                block = ""
        if block:
            yield Document(block, f"builtin:docs/{name}", first_line)


def _code() -> Iterator[Document]:
    """Yield the top-level modules of the standard library in sorted order, up to CODE_BYTES."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    left = CODE_BYTES
    for path in sorted(folder.glob("*.py")):
        try:
            with tokenize.open(path) as file:
                text = file.read()
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        left -= len(text.encode())
        if left < 0:
            return
        if text.strip():
            yield Document(text if text.endswith("\n") else text + "\n", str(path))
    if left == CODE_BYTES:
        raise DataError("this Python has no source of its standard library.", repair="Give a file.", file=folder)


BUILTINS = {
    "docs": (_docs, f"the language reference inside CPython, in blocks of about {BLOCK:,} characters"),
    "code": (_code, f"the top-level modules of the standard library, up to {CODE_BYTES / 1e6:g} MB"),
}


Source = TextFile | JsonLines | Builtin


@dataclass(frozen=True)
class Part:
    """The part of a source in a split: bytes start … stop-1, or the documents whose number `includes` accepts."""

    source: Source
    size: int  # bytes
    start: int = 0
    stop: int | None = None
    includes: Callable[[int], bool] | None = None
    first: int = 0  # number of the source's first document in the corpus

    def documents(self) -> Iterator[Document]:
        if isinstance(self.source, TextFile):
            yield from self.source.documents(self.start, self.stop)
            return
        for number, document in enumerate(self.source.documents(), start=self.first):
            if self.includes is None or self.includes(number):
                yield document


@dataclass
class Corpus:
    """Texts in three splits."""

    name: str
    split_rule: str  # how the splits were made, as a sentence
    fingerprint: str  # hash of the content of each split
    parts: dict[str, list[Part]] = field(repr=False)  # by split
    files: list[str] = field(repr=False)
    has_predefined_splits: bool = False  # the data came with all three splits

    def documents(self, split: str) -> Iterator[Document]:
        """Stream a split; at most one chunk of about 4 MB is in memory."""
        for part in self.parts[split]:
            yield from part.documents()

    def texts(self, split: str) -> Iterator[str]:
        for document in self.documents(split):
            yield document.text

    def size(self, split: str) -> int:
        """Return the bytes of text (UTF-8) of a split."""
        return sum(part.size for part in self.parts[split])

    def sample(self, split: str = "train") -> str:
        """Return the beginning of a split: up to about 100,000 characters."""
        text = ""
        for piece in self.texts(split):
            text += piece[: 100_000 - len(text)]
            if len(text) >= 100_000:
                break
        return text


def open_corpus(spec: str | Path, valid_fraction: float = HELD_OUT, test_fraction: float = HELD_OUT) -> Corpus:
    """Read and check everything once, and decide the splits."""
    if not str(spec).strip():
        raise DataError("no data is named.", repair="Give a file, a folder, builtin:docs or builtin:code.")
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if str(spec).startswith("builtin:"):
        source = Builtin(str(spec).removeprefix("builtin:"))
        return _build_corpus(str(spec), {"train": [source]}, fractions, f"{source.description}; ")
    path = Path(spec)
    try:
        if not path.exists():
            raise missing_file_error(path)
        if path.is_dir():
            return _open_folder(path, fractions)
    except OSError as error:  # a folder of the path is not readable, or a name is too long
        raise read_error(error, error.filename or path) from None
    return _build_corpus(str(spec), {"train": [_open_source(path)]}, fractions)


def open_unsplit(spec: str | Path) -> Corpus:
    """Open all of the data under the name `all`, whatever the files of a folder are called."""
    if not str(spec).startswith("builtin:") and Path(spec).is_dir():
        return merge_splits(_open_folder(Path(spec), {"valid": 0.0, "test": 0.0}, split_by_name=False))
    return merge_splits(open_corpus(spec, 0.0, 0.0))


def merge_splits(corpus: Corpus) -> Corpus:
    """Return the whole corpus under the name `all`; nothing is read again."""
    parts = [part for split in SPLITS for part in corpus.parts.get(split, [])]
    sources = {part.source.name: part.source for part in parts}
    sizes = {name: sum(part.size for part in parts if part.source.name == name) for name in sources}
    merged = [Part(sources[name], sizes[name], stop=sizes[name]) for name in corpus.files if name in sources]
    return Corpus(corpus.name, "all of it.", f"{corpus.fingerprint}-all", {"all": merged}, corpus.files)


def _open_folder(folder: Path, fractions: dict[str, float], split_by_name: bool = True) -> Corpus:
    files = sorted(path.relative_to(folder) for path in list_files(folder))
    texts = [path for path in files if _source_class(path)]
    if not texts:
        raise DataError(
            f"the folder contains no text ({len(files):,} other files)." if files else "the folder is empty.",
            repair="Give .txt or .jsonl files (or gzip of these).",
            file=folder,
        )
    groups = group_by_split(texts) or {"train": texts}
    if not split_by_name:
        first = [path for split in SPLITS for path in groups.get(split, [])]
        groups = {"train": [*first, *(path for path in texts if path not in set(first))]}
    sources: dict[str, list[Source]] = {
        split: [_open_source(folder / path) for path in paths] for split, paths in groups.items()
    }
    corpus = _build_corpus(str(folder), sources, fractions)
    ignored = len(texts) - sum(map(len, groups.values()))
    if ignored:
        corpus.split_rule += f" {ignored} files whose names tell no split are not read."
    return corpus


def _build_corpus(
    name: str, sources: dict[str, list[Source]], fractions: dict[str, float], description: str = ""
) -> Corpus:
    """Build a corpus from the sources of each split; splits without a source are taken out of the training sources."""
    missing = {split: 0.0 if split in sources else fractions[split] for split in ("valid", "test")}
    summaries = {source.name: source.summarize() for group in sources.values() for source in group}
    sources = {split: _drop_blank(sources[split], summaries) for split in SPLITS if split in sources}
    parts = {split: [_whole_part(source, summaries) for source in sources.get(split, [])] for split in SPLITS}
    # The wording of the rule is part of the fingerprint: changing it would change that of all data.
    rule = "splits as the files are named" if len(sources) > 1 else "all of it is one split"
    if any(missing.values()):
        held_out, how = _hold_out(name, sources["train"], summaries, missing)
        parts = {split: held_out.get(split) or parts[split] for split in SPLITS}
        rule = description + ("" if len(sources) == 1 else f"{', '.join(sources)} as the files are named; ") + how
    files = [source.name for split in SPLITS for source in sources.get(split, [])]
    fingerprint = _compute_fingerprint(sources, summaries, rule)
    return Corpus(name, f"{rule}.", fingerprint, parts, files, not any(missing.values()))


def _drop_blank(sources: list[Source], summaries: Summaries) -> list[Source]:
    """Return the sources that are not empty; raise if there is none."""
    filled = [source for source in sources if summaries[source.name].sizes]
    if not filled:
        what = "the file is empty." if len(sources) == 1 else f"all {len(sources)} files are empty."
        raise DataError(what, repair="Give a file with text in it.", file=sources[0].name)
    return filled


def _whole_part(source: Source, summaries: Summaries) -> Part:
    size = sum(summaries[source.name].sizes)
    return Part(source, size, stop=size)


def _hold_out(
    name: str, sources: list[Source], summaries: Summaries, missing: dict[str, float]
) -> tuple[dict[str, list[Part]], str]:
    """Take the missing splits out of the training sources; return the parts of each split and the rule."""
    shares = describe_fractions(missing)
    splits = [split for split in SPLITS if split == "train" or missing[split]]
    parts: dict[str, list[Part]] = {split: [] for split in SPLITS}
    if all(source.is_divisible for source in sources) and len(sources) < MIN_WHOLE_FILES:
        for source in sources:
            for split, part in _cut_file(source, summaries[source.name].sizes[0], missing).items():  # type: ignore[arg-type]
                parts[split].append(part)
        if not all(parts[split] for split in splits):
            size = sum(sum(summaries[source.name].sizes) for source in sources)
            raise TooShortError(
                f"the text is too short to split: {size:,} bytes.",
                repair="Give a longer text, or train.*, valid.* and test.* in one folder.",
                file=name,
            )
        each = "the text" if len(sources) == 1 else "each file"
        return parts, f"the end of {each} is held out, cut at line breaks ({shares})"
    count = sum(len(summaries[source.name].sizes) for source in sources)
    if count < len(splits):
        raise TooShortError(
            f"{count} documents are too few to hold some out for validation and testing.",
            repair="Give more documents, or train.*, valid.* and test.* in one folder.",
            file=name,
        )
    assign = evenly_spaced_splits(count, missing["valid"], missing["test"])

    def includes_only(split: str) -> Callable[[int], bool]:
        return lambda number: assign(number) == split

    first = 0
    for source in sources:
        sizes = summaries[source.name].sizes
        for split in splits:
            size = sum(size for number, size in enumerate(sizes, start=first) if assign(number) == split)
            if size:
                parts[split].append(Part(source, size, includes=includes_only(split), first=first))
        first += len(sizes)
    return parts, f"whole documents are held out at even distances among {count:,} ({shares})"


def _cut_file(source: TextFile, size: int, missing: dict[str, float]) -> dict[str, Part]:
    """Cut a text file into train | valid | test, in this order; a very short text may lack some of them."""
    cuts = [size]
    for split in ("test", "valid"):
        target = int(size * (1 - missing["test"] - (missing["valid"] if split == "valid" else 0)))
        cut = source.find_cut(target, max(1, (size - target) // 2)) if missing[split] else cuts[0]
        cuts.insert(0, min(cut, cuts[0]))
    bounds = zip(SPLITS, [0, *cuts], cuts)
    return {split: Part(source, stop - start, start, stop) for split, start, stop in bounds if start < stop}


def _compute_fingerprint(sources: dict[str, list[Source]], summaries: Summaries, rule: str) -> str:
    digest = hashlib.blake2b(rule.encode(), digest_size=16)
    for split in sorted(sources):
        digest.update(split.encode())
        for source in sources[split]:
            digest.update(f"{type(source).__name__} {summaries[source.name].digest}".encode())
    return digest.hexdigest()


def _source_class(path: Path) -> type[TextFile] | type[JsonLines] | None:
    """Return how to read a file, by its suffix; `eng.train` is text too."""
    suffix = get_format_suffix(path)
    if suffix == ".jsonl":
        return JsonLines
    if suffix == ".txt" or (suffix and parse_split_name(Path(suffix)) is not None):
        return TextFile
    return None


def _open_source(path: Path) -> TextFile | JsonLines:
    source = _source_class(path)
    if source is None:
        raise DataError(
            f"files ending in {path.suffix or 'nothing'!r} are not read.",
            repair="Give a .txt file, a .jsonl file with `text`, gzip of either, or a folder of them.",
            file=path,
        )
    return source(path)
