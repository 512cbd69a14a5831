"""Reads one file as a task does, and prints by how much that raised the peak of memory.

    python read_child.py READER PATH

It prints {"mb": …, "error": …}. The limit on the address space is a safety net: a reader without bounds raises
MemoryError here instead of using up the memory of the machine.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from seqwise.config import Settings
from seqwise.data.corpus.sources import open_corpus
from seqwise.errors import SeqwiseError
from seqwise.tasks.caption.reader import read_captions
from seqwise.tasks.classify.reader import read_labelled_data
from seqwise.tasks.forecast.reader import read_series
from seqwise.tasks.guess import guess_task
from seqwise.tasks.tag.reader import read_tagged_data
from seqwise.tasks.translate.reader import read_pairs
from seqwise.vectors.formats import load_vectors

SAFETY_BYTES = 3_000_000_000


def read_language(path: str) -> None:
    corpus = open_corpus(path)
    for _ in corpus.texts("train"):
        pass


READERS: dict[str, Callable[[str], object]] = {
    "language": read_language,
    "classify": lambda path: read_labelled_data(path, Settings()),
    "tag": lambda path: read_tagged_data(path, Settings()),
    "translate": lambda path: read_pairs(path, Settings()),
    "caption": lambda path: read_captions(path, Settings().data),
    "forecast": lambda path: read_series(path, Settings()),
    "guess": guess_task,
    "vectors": load_vectors,
}


def read_status(name: str) -> int:
    """Returns a value of the status of this process, in bytes."""
    match = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def main(reader: str, path: str) -> None:
    for module in ("openpyxl", "pyarrow.parquet", "pyarrow.compute", "PIL.Image"):
        __import__(module)
    limit = read_status("VmSize") + SAFETY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    start, error = read_status("VmRSS"), None
    try:
        READERS[reader](path)
    except SeqwiseError as caught:
        error = f"{type(caught).__name__}: {caught}"
    sys.stdout.write(json.dumps({"mb": (read_status("VmHWM") - start) / 1e6, "error": error}))


if __name__ == "__main__":
    main(*sys.argv[1:])
