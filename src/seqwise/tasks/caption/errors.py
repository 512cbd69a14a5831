"""The errors of a captioning model: scores of single captions by the length and the words of their references."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqwise.tasks.caption.generation import check_compatible, generate_captions, get_references, normalize_spacing
from seqwise.tasks.caption.task import Caption
from seqwise.tasks.error_report import MAX_NAMES, ErrorReport, ErrorRequest, ScoredItems, SliceGroup
from seqwise.tasks.generation_errors import (
    build_items,
    compute_length_ratios,
    compute_metrics,
    group_ratios,
    list_worst,
)
from seqwise.tasks.inspection import get_device
from seqwise.tasks.task import InferenceOptions, ModelBundle

MAX_IMAGES = {"cpu": 500, "cuda": 5_000}  # captioned unless set
MIN_WORD_SHARE, MAX_WORD_SHARE = 0.02, 0.98  # of the images: words of references that have a slice


def collect_errors(task: type[Caption], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Captions images and returns what went wrong."""
    splits, examples, description = request.open(lambda split: task.select_examples(bundle, data, split))
    check_compatible(splits.images, bundle.preprocessor.attributes)
    limit = MAX_IMAGES.get(get_device(bundle.model).type, MAX_IMAGES["cpu"])
    chosen = [examples[index] for index in request.choose(len(examples), limit)]
    options = InferenceOptions(task.beam_search, progress=request.progress)
    generated = generate_captions(bundle, splits.images, [example.index for example in chosen], options)
    outputs = normalize_spacing([captions[0].text for captions in generated])
    references = get_references(chosen)
    items = build_items(bundle.choose_metric(options, task.primary_metric[0]), outputs, references, "images")
    ratios = compute_length_ratios(outputs, references)
    return ErrorReport(
        description,
        items,
        [*build_groups(items, references, bundle), group_ratios(items, ratios)],
        len(chosen),
        len(examples),
        "images",
        listings=[list_worst(items, [example.image for example in chosen], outputs, references, "image")],
        metrics=compute_metrics(outputs, references, ratios),
        notes=[f"{options.describe_decoding()}."],
    )


def build_groups(items: ScoredItems, references: list[list[str]], bundle: ModelBundle) -> list[SliceGroup]:
    """Returns slices by the length of the references, unknown words, and the words of the first reference."""
    tokenizer = bundle.preprocessor.tokenizer
    token_ids = tokenizer.encode_many([each[0] for each in references])
    lengths = np.array([len(ids) for ids in token_ids])
    groups = [items.group_bands("reference length in tokens", "images whose caption has {} tokens", lengths)]
    num_unknown = np.array([0 if tokenizer.unknown is None else int((ids == tokenizer.unknown).sum())
                            for ids in token_ids])  # fmt: skip
    if num_unknown.any():
        names = ["images whose caption has no unknown word", "images whose caption has an unknown word"]
        groups.append(items.group_counts("unknown words", names, num_unknown))
    return [*groups, *group_words(items, [tokenizer.tokens(set(ids.tolist())) for ids in token_ids])]


def group_words(items: ScoredItems, words: list[list[Any]]) -> list[SliceGroup]:
    """Returns a group with a slice for each of the most frequent words of references; none without such words."""
    names, counts = np.unique([word for each in words for word in each if word.isalnum()], return_counts=True)
    share = counts / max(1, len(words))
    usable = np.flatnonzero((share >= MIN_WORD_SHARE) & (share <= MAX_WORD_SHARE))
    chosen = names[usable[np.argsort(-counts[usable], kind="stable")][:MAX_NAMES]]
    sets = [set(each) for each in words]
    slices = tuple(
        items.select(f"images whose caption has “{word}”", np.array([word in each for each in sets])) for word in chosen
    )
    return [SliceGroup("words", slices)] if slices else []
