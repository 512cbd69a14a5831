"""Inputs of a captioning model for the views of `seqwise.lens`. Each answer is a token of the model's own caption.

The positions of the input are the regions of an image, named (row, column) from 1; of a clip also their frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.tasks.caption.generation import check_compatible, find_inputs, generate_captions, load_inputs
from seqwise.tasks.caption.images import ImageSet
from seqwise.tasks.caption.model import BOS, EOS, CaptionBatch, CaptionModel, shift_captions
from seqwise.tasks.inspection import Answer, InspectedInput, get_device, name_tokens
from seqwise.tasks.task import InferenceOptions, ModelBundle


def inspect_image(bundle: ModelBundle, path: str, options: InferenceOptions) -> InspectedInput:
    """Returns the image, clip or array at a path."""
    paths = find_inputs(Path(path), bundle.settings.caption) or [path]
    if len(paths) > 1:
        raise UsageError(f"{path} has {len(paths):,} images; one is inspected.", fix=f"For example {paths[0]}")
    images = load_inputs(paths, bundle.settings.caption.image_size, bundle.preprocessor.attributes)
    return inspect_images(bundle, images, [0], paths, ["the image given"], options)[0]


def inspect_images(
    bundle: ModelBundle,
    images: ImageSet,
    indices: Sequence[int],
    names: Sequence[str],
    descriptions: Sequence[str],
    options: InferenceOptions,
) -> list[InspectedInput]:
    """Returns images with their captions by the model."""
    check_compatible(images, bundle.preprocessor.attributes)
    captions = generate_captions(bundle, images, indices, options)
    return [
        inspect_caption(bundle, images, index, np.array(best[0].hypothesis.ids, dtype=np.int64), name, description)
        for index, best, name, description in zip(indices, captions, names, descriptions)
    ]


def inspect_caption(
    bundle: ModelBundle, images: ImageSet, index: int, ids: np.ndarray, name: str, description: str
) -> InspectedInput:
    """Returns an image with the token ids of its caption."""
    model, tokenizer = bundle.model, bundle.preprocessor.tokenizer
    arrays, lengths = images.collate([index])
    shifted = shift_captions([ids], tokenizer.id(BOS), tokenizer.id(EOS), bundle.settings.data.max_length)
    batch = CaptionBatch(*shifted, torch.from_numpy(arrays), None if lengths is None else torch.from_numpy(lengths)).to(
        get_device(model)
    )
    targets = name_tokens(tokenizer, batch.targets[0])
    answers = [
        Answer(f"output {position + 1}: {token}", partial(score_token, batch=batch, position=position), position)
        for position, token in enumerate(targets)
    ]
    with torch.no_grad():
        num_regions = model.encode(batch.images, batch.lengths).vectors.shape[1]
    num_frames = 1 if images.kind != "frames" else arrays.shape[1]
    return InspectedInput(
        description,
        name,
        batch,
        name_regions(num_regions, num_frames, is_grid=images.kind != "features"),
        name_tokens(tokenizer, batch.ids[0]),
        targets,
        answers,
        features="memory_dropout",  # the memory of regions
        image=arrays[0] if images.kind == "images" else None,
    )


def name_regions(count: int, num_frames: int, is_grid: bool) -> list[str]:
    """Returns a name for each region: its number, or the row and column of its grid, row by row."""
    if not is_grid:
        return [f"region {number}" for number in range(1, count + 1)]
    side = round((count // num_frames) ** 0.5)
    cells = [f"({row}, {column})" for row in range(1, side + 1) for column in range(1, side + 1)]
    if num_frames == 1:
        return cells
    return [f"frame {frame} {cell}" for frame in range(1, num_frames + 1) for cell in cells]


def score_token(model: CaptionModel, batch: CaptionBatch, position: int) -> Tensor:
    """Returns the log-probability of a token of the caption, given the image and the tokens before it."""
    memory = model.encode(batch.images, batch.lengths)
    return -model.decoder.losses(memory, batch.ids, batch.targets)[0, position]
