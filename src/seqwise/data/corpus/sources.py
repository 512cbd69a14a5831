"""`open_corpus`: what the user names → a `Corpus` with three splits that can be streamed any number of times.

Reads `.txt`, `.jsonl` with `text`, gzip of either, folders of these, and `builtin:docs`, `builtin:code`. It knows
nothing of tokens.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from seqwise.config import HELD_OUT
from seqwise.data.corpus.builtin import Builtin
from seqwise.data.reading import Document, FileSummary, JsonLines, TextFile, is_gzip, read_error
from seqwise.data.splitting import SPLITS, evenly_spaced_splits, group_by_split, parse_split_name
from seqwise.errors import DataError, nearest_path

Source = TextFile | JsonLines | Builtin
MANY = 100  # text files of a folder from which on each goes whole to one split


@dataclass(frozen=True)
class Part:
    """What a split takes of one source: bytes start … stop-1, or the documents whose number `takes` accepts."""

    source: Source
    size: int
    start: int = 0
    stop: int | None = None
    takes: Callable[[int], bool] | None = None
    first: int = 0  # number of the source's first document in the corpus

    def documents(self) -> Iterator[Document]:
        if isinstance(self.source, TextFile):
            yield from self.source.documents(self.start, self.stop)
            return
        for number, document in enumerate(self.source.documents(), start=self.first):
            if self.takes is None or self.takes(number):
                yield document


@dataclass
class Corpus:
    """Texts in three splits, with the rule that made them, as a sentence."""

    name: str
    split_rule: str
    fingerprint: str  # of the content of each split
    parts: dict[str, list[Part]] = field(repr=False)
    files: list[str] = field(repr=False)
    has_predefined_splits: bool = False  # the data came with all three splits

    def documents(self, split: str) -> Iterator[Document]:
        """Stream a split; nothing is kept in memory beyond one piece of about 4 MB."""
        for part in self.parts[split]:
            yield from part.documents()

    def texts(self, split: str) -> Iterator[str]:
        for document in self.documents(split):
            yield document.text

    def size(self, split: str) -> int:
        """Bytes of text (UTF-8) of a split."""
        return sum(part.size for part in self.parts[split])

    def sample(self, split: str = "train") -> str:
        """The beginning of a split, to look at: up to about 100,000 characters."""
        text = ""
        for piece in self.texts(split):
            text += piece[: 100_000 - len(text)]
            if len(text) >= 100_000:
                break
        return text


def open_corpus(spec: str | Path, valid_fraction: float = HELD_OUT, test_fraction: float = HELD_OUT) -> Corpus:
    """Read everything once, check it, and decide the splits."""
    if not str(spec).strip():
        raise DataError("no data is named.", repair="Give a file, a folder, builtin:docs or builtin:code.")
    fractions = {"valid": valid_fraction, "test": test_fraction}
    if str(spec).startswith("builtin:"):
        source = Builtin(str(spec).removeprefix("builtin:"))
        return _assemble(str(spec), {"train": [source]}, fractions, f"{source.says}; ")
    path = Path(spec)
    try:
        if not path.exists():
            raise missing_file_error(path)
        if path.is_dir():
            return _open_folder(path, fractions)
    except OSError as error:  # a folder on the way may not be read, or a name is too long
        raise read_error(error, error.filename or path) from None
    return _assemble(str(spec), {"train": [_source(path)]}, fractions)


def open_unsplit(spec: str | Path) -> Corpus:
    """The same data without splits: all of it under the name `all`, whatever the files of a folder are called."""
    if not str(spec).startswith("builtin:") and Path(spec).is_dir():
        return merge_splits(_open_folder(Path(spec), {"valid": 0.0, "test": 0.0}, named=False))
    return merge_splits(open_corpus(spec, 0.0, 0.0))


def merge_splits(corpus: Corpus) -> Corpus:
    """A corpus put together again, under the name `all`; nothing is read for it."""
    parts = [part for split in SPLITS for part in corpus.parts.get(split, [])]
    sources = {part.source.name: part.source for part in parts}
    sizes = {name: sum(part.size for part in parts if part.source.name == name) for name in sources}
    everything = [Part(sources[name], sizes[name], stop=sizes[name]) for name in corpus.files if name in sources]
    return Corpus(corpus.name, "all of it.", f"{corpus.fingerprint}-all", {"all": everything}, corpus.files)


class TooShortError(DataError):
    """The data cannot be divided into training, validation and test."""


def _open_folder(folder: Path, fractions: dict[str, float], named: bool = True) -> Corpus:
    found = sorted(path.relative_to(folder) for path in list_files(folder))
    texts = [path for path in found if _format(path)]
    if not texts:
        raise DataError(
            f"the folder holds no text ({len(found):,} other files)." if found else "the folder is empty.",
            repair="Give .txt or .jsonl files (or gzip of these).",
            file=folder,
        )
    groups = group_by_split(texts) or {"train": texts}
    if not named:
        first = [path for split in SPLITS for path in groups.get(split, [])]
        groups = {"train": [*first, *(path for path in texts if path not in set(first))]}
    corpus = _assemble(
        str(folder), {split: [_source(folder / path) for path in groups[split]] for split in groups}, fractions
    )
    ignored = len(texts) - sum(map(len, groups.values()))
    if ignored:
        corpus.split_rule += f" {ignored} files whose names tell no split are not read."
    return corpus


def list_files(folder: Path) -> Iterator[Path]:
    """All files that are not hidden. A folder that may not be read is an error: `rglob` would pass over it."""

    def refuse(error: OSError) -> None:
        raise error

    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _assemble(name: str, groups: dict, fractions: dict[str, float], says: str = "") -> Corpus:
    """Corpus from the sources of each split; what has no source is taken from the training sources."""
    missing = {split: 0.0 if split in groups else fractions[split] for split in ("valid", "test")}
    summaries = {source.name: source.summarize() for sources in groups.values() for source in sources}
    groups = {split: _not_blank(groups[split], summaries) for split in SPLITS if split in groups}
    parts = {split: [_all_of(source, summaries) for source in groups.get(split, [])] for split in SPLITS}
    rule = "splits as the files are named" if len(groups) > 1 else "all of it is one split"
    if any(missing.values()):
        made, how = _divide(name, groups["train"], summaries, missing)
        parts = {split: made.get(split) or parts[split] for split in SPLITS}
        rule = says + ("" if len(groups) == 1 else f"{', '.join(groups)} as the files are named; ") + how
    files = [source.name for split in SPLITS for source in groups.get(split, [])]
    return Corpus(name, f"{rule}.", _fingerprint(groups, summaries, rule), parts, files, not any(missing.values()))


def _not_blank(sources: list[Source], summaries: dict[str, FileSummary]) -> list[Source]:
    """The sources without empty ones; an error if that leaves none."""
    kept = [source for source in sources if summaries[source.name].sizes]
    if not kept:
        what = "the file is empty." if len(sources) == 1 else f"all {len(sources)} files are empty."
        raise DataError(what, repair="Give a file with text in it.", file=sources[0].name)
    return kept


def _all_of(source: Source, summaries: dict[str, FileSummary]) -> Part:
    size = sum(summaries[source.name].sizes)
    return Part(source, size, stop=size)


def _divide(
    name: str, sources: list[Source], summaries: dict[str, FileSummary], missing: dict[str, float]
) -> tuple[dict, str]:
    """Take the missing splits out of the training sources; returns the parts and the rule."""
    shares = " and ".join(f"{share:.0%} for {split}" for split, share in missing.items() if share)
    if all(not source.whole for source in sources) and len(sources) < MANY:
        parts: dict[str, list[Part]] = {split: [] for split in SPLITS}
        for source in sources:
            for split, part in _cut(source, summaries[source.name].sizes[0], missing).items():  # type: ignore[arg-type]
                parts[split].append(part)
        if not all(parts[split] for split in SPLITS if split == "train" or missing[split]):
            size = sum(sum(summaries[source.name].sizes) for source in sources)
            raise TooShortError(
                f"the text is too short to split: {size:,} bytes.",
                repair="Give a longer text, or train.*, valid.* and test.* in one folder.",
                file=name,
            )
        each = "the text" if len(sources) == 1 else "each file"
        return parts, f"the end of {each} is held out, cut at line breaks ({shares})"
    count = sum(len(summaries[source.name].sizes) for source in sources)
    if count <= len([share for share in missing.values() if share]):
        raise TooShortError(
            f"{count} documents are too few to hold some out for validation and testing.",
            repair="Give more documents, or train.*, valid.* and test.* in one folder.",
            file=name,
        )
    assign = evenly_spaced_splits(count, missing["valid"], missing["test"])
    parts = _scatter(sources, summaries, assign, [split for split in SPLITS if split == "train" or missing[split]])
    return parts, f"whole documents are held out at even distances among {count:,} ({shares})"


def _cut(source: TextFile, size: int, missing: dict[str, float]) -> dict[str, Part]:
    """train | valid | test of one text file, in this order; a very short text may lack some of them."""
    marks = [size]
    for split in ("test", "valid"):
        target = int(size * (1 - missing["test"] - (missing["valid"] if split == "valid" else 0)))
        place = source.cut(target, max(1, (size - target) // 2)) if missing[split] else marks[0]
        marks.insert(0, min(place, marks[0]))
    places = zip(SPLITS, [0, *marks], marks)
    return {split: Part(source, stop - start, start, stop) for split, start, stop in places if start < stop}


def _scatter(
    sources: list[Source], summaries: dict[str, FileSummary], assign: Callable[[int], str], splits: list[str]
) -> dict:
    def only(split: str) -> Callable[[int], bool]:
        return lambda number: assign(number) == split

    parts: dict[str, list[Part]] = {split: [] for split in splits}
    first = 0
    for source in sources:
        sizes = summaries[source.name].sizes
        for split in splits:
            size = sum(size for number, size in enumerate(sizes, start=first) if assign(number) == split)
            if size:
                parts[split].append(Part(source, size, takes=only(split), first=first))
        first += len(sizes)
    return parts


def _fingerprint(groups: dict, summaries: dict[str, FileSummary], rule: str) -> str:
    digest = hashlib.blake2b(rule.encode(), digest_size=16)
    for split in sorted(groups):
        digest.update(split.encode())
        for source in groups[split]:
            digest.update(f"{type(source).__name__} {summaries[source.name].digest}".encode())
    return digest.hexdigest()


def _format(path: Path) -> type[TextFile] | type[JsonLines] | None:
    """How to read a file, by its suffix; `eng.train` is text too."""
    suffix = (Path(path.stem).suffix if is_gzip(path) else path.suffix).lower()
    if suffix == ".jsonl":
        return JsonLines
    if suffix == ".txt" or (suffix and parse_split_name(Path(suffix)) is not None):
        return TextFile
    return None


def _source(path: Path) -> TextFile | JsonLines:
    kind = _format(path)
    if kind is None:
        raise DataError(
            f"files ending in {path.suffix or 'nothing'!r} are not read.",
            repair="Give a .txt file, a .jsonl file with `text`, gzip of either, or a folder of them.",
            file=path,
        )
    return kind(path)


def missing_file_error(path: Path) -> DataError:
    folder = path.parent
    if not folder.is_dir():
        return DataError("there is no such file, nor its folder.", repair="Check the path.", file=path)
    others = [Path(entry.name) for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    hint = nearest_path(path, others) if others else "Its folder is empty."
    return DataError("there is no such file or folder.", repair=hint or "Check the path.", file=path)
