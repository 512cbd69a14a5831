"""`TrainingSummary`: hashes of the training examples and fitted baselines, which a run saves for evaluation.

With the hashes `evaluate` detects, by content and without the training data, which examples the model was trained on.
There are at most MAX_HASHES, of 64 bits each. Of more examples only those are kept whose hash is divisible by
`sampling`; then only a sample of the evaluated examples can be checked. The module knows nothing of any particular
task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seqwise.data.shuffle import mix_bits
from seqwise.digests import PLACEHOLDER, check_digest, insert_digest_into
from seqwise.errors import RunError
from seqwise.files import write_bytes
from seqwise.metrics.evaluation import TrainingOverlap

SUMMARY_FILE = "training_summary.safetensors"
MAX_HASHES = 1 << 20  # 8 MB
MISSING_SUMMARY = (
    f"The run has no {SUMMARY_FILE}, which older versions did not write: its baselines are not known, nor whether it "
    "was trained on this data."
)
DAMAGED_FIX = "Copy the folder again from where it was made, or delete this file: baselines are then not known."
_HASH_BASE = 0xD1342543DE82EF95  # of the polynomial; odd, so that it has an inverse modulo 2^64


class SavedValues(dict[str, Any]):
    """Values by name; one that a task needs and that is missing is an error about the file."""

    def __init__(self, values: Mapping[str, Any], file: Path):
        super().__init__(values)
        self.file = file

    def __missing__(self, name: str) -> Any:
        raise RunError(f"{name!r} is missing.", file=self.file, fix=DAMAGED_FIX)


@dataclass(frozen=True, eq=False)
class TrainingSummary:
    """Hashes of the training examples; arrays and attributes of fitted baselines, by names that the task defines."""

    metric: str  # primary metric of the task on its data
    hashes: np.ndarray  # (N,) uint64, in ascending order
    sampling: int = 1  # divisor of all hashes
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def create(cls, metric: str, hashes: np.ndarray, arrays: dict[str, np.ndarray], attributes: dict[str, Any]) -> Self:
        """Returns a summary with the hashes, or a sample of them if there are more than MAX_HASHES."""
        hashes = np.unique(hashes)
        sampling = choose_sampling(len(hashes))
        return cls(metric, hashes[hashes % np.uint64(sampling) == 0], sampling, arrays, attributes)

    def save(self, folder: Path) -> None:
        content = {"metric": self.metric, "sampling": self.sampling, "attributes": self.attributes}
        arrays = {f"baseline.{name}": np.ascontiguousarray(array) for name, array in self.arrays.items()}
        tensors = {"hashes": self.hashes, **arrays}
        metadata = {"summary": json.dumps(content, ensure_ascii=False), **PLACEHOLDER}
        write_bytes(folder / SUMMARY_FILE, insert_digest_into(save(tensors, metadata)))

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Returns the summary that `save` wrote; None for runs of versions that did not write one."""
        path = folder / SUMMARY_FILE
        if not path.exists():
            return None
        try:
            check_digest(path)
            with safe_open(path, "numpy") as file:
                content = json.loads(file.metadata()["summary"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            hashes = tensors.pop("hashes")
            metric, sampling = content["metric"], content["sampling"]
            is_valid = isinstance(metric, str) and isinstance(sampling, int) and 1 <= sampling < 1 << 63
            if not is_valid or hashes.dtype != np.uint64 or hashes.ndim != 1:
                raise ValueError("its hashes or its metric are not valid")
            arrays = {name.removeprefix("baseline."): array for name, array in tensors.items()}
            attributes = content.get("attributes", content.get("facts"))
            return cls(metric, hashes, sampling, SavedValues(arrays, path), SavedValues(attributes, path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            raise RunError(f"the file is damaged: {error}.", file=path, fix=DAMAGED_FIX) from None

    def find(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns two masks over `hashes`: which can be checked, and which of these belong to training examples."""
        is_checked = hashes % np.uint64(self.sampling) == 0
        if not len(self.hashes):
            return is_checked, np.zeros_like(is_checked)
        indices = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return is_checked, is_checked & (self.hashes[indices] == hashes)


def choose_sampling(num_examples: int) -> int:
    """Returns n if the hash of one in n examples is kept."""
    return max(1, -(-num_examples // MAX_HASHES))


def measure_overlap(
    is_checked: np.ndarray, is_found: np.ndarray, unit: str, compute_metric: Callable[[np.ndarray], float]
) -> TrainingOverlap | None:
    """Returns the number of examples that occur in training, and `compute_metric` of the indices of the others.

    If only a sample can be checked, its count is scaled up; None if the sample is empty.
    """
    num_checked, num_found = int(is_checked.sum()), int(is_found.sum())
    if not num_checked:
        return None
    others = np.flatnonzero(is_checked & ~is_found)
    value = compute_metric(others) if num_found and len(others) else None
    return TrainingOverlap(round(num_found * len(is_checked) / num_checked), len(is_checked), unit, value)


def hash_texts(texts: Iterable[str]) -> np.ndarray:
    """Returns a hash of each text (N,), which does not depend on the kind and amount of whitespace."""
    normalized = (" ".join(text.split()).encode("utf-8", "surrogatepass") for text in texts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in normalized)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def hash_sequences(values: np.ndarray, length: int) -> np.ndarray:
    """Returns a hash of values[i : i + length] for every i (N - length + 1,), of integers (N,).

    It is a rolling hash, a polynomial modulo 2^64 (Karp and Rabin 1987), computed as a difference of cumulative sums.
    """
    if len(values) < length:
        return np.zeros(0, dtype=np.uint64)
    powers, inverses = (
        np.cumprod(np.concatenate([np.ones(1, np.uint64), np.full(len(values) - 1, base, np.uint64)]), dtype=np.uint64)
        for base in (_HASH_BASE, pow(_HASH_BASE, -1, 1 << 64))
    )
    terms = mix_bits(values.astype(np.uint64)) * powers
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return mix_bits((sums[length:] - sums[:-length]) * inverses[: len(values) - length + 1])
