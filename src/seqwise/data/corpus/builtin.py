"""Texts that every CPython brings along, so that nothing has to be fetched. It knows nothing of splits or tokens."""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from seqwise.data.reading import Document, FileSummary
from seqwise.errors import DataError, nearest

CODE_BYTES = 4_000_000
BLOCK = 1_000  # characters of a block of the language reference: small, so that the splits are alike


class Builtin:
    """A built-in collection of documents."""

    whole = True

    def __init__(self, name: str):
        if name not in BUILTINS:
            raise DataError(f"there is no built-in text {name!r}.", repair=nearest(name, BUILTINS))
        self.name = f"builtin:{name}"
        self._make, self.says = BUILTINS[name]

    def summarize(self) -> FileSummary:
        digest, sizes = hashlib.blake2b(digest_size=16), []
        for document in self.documents():
            data = document.text.encode()
            digest.update(data + b"\0")
            sizes.append(len(data))
        return FileSummary(tuple(sizes), digest.hexdigest())

    def documents(self) -> Iterator[Document]:
        return self._make()


def _docs() -> Iterator[Document]:
    """The topics of the language reference in sorted order, in blocks of whole paragraphs.

    Topics quote each other at length; a paragraph that came before is left out, or the test text would be seen in
    training.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError("this Python lacks pydoc_data, so there is no builtin:docs.", repair="Give a file.") from None
    seen: set[str] = set()
    for name in sorted(topics):
        block, line, place = "", 1, 1
        for paragraph in topics[name].split("\n\n"):
            if not block:
                line = place
            place += paragraph.count("\n") + 2
            key = paragraph.strip()
            if key and key not in seen:
                block += paragraph.strip("\n") + "\n\n"
                seen.add(key)
            if len(block) >= BLOCK:
                yield Document(block, f"builtin:docs/{name}", line)
                block = ""
        if block:
            yield Document(block, f"builtin:docs/{name}", line)


def _code() -> Iterator[Document]:
    """The top-level modules of the standard library in sorted order, up to CODE_BYTES."""
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
