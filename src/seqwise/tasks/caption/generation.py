"""Generates captions with a trained model, for images of a data set or at paths, and computes their metrics.

The module knows nothing of training or splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as abbreviate
from typing import Any, NamedTuple

import numpy as np
import torch

from seqwise.data.reading import list_files
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import DataError, UsageError
from seqwise.metrics.evaluation import Baseline, ExampleScores, ExampleText
from seqwise.metrics.translation import (
    compute_bleu,
    compute_exact_match,
    compute_example_sums,
    compute_text_metrics,
)
from seqwise.resolved_settings import ResolvedCaptionSettings
from seqwise.tasks.caption.decode import decode_array
from seqwise.tasks.caption.images import (
    ARRAY_SUFFIX,
    IMAGE_SUFFIXES,
    KINDS,
    SUFFIXES,
    ImageSet,
    get_natural_sort_key,
    read_paths,
)
from seqwise.tasks.caption.model import BOS, SPECIAL_TOKENS, CaptionModel
from seqwise.tasks.caption.reader import BUILTIN, CaptionedImage
from seqwise.tasks.caption.shapes import draw_shapes
from seqwise.tasks.task import InferenceOptions, ModelBundle
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.text.patterns import join_words

BATCH_SIZE = 128  # images that are captioned together


# Inputs


def find_inputs(path: Path, settings: ResolvedCaptionSettings) -> list[str] | None:
    """Returns the path of an image or array, or the paths of all in a folder; None for any other path.

    For clips, each folder of frames is one input.
    """
    if path.is_file():
        return [str(path)] if path.suffix.lower() in SUFFIXES else None
    if not path.is_dir():
        return None
    files = sorted(list_files(path), key=lambda file: get_natural_sort_key(str(file)))
    images = [file for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    arrays = [str(file) for file in files if file.suffix.lower() == ARRAY_SUFFIX]
    suffixes: tuple[str, ...] = IMAGE_SUFFIXES
    inputs = list(map(str, images))
    if settings.frames:
        suffixes, inputs = SUFFIXES, [*dict.fromkeys(str(file.parent) for file in images), *arrays]
    elif settings.encoder == "features":
        suffixes, inputs = (ARRAY_SUFFIX,), arrays
    if not inputs:
        raise DataError(f"the folder contains no {', '.join(suffixes)}.", fix="Name another folder.", file=path)
    return inputs


def load_inputs(names: Sequence[str], image_size: int, attributes: Mapping[str, Any]) -> ImageSet:
    """Returns the images, clips or arrays at these paths; `builtin:shapes/7` is the generated image with index 7."""
    kind = get_trained_kind(attributes)
    builtin_names = {name for name in names if name.startswith(f"{BUILTIN}/")}
    arrays = iter(read_paths([Path(name) for name in names if name not in builtin_names], image_size, kind))
    inputs = [_load_builtin(name, image_size) if name in builtin_names else next(arrays) for name in names]
    images = ImageSet("images" if builtin_names else kind, inputs)
    check_compatible(images, attributes)
    return images


def _load_builtin(name: str, image_size: int) -> np.ndarray:
    index, pixels = name.rpartition("/")[2], draw_shapes()[0]
    if not index.isdigit() or int(index) >= len(pixels):
        fix = f"They are {BUILTIN}/0 … {BUILTIN}/{len(pixels) - 1}."
        raise DataError(f"there is no image {name!r}.", fix=fix)
    return decode_array(pixels[int(index)], image_size).array


def get_trained_kind(attributes: Mapping[str, Any]) -> str:
    """Returns the kind of images that a run was trained on; in runs of version 0.1 "images" are "pictures"."""
    return "images" if attributes["kind"] == "pictures" else attributes["kind"]


def check_compatible(images: ImageSet, attributes: Mapping[str, Any]) -> None:
    """Raises an error if the images differ in kind or size from the training data, which `attributes` describe."""
    kind, width, max_regions = get_trained_kind(attributes), attributes["width"], attributes["regions"]
    if images.kind != kind:
        raise UsageError(f"each input of this model is {KINDS[kind]}; received {KINDS[images.kind]}.")
    if kind == "features" and (images.width != width or images.max_length > max_regions):
        raise UsageError(
            f"this model was trained on at most {max_regions:,} regions of width {width:,}; "
            f"received {images.max_length:,} of width {images.width:,}.",
            fix="Compute the features as for training.",
        )


# Captions


class GeneratedCaption(NamedTuple):
    """A caption as text, and the hypothesis of the search that it comes from."""

    text: str
    hypothesis: Hypothesis


@torch.no_grad()
def generate_captions(
    bundle: ModelBundle, images: ImageSet, indices: Sequence[int], options: InferenceOptions
) -> list[list[GeneratedCaption]]:
    """Returns the captions of each image, the best first, as text without special tokens."""
    model: CaptionModel = bundle.model.eval()
    tokenizer, device = bundle.preprocessor.tokenizer, next(model.parameters()).device
    special_ids = {tokenizer.id(token) for token in SPECIAL_TOKENS}
    forbidden_ids = {*special_ids, tokenizer.unknown} - {tokenizer.end, None}
    captions: list[list[GeneratedCaption]] = []
    for start in range(0, len(indices), BATCH_SIZE):
        arrays, lengths = images.collate(indices[start : start + BATCH_SIZE])
        memory = model.encode(
            torch.from_numpy(arrays).to(device), None if lengths is None else torch.from_numpy(lengths).to(device)
        )
        hypotheses = decode_sequences(
            model.decoder,
            memory,
            options.sampling,
            options.seed + start,
            begin=tokenizer.id(BOS),
            end=tokenizer.end,
            max_length=options.max_length or bundle.settings.data.max_length,
            banned=sorted(forbidden_ids),
            options=options.beam_search,
            prefix=tokenizer.encode(options.beam_search.start).ids.tolist(),
        )
        for image_hypotheses in hypotheses:
            captions.append([])
            for hypothesis in image_hypotheses:
                text = tokenizer.decode(i for i in hypothesis.ids if i not in special_ids).strip()
                captions[-1].append(GeneratedCaption(text, hypothesis))
        options.progress(len(captions), len(indices))
    return captions


# Metrics


def get_references(examples: Sequence[CaptionedImage]) -> list[list[str]]:
    """Returns the captions of each image as references, with normalised spacing."""
    return [normalize_spacing(example.captions) for example in examples]


def normalize_spacing(captions: Sequence[str]) -> list[str]:
    """Returns captions with the spaces of the model's output, so that both can be compared."""
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
        "bleu": f"BLEU-4 against all captions of an image (usually {usual_count}), {definitions['bleu']}",
        "chrf": f"chrF2 against the same, {definitions['chrf']}",
        "distinct": f"distinct captions divided by images; of the first captions in the data: {distinct_in_data:.2f}",
        "images": "images that were captioned",
    }
    return metrics, definitions


def compute_baselines(
    metric: str, references: Sequence[Sequence[str]], training: TrainingSummary | None
) -> list[Baseline]:
    """Returns the metric of the most frequent caption of the training split for every image."""
    if training is None:
        return []
    caption = training.attributes["frequent_caption"]
    outputs = [caption] * len(references)
    value = compute_bleu(outputs, references).value if metric == "bleu" else compute_exact_match(outputs, references)
    return [Baseline("most frequent caption", value, f"It always predicts {abbreviate(caption)}.")]


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
