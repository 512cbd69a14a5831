"""A file to write: refused before anything is computed, or written whole. It knows nothing of any task or format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seqwise.errors import SaveError, UsageError


def check_out(path: Path | None, suffixes: Sequence[str] = ()) -> None:
    """Refuse a file that cannot be written, or does not end in one of the suffixes. None is no file, and fine."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise UsageError(
            f"--out: expected a file that ends in {' or '.join(suffixes)}; received {path.name!r}.",
            repair=f"For example: --out {path.with_suffix(suffixes[0]) if path.name else f'answers{suffixes[0]}'}",
        )
    if path.is_dir():
        raise UsageError("expected a file, received a folder.", repair="Name a file in it.", file=path)
    target = _target(path)
    if not target.parent.is_dir():
        folder = target.parent if path.is_symlink() else path.parent
        raise UsageError("its folder does not exist.", repair=f"Make it: mkdir -p {folder}", file=path)
    # A plain file is written beside its place and moved there, which its folder must allow.
    needed = [*([target] if target.exists() else []), *([target.parent] if _replaceable(target) else [])]
    if not all(os.access(each, os.W_OK) for each in needed):
        raise UsageError("there is no permission to write it.", repair="Name another file.", file=path)


def write_out(path: Path, text: str) -> None:
    """Write a text. A file that was there stays as it was until the new one is whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to; what was written takes its own name at the end, and until then the old file stays.

    What a link points to is replaced, not the link. A pipe or a device cannot be replaced: it is its own name.
    """
    target = _target(path)
    whole = _replaceable(target)
    # With its process in the name: two that write one file must not write into each other's.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.writing") if whole else target
    try:
        yield temporary
        if whole:
            temporary.replace(target)
    except OSError as error:
        repair = "Make room there, or name another file."
        raise SaveError(f"cannot write: {error.strerror or error}.", repair=repair, file=path) from error
    finally:
        if whole:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """What a link points to; a pipe or a device as it is, for behind /dev/stdout may be one without a name."""
    return path if path.exists() and not path.is_file() else path.resolve()


def _replaceable(target: Path) -> bool:
    return target.is_file() or not target.exists()
