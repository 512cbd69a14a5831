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
from seqwise.callbacks import LogFunction, ProgressCallback
from seqwise.config import Settings
from seqwise.data.batch import iterate_by_length, spread_indices
from seqwise.data.tables import parse_columns
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError
from seqwise.families import RECURRENT
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.losses import sum_losses
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.translation import bleu_from_counts, count_bleu_ngrams
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    DefaultsContext,
    Fill,
    estimate_epochs,
    fill_batch_size,
    fill_transformer,
    scale_learning_rate,
)
from seqwise.tasks.example_task import ExampleTask
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
from seqwise.tasks.translate.evaluation import (
    compute_baselines,
    compute_metrics,
    score_pairs,
    translate_pairs,
    write_translations,
)
from seqwise.tasks.translate.generation import TranslationGenerator, parse_targets
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import PairBatch, Translator, collate
from seqwise.tasks.translate.reader import Pair, PairSplits, check_pairs, expand_pairs, open_pairs
from seqwise.tasks.translate.vocabularies import encode, get_boundaries, train_tokenizers

MAX_TOKENS = 512  # of one text, unless set
VALIDATION_PAIRS = {"cpu": 200, "cuda": 1_000}  # translated in each validation during training
EVALUATION_ROWS, EVALUATION_TOKENS = 64, 8_192  # of a batch whose loss is computed in validation
MAX_CHARACTERS = 500  # tokens; a vocabulary of at most this size is taken to be one of characters
MIN_BLEU_WORDS = 4  # mean words per target; from this many on, BLEU is the primary metric, below it exact match


def fill_translate(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Chooses the settings that are left open. The numbers come from the searches in docs/log.md."""
    is_transformer, has_characters = settings.model == "transformer", context.vocabulary <= MAX_CHARACTERS
    # Some ten thousand sentences suffice for a small model; a CPU has time for a smaller one.
    is_large = context.tokens > 20_000_000
    if context.cuda:
        fill("network.width", (512 if is_large else 256) if is_transformer else (1024 if is_large else 512))
        fill("network.depth", (6 if is_large else 4) if is_transformer else (2 if is_large else 1))
    else:
        fill("network.width", 128 if has_characters else 256)
        fill("network.depth", 2 if is_transformer else 1)
    width = settings.network.width
    # Characters are few, and their vectors can be small.
    fill("network.embedding", width if is_transformer or not has_characters else max(1, width // 2))
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
        fill("recurrent.bidirectional", True)
        fill("recurrent.concat_directions", True)
    if is_transformer:
        fill_transformer(settings, fill, 32)
    # Batches are limited by tokens, so that long pairs cost as much as short ones; a GPU needs some thousands.
    fill("data.max_length", max(1, min(MAX_TOKENS, context.max_length)))
    # builtin:dates, a Transformer after 120k tokens: exact 24 % with 64 rows, 74 % with 32, for a fifth more time.
    batch_size = 512 if context.cuda else 32 if is_transformer else 64
    max_batch_size = max(1, context.examples // 20)  # an epoch of small data still has some updates
    fill_batch_size(min(batch_size, max_batch_size), context, fill)
    fill("data.max_tokens", max(settings.data.max_length, 6_144 if context.cuda else 2_048) + 1)
    # More epochs need more dropout.
    is_repeated = estimate_epochs(settings, context) > 8 and context.tokens < 5_000_000
    dropout = (0.3 if is_repeated else 0.1) if is_transformer else (0.4 if is_repeated else 0.2)
    fill("network.dropout", 0.1 if has_characters else dropout)
    fill("translate.label_smoothing", 0.0 if has_characters else 0.1)
    is_adam = settings.training.optimizer == "adamw"
    # builtin:dates, 114 updates of an LSTM of width 128: exact 3 % at 0.004, 31 % at 0.008, 86 % at 0.015.
    rates = {"transformer": (1.5e-3, 512), "rnn": (1e-3, 256), "feedforward": (2e-3, 256)}
    rate = scale_learning_rate(settings, *rates.get(settings.model, (1e-2 if has_characters else 3e-3, 256)))
    fill("training.learning_rate", rate if is_adam else 1.0)
    fill("training.weight_decay", 0.01 if is_adam else 1e-6)
    if context.cuda and is_adam:
        fill("training.ema", 0.999)  # Multi30k, LSTM: validation BLEU 36.8 against 36.2


class Translate(ExampleTask):
    """The task on pairs of texts: the vocabularies are known; a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_translate)
    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "a text"
    example_unit = "pairs"
    row_columns = input_columns = ("source", "target")
    splits: PairSplits

    def __init__(self, splits: PairSplits, preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        facts = preprocessor.facts
        splits.parts["train"] = expand_pairs(splits.parts["train"])
        self.target_names: list[str] = facts["targets"]
        self.tokenizers = [preprocessor.tokenizers[name] for name in ("text", *self.target_names)]
        self.boundaries = get_boundaries(preprocessor.tokenizers, self.target_names, settings)
        # For each split the ids of the sources, then those of the targets in each language.
        self.sides = {
            split: [encode(tokenizer, [pair.texts[n] for pair in pairs]) for n, tokenizer in enumerate(self.tokenizers)]
            for split, pairs in splits.parts.items()
        }
        source_tokens, *target_tokens = (sum(map(len, side)) for side in self.sides["train"])
        facts.setdefault("ratios", [tokens / max(1, source_tokens) for tokens in target_tokens])
        if splits.name.startswith("builtin:"):
            facts["example"] = splits.parts["valid"][0].source
        if settings.data.max_length is None:
            settings.data.max_length = min(MAX_TOKENS, self.size().max_length)
        self.max_length = settings.data.max_length
        warning = f"texts of more than {self.max_length:,} tokens, which are truncated (--data.max-length)"
        for split, pairs in splits.parts.items():
            for pair, *texts in zip(pairs, *self.sides[split]):
                for _ in filter(lambda ids: len(ids) > self.max_length, texts):
                    splits.findings.warn(warning, pair.file, pair.line)
        lengths = [len(text.split()) for pair in splits.parts["valid"] for text in pair.targets]
        if sum(lengths) / len(lengths) < MIN_BLEU_WORDS:
            self.primary_metric = ("exact_match", "exact")

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> PairSplits:
        return open_pairs(data, settings)

    @classmethod
    def learn(cls, splits: Any, settings: Settings, log: LogFunction, initial: Preprocessor) -> Preprocessor:
        check_pairs(splits)
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
        source = self.preprocessor.facts["source"]
        return "vocabulary " + ", ".join(f"{source if name == 'text' else name} {n:,}" for name, n in sizes.items())

    def warnings(self) -> list[str]:
        return [*super().warnings(), *self.warn_about_unknown()]

    def count_data(self) -> dict[str, dict[str, int]]:
        names, counts = [self.preprocessor.facts["source"], *self.target_names], {}
        for split, sides in self.sides.items():
            counts[split] = {"pairs": len(self.splits.parts[split])}
            counts[split] |= {f"{name} tokens": sum(map(len, side)) for name, side in zip(names, sides)}
            counts[split]["longest"] = max((len(ids) for side in sides for ids in side), default=0)
            unknown = (ids == tokenizer.unknown for tokenizer, side in zip(self.tokenizers, sides) for ids in side)
            counts[split]["unknown"] = sum(int(is_unknown.sum()) for is_unknown in unknown)
        return counts

    def describe_data(self) -> tuple[str, ...]:
        return (f"tokeniser: {self.tokenizers[0].kind}, {self.describe_vocabulary()} (from the training split)",)

    # Training

    def size(self) -> Size:
        longest = max(len(ids) for sides in self.sides.values() for side in sides for ids in side)
        tokens = sum(len(ids) + 1 for side in self.sides["train"][1:] for ids in side)
        vocabulary = max(map(len, self.tokenizers[1:]))
        return Size(tokens, vocabulary, len(self.splits.parts["train"]), max(1, longest))

    def check_settings(self, settings: ResolvedSettings) -> None:
        model, attention = settings.model, settings.translate.attention
        if settings.translate.input_feeding and not supports_input_feeding(model, attention):
            raise UsageError(
                "input feeding needs an rnn, gru or lstm with dot or general attention; "
                f"received {model} with {attention} attention.",
                repair="Pass --translate.attention general with such a model, or leave out --translate.input-feeding.",
            )

    def run_layers(self, model: Translator) -> None:
        ids = torch.zeros(1, 1, dtype=torch.int64, device="meta")
        model.get_decoder(0).losses(model.encode(ids), ids, ids)

    def build(self, settings: ResolvedSettings) -> Translator:
        """Return an untrained model whose first predictions are the token frequencies."""
        return build_model(settings, self.preprocessor, self.target_counts)

    @cached_property
    def target_counts(self) -> list[Tensor]:
        """How often each token is a target in training, (V,) for each language."""
        counts = []
        for tokenizer, side, (_, end) in zip(self.tokenizers[1:], self.sides["train"][1:], self.boundaries):
            token_counts = np.bincount(np.concatenate(side), minlength=len(tokenizer))
            token_counts[end] += len(side)
            counts.append(torch.from_numpy(token_counts))
        return counts

    def embeddings(self, model: Translator) -> dict[str, Embedding]:
        """Return the embedding of the source and of each decoder; a shared vocabulary has one layer."""
        names = self.target_names[: len(model.writers)]
        embeddings = {name: model.get_decoder(number).embedding for number, name in enumerate(names)}
        return {"text": model.embedding, **embeddings}

    def token_counts(self) -> dict[str, Tensor]:
        source_counts = np.bincount(np.concatenate(self.sides["train"][0]), minlength=len(self.tokenizers[0]))
        return {"text": torch.from_numpy(source_counts), **dict(zip(self.target_names, self.target_counts))}

    @cached_property
    def train_lengths(self) -> list[int]:
        return self._lengths("train")

    def collate_train(self, indices: np.ndarray) -> PairBatch:
        return self._collate("train", indices)

    def validate(
        self, model: Translator, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Return the loss on the validation split, and BLEU and exact match of greedy translations of a part of it."""
        limits = EVALUATION_ROWS, EVALUATION_TOKENS
        batches = iterate_by_length(self._lengths("valid"), *limits, world.rank, world.size, share)
        nats, num_targets = sum_losses(model, (self._collate("valid", indices) for indices in batches))
        pairs = self.splits.parts["valid"]
        generator = TranslationGenerator(self.bundle(model, settings), InferenceOptions())
        limit = min(len(pairs), VALIDATION_PAIRS.get(generator.device.type, 200))
        sample = [number * len(pairs) // limit for number in spread_indices(limit, share)]
        sources = [self.sides["valid"][0][number] for number in sample]
        outputs: list[str] = []
        references: list[tuple[str, ...]] = []
        for index, hypotheses in generator.translate_ids(sources, world.rank, world.size):
            references += pairs[sample[index]].references
            outputs += [generator.decode(target, best[0]) for target, best in zip(generator.targets, hypotheses)]
        exact = sum(output in map(str.strip, texts) for output, texts in zip(outputs, references))
        counts = count_bleu_ngrams(outputs, references).sum(axis=0)
        nats, all_targets, num_exact, num_outputs, *bleu_sums = world.sum(
            nats, num_targets, exact, len(outputs), *counts
        )
        return {
            "loss": nats / max(1, all_targets),
            "bleu": bleu_from_counts(bleu_sums),
            "exact_match": num_exact / max(1, num_outputs),
        }

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        targets = zip(*(pair.targets for pair in self.splits.parts["train"]))
        frequent = [Counter(texts).most_common(1)[0][0] for texts in targets]
        return {}, {"frequent_targets": dict(zip(self.target_names, frequent))}

    def _lengths(self, split: str) -> list[int]:
        """Return the steps of each pair: of its longest side, with its begin or end token."""
        return [min(self.max_length, max(map(len, texts))) + 1 for texts in zip(*self.sides[split])]

    def _collate(self, split: str, indices: np.ndarray) -> PairBatch:
        sides = [[side[index] for index in indices] for side in self.sides[split]]
        return replace(collate(sides, self.boundaries, self.max_length), positions=torch.from_numpy(indices))

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Translator:
        return build_model(settings, preprocessor)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Return BLEU, chrF, exact match and ROUGE of the translations of the test split, or of a whole file."""
        check_output_path(options.out)
        splits, pairs, description = cls.select_examples(_request_targets(bundle, options.target), data, split)
        generator = TranslationGenerator(bundle, options)
        with Stopwatch() as watch:
            outputs = translate_pairs(generator, pairs, splits.findings, options.progress)
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
        frequent_targets = {} if bundle.training is None else bundle.training.facts["frequent_targets"]
        baselines = compute_baselines(metric, outputs, pairs, frequent_targets)
        return cls.add_training_facts(evaluation, bundle, pairs, get_scores, baselines)

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        return super().latency_inputs(_request_targets(bundle, None), data, split)

    @classmethod
    def input_text(cls, example: Pair) -> str:
        return example.source

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yield one translation per input and language; with `n_best` several, best first."""
        return TranslationGenerator(bundle, options).predict(inputs)


def _request_targets(bundle: ModelBundle, targets: str | None) -> ModelBundle:
    """Return the bundle with settings that read the requested targets, from the columns they had in training."""
    settings, requested_targets = bundle.settings, parse_targets(bundle.preprocessor, targets)
    if not settings.target:
        return bundle
    requested_settings = settings.model_copy(deep=True)
    requested_settings.target = ",".join(requested_targets)
    columns = parse_columns(settings.columns)
    if columns is not None:
        # Parallel files need no column for each target, since their suffixes name the languages.
        has_all = len(columns) == 1 + len(bundle.preprocessor.facts["targets"])
        names = [columns[1 + number] if has_all else name for name, number in requested_targets.items()]
        requested_settings.columns = ",".join([columns[0], *names])
    return replace(bundle, settings=requested_settings)


def build_model(
    settings: ResolvedSettings, preprocessor: Preprocessor, counts: Sequence[Tensor] | None = None
) -> Translator:
    """Build the model; with `counts` its first predictions are the token frequencies."""
    names = preprocessor.facts["targets"]
    if settings.translate.targets == "token":  # one decoder for all languages
        names = names[:1]
    sizes = [len(preprocessor.tokenizers[name]) for name in names]
    if counts is not None and len(sizes) < len(counts):
        counts = [torch.stack(list(counts)).sum(0)]
    return Translator(settings, (len(preprocessor.tokenizer), sizes), counts)
