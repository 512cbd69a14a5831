"""Inputs of a translator for the views of `seqwise.lens`. Each answer is a token of the model's own translation.

Of a run with several target languages one is inspected: `ModelBundle.target`, or the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from seqwise.tasks.inspection import USER_TEXT, Answer, InspectedInput, check_length, list_unknown, name_tokens
from seqwise.tasks.task import InferenceOptions, ModelBundle
from seqwise.tasks.translate.generation import TranslationPipeline
from seqwise.tasks.translate.model import PairBatch, Translator, collate


def inspect_sources(
    bundle: ModelBundle, texts: Sequence[str], descriptions: Sequence[str], options: InferenceOptions
) -> list[InspectedInput]:
    """Returns sources with their translations by the model, truncated as in training; empty ones are left out."""
    target = bundle.target or bundle.preprocessor.attributes["targets"][0]
    pipeline = TranslationPipeline(bundle, replace(options, target=target))
    source_ids = pipeline.encode_sources(texts)
    outputs = {index: np.array(hypotheses[0][0].ids, dtype=np.int64)
               for index, hypotheses in pipeline.translate_ids(source_ids)}  # fmt: skip
    return [
        inspect_ids(pipeline, source_ids[index], outputs[index], text, description)
        for index, (text, description) in enumerate(zip(texts, descriptions))
        if len(source_ids[index])
    ]


def inspect_text(bundle: ModelBundle, text: str, options: InferenceOptions) -> InspectedInput:
    """Returns a source with its translation by the model."""
    (ids,) = TranslationPipeline(bundle, options).encode_sources([text])
    check_length(len(ids), bundle.settings.data.max_length)
    return inspect_sources(bundle, [text], [USER_TEXT], options)[0]


def inspect_ids(
    pipeline: TranslationPipeline, source: np.ndarray, output: np.ndarray, text: str, description: str
) -> InspectedInput:
    """Returns the ids of a source and of its translation."""
    ((target, index),), tokenizers = pipeline.targets.items(), pipeline.preprocessor.tokenizers
    batch = collate([[source], [output]], [pipeline.bos_eos_ids[index]], pipeline.max_length).to(pipeline.device)
    batch = replace(batch, first_target=index)
    targets = batch.targets[0, 0][batch.mask[0, 0]]
    names = name_tokens(tokenizers[target], targets)
    answers = [
        Answer(f"output {position + 1}: {name}", partial(score_token, batch=batch, position=position), position)
        for position, name in enumerate(names)
    ]
    return InspectedInput(
        description,
        text,
        batch,
        name_tokens(tokenizers["text"], batch.source[0], list_unknown(tokenizers["text"], text)),
        name_tokens(tokenizers[target], batch.inputs[0, 0]),
        names,
        answers,
        target=target if len(pipeline.preprocessor.attributes["targets"]) > 1 else "",
    )


def score_token(model: Translator, batch: PairBatch, position: int) -> Tensor:
    """Returns the log-probability of a token of the translation, given the source and the tokens before it."""
    memory = model.encode(batch.source, batch.lengths)
    return -model.get_decoder(batch.first_target).losses(memory, batch.inputs[:, 0], batch.targets[:, 0])[0, position]
