"""The file that `--out` names: refused before anything is computed, or written whole. It knows nothing of any task."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
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
        raise UsageError("--out: expected a file, received a folder.", repair="Name a file in it.", file=path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError("--out: its folder does not exist.", repair=f"Make it: mkdir -p {path.parent}", file=path)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError("--out: there is no permission to write it.", repair="Name another file.", file=path)


def write_out(path: Path, text: str) -> None:
    """Write a text. A file that was there stays as it was until the new one is whole."""
    path = path.resolve()  # what a link points to is replaced, not the link
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        temporary = path
    else:
        temporary = path.with_name(f".{path.name}.writing")
    try:
        temporary.write_text(text, encoding="utf-8")
        if temporary != path:
            temporary.replace(path)
    except OSError as error:
        repair = "Make room there, or name another file with --out."
        raise SaveError(f"cannot write: {error.strerror}.", repair=repair, file=path) from error
    finally:
        if temporary != path:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
