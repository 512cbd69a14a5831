"""The errors of a language model: the tokens of a text, each predicted from those before it, as in an evaluation."""

from __future__ import annotations

from seqwise.errors import DataError
from seqwise.tasks.error_report import ErrorReport, ErrorRequest
from seqwise.tasks.inspection import get_device
from seqwise.tasks.language.scoring import iterate_log_probabilities
from seqwise.tasks.language.task import Language
from seqwise.tasks.language.token_errors import build_report, join_scores, score_targets
from seqwise.tasks.task import ModelBundle

MAX_TOKENS = {"cpu": 30_000, "cuda": 500_000}  # evaluated unless set


def collect_errors(task: type[Language], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Predicts the tokens of a text and returns what went wrong."""
    store, description = request.open(lambda split: task.open_store(bundle, data, split))
    limit = request.max_examples or MAX_TOKENS.get(get_device(bundle.model).type, MAX_TOKENS["cpu"])
    if len(store) < 2:
        problem = f"{description} has {len(store)} of the two tokens that a prediction needs."
        raise DataError(problem, fix="Give a longer text.")
    share = min(1.0, limit / (len(store) - 1))
    num_expected, num_done, parts = round(share * (len(store) - 1)), 0, []
    for positions, contexts, scores in iterate_log_probabilities(bundle.model, store, bundle.settings, share):
        parts.append(score_targets(positions, contexts, store.read_sequences(positions, 1)[:, 0], scores))
        num_done += len(positions)
        request.progress(min(num_done, num_expected), num_expected)
    return build_report(bundle, store, description, join_scores(parts), len(store) - 1)
