"""Classification: one label for a whole text.

    text → tokens → buckets → embedding → encoder → pooling → label scores → negative log likelihood
                                                                        └→ probabilities of the labels

With `classify.ngrams` the label scores are the mean of these and of those of an n-gram head, which reads the tokens.
This module connects the parts: `reader.py` reads and checks the texts, `model.py` has the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from seqwise.callbacks import LogFunction, ProgressCallback, no_progress
from seqwise.config import Settings
from seqwise.data.batch import spread_indices
from seqwise.data.examples import Splits
from seqwise.errors import pluralize
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Evaluation, compute_entropy
from seqwise.metrics.predictions import write_predictions
from seqwise.printable import make_printable
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.bag_of_words import compute_baselines, fit_baselines
from seqwise.tasks.classify.inspection import inspect_examples, inspect_text
from seqwise.tasks.classify.metrics import (
    DEFINITIONS,
    build_confusion_table,
    build_label_table,
    compute_accuracy,
    compute_confusion_matrix,
    compute_macro_f1,
    format_prediction,
    score_examples,
)
from seqwise.tasks.classify.model import (
    Classifier,
    TextBatch,
    collate,
    predict_log_probabilities,
    set_classify_defaults,
)
from seqwise.tasks.classify.reader import (
    LabelledText,
    check_labels,
    read_labelled_data,
    reject_unknown_labels,
    sort_labels,
)
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Preprocessor, ProcessGroup, Size
from seqwise.text.tokenizer import Tokenizer

PAD = "<pad>"
MAX_LENGTH = 2_048  # tokens of one text, unless set; longer texts are truncated. Measured in docs/classify.md
MAX_VOCABULARY = 50_000  # size of the vocabulary, unless set
MIN_UNSPACED_LENGTH = 15  # mean letters between spaces from which on a script is assumed to have no spaces
MAX_NAME_WORDS = 1.5  # mean words per text up to which texts are assumed to be names or codes, which rarely repeat
CHUNK_SIZE = 2_048  # inputs that are sorted by length together


class Classify(ExampleTask):
    """The classification task on one data set."""

    set_defaults = staticmethod(set_classify_defaults)
    primary_metric = ("accuracy", "acc")
    example = "a text"
    example_unit = "texts"
    row_columns = input_columns = ("text", "label")

    def __init__(self, splits: Splits[LabelledText], preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        self.labels: list[str] = preprocessor.attributes["labels"]
        self.token_ids = {split: encode(preprocessor.tokenizer, examples) for split, examples in splits.parts.items()}
        self.label_ids = {split: get_label_ids(examples, self.labels) for split, examples in splits.parts.items()}
        if settings.data.max_length is None:
            settings.data.max_length = min(MAX_LENGTH, max(1, self.size().max_length))
        self.max_length = settings.data.max_length
        warning = f"texts of more than {self.max_length:,} tokens, which are truncated (--data.max-length)"
        for split, examples in splits.parts.items():
            for ids, example in zip(self.token_ids[split], examples):
                if len(ids) > self.max_length:
                    splits.findings.warn(warning, example.file, example.line)

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> Splits[LabelledText]:
        return read_labelled_data(data, settings)

    @classmethod
    def fit_preprocessor(
        cls, splits: Splits[LabelledText], settings: Settings, log: LogFunction, initial: Preprocessor
    ) -> Preprocessor:
        check_labels(splits)
        tokenizers, attributes = dict(initial.tokenizers), dict(initial.attributes)
        if "text" not in tokenizers:
            tokenizers["text"] = train_tokenizer(splits.parts["train"], settings, log, initial.extra_words)
        attributes.setdefault("labels", sort_labels({example.label for example in splits.parts["train"]}))
        reject_unknown_labels(splits.all_examples(), attributes["labels"], splits.findings)
        splits.findings.raise_errors()
        return Preprocessor(tokenizers, attributes)

    def describe_sizes(self) -> tuple[str, ...]:
        return f"vocabulary {len(self.preprocessor.tokenizer):,}", self.describe_labels()

    def describe_labels(self) -> str:
        """Returns the labels with their shares of the training split, the most frequent first."""
        counts = Counter(example.label for example in self.splits.parts["train"])
        shares = [
            f"{make_printable(label, is_line=True)} {count / counts.total():.0%}"
            for label, count in counts.most_common(6)
        ]
        return f"{len(counts)} labels ({', '.join(shares)}{', …' if len(counts) > 6 else ''})"

    def warnings(self) -> list[str]:
        return [*super().warnings(), *self.warn_about_unknown()]

    def count_data(self) -> dict[str, dict[str, int]]:
        counts, unknown = {}, self.preprocessor.tokenizer.unknown
        for split, token_ids in self.token_ids.items():
            lengths = [len(ids) for ids in token_ids]
            sizes = {"texts": len(token_ids), "tokens": sum(lengths), "longest": max(lengths)}
            counts[split] = sizes | {"unknown": sum(int((ids == unknown).sum()) for ids in token_ids)}
        return counts

    def describe_data(self) -> tuple[str, ...]:
        return self.describe_tokenizer(), f"training: {self.describe_labels()}"

    def size(self) -> Size:
        lengths = [len(ids) for ids in self.token_ids["train"]]
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(lengths), max(lengths), len(self.labels))

    def check_shapes(self, model: Classifier) -> None:
        model.encoder(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def build(self, settings: ResolvedSettings) -> Classifier:
        """Returns an untrained model that predicts each label by its frequency, unless class weights are balanced."""
        tokenizer, num_labels = self.preprocessor.tokenizer, len(self.labels)
        counts = torch.from_numpy(np.bincount(self.label_ids["train"], minlength=num_labels))
        model = Classifier(settings, len(tokenizer), num_labels, tokenizer.unknown, counts)
        if model.ngrams is not None:
            texts = [ids[: self.max_length] for ids in self.token_ids["train"]]
            model.ngrams.count_ratios(texts, self.label_ids["train"])
        return model

    def token_counts(self) -> dict[str, torch.Tensor]:
        ids = np.concatenate(self.token_ids["train"])
        return {"text": torch.from_numpy(np.bincount(ids, minlength=len(self.preprocessor.tokenizer)))}

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        counts = np.bincount(self.label_ids["train"], minlength=len(self.labels))
        if settings.classify.class_weights == "balanced":
            counts = (counts > 0).astype(np.int64)  # each label has the same weight
        return compute_entropy(counts, settings.classify.label_smoothing if is_smoothed else 0.0)

    @cached_property
    def train_lengths(self) -> list[int]:
        return [min(len(ids), self.max_length) for ids in self.token_ids["train"]]

    def collate_train(self, indices: np.ndarray) -> TextBatch:
        token_ids = [self.token_ids["train"][index][: self.max_length] for index in indices]
        return collate(token_ids, self.label_ids["train"][indices], indices)

    def validate(
        self, model: Classifier, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns loss, accuracy and macro-F1 on the validation split, computed by all processes.

        The best weights are those with the best accuracy, or the best macro-F1 with balanced class weights; of equal
        ones those with the smallest loss.
        """
        indices, num_labels = spread_indices(len(self.token_ids["valid"]), share), len(self.labels)
        token_ids, label_ids = [self.token_ids["valid"][index] for index in indices], self.label_ids["valid"][indices]
        scores = score_texts(model, token_ids, label_ids, self.max_length, world.rank, world.size)
        nats, *cells = world.sum(scores.nats, *scores.confusion.flatten().tolist())
        confusion = np.array(cells).reshape(num_labels, num_labels)
        loss = nats / max(1, len(token_ids))
        metrics = {"loss": loss, "accuracy": compute_accuracy(confusion), "macro_f1": compute_macro_f1(confusion)}
        criterion = "macro_f1" if settings.classify.class_weights == "balanced" else "accuracy"
        tie_break = loss / (1 + loss) / max(1, len(token_ids))  # smaller than the effect of one text on the accuracy
        return metrics | {"objective": 1 - metrics[criterion] + tie_break}

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return fit_baselines(self.token_ids, self.label_ids, len(self.labels)), {}

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Classifier:
        tokenizer = preprocessor.tokenizer
        return Classifier(settings, len(tokenizer), len(preprocessor.attributes["labels"]), tokenizer.unknown)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns accuracy, macro-F1, and tables of labels and of their confusions."""
        check_output_path(options.out)
        settings, labels = bundle.settings, bundle.preprocessor.attributes["labels"]
        splits, examples, description = cls.select_examples(bundle, data, split)
        reject_unknown_labels(examples, labels, splits.findings)
        splits.findings.raise_errors()
        tokenizer, max_length = bundle.preprocessor.tokenizer, settings.data.max_length
        token_ids, label_ids = encode(tokenizer, examples), get_label_ids(examples, labels)
        with Stopwatch() as watch:
            scores = score_texts(bundle.model, token_ids, label_ids, max_length, progress=options.progress)
        predictions = [labels[label] for label in scores.predicted]
        if options.out is not None:
            rows = zip(examples, predictions, scores.probabilities.tolist())
            write_predictions(options.out, ({"input": e.text, "expected": e.label, "predicted": p, "probability": value}
                                            for e, p, value in rows))  # fmt: skip
        warnings, num_truncated = splits.findings.warning_messages(), sum(len(ids) > max_length for ids in token_ids)
        if num_truncated:
            warnings.append(pluralize(num_truncated, f"texts of more than {max_length:,} tokens, which are truncated."))
        metrics = {
            "accuracy": compute_accuracy(scores.confusion),
            "macro_f1": compute_macro_f1(scores.confusion),
            "loss": scores.nats / len(token_ids),
            "examples": len(token_ids),
        }
        token_name = tokenizer.kind if tokenizer.kind in ("words", "characters") else "tokens"
        baselines = compute_baselines(bundle.training, token_ids, label_ids, labels, token_name)
        evaluation = Evaluation(
            metrics,
            DEFINITIONS,
            description,
            method=describe_method(settings, len(labels)),
            tables=(build_label_table(scores.confusion, labels), build_confusion_table(scores.confusion, labels)),
            warnings=tuple(warnings),
            data_notes=tuple(splits.findings.note_messages()),
            seconds=watch.seconds,
            examples=score_examples(examples, predictions) if options.examples else None,
            primary_metric="accuracy",
        )
        return cls.add_baselines_and_overlap(
            evaluation, bundle, examples, lambda: score_examples(examples, predictions), baselines
        )

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_text(bundle, text)

    @classmethod
    def inspect_examples(
        cls, bundle: ModelBundle, splits: Any, examples: Sequence[Any], descriptions: Sequence[str]
    ) -> list[InspectedInput]:
        return inspect_examples(bundle, examples, descriptions)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the most probable label of each input with its probability, then the next ones."""
        tokenizer, max_length = bundle.preprocessor.tokenizer, bundle.settings.data.max_length
        labels: list[str] = bundle.preprocessor.attributes["labels"]
        for start in range(0, len(inputs), CHUNK_SIZE):
            texts = inputs[start : start + CHUNK_SIZE]
            token_ids = tokenizer.encode_many([text.strip() for text in texts])
            probabilities = np.zeros((len(texts), len(labels)))
            for indices, log_probabilities in predict_log_probabilities(bundle.model, token_ids, max_length):
                probabilities[indices] = np.exp(log_probabilities)
            for text, ids, text_probabilities in zip(texts, token_ids, probabilities):
                order = np.argsort(-text_probabilities, kind="stable")
                ranking = {labels[label]: float(text_probabilities[label]) for label in order}
                yield format_prediction(text, ranking, options.top, bool((ids != tokenizer.unknown).any()))


def train_tokenizer(
    examples: Sequence[LabelledText], settings: Settings, log: LogFunction, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """Returns a tokeniser trained on the examples; writes its kind and size into `settings` unless they are set."""
    text = settings.text
    if text.tokenizer is None:
        sample = examples[:: -(-len(examples) // 1_000)]
        words = " ".join(example.text for example in sample).split()
        text.tokenizer, reason = "words", ""
        if settings.vectors is not None:
            reason = ", because --vectors has vectors of words"
        elif sum(map(len, words)) >= MIN_UNSPACED_LENGTH * max(1, len(words)):
            text.tokenizer, reason = "characters", ", because the texts have hardly any spaces"
        elif len(words) <= MAX_NAME_WORDS * len(sample):
            text.tokenizer, reason = "characters", ", because the texts are single words"
        log(f"tokeniser: {text.tokenizer}{reason}.")
    size = text.vocabulary or (MAX_VOCABULARY if text.tokenizer in ("words", "spaces", "characters") else None)
    texts = (example.text for example in examples)
    tokenizer = Tokenizer.train(text.tokenizer, texts, size, text.min_count, text.lowercase, (PAD,), extra_words)
    text.vocabulary = len(tokenizer)
    return tokenizer


def describe_method(settings: ResolvedSettings, num_labels: int) -> str:
    """Returns how labels are predicted, in words."""
    pooling = f"{settings.classify.pooling} pooling over the states of the {settings.model}"
    order = settings.classify.ngrams
    ngrams = f", and n-grams of up to {pluralize(order, 'tokens')}" if order else ""
    return f"{pooling}{ngrams}; {num_labels} labels"


def encode(tokenizer: Tokenizer, examples: Sequence[LabelledText]) -> list[np.ndarray]:
    return tokenizer.encode_many([example.text for example in examples])


def get_label_ids(examples: Sequence[LabelledText], labels: Sequence[str]) -> np.ndarray:
    """Returns the label id of each example, (N,)."""
    ids = {label: index for index, label in enumerate(labels)}
    return np.array([ids[example.label] for example in examples], dtype=np.int64)


@dataclass
class LabelScores:
    """Predictions for texts with known labels. Texts of other ranks have probability 0."""

    nats: float  # summed negative log likelihood of the true labels
    confusion: np.ndarray  # (K, K): true labels in rows, predicted labels in columns
    predicted: np.ndarray  # (N,): most probable label of each text
    probabilities: np.ndarray  # (N,): probability of that label


def score_texts(
    model: Classifier,
    token_ids: Sequence[np.ndarray],
    label_ids: np.ndarray,
    max_length: int,
    rank: int = 0,
    world_size: int = 1,
    progress: ProgressCallback = no_progress,
) -> LabelScores:
    """Returns the predictions for the texts of a rank, compared with their true labels."""
    num_labels, num_texts, num_done = model.head.output.out_features, len(token_ids), 0
    confusion = np.zeros((num_labels, num_labels), np.int64)
    scores = LabelScores(0.0, confusion, np.zeros(num_texts, np.int64), np.zeros(num_texts))
    for indices, log_probabilities in predict_log_probabilities(model, token_ids, max_length, rank, world_size):
        scores.nats -= float(log_probabilities[range(len(indices)), label_ids[indices]].sum())
        scores.predicted[indices] = log_probabilities.argmax(-1)
        scores.probabilities[indices] = np.exp(log_probabilities.max(-1))
        scores.confusion += compute_confusion_matrix(label_ids[indices], scores.predicted[indices], num_labels)
        num_done += len(indices)
        progress(num_done, num_texts)
    return scores
