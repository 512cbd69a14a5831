"""Small token stores for the tests of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqwise.data.corpus.store import StoreInfo, StoreWriter, TokenStore


def write_store(path: Path, ids: np.ndarray, vocabulary: int = 60_000, split: str = "train") -> TokenStore:
    with StoreWriter(path, vocabulary) as writer:
        writer.append(ids)
        return writer.finish(StoreInfo(len(ids), 0, 0, 0, 0, vocabulary, "tokenizer", "corpus", split))
