"""What all batches share: rows for a rank, rows from a store, and the complaint about a text that is too short."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import DataError, UsageError

Window = int | Literal["full"]


def rows_of_rank(rows: int, rank: int, world: int) -> range:
    """The rows of a batch that belong to a rank: an equal, contiguous share."""
    if rows < 1 or rows % world:
        raise UsageError(
            f"{rows} rows cannot be divided among {world} processes.",
            repair=f"Set --training.batch-size to a multiple of {world}.",
        )
    share = rows // world
    return range(rank * share, (rank + 1) * share)


def read_batch(store: TokenStore, starts: np.ndarray, length: int, fresh: bool = True) -> TokenBatch:
    """Rows of `length` inputs from the given places; the targets are the tokens one further on."""
    tokens = torch.from_numpy(store.read_rows(starts, length + 1))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:], positions=torch.from_numpy(starts), fresh=fresh)


def require(store: TokenStore, targets: int, rows: int, window: Window) -> None:
    """Complain about a text with fewer targets than the batches asked for need."""
    if len(store) > targets:
        return
    raise DataError(
        f"the {store.facts.split or 'data'} text has {len(store):,} tokens; {rows} rows of windows of {window} need "
        f"at least {targets + 1:,}.",
        repair="Give more text, or a smaller --data.window or --training.batch-size.",
    )
