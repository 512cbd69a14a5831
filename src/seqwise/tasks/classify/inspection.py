"""Inputs of a classifier for the views of `seqwise.lens`. Each answer is a label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seqwise.tasks.classify.model import Classifier, TextBatch, collate
from seqwise.tasks.classify.reader import LabelledText
from seqwise.tasks.inspection import (
    USER_TEXT,
    Answer,
    InspectedInput,
    check_length,
    get_device,
    list_unknown,
    name_tokens,
)
from seqwise.tasks.task import ModelBundle


def inspect_text(bundle: ModelBundle, text: str) -> InspectedInput:
    """Returns a text; its label is the one that the model predicts."""
    text = text.strip()
    ids = bundle.preprocessor.tokenizer.encode(text).ids
    check_length(len(ids), bundle.settings.data.max_length)
    return inspect_ids(bundle, ids, None, text, USER_TEXT)


def inspect_examples(
    bundle: ModelBundle, examples: Sequence[LabelledText], descriptions: Sequence[str]
) -> list[InspectedInput]:
    """Returns labelled texts, truncated as in training."""
    token_ids = bundle.preprocessor.tokenizer.encode_many([example.text for example in examples])
    return [
        inspect_ids(bundle, ids[: bundle.settings.data.max_length], example.label, example.text, description)
        for ids, example, description in zip(token_ids, examples, descriptions)
    ]


def inspect_ids(bundle: ModelBundle, ids: np.ndarray, label: str | None, text: str, description: str) -> InspectedInput:
    """Returns token ids (T,) with an answer for each label, the most probable first; `label` is the true one."""
    model, tokenizer, labels = bundle.model, bundle.preprocessor.tokenizer, bundle.preprocessor.attributes["labels"]
    batch = collate([ids], np.zeros(1), np.zeros(1)).to(get_device(model))
    with torch.no_grad():
        order = torch.argsort(model.scores(batch.ids, batch.lengths)[0], descending=True, stable=True).tolist()
    true = labels.index(label) if label in labels else order[0]
    batch = TextBatch(batch.ids, batch.lengths, torch.full_like(batch.labels, true), positions=batch.positions)
    answers = [
        Answer(
            f"label: {labels[index]}",
            partial(score_label, batch=batch, label=index),
            is_correct=None if label is None else labels[index] == label,
            label=index,
        )
        for index in order
    ]
    tokens = name_tokens(tokenizer, ids, list_unknown(tokenizer, text))
    return InspectedInput(description, text, batch, tokens, answers=answers)


def score_label(model: Classifier, batch: TextBatch, label: int) -> Tensor:
    """Returns the log-probability of a label."""
    return model.scores(batch.ids, batch.lengths).log_softmax(-1)[0, label]
