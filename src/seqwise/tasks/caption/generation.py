"""Use of a trained model: the images that a user names → captions, and their metrics.

The module knows nothing of training or splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwise.data.reading import list_files
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import DataError, UsageError
from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.metrics.translation import compute_example_sums, compute_text_metrics
from seqwise.resolved_settings import ResolvedCaptionSettings
from seqwise.tasks.caption.images import (
    ARRAY_SUFFIX,
    IMAGE_SUFFIXES,
    KINDS,
    SUFFIXES,
    ImageSet,
    decode_array,
    natural_sort_key,
    read_paths,
)
from seqwise.tasks.caption.model import BEGIN, SPECIAL_TOKENS, CaptionModel
from seqwise.tasks.caption.reader import BUILTIN, CaptionedImage
from seqwise.tasks.caption.shapes import draw_shapes
from seqwise.tasks.task import InferenceOptions, ModelBundle
from seqwise.text.patterns import join_words

BATCH_SIZE = 128  # images that are captioned together


# Inputs


def find_inputs(path: Path, settings: ResolvedCaptionSettings) -> list[str] | None:
    """Returns the inputs at a path: one image or array, or all of a folder; None if it is neither.

    For clips a folder of frames is one input, and a folder of such folders as many.
    """
    if path.is_file():
        return [str(path)] if path.suffix.lower() in SUFFIXES else None
    if not path.is_dir():
        return None
    suffixes = (ARRAY_SUFFIX,) if settings.encoder == "features" else IMAGE_SUFFIXES
    files = sorted(list_files(path), key=lambda file: natural_sort_key(str(file)))
    inputs = [str(file) for file in files if file.suffix.lower() in suffixes]
    if settings.frames:
        folders = dict.fromkeys(str(file.parent) for file in files if file.suffix.lower() in IMAGE_SUFFIXES)
        inputs = [*folders, *(str(file) for file in files if file.suffix.lower() == ARRAY_SUFFIX)]
    if not inputs:
        raise DataError(f"the folder holds no {', '.join(suffixes)}.", repair="Name another folder.", file=path)
    return inputs


def load_inputs(names: Sequence[str], image_size: int, facts: Mapping[str, Any]) -> ImageSet:
    """Returns the images, clips or arrays at these paths; `builtin:shapes/7` is the drawn image of that number."""
    kind = get_kind(facts)
    builtin = {name for name in names if name.startswith(f"{BUILTIN}/")}
    arrays = iter(read_paths([Path(name) for name in names if name not in builtin], image_size, kind))
    inputs = [_load_builtin(name, image_size) if name in builtin else next(arrays) for name in names]
    images = ImageSet("images" if builtin else kind, inputs)
    check_kind(images, facts)
    return images


def _load_builtin(name: str, image_size: int) -> np.ndarray:
    number, pixels = name.rpartition("/")[2], draw_shapes()[0]
    if not number.isdigit() or int(number) >= len(pixels):
        repair = f"They are {BUILTIN}/0 … {BUILTIN}/{len(pixels) - 1}."
        raise DataError(f"there is no image {name!r}.", repair=repair)
    return decode_array(pixels[int(number)], image_size).array


def get_kind(facts: Mapping[str, Any]) -> str:
    """Returns the kind of images a run was trained on; runs of version 0.1 call images "pictures"."""
    return "images" if facts["kind"] == "pictures" else facts["kind"]


def check_kind(images: ImageSet, facts: Mapping[str, Any]) -> None:
    """Refuses images of another kind than the model was trained on."""
    kind, width, max_regions = get_kind(facts), facts["width"], facts["regions"]
    if images.kind != kind:
        raise UsageError(f"this model was trained on {KINDS[kind]} per row; received {KINDS[images.kind]}.")
    if kind == "features" and (images.width != width or images.max_length > max_regions):
        raise UsageError(
            f"this model was trained on at most {max_regions:,} regions of width {width:,}; "
            f"received {images.max_length:,} of width {images.width:,}.",
            repair="Compute the features as for training.",
        )


# Captions


@torch.no_grad()
def generate_captions(
    bundle: ModelBundle, images: ImageSet, indices: Sequence[int], options: InferenceOptions
) -> list[list[tuple[str, Hypothesis]]]:
    """Returns the captions of these images, for each the best first, as text without special tokens."""
    model: CaptionModel = bundle.model.eval()
    tokenizer, device = bundle.preprocessor.tokenizer, next(model.parameters()).device
    special_ids = {tokenizer.id(token) for token in SPECIAL_TOKENS}
    banned = {*special_ids, tokenizer.unknown} - {tokenizer.end, None}
    captions = []
    for start in range(0, len(indices), BATCH_SIZE):
        arrays, lengths = images.collate(indices[start : start + BATCH_SIZE])
        memory = model.encode(
            torch.from_numpy(arrays).to(device), None if lengths is None else torch.from_numpy(lengths).to(device)
        )
        hypotheses = decode_sequences(
            model.writer,
            memory,
            options.sampling,
            options.seed + start,
            begin=tokenizer.id(BEGIN),
            end=tokenizer.end,
            max_length=options.max_length or bundle.settings.data.max_length,
            banned=sorted(banned),
            options=options.beam_search,
            prefix=tokenizer.encode(options.beam_search.start).ids.tolist(),
        )
        for best in hypotheses:
            texts = [tokenizer.decode(i for i in each.ids if i not in special_ids).strip() for each in best]
            captions.append(list(zip(texts, best)))
        options.progress(len(captions), len(indices))
    return captions


# Metrics


def get_references(examples: Sequence[CaptionedImage]) -> list[list[str]]:
    """Returns the captions of each image."""
    return [normalize_spacing(example.captions) for example in examples]


def normalize_spacing(captions: Sequence[str]) -> list[str]:
    """Returns captions with spaces where the tokenisers put them, so that data and output can be compared."""
    return [join_words(caption.split()) for caption in captions]


def compute_metrics(
    outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the metrics and their definitions."""
    outputs = normalize_spacing(outputs)
    metrics, definitions = compute_text_metrics(outputs, references)
    metrics |= {"distinct": len(set(outputs)) / max(1, len(outputs)), "images": len(outputs)}
    distinct_in_data = len({captions[0] for captions in references}) / max(1, len(references))
    usual_count = Counter(len(captions) for captions in references).most_common(1)[0][0]
    definitions |= {
        "bleu": f"BLEU-4 against all captions of an image (mostly {usual_count}), {definitions['bleu']}",
        "chrf": f"chrF2 against the same, {definitions['chrf']}",
        "distinct": f"distinct captions divided by images; of the first captions in the data: {distinct_in_data:.2f}",
        "images": "images that were captioned",
    }
    return metrics, definitions


def score_examples(
    metric: str, examples: Sequence[CaptionedImage], outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> ExampleScores:
    """Returns what each image contributes to BLEU or to the exact matches."""
    outputs = normalize_spacing(outputs)
    texts = tuple(
        ExampleText.single_line(example.image, " / ".join(captions), output)
        for example, captions, output in zip(examples, references, outputs)
    )
    return ExampleScores(metric, "images", compute_example_sums(metric, outputs, references), texts)
