"""Translation, and other tasks that generate one text from another, such as summaries.

    source → tokens → encoder → memory → decoder → tokens of each target → loss
                                               └→ beam search → text → BLEU, chrF, exact match, ROUGE

This module connects the parts: reading pairs is in `reader.py`, vocabularies in `vocabularies.py`, the model in
`model.py`, its use in `generation.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.backbones.decoder import supports_input_feeding
from seqwise.callbacks import LogFunction, ProgressCallback, no_progress
from seqwise.config import Settings
from seqwise.data.batch import iterate_by_length, spread_indices
from seqwise.data.tables import split_commas
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import RunError, UsageError
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.losses import sum_losses
from seqwise.metrics.evaluation import Evaluation, compute_entropy
from seqwise.metrics.translation import compute_bleu_from_counts, count_bleu_ngrams
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import (
    DAMAGED_RUN_FIX,
    InferenceOptions,
    LatencyInputs,
    ModelBundle,
    Prediction,
    Preprocessor,
    ProcessGroup,
    Size,
)
from seqwise.tasks.translate.defaults import MAX_LENGTH, set_translate_defaults
from seqwise.tasks.translate.evaluation import (
    compute_baselines,
    compute_metrics,
    score_pairs,
    translate_pairs,
    write_translations,
)
from seqwise.tasks.translate.generation import TranslationPipeline, parse_targets
from seqwise.tasks.translate.inspection import inspect_sources, inspect_text
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import PairBatch, Translator, collate
from seqwise.tasks.translate.reader import Pair, PairSplits, expand_pairs, read_pairs, warn_about_suspicious_pairs
from seqwise.tasks.translate.vocabularies import encode, get_bos_eos_ids, train_tokenizers

VALIDATION_PAIRS = {"cpu": 200, "cuda": 1_000}  # pairs that are translated in each validation
VALIDATION_BATCH_SIZE, MAX_VALIDATION_TOKENS = 64, 8_192  # of the batches whose loss is computed
MIN_BLEU_WORDS = 4  # mean words per target; with fewer, exact match is the primary metric instead of BLEU


class Translate(ExampleTask):
    """The translation task on one data set."""

    set_defaults = staticmethod(set_translate_defaults)
    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "a text"
    example_unit = "pairs"
    row_columns = input_columns = ("source", "target")
    splits: PairSplits

    def __init__(self, splits: PairSplits, preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        attributes = preprocessor.attributes
        splits.parts["train"] = expand_pairs(splits.parts["train"])
        self.target_names: list[str] = attributes["targets"]
        self.tokenizers = [preprocessor.tokenizers[name] for name in ("text", *self.target_names)]
        self.bos_eos_ids = get_bos_eos_ids(preprocessor.tokenizers, self.target_names, settings)
        # For each split: the ids of the sources, then the ids of the targets in each language.
        self.token_ids = {
            split: [encode(tokenizer, [pair.texts[i] for pair in pairs]) for i, tokenizer in enumerate(self.tokenizers)]
            for split, pairs in splits.parts.items()
        }
        num_source_tokens, *num_target_tokens = (sum(map(len, ids)) for ids in self.token_ids["train"])
        attributes.setdefault("ratios", [num_tokens / max(1, num_source_tokens) for num_tokens in num_target_tokens])
        if splits.name.startswith("builtin:"):
            attributes["example"] = splits.parts["valid"][0].source
        if settings.data.max_length is None:
            settings.data.max_length = min(MAX_LENGTH, self.size().max_length)
        self.max_length = settings.data.max_length
        warning = f"texts of more than {self.max_length:,} tokens, which are truncated (--data.max-length)"
        for split, pairs in splits.parts.items():
            for pair, *pair_ids in zip(pairs, *self.token_ids[split]):
                for ids in pair_ids:
                    if len(ids) > self.max_length:
                        splits.findings.warn(warning, pair.file, pair.line)
        lengths = [len(text.split()) for pair in splits.parts["valid"] for text in pair.targets]
        if sum(lengths) / len(lengths) < MIN_BLEU_WORDS:
            self.primary_metric = ("exact_match", "exact")

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> PairSplits:
        return read_pairs(data, settings)

    @classmethod
    def fit_preprocessor(cls, splits: Any, settings: Settings, log: LogFunction, initial: Preprocessor) -> Preprocessor:
        warn_about_suspicious_pairs(splits)
        languages: Languages = splits.languages
        if languages != Languages():
            settings.target = ",".join(languages.targets)
            settings.columns = settings.columns or ",".join(languages.all)
        if initial.tokenizers:
            return initial
        tokenizers = train_tokenizers(expand_pairs(splits.parts["train"]), languages, settings, log)
        return Preprocessor(tokenizers, {"source": languages.source, "targets": list(languages.targets)})

    def describe_sizes(self) -> tuple[str, ...]:
        return str(self.splits.languages), self.describe_vocabulary()

    def describe_vocabulary(self) -> str:
        sizes = {name: len(tokenizer) for name, tokenizer in self.preprocessor.tokenizers.items()}
        if len({tokenizer.fingerprint for tokenizer in self.preprocessor.tokenizers.values()}) == 1:
            return f"one vocabulary of {sizes['text']:,}"
        source = self.preprocessor.attributes["source"]
        return "vocabulary " + ", ".join(f"{source if name == 'text' else name} {n:,}" for name, n in sizes.items())

    def warnings(self) -> list[str]:
        return [*super().warnings(), *self.warn_about_unknown()]

    def count_data(self) -> dict[str, dict[str, int]]:
        names, counts = [self.preprocessor.attributes["source"], *self.target_names], {}
        for split, token_ids in self.token_ids.items():
            counts[split] = {"pairs": len(self.splits.parts[split])}
            counts[split] |= {f"{name} tokens": sum(map(len, texts)) for name, texts in zip(names, token_ids)}
            counts[split]["longest"] = max((len(ids) for texts in token_ids for ids in texts), default=0)
            masks = (ids == tokenizer.unknown for tokenizer, texts in zip(self.tokenizers, token_ids) for ids in texts)
            counts[split]["unknown"] = sum(int(is_unknown.sum()) for is_unknown in masks)
        return counts

    def describe_data(self) -> tuple[str, ...]:
        return (f"tokeniser: {self.tokenizers[0].kind}, {self.describe_vocabulary()} (from the training split)",)

    # Training

    def size(self) -> Size:
        max_length = max(len(ids) for token_ids in self.token_ids.values() for texts in token_ids for ids in texts)
        num_tokens = sum(len(ids) + 1 for texts in self.token_ids["train"][1:] for ids in texts)
        vocabulary_size = max(map(len, self.tokenizers[1:]))
        return Size(num_tokens, vocabulary_size, len(self.splits.parts["train"]), max(1, max_length))

    def check_settings(self, settings: ResolvedSettings) -> None:
        model, attention = settings.model, settings.translate.attention
        if settings.translate.input_feeding and not supports_input_feeding(model, attention):
            raise UsageError(
                "input feeding needs an rnn, gru or lstm with dot or general attention; "
                f"received {model} with {attention} attention.",
                fix="Pass --translate.attention general with such a model, or leave out --translate.input-feeding.",
            )

    def check_shapes(self, model: Translator) -> None:
        ids = torch.zeros(1, 1, dtype=torch.int64, device="meta")
        model.get_decoder(0).losses(model.encode(ids), ids, ids)

    def build(self, settings: ResolvedSettings) -> Translator:
        """Returns an untrained model that already predicts each token by its frequency."""
        return build_model(settings, self.preprocessor, self.target_counts)

    @cached_property
    def target_counts(self) -> list[Tensor]:
        """The number of times that each token is a target in training, (V,) for each language."""
        counts = []
        for tokenizer, targets, (_, eos_id) in zip(self.tokenizers[1:], self.token_ids["train"][1:], self.bos_eos_ids):
            token_counts = np.bincount(np.concatenate(targets), minlength=len(tokenizer))
            token_counts[eos_id] += len(targets)
            counts.append(torch.from_numpy(token_counts))
        return counts

    def embeddings(self, model: Translator) -> dict[str, Embedding]:
        """Returns the embedding of the source and of each decoder; a shared vocabulary has one layer."""
        names = self.target_names[: len(model.decoders)]
        embeddings = {name: model.get_decoder(index).embedding for index, name in enumerate(names)}
        return {"text": model.embedding, **embeddings}

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        smoothing = settings.translate.label_smoothing if is_smoothed else 0.0
        counts = [each.numpy() for each in self.target_counts]
        entropies = [compute_entropy(each, smoothing) for each in counts]
        return float(np.average(entropies, weights=[each.sum() for each in counts]))

    def token_counts(self) -> dict[str, Tensor]:
        source_counts = np.bincount(np.concatenate(self.token_ids["train"][0]), minlength=len(self.tokenizers[0]))
        return {"text": torch.from_numpy(source_counts), **dict(zip(self.target_names, self.target_counts))}

    @cached_property
    def train_lengths(self) -> list[int]:
        return self._get_lengths("train")

    def collate_train(self, indices: np.ndarray) -> PairBatch:
        return self._collate("train", indices)

    def validate(
        self, model: Translator, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns the loss on the validation split, and BLEU and exact match of greedy translations of a sample."""
        limits = VALIDATION_BATCH_SIZE, MAX_VALIDATION_TOKENS
        batches = iterate_by_length(self._get_lengths("valid"), *limits, world.rank, world.size, share)
        nats, num_targets = sum_losses(model, (self._collate("valid", indices) for indices in batches))
        pairs = self.splits.parts["valid"]
        pipeline = TranslationPipeline(self.bundle(model, settings), InferenceOptions())
        sample_size = min(len(pairs), VALIDATION_PAIRS.get(pipeline.device.type, 200))
        sample = [i * len(pairs) // sample_size for i in spread_indices(sample_size, share)]  # indices of pairs
        sources = [self.token_ids["valid"][0][index] for index in sample]
        outputs: list[str] = []
        references: list[tuple[str, ...]] = []
        for index, hypotheses in pipeline.translate_ids(sources, world.rank, world.size):
            references += pairs[sample[index]].references
            outputs += [pipeline.decode(target, n_best[0]) for target, n_best in zip(pipeline.targets, hypotheses)]
        num_exact = sum(output in map(str.strip, texts) for output, texts in zip(outputs, references))
        counts = count_bleu_ngrams(outputs, references).sum(axis=0)
        nats, total_targets, total_exact, total_outputs, *bleu_sums = world.sum(
            nats, num_targets, num_exact, len(outputs), *counts
        )
        return {
            "loss": nats / max(1, total_targets),
            "bleu": compute_bleu_from_counts(bleu_sums),
            "exact_match": total_exact / max(1, total_outputs),
        }

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        targets = zip(*(pair.targets for pair in self.splits.parts["train"]))
        frequent = [Counter(texts).most_common(1)[0][0] for texts in targets]
        return {}, {"frequent_targets": dict(zip(self.target_names, frequent))}

    def _get_lengths(self, split: str) -> list[int]:
        """Returns the number of tokens of the longest text of each pair, including <bos> or <eos>."""
        return [min(self.max_length, max(map(len, pair_ids))) + 1 for pair_ids in zip(*self.token_ids[split])]

    def _collate(self, split: str, indices: np.ndarray) -> PairBatch:
        token_ids = [[texts[index] for index in indices] for texts in self.token_ids[split]]
        return replace(collate(token_ids, self.bos_eos_ids, self.max_length), positions=torch.from_numpy(indices))

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Translator:
        return build_model(settings, preprocessor)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns BLEU, chrF, exact match and ROUGE of the translations of the test split, or of a whole file."""
        check_output_path(options.out)
        splits, pairs, description = cls.select_examples(request_targets(bundle, options.target), data, split)
        pipeline = TranslationPipeline(bundle, options)
        with Stopwatch() as watch:
            outputs = translate_pairs(pipeline, pairs, splits.findings, options.progress)
        if options.out is not None:
            write_translations(options.out, outputs, pairs)
        network, attention = str(bundle.settings.model), bundle.settings.translate.attention
        if network != "transformer":
            network += f", {'no' if attention == 'none' else attention} attention"
        method, warnings = f"{options.describe_decoding()}; {network}", splits.findings.warning_messages()
        metric = bundle.choose_metric(options, cls.primary_metric[0])
        get_scores = partial(score_pairs, metric, outputs, pairs)
        evaluation = compute_metrics(outputs, description, method, warnings)
        evaluation = replace(evaluation, seconds=watch.seconds, primary_metric=metric)
        evaluation = replace(evaluation, examples=get_scores() if options.examples else None)
        evaluation = replace(evaluation, data_notes=tuple(splits.findings.note_messages()))
        frequent_targets = {} if bundle.training is None else bundle.training.attributes["frequent_targets"]
        baselines = compute_baselines(metric, outputs, pairs, frequent_targets)
        return cls.add_baselines_and_overlap(evaluation, bundle, pairs, get_scores, baselines)

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        return super().latency_inputs(request_targets(bundle, None), data, split)

    @classmethod
    def input_text(cls, example: Pair) -> str:
        return example.source

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_text(bundle, text, InferenceOptions(cls.beam_search))

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        return super().inspect_split(request_targets(bundle, None), data, split, count, progress)

    @classmethod
    def inspect_examples(
        cls, bundle: ModelBundle, splits: Any, examples: Sequence[Pair], descriptions: Sequence[str]
    ) -> list[InspectedInput]:
        sources = [example.source for example in examples]
        return inspect_sources(bundle, sources, descriptions, InferenceOptions(cls.beam_search))

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields for each input its translations into each language; with `n_best` several, the best first."""
        return TranslationPipeline(bundle, options).predict(inputs)


def request_targets(bundle: ModelBundle, targets: str | None) -> ModelBundle:
    """Returns the bundle with settings for reading only the requested targets, from their columns in training."""
    settings, requested_targets = bundle.settings, parse_targets(bundle.preprocessor, targets)
    if not settings.target:
        return bundle
    requested_settings = settings.model_copy(deep=True)
    requested_settings.target = ",".join(requested_targets)
    columns = split_commas(settings.columns)
    if columns is not None:
        # Parallel files need no column for each target, since their suffixes name the languages.
        has_all_columns = len(columns) == 1 + len(bundle.preprocessor.attributes["targets"])
        names = [columns[1 + index] if has_all_columns else name for name, index in requested_targets.items()]
        requested_settings.columns = ",".join([columns[0], *names])
    return replace(bundle, settings=requested_settings)


def build_model(
    settings: ResolvedSettings, preprocessor: Preprocessor, counts: Sequence[Tensor] | None = None
) -> Translator:
    """Returns the model; with the `counts` of the target tokens it already predicts each token by its frequency."""
    names = preprocessor.attributes["targets"]
    if settings.translate.targets == "token":  # one decoder for all languages
        names = names[:1]
    if missing := [name for name in names if name not in preprocessor.tokenizers]:
        raise RunError(f"the run has no tokenizer.{missing[0]}.json.", fix=DAMAGED_RUN_FIX)
    sizes = [len(preprocessor.tokenizers[name]) for name in names]
    if counts is not None and len(sizes) < len(counts):
        counts = [torch.stack(list(counts)).sum(0)]
    return Translator(settings, (len(preprocessor.tokenizer), sizes), counts)
