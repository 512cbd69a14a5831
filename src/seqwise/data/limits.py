"""Limits on what a file may become in memory: the size of one text, and the expansion of compressed data.

The settings `data.max_text_mb` and `data.max_expansion` set them. Readers get them through a context variable, because
files are opened far below the functions that know the settings. The module knows nothing of formats.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO, ParamSpec, TypeVar

from seqwise.config import DataSettings
from seqwise.errors import DataError

MB = 1_000_000
BLOCK_CHARACTERS = 1 << 16  # of a text that are divided into lines at once
FREE_BYTES = 16 * MB  # of decompressed data, whatever its ratio
IMAGE_FACTOR = 10  # the maximum size of an image or array file, relative to that of a text
DECODED_FACTOR = 20  # the same for an image as pixels
TEXT_OPTION, EXPANSION_OPTION = "--data.max-text-mb", "--data.max-expansion"

_settings: ContextVar[DataSettings | None] = ContextVar("limits", default=None)
P = ParamSpec("P")
R = TypeVar("R")


def get_limits() -> DataSettings:
    """Returns the settings with the limits that hold here: those of `use_limits`, or else the defaults."""
    return _settings.get() or DataSettings()


@contextmanager
def use_limits(settings: DataSettings) -> Iterator[None]:
    """Sets the limits of the readers that are called inside the block."""
    token = _settings.set(settings)
    try:
        yield
    finally:
        _settings.reset(token)


def limited(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a reader with `Settings` or `DataSettings` among its arguments, whose limits hold inside it."""

    @wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        values: list[Any] = [*args, *kwargs.values()]
        settings = next((getattr(value, "data", value) for value in values if _has_limits(value)), get_limits())
        with use_limits(settings):
            return function(*args, **kwargs)

    return read


def iterate_with_limits(settings: DataSettings, items: Iterator[R]) -> Iterator[R]:
    """Yields the items of a generator that runs with these limits, wherever it is used."""
    context, end = copy_context(), object()
    context.run(_settings.set, settings)
    while (item := context.run(next, items, end)) is not end:
        yield item  # type: ignore[misc]


def _has_limits(value: Any) -> bool:
    return isinstance(value, DataSettings) or isinstance(getattr(value, "data", None), DataSettings)


def build_size_error(
    subject: str,
    path: str | Path | None,
    line: int | None = None,
    factor: int = 1,
    limits: DataSettings | None = None,
    fix: str = "Check the file, or divide it",
) -> DataError:
    """Returns the error for a text, line, row or image that is larger than allowed; `subject` says which."""
    limit = (limits or get_limits()).max_text_mb
    fix = f"{fix}; training allows more with {TEXT_OPTION} {limit * 10} or above"
    return DataError(f"{subject} has more than {factor * limit:,} MB.", fix=fix, file=path, line=line)


def check_expansion(size: int, compressed_size: int, path: str | Path, limits: DataSettings | None = None) -> None:
    """Raises if data is so much larger than its compressed form that the file may be a decompression bomb."""
    limit = (limits or get_limits()).max_expansion
    if size > FREE_BYTES and size > limit * compressed_size:
        sizes = f"{max(compressed_size, 1):,} bytes become at least {size:,}"
        problem = f"the data is more than {limit:,} times as large as its compressed form ({sizes})."
        unpack = "unpack it yourself; " if Path(path).suffix.lower() in (".gz", ".zip") else ""
        fix = f"If you trust the file, {unpack}training allows more with {EXPANSION_OPTION} {limit * 10} or above"
        raise DataError(problem, fix=fix, file=path)


def release_memory() -> None:
    """Returns free memory to the system, which the C library keeps otherwise, for each thread."""
    with suppress(OSError, AttributeError, TypeError):  # a library without such a function
        ctypes.CDLL(None).malloc_trim(0)


def read_lines(file: BinaryIO, path: Path, limits: DataSettings | None = None) -> Iterator[bytes]:
    """Yields the lines of a file; raises at one that is longer than allowed, before it is in memory as a whole."""
    limits = limits or get_limits()
    max_bytes, line = limits.max_text_mb * MB, 0
    while data := file.readline(max_bytes + 1):
        line += 1
        if len(data) > max_bytes:
            raise build_size_error("the line", path, line, limits=limits)
        yield data


def iterate_lines(
    read: Callable[[int], str], path: Path, first_line: int = 1, keeps_end: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields (line number, text without its line break); empty lines at the end are left out unless `keeps_end`.

    `read` returns the next characters of the text, at most as many as it is asked for; "" at the end.
    """
    line, num_empty = first_line - 1, 0
    for texts in _split_lines(read, path, first_line):
        for text in texts:
            line += 1
            if not text and not keeps_end:
                num_empty += 1
                continue
            for number in range(line - num_empty, line) if num_empty else ():
                yield number, ""
            num_empty = 0
            yield line, text


def _split_lines(read: Callable[[int], str], path: Path, line: int) -> Iterator[list[str]]:
    """Yields the lines of each block of a text; raises at a line that is longer than allowed."""
    max_characters = get_limits().max_text_mb * MB
    parts: list[str] = []  # of the line that is not complete yet
    while block := read(BLOCK_CHARACTERS):
        *lines, end = block.split("\n")
        if lines:
            lines[0] = "".join([*parts, lines[0]])
            parts = []
        parts.append(end)
        if max(sum(map(len, parts)), len(lines[0]) if lines else 0) > max_characters:
            raise build_size_error("the line", path, line)
        yield lines
        line += len(lines)
    if any(parts):
        yield ["".join(parts)]
