from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seqwise.data.store import StoreFacts, StoreWriter, TokenStore


def write_store(path: Path, ids: np.ndarray, vocabulary: int = 60_000, split: str = "train") -> TokenStore:
    with StoreWriter(path, vocabulary) as writer:
        writer.append(ids)
        return writer.finish(StoreFacts(len(ids), 0, 0, 0, 0, vocabulary, "tokenizer", "corpus", split))


@pytest.fixture
def counting(tmp_path: Path) -> Callable[[int], TokenStore]:
    """Stores whose token at place n is n, so that a batch shows where it comes from."""
    return lambda count: write_store(tmp_path / f"count-{count}", np.arange(count), 1 << 20)
