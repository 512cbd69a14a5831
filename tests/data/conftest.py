"""Fixtures of the tests of data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stores import write_store

from seqwise.data.corpus.store import TokenStore


@pytest.fixture
def counting_store(tmp_path: Path) -> Callable[[int], TokenStore]:
    """Builds stores whose token at position n is n, so that a batch contains its positions."""
    return lambda count: write_store(tmp_path / f"count-{count}", np.arange(count), 1 << 20)
