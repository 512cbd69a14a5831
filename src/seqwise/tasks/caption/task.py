"""Captioning: a sentence for an image, a clip or precomputed features.

    image → image encoder → regions ─┐
    caption → tokens → embedding → decoder over the regions → next token → negative log likelihood
                                                                      └→ beam search → caption

This module connects the parts; each is explained where it is defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwise.callbacks import LogFunction, ProgressCallback
from seqwise.config import Settings
from seqwise.data.batch import iterate_by_length, spread_indices
from seqwise.data.in_memory import save_array, save_data
from seqwise.data.records import Data
from seqwise.data.tables import split_commas
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError
from seqwise.families import RECURRENT_FAMILIES
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.losses import sum_losses
from seqwise.metrics.evaluation import Evaluation, compute_entropy
from seqwise.metrics.predictions import write_predictions
from seqwise.metrics.translation import compute_bleu, compute_exact_match
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.generation import (
    BATCH_SIZE,
    check_compatible,
    compute_baselines,
    compute_metrics,
    find_inputs,
    generate_captions,
    get_references,
    get_trained_kind,
    load_inputs,
    score_examples,
)
from seqwise.tasks.caption.images import KINDS, ImageSet
from seqwise.tasks.caption.inspection import inspect_image, inspect_images
from seqwise.tasks.caption.model import EOS, SPECIAL_TOKENS, CaptionBatch, CaptionModel, EncodedCaptions
from seqwise.tasks.caption.reader import CaptionedImage, CaptionSplits, read_captions
from seqwise.tasks.defaults import (
    SAME_WIDTH,
    DefaultsContext,
    SetDefault,
    set_batch_size,
    set_transformer_defaults,
)
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import (
    InferenceOptions,
    LatencyInputs,
    ModelBundle,
    Prediction,
    Preprocessor,
    ProcessGroup,
    Size,
)
from seqwise.text.tokenizer import Tokenizer

MAX_LENGTH = 64  # tokens per caption including <eos>; --data.max-length overrides it
MANY_CAPTIONS, MIN_COUNT = 5_000, 3  # with this many captions, the vocabulary has only words that occur MIN_COUNT times
LENGTH_BUCKET = 16  # tokens; finer buckets would hold one kind of sentence each, and so one kind of image
VALIDATION_IMAGES = 200  # images that are captioned at each validation
MIN_NATURAL_VOCABULARY = 1_000  # larger vocabularies are assumed to be those of captions written freely by people
MIN_BLEU_WORDS = 4  # BLEU counts n-grams up to this length, so it says nothing about shorter captions


def set_caption_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set: a CPU trains on some hundred images per second, a GPU on thousands."""
    is_transformer, cuda = settings.model == "transformer", context.cuda
    has_natural_captions = context.vocabulary_size > MIN_NATURAL_VOCABULARY
    speed = f"{context.machine} trains on {'thousands' if cuda else 'some hundreds'} of images per second"
    captions = f"{context.vocabulary_size:,} words: {'written by people' if has_natural_captions else 'few kinds'}"
    set_default("network.width", (256 if is_transformer else 384) if cuda else 96, speed)
    set_default("network.depth", (3 if cuda else 2) if is_transformer else 1, speed)
    set_default("network.embedding", settings.network.width, SAME_WIDTH)
    if is_transformer or settings.caption.encoder == "patches":
        set_transformer_defaults(settings, set_default, 32, feedforward_ratio=4 if cuda else 2)
    if settings.model in RECURRENT_FAMILIES:
        set_default("recurrent.weight_dropout", 0.0, "the dropout of the layers is enough")
    size = settings.caption.image_size
    pixels = f"images of {size} × {size} pixels"
    # builtin:shapes, 25 s on one core: 813 updates with a 4 × 4 grid (loss 0.27), 464 with 8 × 8 (loss 0.36).
    set_default("caption.grid", 4 if size <= 32 else 8, pixels)
    set_default("caption.blocks", 1 if cuda else 0, speed)
    set_default("caption.patch", max(4, size // 8), f"{pixels}: at most 8 × 8 patches")
    set_default("caption.shift", size // 16 if has_natural_captions else size // 32, f"{pixels}; {captions}")
    set_default("network.dropout", 0.3 if has_natural_captions else 0.0, captions)
    set_default("caption.label_smoothing", 0.1 if has_natural_captions else 0.0, captions)
    set_batch_size(min(128 if cuda else 32, context.num_examples), context, set_default, speed)
    set_default("data.max_tokens", 64 * settings.training.batch_size, "64 times the batch size")
    set_default("data.max_length", context.max_length, "the longest caption")
    set_default("training.learning_rate", 1e-3 if cuda else 3e-3, f"for the batch size of {context.machine}")
    set_default("training.weight_decay", 0.05 if has_natural_captions else 0.01, captions)
    if has_natural_captions and cuda:  # Flickr8k, with a lower rate: 60 distinct captions per 100, without 26
        set_default("training.ema", 0.999, "captions become more varied")


class Caption(ExampleTask):
    """The captioning task on one data set."""

    set_defaults = staticmethod(set_caption_defaults)
    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "image.png"
    example_unit = "images"
    row_columns = ("image", "caption")
    splits: CaptionSplits

    def __init__(self, splits: CaptionSplits, preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        self.captions = {
            split: EncodedCaptions(examples, splits.images, preprocessor.tokenizer)
            for split, examples in splits.parts.items()
        }
        if settings.data.max_length is None:
            settings.data.max_length = min(MAX_LENGTH, max(self.captions["train"].lengths))
        self.max_length = settings.data.max_length
        warning = f"captions of {self.max_length:,} tokens or more, which are truncated (--data.max-length)"
        for encoded in self.captions.values():
            for length, index in zip(encoded.lengths, encoded.example_indices):
                if length > self.max_length:
                    example = encoded.examples[int(index)]
                    splits.findings.warn(warning, example.file or example.image, example.line or None)
        captions = [caption for example in splits.parts["train"] for caption in example.captions]
        if sum(len(caption.split()) for caption in captions) < MIN_BLEU_WORDS * len(captions):
            self.primary_metric = ("exact_match", "exact")

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> CaptionSplits:
        caption, columns = settings.caption, settings.columns or None
        return read_captions(data, settings.data, caption.image_size, columns, progress, caption.on_broken)

    @classmethod
    def fit_preprocessor(cls, splits: Any, settings: Settings, log: LogFunction, initial: Preprocessor) -> Preprocessor:
        images: ImageSet = splits.images
        derive_settings_from_data(settings, images.kind, splits.image_size)
        if initial.tokenizers:
            check_compatible(images, initial.attributes)
            return initial
        attributes: dict[str, Any] = {"kind": images.kind, "width": images.width, "regions": images.max_length}
        if splits.name.startswith("builtin:"):
            attributes["example"] = f"{splits.name}/0"
        return Preprocessor({"text": train_tokenizer(splits.parts["train"], settings, log)}, attributes)

    def describe_sizes(self) -> tuple[str, ...]:
        num_captions = sum(len(captions.token_ids) for captions in self.captions.values())
        vocabulary = f"vocabulary {len(self.preprocessor.tokenizer):,}"
        return self.describe_input_size(), f"{num_captions:,} captions", vocabulary

    def describe_input_size(self) -> str:
        """Returns a description of the size of one input."""
        attributes, size = self.preprocessor.attributes, self.splits.image_size
        kind = get_trained_kind(attributes)
        if kind == "features":
            return f"up to {attributes['regions']:,} vectors of width {attributes['width']:,} each"
        return f"{'clips with frames of ' if kind == 'frames' else ''}{size} × {size} pixels"

    def size(self) -> Size:
        train = self.captions["train"]
        vocabulary_size = len(self.preprocessor.tokenizer)
        return Size(sum(train.lengths), vocabulary_size, len(train.examples), max(train.lengths))

    def check_shapes(self, model: CaptionModel) -> None:
        batch = self.captions["train"].collate(np.arange(1), self.max_length).to("meta")
        model.decoder.decode(batch.ids, None, model.encode(batch.images, batch.lengths))

    def build(self, settings: ResolvedSettings) -> CaptionModel:
        """Returns an untrained model that already predicts each token by its frequency."""
        vocabulary_size, attributes = len(self.preprocessor.tokenizer), self.preprocessor.attributes
        return CaptionModel(
            settings, vocabulary_size, attributes["width"], attributes["regions"], self.token_counts()["text"]
        )

    def token_counts(self) -> dict[str, torch.Tensor]:
        tokenizer, captions = self.preprocessor.tokenizer, self.captions["train"].token_ids
        ids = np.concatenate([*captions, np.full(len(captions), tokenizer.id(EOS))])
        return {"text": torch.from_numpy(np.bincount(ids, minlength=len(tokenizer)))}

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        smoothing = settings.caption.label_smoothing if is_smoothed else 0.0
        return compute_entropy(self.token_counts()["text"].numpy(), smoothing)

    def embeddings(self, model: CaptionModel) -> dict[str, Embedding]:
        return {"text": model.decoder.embedding}

    @cached_property
    def train_lengths(self) -> list[int]:
        lengths = self.captions["train"].lengths
        # rounded up to the width of a bucket
        return [-(-min(length, self.max_length) // LENGTH_BUCKET) * LENGTH_BUCKET for length in lengths]

    def collate_train(self, indices: np.ndarray) -> CaptionBatch:
        return self.captions["train"].collate(indices, self.max_length)

    def validate(
        self, model: CaptionModel, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns the loss of the captions, and BLEU and exact match of at most `VALIDATION_IMAGES` images."""
        encoded = self.captions["valid"]
        batches = iterate_by_length(encoded.lengths, BATCH_SIZE, None, world.rank, world.size, share)
        sums = sum_losses(model, (encoded.collate(indices, self.max_length) for indices in batches))
        scores = (0.0, 0.0)
        if world.rank == 0:  # few enough for one process
            candidates, bundle = encoded.examples[:VALIDATION_IMAGES], self.bundle(model, settings)
            examples = [candidates[index] for index in spread_indices(len(candidates), share)]
            indices = [example.index for example in examples]
            generated = generate_captions(bundle, self.splits.images, indices, InferenceOptions())
            outputs = [captions[0].text for captions in generated]
            references = get_references(examples)
            scores = (compute_bleu(outputs, references).value, compute_exact_match(outputs, references))
        loss, num_tokens, bleu_score, exact = world.sum(*sums, *scores)
        return {"loss": loss / max(1, num_tokens), "bleu": bleu_score, "exact_match": exact}

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        captions = Counter(
            caption for references in get_references(self.splits.parts["train"]) for caption in references
        )
        return {}, {"frequent_caption": captions.most_common(1)[0][0]}

    def count_data(self) -> dict[str, dict[str, int]]:
        counts, unknown = {}, self.preprocessor.tokenizer.unknown
        for split, captions in self.captions.items():
            ids = np.concatenate(captions.token_ids)
            sizes = {"images": len(captions.examples), "captions": len(captions.token_ids), "tokens": len(ids)}
            counts[split] = sizes | {"unknown": int((ids == unknown).sum())}
        return counts

    def describe_data(self) -> tuple[str, ...]:
        return f"images: {self.describe_input_size()}", self.describe_tokenizer()

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> CaptionModel:
        attributes = preprocessor.attributes
        return CaptionModel(settings, len(preprocessor.tokenizer), attributes["width"], attributes["regions"])

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns BLEU, chrF and exact match against all captions of each image, and the share of distinct captions."""
        check_output_path(options.out)
        splits, examples, description = cls.select_examples(bundle, data, split)
        check_compatible(splits.images, bundle.preprocessor.attributes)
        with Stopwatch() as watch:
            generated = generate_captions(bundle, splits.images, [example.index for example in examples], options)
        outputs = [captions[0].text for captions in generated]
        references = get_references(examples)
        if options.out is not None:
            rows = zip(examples, references, outputs)
            write_predictions(options.out, ({"input": e.image, "expected": captions, "predicted": text}
                                            for e, captions, text in rows))  # fmt: skip
        metrics, definitions = compute_metrics(outputs, references)
        metric = bundle.choose_metric(options, cls.primary_metric[0])
        settings, get_scores = bundle.settings, partial(score_examples, metric, examples, outputs, references)
        evaluation = Evaluation(
            metrics,
            definitions,
            description,
            f"{settings.caption.encoder} encoder, {settings.model} decoder; {options.describe_decoding()}",
            warnings=tuple(splits.findings.warning_messages()),
            data_notes=tuple(splits.findings.note_messages()),
            seconds=watch.seconds,
            examples=get_scores() if options.examples else None,
            primary_metric=metric,
        )
        baselines = compute_baselines(metric, references, bundle.training)
        return cls.add_baselines_and_overlap(evaluation, bundle, examples, get_scores, baselines)

    @classmethod
    def identify(cls, example: CaptionedImage) -> str:
        return example.digest or example.image

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        splits, examples, _ = cls.select_examples(bundle, data, split)
        options = InferenceOptions(cls.beam_search)
        indices = [example.index for example in examples]
        return indices, lambda index: generate_captions(bundle, splits.images, [index], options)

    @classmethod
    def save_data(cls, data: Data, columns: str | None = None) -> str:
        names = split_commas(columns) or cls.row_columns
        return save_data(data, names, image_column=names[0])

    @classmethod
    def save_input(cls, value: Any) -> str | None:
        """Returns the path of an image: a path, or an array, which is written to the cache."""
        if isinstance(value, PathLike):
            return str(value)
        is_array = hasattr(value, "__array__") and np.asarray(value).dtype.kind in "biuf"
        return save_array(value) if is_array else super().save_input(value)

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_image(bundle, text, InferenceOptions(cls.beam_search))

    @classmethod
    def inspect_examples(
        cls, bundle: ModelBundle, splits: Any, examples: Sequence[CaptionedImage], descriptions: Sequence[str]
    ) -> list[InspectedInput]:
        indices, names = [example.index for example in examples], [example.image for example in examples]
        return inspect_images(bundle, splits.images, indices, names, descriptions, InferenceOptions(cls.beam_search))

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields a caption for each image, clip or array, given by its path."""
        for start in range(0, len(inputs), BATCH_SIZE):
            names = inputs[start : start + BATCH_SIZE]
            images = load_inputs(names, bundle.settings.caption.image_size, bundle.preprocessor.attributes)
            for name, captions in zip(names, generate_captions(bundle, images, range(len(names)), options)):
                best = captions[0]
                values: dict[str, Any] = {"image": name, "caption": best.text}
                values["log_probability"] = best.hypothesis.log_probability
                lines = [best.text]
                if len(captions) > 1:
                    values["captions"] = [{"caption": c.text, **c.hypothesis.as_dict()} for c in captions]
                    lines = [f"{c.hypothesis.score:9.3f}  {c.text}" for c in captions]
                if len(inputs) > 1:
                    lines = [f"{name}\t{line}" for line in lines]
                yield Prediction("\n".join(lines), values)

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Returns the inputs at a path: an image, an array, or a folder of these."""
        return find_inputs(Path(text), settings.caption)


def derive_settings_from_data(settings: Settings, kind: str, image_size: int) -> None:
    """Sets the settings that are determined by the data; raises an error for those that contradict it."""
    caption = settings.caption
    if caption.encoder is not None and (caption.encoder == "features") != (kind == "features"):
        problem = f"the {caption.encoder} encoder cannot encode this data: each row of the table names {KINDS[kind]}."
        raise UsageError(problem, fix="Leave out --caption.encoder.")
    if caption.frames is not None and caption.frames != (kind == "frames"):
        raise UsageError(f"each row of the table names {KINDS[kind]}.", fix="Leave out --caption.frames.")
    caption.encoder = caption.encoder or ("features" if kind == "features" else "convolutional")
    caption.frames, caption.image_size = kind == "frames", image_size or caption.image_size


def train_tokenizer(examples: Sequence[CaptionedImage], settings: Settings, log: LogFunction) -> Tokenizer:
    """Returns a tokeniser trained on the captions; writes its kind and size into `settings` where they are not set."""
    text, captions = settings.text, [caption for example in examples for caption in example.captions]
    if text.tokenizer is None:
        text.tokenizer = "words"
        omits_rare = text.vocabulary is None and text.min_count is None and len(captions) >= MANY_CAPTIONS
        text.min_count = MIN_COUNT if omits_rare else text.min_count
        log(f"tokeniser: words{f', those seen at least {MIN_COUNT} times; others are <unk>' if omits_rare else ''}.")
    sizes = text.vocabulary, text.min_count
    tokenizer = Tokenizer.train(text.tokenizer, captions, *sizes, text.lowercase, SPECIAL_TOKENS)
    text.vocabulary = len(tokenizer)
    return tokenizer
