"""Evaluation with a softmax temperature: the logits are divided by T, which is chosen on held-out text.

A model that has fitted its training text is often too certain of its predictions: T above 1 flattens them. The code of
Melis et al. (2020, deepmind/lamb) multiplies logits by a factor in [0.8, 1], which is T in [1, 1.25].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.scoring import get_window, iterate_batches, iterate_vectors

TEMPERATURES = tuple(round(0.8 + 0.02 * step, 2) for step in range(26))  # 0.80 … 1.30
# Logits in memory at once. The memory of a CPU's allocator is reused without the kernel's help if it is small.
MAX_LOGITS = {"cpu": 1 << 18, "cuda": 1 << 24}


@torch.no_grad()
def score_at_temperatures(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    temperatures: Sequence[float],
    progress: ProgressCallback = no_progress,
) -> Tensor:
    """Returns the summed negative log likelihood of a text at each temperature; it is read as in `score_text`."""
    output: Any = model.head.output  # type: ignore[union-attr]
    if not hasattr(output, "tempered_losses"):
        problem = "an adaptive softmax has several softmaxes, which no single temperature divides."
        raise UsageError(problem, fix="Leave out --softmax-temperature.")
    nats, done = torch.zeros(len(temperatures), dtype=torch.float64), 0
    num_rows = max(1, MAX_LOGITS["cuda" if output.weight.is_cuda else "cpu"] // output.vocabulary)
    batches = iterate_batches(store, get_window(settings), bool(model.stateful))
    for batch_vectors, batch_targets in iterate_vectors(model, batches):
        for vectors, targets in zip(batch_vectors.split(num_rows), batch_targets.split(num_rows)):
            nats += output.tempered_losses(vectors, targets, temperatures).double().sum(1).cpu()
            done += len(targets)
        progress(done, len(store) - 1)
    return nats


def search_temperature(
    model: nn.Module, store: TokenStore, settings: ResolvedSettings, progress: ProgressCallback = no_progress
) -> float:
    """Returns the temperature of TEMPERATURES with the smallest loss on a text."""
    return TEMPERATURES[int(score_at_temperatures(model, store, settings, TEMPERATURES, progress).argmin())]
