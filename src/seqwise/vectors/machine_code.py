"""Compiled loops called without their compiler: numba compiles in another process, and this one maps what came out.

numba and LLVM take more memory than most vocabularies (about 100 MB), and are needed only once per machine. So a child
process (`compiling`) compiles a loop and writes its machine code into the cache folder; here the file is mapped, like a
shared library, and called through ctypes, which lets other threads run meanwhile. The numbers are the same to the bit.

Wherever this does not work (another system or processor, no child process, a cache that cannot be written), the loop is
called as numba offers it, in this process. Nothing here imports numba, or knows what a loop does.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import platform
import struct
import subprocess
import sys
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.environment import cache_folder, package_version

HEAD = struct.Struct("<32sQ24x")  # digest of all that follows it, place of the first instruction
DIGEST = 32  # bytes
PATIENCE = 120.0  # seconds for the compiler
REFUSED = b"this loop needs numba\n"  # the file's content where a loop cannot do without; found out once
FOREIGN = 0o022  # others may write: such a file is not run


class Loop:
    """A loop of some module, called as numba would: with numbers, flat arrays and tuples of these."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name
        self._codes: dict[str, _Code | None] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> None:
        words: list[Any] = []
        kinds: list[str] = []
        _lay_out(arguments, words, kinds)
        code = self.code(" ".join(kinds))
        if code is None:
            self.ordinary(*arguments)
        else:
            code(words)

    @property
    def ordinary(self) -> Any:
        """The loop as numba compiles it. Imports numba."""
        return getattr(import_module(self.module), self.name)

    def code(self, kinds: str) -> _Code | None:
        """The machine code for arguments of these kinds, made at the first call; None where it cannot be had."""
        if kinds not in self._codes:
            with self._lock:
                if kinds not in self._codes:
                    self._codes[kinds] = _find(self.module, self.name, kinds)
        return self._codes[kinds]


class _Code:
    """A file of machine code, mapped; complains with ValueError or OSError about one that should not be run."""

    def __init__(self, path: Path, kinds: str):
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & FOREIGN:
                raise ValueError("not ours alone")
            # Never writable and executable at once, which some systems forbid.
            memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        if len(memory) < HEAD.size or digest(memory[DIGEST:]) != memory[:DIGEST]:
            raise ValueError("damaged")
        self._memory = np.frombuffer(memory, dtype=np.uint8)
        start = self._memory.ctypes.data + HEAD.unpack_from(memory)[1]
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(start)
        self._layout = struct.Struct("".join(map(_format, kinds.split())))

    def __call__(self, words: list[Any]) -> None:
        self._function(self._layout.pack(*words))


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def _lay_out(arguments: tuple, words: list[Any], kinds: list[str]) -> None:
    """Arguments → words of 64 bits, and their kinds: `int32[]` (two words: address and length), `float32`, `( … )`."""
    for value in arguments:
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or not value.flags.c_contiguous:
                raise TypeError("loops take flat arrays without gaps")
            words += (value.ctypes.data, len(value))
            kinds.append(_ARRAYS[value.dtype])
        elif isinstance(value, tuple):
            kinds.append("(")
            _lay_out(value, words, kinds)
            kinds.append(")")
        else:
            words.append(value)
            kinds.append(_NUMBERS[type(value)])


_NAMES = ("int32", "int64", "uint32", "uint64", "float32", "float64")
_ARRAYS = {np.dtype(name): f"{name}[]" for name in _NAMES}
_NUMBERS = {bool: "bool", int: "int64", float: "float64", **{getattr(np, name): name for name in _NAMES}}


def _format(kind: str) -> str:
    if kind in "()":
        return ""
    return "Qq" if kind.endswith("[]") else {"f": "d", "u": "Q"}.get(kind[0], "q")


def _find(module: str, name: str, kinds: str) -> _Code | None:
    """From the cache, else from the compiler."""
    if not (sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32):
        return None
    try:
        path = _place(module, name, kinds)
        try:
            return _load(path, kinds)
        except (FileNotFoundError, ValueError):  # not there yet, or damaged
            _compile(module, name, kinds, path)
            return _load(path, kinds)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _load(path: Path, kinds: str) -> _Code | None:
    return None if path.read_bytes() == REFUSED else _Code(path, kinds)


def _place(module: str, name: str, kinds: str) -> Path:
    """The file for a loop; its name changes with everything that decides on the code."""
    everything = [kinds, sources(), _processor(), *(str(package_version(one)) for one in ("numba", "llvmlite"))]
    key = hashlib.blake2b("\n".join(everything).encode(), digest_size=12).hexdigest()
    return cache_folder() / "machine_code" / f"{module.rpartition('.')[2]}.{name}-{key}.bin"


@cache
def sources() -> str:
    """A digest of this package's source: a loop is made of pieces from several modules."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.blake2b(b"\0".join(file.read_bytes() for file in files)).hexdigest()


@cache
def _processor() -> str:
    """What the compiler adapts to: the model and the instructions it has."""
    wanted = ("vendor_id", "cpu family", "model", "flags")
    first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    return "\n".join(line for line in first if line.startswith(wanted))


def _compile(module: str, name: str, kinds: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(path.parent)  # before the compiler works in vain
    where = os.pathsep.join(map(str, filter(None, sys.path)))  # it finds what we find
    environment = {**os.environ, "PYTHONPATH": where}
    command = [sys.executable, "-P", "-m", "seqwise.vectors.compiling", module, name, kinds, str(path)]
    try:
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True
        )
    except subprocess.CalledProcessError as error:
        if error.returncode < 0:  # LLVM ended the process, and would the next time
            path.write_bytes(REFUSED)
        raise
