"""The native format: a safetensors file that holds everything. It knows nothing of file suffixes.

    vectors    (V, D) float32        counts    (V,) int64, if known
    words      JSON list, as bytes   subwords  (buckets, D) float32, if any; min_n and max_n are in the metadata

The metadata holds `format: seqwise-vectors`, and `about` in JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from seqwise.errors import DataError, UsageError
from seqwise.files import replace_file
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.subwords import Subwords

FORMAT = "seqwise-vectors"
DTYPES = {"vectors": np.float32, "words": np.uint8, "counts": np.int64, "subwords": np.float32}


def read_tensors(path: Path) -> KeyedVectors:
    tensors, metadata = _read_content(path)
    try:
        words = json.loads(tensors["words"].tobytes())
        about = json.loads(metadata.get("about", "{}"))
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words) and isinstance(about, dict)):
            raise UsageError("its words are not a list of strings.")
        for name, tensor in tensors.items():
            if tensor.dtype != DTYPES[name]:
                raise UsageError(f"expected {name} of {np.dtype(DTYPES[name])}; found {tensor.dtype}.")
        return KeyedVectors(words, tensors["vectors"], tensors.get("counts"), _build_subwords(tensors, metadata), about)
    except (UsageError, ValueError, KeyError) as error:
        reason = error.problem if isinstance(error, UsageError) else "its words or settings cannot be read."
        raise DataError(f"the file is damaged: {reason}", repair="Write it again.", file=path) from None


def write_tensors(path: Path, keyed: KeyedVectors) -> None:
    words = json.dumps(keyed.words, ensure_ascii=True).encode()
    tensors = {"vectors": keyed.matrix, "words": np.frombuffer(words, dtype=np.uint8)}
    metadata = {"format": FORMAT, "about": keyed.about_json()}
    if keyed.counts is not None:
        tensors["counts"] = keyed.counts
    if keyed.subwords is not None:
        tensors["subwords"] = keyed.subwords.matrix
        metadata |= {"min_n": str(keyed.subwords.min_n), "max_n": str(keyed.subwords.max_n)}
    with replace_file(path, concurrent=True) as temporary:
        if temporary.exists() and not temporary.is_file():  # a pipe or a device, which save_file would replace
            temporary.write_bytes(save(tensors, metadata))
            return
        save_file(tensors, temporary, metadata)


def _read_content(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns the tensors and the metadata; raises an error for safetensors files of something else."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata, names = file.metadata() or {}, sorted(file.keys())
            if metadata.get("format") == FORMAT and "vectors" in names and "words" in names:
                return {name: file.get_tensor(name) for name in names if name in DTYPES}, metadata
    except (SafetensorError, OSError) as error:
        problem = f"the safetensors file is damaged: {error}."
        raise DataError(problem, repair="Copy or download it again.", file=path) from None
    examples = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    raise DataError(
        f"this safetensors file holds the tensors of a model ({examples}), not words with vectors.",
        repair="Give a file that `seqwise vectors train` wrote.",
        file=path,
    )


def _build_subwords(tensors: dict[str, Any], metadata: dict[str, str]) -> Subwords | None:
    if "subwords" not in tensors:
        return None
    # Older files call the lengths least and most.
    min_n, max_n = (metadata.get(new) or metadata[old] for new, old in (("min_n", "least"), ("max_n", "most")))
    return Subwords(int(min_n), int(max_n), tensors["subwords"])
