"""The errors of a masked model: the tokens under the fixed masks of an evaluation."""

from __future__ import annotations

import numpy as np
import torch

from seqwise.data.batch import spread_indices
from seqwise.tasks.error_report import ErrorReport, ErrorRequest
from seqwise.tasks.inspection import get_device
from seqwise.tasks.language.token_errors import build_report, join_scores, score_targets
from seqwise.tasks.masked.task import Masked, build_evaluation_batches
from seqwise.tasks.task import ModelBundle

MAX_TOKENS = {"cpu": 20_000, "cuda": 500_000}  # masked tokens evaluated unless set


@torch.no_grad()
def collect_errors(task: type[Masked], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Predicts masked tokens and returns what went wrong."""
    store, description = request.open(lambda split: task.open_store(bundle, data, split))
    model, device = bundle.model.eval(), get_device(bundle.model)
    batches = build_evaluation_batches(store, bundle.preprocessor.tokenizer, bundle.settings)
    counts = [int(batch.target_mask.sum()) for batch in batches.epoch()]
    num_masked, masked = sum(counts), np.flatnonzero(counts)  # batches with a masked token, at least one
    limit = request.max_examples or MAX_TOKENS.get(device.type, MAX_TOKENS["cpu"])
    chosen, parts = masked[spread_indices(len(masked), min(1.0, limit / num_masked))], []
    for index, step in enumerate(chosen):
        batch = next(batches.epoch(0, int(step)))
        assert batch.positions is not None
        rows, columns = batch.target_mask.nonzero(as_tuple=True)
        scores = model.scores(model.states(batch.ids.to(device)), rows.to(device), columns.to(device))
        positions = (batch.positions[rows] + columns).numpy()
        targets = batch.targets[rows, columns].numpy()
        parts.append(score_targets(positions, columns.numpy() + 1, targets, scores))
        request.progress(index + 1, len(chosen))
    return build_report(bundle, store, description, join_scores(parts), num_masked, is_in_window=True)
