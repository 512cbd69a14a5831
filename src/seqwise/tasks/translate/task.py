"""Translation, and other tasks that generate one text from another, such as summaries.

    source → tokens → encoder → memory → writer → tokens of each target → loss
                                              └→ beam search → text → BLEU, chrF, exact match, ROUGE

This module connects the parts: reading pairs is in `reader.py`, vocabularies in `vocabularies.py`, the model in
`model.py`, its use in `generation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqwise.backbones.decoder import supports_input_feeding
from seqwise.config import Settings
from seqwise.data.buckets import BucketLoader, iterate_by_length
from seqwise.data.examples import Splits
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import SUFFIXES, parse_columns, read_input_column
from seqwise.decoding.options import BeamSearchOptions
from seqwise.errors import UsageError
from seqwise.files import check_output_path
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.translation import BleuCounts
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.summary import describe_splits, warn_about_unknown
from seqwise.tasks.task import (
    InferenceOptions,
    LatencyInputs,
    LogFunction,
    ModelBundle,
    Prediction,
    Preprocessor,
    ProgressCallback,
    Report,
    Size,
    Summing,
    no_log,
)
from seqwise.tasks.translate.defaults import fill_translate
from seqwise.tasks.translate.evaluation import (
    compute_metrics,
    describe_decoding,
    format_prediction,
    score_pairs,
    translate_pairs,
    write_translations,
)
from seqwise.tasks.translate.generation import TranslationGenerator, parse_targets
from seqwise.tasks.translate.languages import Languages
from seqwise.tasks.translate.model import PairBatch, Translator, collate
from seqwise.tasks.translate.reader import Pair, check_pairs, open_pairs
from seqwise.tasks.translate.vocabularies import encode, get_boundary_tokens, train_tokenizers

MAX_TOKENS = 512  # of one text, unless set
VALIDATION_PAIRS = {"cpu": 200, "cuda": 1_000}  # translated in each validation during training
EVALUATION_ROWS, EVALUATION_TOKENS = 64, 8_192  # of a batch whose loss is computed in validation
CHUNK = 1_024  # inputs that are sorted by length together
MIN_BLEU_WORDS = 4  # mean words of the targets from which on BLEU, not exact match, is the primary metric


class Translate(ExampleTask):
    """The task on pairs of texts: the vocabularies are known; a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_translate)
    primary_metric = ("bleu", "BLEU")
    beam_search = BeamSearchOptions(beam=5)
    example = "a text"
    example_unit = "pairs"

    def __init__(self, splits: Splits[Pair], preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        self.target_names: list[str] = preprocessor.facts["targets"]
        self.boundaries = get_boundary_tokens(preprocessor.tokenizers, self.target_names, settings)
        self.max_length = settings.data.max_length or MAX_TOKENS
        # Ids by split: of each source, and of the targets of each pair in all languages.
        self.sources: dict[str, list[np.ndarray]] = {}
        self.targets: dict[str, list[list[np.ndarray]]] = {}
        for split, pairs in splits.parts.items():
            self.sources[split] = encode(preprocessor.tokenizer, [pair.source for pair in pairs])
            by_language = [
                encode(preprocessor.tokenizers[name], [pair.targets[number] for pair in pairs])
                for number, name in enumerate(self.target_names)
            ]
            self.targets[split] = [list(row) for row in zip(*by_language)]
        lengths = [len(text.split()) for pair in splits.parts["valid"] for text in pair.targets]
        if sum(lengths) / len(lengths) < MIN_BLEU_WORDS:
            self.primary_metric = ("exact_match", "exact")

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> Splits[Pair]:
        return open_pairs(data, settings)[0]

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read and check the pairs; learn the vocabularies from the training split unless they are given."""
        splits, languages = open_pairs(data, settings)
        check_pairs(splits)
        if preprocessor is None:
            tokenizers = train_tokenizers(splits.parts["train"], languages, settings, log)
            preprocessor = Preprocessor(tokenizers, {"source": languages.source, "targets": list(languages.targets)})
        if languages != Languages():
            settings.target = ",".join(languages.targets)
            settings.columns = settings.columns or ",".join(languages.all)
        task = cls(splits, preprocessor, settings)
        preprocessor.facts.setdefault("ratios", task.compute_length_ratios())
        if data.startswith("builtin:"):
            preprocessor.facts["example"] = splits.parts["valid"][0].source
        if settings.data.max_length is None:
            settings.data.max_length = task.max_length = min(MAX_TOKENS, task.size().longest)
        task.warn_about_truncation()
        sizes = {split: len(pairs) for split, pairs in splits.parts.items()}
        log(describe_splits(f"pairs, {languages}", sizes, task.split_rule, task.describe_vocabulary()))
        for warning in task.warnings():
            log(f"note: {warning}")
        return task

    def compute_length_ratios(self) -> list[float]:
        """Return the tokens of each target per token of the source, in training."""
        source_tokens = max(1, sum(map(len, self.sources["train"])))
        numbers = range(len(self.target_names))
        return [sum(len(row[number]) for row in self.targets["train"]) / source_tokens for number in numbers]

    def warn_about_truncation(self) -> None:
        what = f"texts of more than {self.max_length:,} tokens, which are truncated (--data.max-length)"
        for split, pairs in self.splits.parts.items():
            for pair, source, targets in zip(pairs, self.sources[split], self.targets[split]):
                for ids in (source, *targets):
                    if len(ids) > self.max_length:
                        self.splits.findings.warn(what, pair.file, pair.line)

    def describe_vocabulary(self) -> str:
        sizes = {name: len(tokenizer) for name, tokenizer in self.preprocessor.tokenizers.items()}
        if len({tokenizer.fingerprint for tokenizer in self.preprocessor.tokenizers.values()}) == 1:
            return f"one vocabulary of {sizes['text']:,}"
        source = self.preprocessor.facts["source"]
        return "vocabulary " + ", ".join(f"{source if name == 'text' else name} {n:,}" for name, n in sizes.items())

    def warnings(self) -> list[str]:
        unknown = {
            split: (self._count_unknown(split), sum(len(ids) for side in self._sides(split) for ids in side))
            for split in self.splits.parts
        }
        return [*super().warnings(), *warn_about_unknown(unknown)]

    def _count_unknown(self, split: str) -> int:
        tokenizers = [self.preprocessor.tokenizer, *(self.preprocessor.tokenizers[name] for name in self.target_names)]
        sides = zip(tokenizers, self._sides(split))
        return sum(int((ids == tokenizer.unknown).sum()) for tokenizer, side in sides for ids in side)

    def _sides(self, split: str) -> list[list[np.ndarray]]:
        """Return the ids of the sources and of each language's targets of a split."""
        numbers = range(len(self.target_names))
        return [self.sources[split], *([row[number] for row in self.targets[split]] for number in numbers)]

    # Training

    def size(self) -> Size:
        longest = max(len(ids) for split in self.splits.parts for side in self._sides(split) for ids in side)
        tokens = sum(len(ids) + 1 for row in self.targets["train"] for ids in row)
        vocabulary = max(len(self.preprocessor.tokenizers[name]) for name in self.target_names)
        return Size(tokens, vocabulary, len(self.sources["train"]), max(1, longest), len(self.target_names))

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
        model.writer(0).losses(model.encode(ids), ids, ids)

    def build(self, settings: ResolvedSettings) -> Translator:
        """Return an untrained model whose first predictions are the token frequencies."""
        return build_model(settings, self.preprocessor, self.target_counts)

    @cached_property
    def target_counts(self) -> list[Tensor]:
        """How often each token is a target in training, (V,) for each language."""
        counts = []
        for number, name in enumerate(self.target_names):
            ids = np.concatenate([row[number] for row in self.targets["train"]])
            token_counts = np.bincount(ids, minlength=len(self.preprocessor.tokenizers[name]))
            token_counts[self.boundaries.ends[number]] += len(self.targets["train"])
            counts.append(torch.from_numpy(token_counts))
        return counts

    def embeddings(self, model: Translator) -> dict[str, Embedding]:
        """Return the embedding of the source and of each writer; a shared vocabulary has one layer."""
        writers = {name: model.writer(number) for number, name in enumerate(self.target_names[: len(model.writers)])}
        return {"text": model.embedding, **{name: writer.embedding for name, writer in writers.items()}}

    def token_counts(self) -> dict[str, Tensor]:
        ids = np.concatenate(self.sources["train"])
        source_counts = torch.from_numpy(np.bincount(ids, minlength=len(self.preprocessor.tokenizer)))
        return {"text": source_counts, **dict(zip(self.target_names, self.target_counts))}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> BucketLoader[PairBatch]:
        """Return training batches of pairs of similar length."""
        batch_size, max_tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(self._lengths("train"), self._collate, batch_size, max_tokens, settings.seed, rank, world)

    def validate(self, model: Translator, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Return the loss on the validation split, and BLEU and exact match of greedy translations of a part of it."""
        model.eval()
        device = model.embedding.weight.device
        nats, num_targets = 0.0, 0
        batches = iterate_by_length(self._lengths("valid"), EVALUATION_ROWS, EVALUATION_TOKENS, world.rank, world.size)
        with torch.no_grad():
            for numbers in batches:
                loss, _ = model(self._collate(numbers, "valid").to(device))
                nats, num_targets = nats + float(loss.total), num_targets + loss.count
        sample = _evenly_spaced(len(self.sources["valid"]), VALIDATION_PAIRS.get(device.type, 200))
        generator = TranslationGenerator(self.bundle(model, settings), InferenceOptions())
        sources = [self.sources["valid"][number] for number in sample]
        outputs, references = [], []
        for index, hypotheses in generator.translate_ids(sources, world.rank, world.size):
            for target, best in zip(generator.targets, hypotheses):
                outputs.append(generator.decode(target, best[0]))
                references.append(self.splits.parts["valid"][sample[index]].targets[target.number])
        exact = sum(output == reference.strip() for output, reference in zip(outputs, references))
        counts = BleuCounts.from_texts(outputs, references).as_tuple()
        nats, all_targets, num_exact, num_outputs, *bleu_sums = world.sum(
            nats, num_targets, exact, len(outputs), *counts
        )
        return {
            "loss": nats / max(1, all_targets),
            "bleu": BleuCounts.from_tuple(bleu_sums).bleu,
            "exact_match": num_exact / max(1, num_outputs),
        }

    def _lengths(self, split: str) -> list[int]:
        """Return the steps of each pair: of its longest side, with its begin or end token."""
        pairs = zip(self.sources[split], self.targets[split])
        return [min(self.max_length, max(len(ids) for ids in (source, *targets))) + 1 for source, targets in pairs]

    def _collate(self, numbers: np.ndarray, split: str = "train") -> PairBatch:
        sources = [self.sources[split][number] for number in numbers]
        targets = [self.targets[split][number] for number in numbers]
        return replace(collate(sources, targets, self.boundaries, self.max_length), positions=torch.from_numpy(numbers))

    def report(self) -> Report:
        rows = {}
        for split, pairs in self.splits.parts.items():
            sides = self._sides(split)
            longest = max(len(ids) for side in sides for ids in side)
            rows[split] = (len(pairs), *(sum(map(len, side)) for side in sides), longest, self._count_unknown(split))
        kind = self.preprocessor.tokenizer.kind
        sentences = (
            f"tokeniser: {kind}, {self.describe_vocabulary()} (from the training split)",
            f"split: {self.split_rule}",
        )
        languages = [self.preprocessor.facts["source"], *self.target_names]
        columns = ("pairs", *(f"{name} tokens" for name in languages), "longest", "unknown")
        return Report(columns, rows, sentences, tuple(self.warnings()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Translator:
        return build_model(settings, preprocessor)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Return BLEU, chrF, exact match and ROUGE of the translations of the test split, or of a whole file."""
        check_output_path(options.out)
        splits, pairs, on = cls.select_examples(_request_targets(bundle, options.target), data, split)
        generator = TranslationGenerator(bundle, options)
        with Stopwatch() as watch:
            outputs = translate_pairs(generator, pairs, splits.findings, options.progress)
        if options.out is not None:
            write_translations(options.out, outputs)
        metric = options.primary_metric or cls.primary_metric[0]
        warnings = splits.findings.warning_messages()
        evaluation = compute_metrics(outputs, on, describe_decoding(bundle.settings, options), warnings)
        scores = score_pairs(metric, outputs, pairs) if options.examples else None
        return replace(evaluation, seconds=watch.seconds, examples=scores)

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        return super().latency_inputs(_request_targets(bundle, None), data, split)

    @classmethod
    def input_text(cls, example: Pair) -> str:
        return example.source

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Return the source column of a table; any other file is read line by line."""
        path = Path(text)
        if text == "-" or get_format_suffix(path) not in SUFFIXES or not path.is_file():
            return None
        return read_input_column(path, ("source", "target"), settings.columns)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yield one translation per input and language; with `n_best` several, best first."""
        generator = TranslationGenerator(bundle, options)
        for start in range(0, len(inputs), CHUNK):
            texts = inputs[start : start + CHUNK]
            rows = generator.encode_sources(texts)
            for text, ids, translations in zip(texts, rows, generator.translate_texts(rows, start)):
                by_target = {target.name: best for target, best in zip(generator.targets, translations)}
                yield format_prediction(text, by_target, generator.count_unread(ids))


def _request_targets(bundle: ModelBundle, targets: str | None) -> ModelBundle:
    """Return the bundle with settings that read the requested targets, from the columns they had in training."""
    settings, chosen = bundle.settings, parse_targets(bundle.preprocessor, targets)
    if not settings.target:
        return bundle
    requested = settings.model_copy(deep=True)
    requested.target = ",".join(target.name for target in chosen)
    columns = parse_columns(settings.columns)
    if columns is not None:
        # Parallel files need no column for each target, since their suffixes name the languages.
        has_all = len(columns) == 1 + len(bundle.preprocessor.facts["targets"])
        names = [columns[1 + target.number] if has_all else target.name for target in chosen]
        requested.columns = ",".join([columns[0], *names])
    return replace(bundle, settings=requested)


def build_model(
    settings: ResolvedSettings, preprocessor: Preprocessor, counts: Sequence[Tensor] | None = None
) -> Translator:
    """Build the model; with `counts` its first predictions are the token frequencies."""
    names = preprocessor.facts["targets"]
    if settings.translate.targets == "token":  # one writer for all languages
        names = names[:1]
    sizes = [len(preprocessor.tokenizers[name]) for name in names]
    if counts is not None and len(sizes) < len(counts):
        counts = [torch.stack(list(counts)).sum(0)]
    return Translator(settings, (len(preprocessor.tokenizer), sizes), counts)


def _evenly_spaced(count: int, limit: int) -> list[int]:
    """Return at most `limit` numbers below `count`, at even distances."""
    limit = min(limit, count)
    return sorted({number * count // limit for number in range(limit)})
