"""Tagging: one tag per word, such as named entities, parts of speech or kinds of tokens.

    sentences → ids of words, characters, tags → word and character vectors → encoder → tag head → -log P(tags)
                                                                                           └→ Viterbi → tags → spans

This module connects the parts; each is explained where it is defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwise.callbacks import LogFunction, ProgressCallback, no_progress
from seqwise.config import Settings
from seqwise.data.batch import BucketLoader, iterate_by_length
from seqwise.data.reading import get_format_suffix
from seqwise.errors import DataError, UsageError
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Baseline, Evaluation, compute_entropy
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.tag.features import collect_features
from seqwise.tasks.tag.inspection import inspect_examples, inspect_text
from seqwise.tasks.tag.model import (
    EncodedSentences,
    TagBatch,
    TagModel,
    TagVocabulary,
    build_alphabet,
    build_word_vocabulary,
    set_tag_defaults,
)
from seqwise.tasks.tag.reader import (
    TaggedSplits,
    count_words,
    find_token_offsets,
    read_tagged_data,
)
from seqwise.tasks.tag.spans import (
    DEFINITIONS,
    OUTSIDE,
    SCHEME_NAMES,
    Sentence,
    SpanCounts,
    compute_metrics,
    extract_spans,
    format_prediction,
    list_bioes_tags,
    score_examples,
    split_long_sentences,
    write_tags,
)
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Preprocessor, ProcessGroup, Size
from seqwise.tasks.training_summary import TrainingSummary, hash_texts
from seqwise.text.tokenizer import Tokenizer

MAX_LENGTH = 512  # words of a sentence that are read at once, unless set
EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS = 64, 4096  # of a batch in evaluation
WORD_TOKENIZERS = ("words", "spaces")  # tokenisers in which a word is one token


class Tag(ExampleTask):
    """The tagging task on one data set."""

    set_defaults = staticmethod(set_tag_defaults)
    primary_metric = ("span_f1", "F1")
    example = "Ada Lovelace lived in London."
    example_unit = "sentences"
    row_columns = ("tokens", "tags")
    splits: TaggedSplits

    def __init__(self, splits: TaggedSplits, preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        self.vocabulary = TagVocabulary.from_preprocessor(preprocessor)
        if not self.vocabulary.has_spans:
            self.primary_metric = ("token_accuracy", "accuracy")
        self._encoded_splits: dict[tuple[str, int], tuple[list[Sentence], EncodedSentences]] = {}
        max_length = settings.data.max_length = settings.data.max_length or MAX_LENGTH
        for sentence in splits.all_examples():
            if len(sentence.words) > max_length:
                note = f"sentences are longer than {max_length} words; they are read in pieces"
                splits.findings.note(note, sentence.file, sentence.line)

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> TaggedSplits:
        return read_tagged_data(data, settings)

    @classmethod
    def fit_preprocessor(
        cls, splits: TaggedSplits, settings: Settings, log: LogFunction, initial: Preprocessor
    ) -> Preprocessor:
        if settings.tag.crf is None:
            settings.tag.crf = splits.has_spans
            reason = "spans" if splits.has_spans else "no spans"
            log(f"chosen by rule: tag.crf {splits.has_spans}, because the tags mark {reason}")
        if "tags" in initial.attributes:
            return initial
        tokenizer, normalizes = prepare_tokenizer(splits, settings, initial)
        settings.text.tokenizer = tokenizer.kind  # type: ignore[assignment]
        settings.text.vocabulary = len(tokenizer)
        train = splits.parts["train"]
        tag_counts = Counter(tag for sentence in train for tag in sentence.tags)
        tags = sorted(tag_counts, key=lambda tag: (-tag_counts[tag], tag))
        if splits.has_spans:
            tags = list_bioes_tags(sorted({span[0] for sentence in train for span in extract_spans(sentence.tags)}))
        if len(tags) < 2:
            problem = f"all words have the tag {tags[0]!r}: there is nothing to learn."
            fix = "Give data with at least two tags, or say which column holds them: --columns 1,4"
            raise DataError(problem, fix=fix, file=splits.name)
        attributes = {
            "tags": tags,
            "spans": splits.has_spans,
            "folds": normalizes,
            "alphabet": build_alphabet(count_words(train)),
            "code": splits.name == "builtin:code",
        }
        if settings.tag.features:
            attributes["features"] = collect_features(word for sentence in train for word in sentence.words)
        return Preprocessor({"text": tokenizer}, attributes)

    def log_data(self, log: LogFunction) -> None:
        super().log_data(log)
        log(self.describe_tags())

    def describe_sizes(self) -> tuple[str, ...]:
        return (f"vocabulary {len(self.vocabulary.tokenizer):,}",)

    def describe_tags(self) -> str:
        """Returns a sentence about the scheme and the tags."""
        tags, reason = self.vocabulary.tags, self.splits.reason
        if not self.vocabulary.has_spans:
            return f"tags: {len(tags)}, marking no spans, because {reason}."
        span_types = sorted({tag[2:] for tag in tags if tag != OUTSIDE})
        conversion = "" if self.splits.scheme == "bioes" else "; the model learns BIOES and answers in BIO"
        return (
            f"tags: {SCHEME_NAMES[self.splits.scheme]}, because {reason}{conversion}. "
            f"{len(span_types)} types: {', '.join(span_types)[:200]}."
        )

    def size(self) -> Size:
        lengths = [len(sentence.words) for sentence in self.splits.parts["train"]]
        return Size(
            num_tokens=sum(lengths),
            vocabulary_size=len(self.vocabulary.tokenizer),
            num_examples=len(lengths),
            max_length=max(lengths),
        )

    def check_shapes(self, model: TagModel) -> None:
        parts = (model.embedding, model.characters, model.features)
        width = sum(part.width for part in parts if part is not None)
        model.encoder(torch.zeros(1, 1, width, device="meta"))

    def build(self, settings: ResolvedSettings) -> TagModel:
        return TagModel(settings, self.vocabulary, self.word_counts)

    @cached_property
    def word_counts(self) -> torch.Tensor:
        """The number of occurrences of each word of the vocabulary in training, (V,)."""
        counts = torch.zeros(len(self.vocabulary.tokenizer))
        for word, count in count_words(self.splits.parts["train"]).items():
            counts[self.vocabulary.get_word_id(word)] += count
        return counts

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        _, encoded = self._encode_split("train", settings.data.max_length)
        return compute_entropy(np.bincount(np.concatenate(encoded.tag_ids)))

    def token_counts(self) -> dict[str, torch.Tensor]:
        return {"text": self.word_counts}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> BucketLoader[TagBatch]:
        _, encoded = self._encode_split("train", settings.data.max_length)
        batch_size, max_tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(encoded.lengths, encoded.collate, batch_size, max_tokens, settings.seed, rank, world_size)

    def _encode_split(self, split: str, max_length: int) -> tuple[list[Sentence], EncodedSentences]:
        """Returns the sentences of a split, of which long ones are split, and the same sentences as ids."""
        key = split, max_length
        if key not in self._encoded_splits:
            sentences = split_long_sentences(self.splits.parts[split], max_length)
            self._encoded_splits[key] = sentences, EncodedSentences(sentences, self.vocabulary)
        return self._encoded_splits[key]

    def validate(
        self, model: TagModel, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns loss, span F1 and token accuracy; the objective is 1 - F1, or 1 - accuracy if tags mark no spans."""
        sentences, encoded = self._encode_split("valid", settings.data.max_length)
        counts, loss, has_spans = SpanCounts(), 0.0, self.vocabulary.has_spans
        model.eval()
        device = model.embedding.weight.device
        limits = EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS
        batches = iterate_by_length(encoded.lengths, *limits, world.rank, world.size, share)
        for indices in batches:
            batch = encoded.collate(indices).to(device)
            with torch.no_grad():
                states = model.states(batch)
                loss += float(model.head.losses(states, batch.tag_ids, batch.lengths).sum())
                predicted = model.decode_scores(model.head.scores(states), batch.lengths).tolist()
            for index, tag_ids in zip(indices, predicted):
                true = sentences[index].tags
                counts.add_sentence(true, [self.vocabulary.tags[i] for i in tag_ids[: len(true)]], has_spans)
        loss, *totals = world.sum(loss, *counts.get_totals())
        metrics = compute_metrics(*totals, has_spans=has_spans)
        return {"loss": loss / totals[-1], **metrics, "objective": 1 - metrics[self.primary_metric[0]]}

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns the hash of each word and its most frequent tag; the first of the `tags` is for unknown words."""
        tag_counts: dict[str, Counter[str]] = {}
        for sentence in self.splits.parts["train"]:
            for word, tag in zip(sentence.words, sentence.tags):
                tag_counts.setdefault(word, Counter())[tag] += 1
        all_tags = sum(tag_counts.values(), Counter())
        default = OUTSIDE if self.vocabulary.has_spans else all_tags.most_common(1)[0][0]
        names = list(dict.fromkeys([default, *all_tags]))
        indices = {name: index for index, name in enumerate(names)}
        hashes = hash_texts(tag_counts)
        tags = np.array([indices[counts.most_common(1)[0][0]] for counts in tag_counts.values()], dtype=np.int32)
        order = np.argsort(hashes)
        return {"words": hashes[order], "word_tags": tags[order]}, {"tags": names}

    def count_data(self) -> dict[str, dict[str, int]]:
        counts, vocabulary = {}, self.vocabulary
        for split, sentences in self.splits.parts.items():
            words = count_words(sentences)
            counts[split] = {"sentences": len(sentences), "words": words.total()}
            if vocabulary.has_spans:
                counts[split]["spans"] = sum(len(extract_spans(sentence.tags)) for sentence in sentences)
            unknown = vocabulary.tokenizer.unknown
            counts[split]["unknown"] = sum(n for word, n in words.items() if vocabulary.get_word_id(word) == unknown)
        return counts

    def describe_data(self) -> tuple[str, ...]:
        sizes = f"{len(self.vocabulary.tokenizer):,} words, {self.vocabulary.num_characters:,} characters"
        return f"vocabulary: {sizes} (from the training split)", self.describe_tags()

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> TagModel:
        return TagModel(settings, TagVocabulary.from_preprocessor(preprocessor))

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        check_output_path(options.out)
        vocabulary = TagVocabulary.from_preprocessor(bundle.preprocessor)
        has_spans = vocabulary.has_spans
        splits, sentences, description = cls.select_examples(bundle, data, split)
        is_all_outside = all(tag == OUTSIDE for sentence in sentences for tag in sentence.tags)
        if has_spans and not splits.has_spans and is_all_outside:  # sentences without a span are valid in every scheme
            splits = replace(splits, scheme="bio", reason="all tags are O")
        if splits.has_spans != has_spans:
            kinds = {True: "tags that mark spans", False: "plain tags"}
            problem = f"the run was trained on {kinds[has_spans]}, but this data has {kinds[splits.has_spans]}."
            raise DataError(problem, fix="Give data of the same kind.", file=data)
        with Stopwatch() as watch:
            predicted = predict_tags(bundle, vocabulary, sentences, options.progress)
        counts = SpanCounts()
        tags = [counts.add_sentence(s.tags, each, has_spans) for s, each in zip(sentences, predicted)]
        if options.out is not None:
            write_tags(options.out, sentences, tags)
        metrics, primary_metric = counts.compute_metrics(has_spans), "span_f1" if has_spans else "token_accuracy"
        evaluation = Evaluation(
            metrics,
            {name: DEFINITIONS[name] for name in metrics},
            description,
            _describe_decoding(bundle.settings, splits.scheme, has_spans),
            (counts.build_table(),) if has_spans else (),
            tuple(splits.findings.warning_messages()),
            watch.seconds,
            score_examples(sentences, tags, has_spans) if options.examples else None,
            primary_metric,
            data_notes=tuple(splits.findings.note_messages()),
        )
        baselines = compute_baselines(bundle.training, sentences, has_spans)
        get_scores = partial(score_examples, sentences, tags, has_spans)
        return cls.add_baselines_and_overlap(evaluation, bundle, sentences, get_scores, baselines)

    @classmethod
    def input_text(cls, example: Sentence) -> str:
        return " ".join(example.words)

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Returns None, so that files are read line by line; raises an error for files of tagged words."""
        path = Path(text)
        if text != "-" and get_format_suffix(path) in (".conll", ".jsonl", ".json", ".tsv", ".csv") and path.is_file():
            raise UsageError(
                "predict reads one sentence per line, not words with tags.",
                fix="Tag such a file with: seqwise evaluate RUN FILE --out TAGGED",
                file=text,
            )
        return None

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_text(bundle, text)

    @classmethod
    def inspect_examples(
        cls, bundle: ModelBundle, splits: Any, examples: Sequence[Any], descriptions: Sequence[str]
    ) -> list[InspectedInput]:
        return inspect_examples(bundle, splits.parts, examples, descriptions)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        vocabulary = TagVocabulary.from_preprocessor(bundle.preprocessor)
        offsets = [find_token_offsets(text, bundle.preprocessor) for text in inputs]
        sentences = [
            Sentence(words := tuple(text[start:end] for start, end in each), (OUTSIDE,) * len(words))
            for text, each in zip(inputs, offsets)
        ]
        tags = predict_tags(bundle, vocabulary, sentences)
        for text, word_offsets, word_tags in zip(inputs, offsets, tags):
            yield format_prediction(text, word_offsets, word_tags, vocabulary.has_spans)


def prepare_tokenizer(splits: TaggedSplits, settings: Settings, initial: Preprocessor) -> tuple[Tokenizer, bool]:
    """Returns the tokeniser of `initial` or a new one of words, and whether words are normalised before lookup."""
    text = settings.text
    if initial.tokenizers:
        if initial.tokenizer.kind not in WORD_TOKENIZERS:
            raise UsageError(
                f"tagging needs one token per word; the initial run has a vocabulary of {initial.tokenizer.kind}.",
                fix="Train the run to start from with --text.tokenizer words.",
            )
        return initial.tokenizer, False
    normalizes = settings.tag.characters != 0
    if text.tokenizer not in (None, *WORD_TOKENIZERS):
        raise UsageError(
            f"tagging reads the words of the data, one token each; received --text.tokenizer {text.tokenizer}.",
            fix="Leave out --text.tokenizer.",
        )
    if text.lowercase and normalizes:
        raise UsageError(
            "--text.lowercase: the vocabulary ignores case anyway; only the characters of a word have it.",
            fix="Leave it out, or read no characters: --tag.characters 0",
        )
    return build_word_vocabulary(splits.parts["train"], text, normalizes, initial.extra_words), normalizes


def predict_tags(
    bundle: ModelBundle,
    vocabulary: TagVocabulary,
    sentences: Sequence[Sentence],
    progress: ProgressCallback = no_progress,
) -> list[list[str]]:
    """Returns the model's tags of each sentence, in the order of the sentences."""
    model, max_length = bundle.model.eval(), bundle.settings.data.max_length
    segments = split_long_sentences(sentences, max_length)
    encoded = EncodedSentences(segments, vocabulary)
    tags: list[list[str]] = [[] for _ in segments]
    device, num_done = model.embedding.weight.device, 0
    for indices in iterate_by_length(encoded.lengths, EVALUATION_BATCH_SIZE, MAX_EVALUATION_TOKENS):
        predicted = model.decode(encoded.collate(indices).to(device)).tolist()
        for index, tag_ids in zip(indices, predicted):
            tags[index] = [vocabulary.tags[i] for i in tag_ids[: len(segments[index].words)]]
        num_done += len(indices)
        progress(num_done, len(segments))
    remaining = iter(tags)
    return [list(chain(*(next(remaining) for _ in range(0, len(s.words), max_length)))) for s in sentences]


def compute_baselines(
    training: TrainingSummary | None, sentences: Sequence[Sentence], has_spans: bool
) -> list[Baseline]:
    """Returns the primary metric of a tagger that gives each word its most frequent tag."""
    if training is None:
        return []
    names, words = training.attributes["tags"], training.arrays["words"]
    hashes = hash_texts(word for sentence in sentences for word in sentence.words)
    indices = np.minimum(np.searchsorted(words, hashes), len(words) - 1)
    tags = np.where(words[indices] == hashes, training.arrays["word_tags"][indices], 0).tolist()
    counts, remaining = SpanCounts(), iter(tags)
    for sentence in sentences:
        counts.add_sentence(sentence.tags, [names[next(remaining)] for _ in sentence.words], has_spans)
    description = f"Each word gets the tag that it has most often in the training split, an unseen one {names[0]}."
    value = counts.compute_metrics(has_spans)["span_f1" if has_spans else "token_accuracy"]
    return [Baseline("most frequent tag of each word", value, description)]


def _describe_decoding(settings: ResolvedSettings, scheme: str, has_spans: bool) -> str:
    method = "the best sequence of tags (linear-chain CRF, Viterbi)"
    if not settings.tag.crf:
        method = "the best sequence of independent tags (Viterbi)" if has_spans else "the best tag of each word"
    if not has_spans:
        return f"{method}; tags compared as they are written"
    return f"{method}, of those that BIOES allows; data read as {SCHEME_NAMES[scheme]}, tags compared in BIO"
