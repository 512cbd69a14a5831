"""Built-in corpora: texts that are part of every CPython installation. It knows nothing of splits or tokens."""

from __future__ import annotations

import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from seqwise.data.reading import Document, SourceSummary, summarize_documents
from seqwise.errors import DataError, nearest

CODE_BYTES = 4_000_000
BLOCK = 1_000  # characters of a document of the language reference: small, so that the splits are similar


class Builtin:
    """A built-in collection of documents."""

    is_divisible = False

    def __init__(self, name: str):
        if name not in BUILTINS:
            raise DataError(f"there is no built-in text {name!r}.", repair=nearest(name, BUILTINS))
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
