"""Generates captions with a trained model. It knows nothing of files, training or splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.batches import BEGIN, PAD, SPECIAL_TOKENS
from seqwise.tasks.caption.images import ImageSet
from seqwise.tasks.caption.model import CaptionModel
from seqwise.tasks.task import InferenceOptions, ModelBundle, Preprocessor

BATCH_SIZE = 128  # images that are captioned together


@torch.no_grad()
def generate_captions(
    bundle: ModelBundle, images: ImageSet, indices: np.ndarray, options: InferenceOptions
) -> list[list[Hypothesis]]:
    """Returns the captions of these images, for each the best first."""
    model: CaptionModel = bundle.model.eval()
    tokenizer, device = bundle.preprocessor.tokenizer, next(model.parameters()).device
    banned = [tokenizer.id(PAD), tokenizer.id(BEGIN), *([] if tokenizer.unknown is None else [tokenizer.unknown])]
    known: dict[str, Any] = {
        "begin": tokenizer.id(BEGIN),
        "end": tokenizer.end,
        "max_length": options.max_length or bundle.settings.data.max_length,
        "banned": banned,
        "options": options.beam_search,
        "prefix": tokenizer.encode(options.beam_search.start).ids.tolist(),
    }
    captions: list[list[Hypothesis]] = []
    for start in range(0, len(indices), BATCH_SIZE):
        pixels, lengths = images.collate(indices[start : start + BATCH_SIZE])
        memory = model.encode(
            torch.from_numpy(pixels).to(device), None if lengths is None else torch.from_numpy(lengths).to(device)
        )
        captions += decode_sequences(model.writer, memory, options.sampling, options.seed + start, **known)
        options.progress(len(captions), len(indices))
    return captions


def decode_captions(captions: Sequence[Sequence[Hypothesis]], preprocessor: Preprocessor) -> list[list[str]]:
    """Returns the hypotheses as text, without special tokens."""
    tokenizer = preprocessor.tokenizer
    special_ids = {tokenizer.id(token) for token in SPECIAL_TOKENS}
    return [
        [tokenizer.decode(i for i in hypothesis.ids if i not in special_ids).strip() for hypothesis in hypotheses]
        for hypotheses in captions
    ]


def describe_generation(settings: ResolvedSettings, options: InferenceOptions) -> str:
    """Returns a sentence about encoder, decoder and search."""
    networks = f"{settings.caption.encoder} encoder, {settings.model} decoder"
    if options.sampling is not None:
        return f"{networks}; sampled at random, seed {options.seed}"
    beam, length_penalty = options.beam_search.beam, options.beam_search.length_penalty
    return f"{networks}; {f'beam {beam}, length penalty {length_penalty:g}' if beam > 1 else 'greedy'}"
