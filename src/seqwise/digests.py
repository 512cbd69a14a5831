"""Digests inside files: a flipped bit in a file that Seqwise has written is detected when the file is read.

    safetensors    the metadata `blake2b`: digest of the whole file, in which the digits of the digest itself are zeros
    JSON object    the last key, `blake2b`: digest of all other keys and values

A digest is part of the file that it protects: both are replaced by the same rename, so a kill at any point leaves a
file that matches its digest. Files of versions that wrote none are read without a check. Digests detect damage by
disks, memory and copying, not forgery: anyone can compute them.

blake2b rather than a CRC-32, which is faster but misses one damaged file in 2^32; `benchmarks/reading.py --checks`
measures what the checks cost. Checkpoints have used blake2b from the beginning.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any, BinaryIO

KEY = "blake2b"
DIGEST_BYTES = 16
UNKNOWN_DIGEST = "0" * 2 * DIGEST_BYTES
PLACEHOLDER = {KEY: UNKNOWN_DIGEST}  # metadata of a safetensors file, in which `insert_digest` fills in the digest
MAX_HEADER_BYTES = 100_000_000  # of a safetensors file, by its specification
MISMATCH = "it does not match its digest"


def compute_digest(content: bytes | memoryview) -> str:
    """Returns a digest of 128 bits in hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def add_digest(content: dict[str, Any]) -> dict[str, Any]:
    """Returns a JSON object with its digest as the last key."""
    return {**content, KEY: _hash_object(content)}


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, without its digest.

    Raises an OSError if the file cannot be read, and a ValueError if it is not a JSON object or does not match its
    digest.
    """
    _reject_special_file(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"expected a JSON object, found {json.dumps(content)[:40]}")
        if not content:
            return content
        key, value = content.popitem()
        is_digest = value == _hash_object(content)  # even where the key is damaged
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if is_digest != (key == KEY):
        raise ValueError(MISMATCH)
    return content if is_digest else {**content, key: value}


def _hash_object(content: dict[str, Any]) -> str:
    return compute_digest(json.dumps(content).encode())


def insert_digest(path: Path) -> None:
    """Writes the digest into a safetensors file that was saved with the metadata PLACEHOLDER."""
    with path.open("r+b") as file:
        _insert_digest(file)


def insert_digest_into(content: bytes) -> bytes:
    """Returns the content of a safetensors file with its digest instead of the metadata PLACEHOLDER."""
    file = io.BytesIO(content)
    _insert_digest(file)
    return file.getvalue()


def _insert_digest(file: Any) -> None:
    """Writes the digest, and sorts the metadata, which safetensors writes in random order."""
    header, content = _read_header(file)
    content["__metadata__"] = dict(sorted(content["__metadata__"].items()))
    sorted_header = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode().ljust(len(header))
    if len(sorted_header) == len(header):
        header = sorted_header
    file.seek(8)
    file.write(header)
    file.seek(0)
    digest = hashlib.file_digest(file, _create_hash).hexdigest()
    file.seek(8 + header.index(UNKNOWN_DIGEST.encode()))
    file.write(digest.encode())


def check_digest(path: Path) -> None:
    """Raises a ValueError if a safetensors file does not match its digest; one without a digest is valid."""
    _reject_special_file(path)
    with path.open("rb") as file:
        header, content = _read_header(file)
        metadata = content.get("__metadata__")
        if not isinstance(metadata, dict) or KEY not in metadata:
            return
        expected = str(metadata[KEY]).encode()
        if len(expected) != len(UNKNOWN_DIGEST) or expected not in header:
            raise ValueError(MISMATCH)
        digest = _create_hash()
        digest.update(len(header).to_bytes(8, "little") + header.replace(expected, UNKNOWN_DIGEST.encode(), 1))
        if hashlib.file_digest(file, lambda: digest).hexdigest().encode() != expected:
            raise ValueError(MISMATCH)


def _reject_special_file(path: Path) -> None:
    """Raises a ValueError for a pipe, whose reader waits for a writer, and a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError("it is a pipe or a device, not a file")


def _create_hash() -> Any:
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def _read_header(file: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    """Returns the header of a safetensors file, as bytes and parsed; leaves the file position after it."""
    num_bytes = int.from_bytes(file.read(8), "little")
    header = file.read(num_bytes) if num_bytes <= MAX_HEADER_BYTES else b""
    try:
        content = json.loads(header)
    except (ValueError, RecursionError):
        content = None
    if len(header) != num_bytes or not isinstance(content, dict):
        raise ValueError("its header is damaged")
    return header, content
