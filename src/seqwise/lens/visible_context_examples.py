"""The losses of classifiers, taggers and forecasters when they see only a part of the context.

`visible_context.py` has the definitions. The module knows nothing of figures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import DataError
from seqwise.heads.tag import EXCLUDED, compute_log_partition
from seqwise.lens.context_curves import NUM_SEGMENTS, Advance
from seqwise.lens.subject import evaluation_mode
from seqwise.lens.visible_context import MIN_TARGETS, VisibleContext, split_batches
from seqwise.tasks.classify.model import collate
from seqwise.tasks.forecast.selection import read_windows, select_steps
from seqwise.tasks.inspection import choose_evenly, get_device
from seqwise.tasks.tag.model import EncodedSentences, TagModel, TagVocabulary, find_document_casings
from seqwise.tasks.tag.spans import OUTSIDE, Sentence
from seqwise.training.api import TrainedModel


def open_classify_context(
    model: TrainedModel, data: str | None, num_targets: int, max_context: int | None
) -> VisibleContext:
    """Returns labelled texts, of which the last n tokens are read; the baseline is the most frequent label.

    The loss is 1 for a wrong label, else 0. Likelihoods would not do: a classifier that is often right, but too sure of
    itself, has a larger negative log-likelihood than the frequencies of the labels.
    """
    labels, limit = model.run.preprocessor.attributes["labels"], model.settings.data.max_length
    examples, key = read_examples(model, data)
    examples = [each for each in examples if each.label in labels]
    chosen = [examples[index] for index in choose_evenly(len(examples), num_targets)]
    check_count(len(chosen), "texts")
    token_ids = [ids[:limit] for ids in model.run.preprocessor.tokenizer.encode_many([each.text for each in chosen])]
    targets = np.array([labels.index(each.label) for each in chosen])
    counts = np.bincount(targets, minlength=len(labels))
    if model.bundle.training is not None and "label_counts" in model.bundle.training.arrays:
        counts = model.bundle.training.arrays["label_counts"]
    network: Any = model.model

    def score(n: int, advance: Advance) -> np.ndarray:
        losses = []
        for part in split_batches(len(targets), min(n, max(map(len, token_ids)))):
            texts = [ids[max(0, len(ids) - n) :] for ids in token_ids[part]]
            batch = collate(texts, targets[part], np.zeros(len(texts))).to(get_device(network))
            predicted = network.scores(batch.ids, batch.lengths).argmax(-1)
            losses.append((predicted != batch.labels).double().cpu().numpy())
            advance(n * len(texts))
        return np.concatenate(losses)

    longest = max(1, *map(len, token_ids))
    return VisibleContext(
        (targets != counts.argmax()).astype(float),
        score,
        min(longest, max_context or longest),
        f"{len(chosen):,} texts evenly spread over {key}",
        (key, len(chosen)),
    )


def open_tag_context(
    model: TrainedModel, data: str | None, num_targets: int, max_context: int | None
) -> VisibleContext:
    """Returns words of which the tag is predicted, with n words on each side; the baseline sees the word alone.

    With `tag.features`, the casing of a word elsewhere in its document belongs to the word: it is always visible.
    """
    examples, key = read_examples(model, data)
    limit = model.settings.data.max_length
    sentences = [replace(each, words=each.words[:limit], tags=each.tags[:limit]) for each in examples]
    words = [(number, position) for number, each in enumerate(sentences) for position in range(len(each.words))]
    chosen = [words[index] for index in choose_evenly(len(words), num_targets)]
    check_count(len(chosen), "words")
    vocabulary = TagVocabulary.from_preprocessor(model.run.preprocessor)
    casings = find_document_casings(vocabulary, sentences, examples, limit)
    true_tags = [vocabulary.get_tag_ids(sentences[number].tags)[position] for number, position in chosen]
    targets, network = np.array(true_tags), model.model
    assert isinstance(network, TagModel)

    def score(n: int, advance: Advance) -> np.ndarray:
        visible = [(number, slice(max(0, position - n), position + n + 1)) for number, position in chosen]
        pieces = [sentences[number].words[part] for number, part in visible]
        columns = np.array([min(position, n) for _, position in chosen])
        encoded = EncodedSentences(
            [Sentence(piece, (OUTSIDE,) * len(piece)) for piece in pieces],
            vocabulary,
            None if casings is None else [casings[number][part] for number, part in visible],
        )
        losses = []
        for part in split_batches(len(chosen), min(2 * n + 1, limit)):
            batch = encoded.collate(np.arange(part.start, part.stop)).to(get_device(network))
            scores = network.head.scores(network.states(batch))
            log_marginals = compute_log_marginals(network, scores, batch.lengths, columns[part], targets[part])
            losses.append(-log_marginals.double().cpu().numpy())
            advance(n * len(columns[part]))
        return np.concatenate(losses)

    with evaluation_mode(network), torch.no_grad():
        baseline = score(0, lambda steps: None)
    longest = max(1, *(len(each.words) - 1 for each in sentences))
    return VisibleContext(
        baseline,
        score,
        min(longest, max_context or longest),
        f"{len(chosen):,} words evenly spread over {key}",
        (key, len(chosen)),
    )


def compute_log_marginals(
    model: TagModel, scores: Tensor, lengths: Tensor, columns: np.ndarray, tags: np.ndarray
) -> Tensor:
    """Returns log P(y_t = tag | x) (B,) at one column t of each sequence, for scores (B, T, K)."""
    rows = torch.arange(len(scores), device=scores.device)
    column, tag = (torch.from_numpy(values).to(scores.device) for values in (columns, tags))
    is_excluded = torch.zeros_like(scores, dtype=torch.bool)
    is_excluded[rows, column] = True
    is_excluded[rows, column, tag] = False
    transitions = model.head.transitions()
    with_tag = compute_log_partition(scores.masked_fill(is_excluded, EXCLUDED), lengths, transitions)
    return with_tag - compute_log_partition(scores, lengths, transitions)


def open_forecast_context(
    model: TrainedModel, data: str | None, num_targets: int, max_context: int | None
) -> VisibleContext:
    """Returns windows of which only the last n steps are visible; the baseline forecasts the mean of the training part.

    Older values are replaced by the mean of the visible ones, which the model's own normalisation turns into 0. The
    loss is the squared error on standardised values, averaged over the lead times.
    """
    rolling = read_windows(model.bundle, data or model.run.metadata.data)
    start, stop, part_name = select_steps(rolling.series, model.bundle, None if data else "valid")
    windows = rolling.find_windows(start, stop)
    windows = windows[choose_evenly(len(windows), num_targets)] if len(windows) else windows
    check_count(len(windows), "windows")
    whole, network = rolling.collate(windows), model.model

    def compute_errors(forecast: Tensor, part: slice) -> np.ndarray:
        mask = whole.mask[part]
        errors = (forecast - whole.future[part]).double().square().masked_fill(~mask, 0.0)
        return (errors.sum(1) / mask.sum(1)).numpy()

    def score(n: int, advance: Advance) -> np.ndarray:
        losses = []
        for part in split_batches(len(windows), rolling.lookback):
            batch = whole.slice(part.start, part.stop)
            visible = replace(batch, past=hide_past(batch.past, n)).to(get_device(network))
            losses.append(compute_errors(network.forecast(visible).point.cpu(), part))  # type: ignore[operator]
            advance(n * len(batch.past))
        return np.concatenate(losses)

    description = f"{data or model.run.metadata.data}, {part_name}"
    return VisibleContext(
        compute_errors(torch.zeros_like(whole.future), slice(None)),
        score,
        min(rolling.lookback, max_context or rolling.lookback),
        f"{len(windows):,} windows evenly spread over {description}",
        (description, len(windows), rolling.lookback, rolling.horizon),
        num_segments=max(2, min(NUM_SEGMENTS, (stop - start) // rolling.horizon)),  # windows overlap
    )


def hide_past(past: Tensor, n: int) -> Tensor:
    """Returns values (B, L) with all but the last n of each row replaced by the mean of these."""
    if n >= past.shape[1]:
        return past
    hidden = past[:, -n:].mean(1, keepdim=True).expand(-1, past.shape[1] - n)
    return torch.cat([hidden, past[:, -n:]], dim=1)


def read_examples(model: TrainedModel, data: str | None) -> tuple[list[Any], str]:
    """Returns the examples of other data, or of the validation split of the run, and which these are, in words."""
    task: Any = model.task
    _, examples, description = task.select_examples(
        model.bundle, data or model.run.metadata.data, None if data else "valid"
    )
    return examples, description


def check_count(count: int, unit: str) -> None:
    """Raises an error for data with too few targets."""
    if count < MIN_TARGETS:
        problem = f"the data has {count:,} {unit}; the benefit of context is measured on at least {MIN_TARGETS}."
        raise DataError(problem, fix="Pass other data with --data.")
