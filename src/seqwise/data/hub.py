"""`hf:NAME[/CONFIG]`: a data set of the Hugging Face Hub, or a local folder of one, as `.jsonl` files in the cache.

The files are read like any other table. Labels are written by name, translations as one column per language; columns of
images or sound are left out. The library `datasets` of the extra `hf` downloads a data set without executing its code.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqwise.data.examples import SPLIT_NAMES
from seqwise.data.spreadsheets import import_extra
from seqwise.digests import compute_digest
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError
from seqwise.files import replace_file, write_text

PREFIX = "hf:"
FORMAT = 1  # of the files in the cache
COMPLETE = ".complete"  # file with the digest of the others, written last
BATCH_ROWS = 1_000  # of a table that are read at once
NAME_FIX = "Name it as on the Hub: hf:NAME, hf:OWNER/NAME, and /CONFIG after it where it has several configurations."


def fetch_if_hub(data: str) -> str:
    """Returns the folder with the files of `hf:NAME[/CONFIG]`; any other name of data is returned as it is."""
    return str(fetch_hub_data(data)) if data.startswith(PREFIX) else data


def fetch_hub_data(spec: str) -> Path:
    """Returns the folder with the splits of a data set, which are written to the cache unless they are there."""
    splits = {SPLIT_NAMES[name]: part for name, part in _load_splits(spec).items() if name in SPLIT_NAMES}
    if not splits:
        raise DataError(f"{spec} has no split for training, validation or testing.", fix=NAME_FIX)
    fingerprints = [f"{name} {part._fingerprint}" for name, part in splits.items()]
    key = hashlib.blake2b(f"{FORMAT} {spec} {' '.join(fingerprints)}".encode(), digest_size=16).hexdigest()
    folder = get_cache_folder() / "hf" / key
    files = [folder / f"{name}.jsonl" for name in splits]
    if not _is_complete(folder / COMPLETE, files):
        folder.mkdir(parents=True, exist_ok=True)
        for path, part in zip(files, splits.values(), strict=True):
            _write_split(path, part)
        write_text(folder / COMPLETE, _hash_files(files), concurrent=True)
    return folder


def _is_complete(marker: Path, files: Sequence[Path]) -> bool:
    """Returns whether the files are in the cache and match the digest in `marker`, which old versions left empty."""
    if not marker.exists():
        return False
    is_intact = False
    with suppress(OSError, ValueError):  # a file is missing, or is not text
        is_intact = marker.read_text(encoding="utf-8") in ("", _hash_files(files))
    if not is_intact:
        warnings.warn(f"{marker.parent} is damaged; its files are written again.", stacklevel=3)
    return is_intact


def _hash_files(files: Sequence[Path]) -> str:
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "blake2b").hexdigest())
    return compute_digest(" ".join(digests).encode())


def _load_splits(spec: str) -> dict[str, Any]:
    """Returns the splits of the data set; `a/b` is the data set of an owner, or else a configuration of `a`."""
    datasets = import_extra("datasets", "hf", f"reading {spec}")
    name = spec.removeprefix(PREFIX)
    if not name.strip("/ "):
        raise DataError(f"{spec} names no data set.", fix=NAME_FIX)
    owner, _, config = name.rpartition("/")
    candidates = [(name, None)] if not owner or Path(name).exists() else [(name, None), (owner, config)]
    if name.count("/") > 1 and not Path(name).exists():
        candidates.reverse()
    reasons = []
    for path, configuration in candidates:
        try:
            loaded = datasets.load_dataset(path, configuration)
        except Exception as error:  # of `datasets`, `huggingface_hub`, the network or the file system
            reasons.append(str(error).strip().partition("\n")[0] or type(error).__name__)
            continue
        return dict(loaded)
    raise DataError(f"{spec} cannot be loaded: {reasons[0]}", fix=NAME_FIX)


def _write_split(path: Path, part: Any) -> None:
    """Writes the rows of a `datasets.Dataset` as JSON lines, without columns of images or sound."""
    features = {name: feature for name, feature in part.features.items() if not hasattr(feature, "decode")}
    with replace_file(path, concurrent=True) as temporary, temporary.open("w", encoding="utf-8") as file:
        for row in _iterate_rows(part.select_columns(list(features)), features):
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _iterate_rows(part: Any, features: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields each row by column, with the names of labels; a translation becomes one column per language."""
    for batch in part.iter(BATCH_ROWS):
        for values in zip(*batch.values()):
            row: dict[str, Any] = {}
            for (name, feature), value in zip(features.items(), values):
                value = _name_labels(value, feature)
                row |= value if isinstance(value, dict) and hasattr(feature, "languages") else {name: value}
            yield row


def _name_labels(value: Any, feature: Any) -> Any:
    """Returns a value with the names of labels instead of their numbers; -1 is a missing label."""
    if hasattr(feature, "int2str"):
        return feature.int2str(value) if isinstance(value, int) and value >= 0 else None
    inner = getattr(feature, "feature", None)
    return [_name_labels(each, inner) for each in value] if inner is not None and isinstance(value, list) else value
