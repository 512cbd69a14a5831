"""Classification: one label for a whole text.

    text → tokens → buckets → embedding → encoder → pooling → label scores → negative log likelihood
                                                                        └→ probabilities of the labels

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
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.predictions import write_predictions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.bag_of_words import compute_baselines, fit_baselines
from seqwise.tasks.classify.metrics import (
    DEFINITIONS,
    compute_accuracy,
    compute_macro_f1,
    confusion_matrix,
    confusion_table,
    format_prediction,
    label_table,
    score_examples,
)
from seqwise.tasks.classify.model import Classifier, TextBatch, collate, fill_classify, predict_log_probabilities
from seqwise.tasks.classify.reader import (
    LabelledText,
    check_labels,
    open_labelled_texts,
    reject_unknown_labels,
    sort_labels,
)
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import InferenceOptions, ModelBundle, Prediction, Preprocessor, ProcessGroup, Size
from seqwise.text.tokenizer import Tokenizer

PAD = "<pad>"
MAX_TOKENS = 2_048  # of one text unless set; longer ones are truncated. Measured in docs/classify.md
MAX_WORDS = 50_000  # vocabulary unless set
MIN_UNSPACED = 15  # mean letters between spaces above which a script is assumed to have no spaces
MAX_WORDS_OF_NAMES = 1.5  # mean words of a text up to which texts are names or codes: few words occur twice
CHUNK = 2_048  # inputs that are predicted together


class Classify(ExampleTask):
    """The task on labelled texts: the vocabulary and the labels are known; a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_classify)
    primary_metric = ("accuracy", "acc")
    example = "a text"
    example_unit = "texts"
    row_columns = input_columns = ("text", "label")

    def __init__(self, splits: Splits[LabelledText], preprocessor: Preprocessor, settings: Settings):
        super().__init__(splits, preprocessor, settings)
        self.labels: list[str] = preprocessor.facts["labels"]
        self.ids = {split: encode(preprocessor.tokenizer, examples) for split, examples in splits.parts.items()}
        self.targets = {split: label_ids(examples, self.labels) for split, examples in splits.parts.items()}
        if settings.data.max_length is None:
            settings.data.max_length = min(MAX_TOKENS, max(1, self.size().max_length))
        self.max_length = settings.data.max_length
        warning = f"texts of more than {self.max_length:,} tokens, which are truncated (--data.max-length)"
        for split, examples in splits.parts.items():
            for ids, example in zip(self.ids[split], examples):
                if len(ids) > self.max_length:
                    splits.findings.warn(warning, example.file, example.line)

    @classmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> Splits[LabelledText]:
        return open_labelled_texts(data, settings)

    @classmethod
    def learn(
        cls, splits: Splits[LabelledText], settings: Settings, log: LogFunction, initial: Preprocessor
    ) -> Preprocessor:
        check_labels(splits)
        tokenizers, facts = dict(initial.tokenizers), dict(initial.facts)
        if "text" not in tokenizers:
            tokenizers["text"] = train_tokenizer(splits.parts["train"], settings, log, initial.extra_words)
        facts.setdefault("labels", sort_labels({example.label for example in splits.parts["train"]}))
        reject_unknown_labels(splits.all_examples(), facts["labels"], splits.findings)
        splits.findings.raise_errors()
        return Preprocessor(tokenizers, facts)

    def describe_sizes(self) -> tuple[str, ...]:
        return f"vocabulary {len(self.preprocessor.tokenizer):,}", self.describe_labels()

    def describe_labels(self) -> str:
        """Returns the labels with their shares of the training split, the most frequent first."""
        counts = Counter(example.label for example in self.splits.parts["train"])
        shares = [f"{label} {count / counts.total():.0%}" for label, count in counts.most_common(6)]
        return f"{len(counts)} labels ({', '.join(shares)}{', …' if len(counts) > 6 else ''})"

    def warnings(self) -> list[str]:
        return [*super().warnings(), *self.warn_about_unknown()]

    def count_data(self) -> dict[str, dict[str, int]]:
        counts, unknown = {}, self.preprocessor.tokenizer.unknown
        for split, rows in self.ids.items():
            lengths = [len(ids) for ids in rows]
            sizes = {"texts": len(rows), "tokens": sum(lengths), "longest": max(lengths)}
            counts[split] = sizes | {"unknown": sum(int((ids == unknown).sum()) for ids in rows)}
        return counts

    def describe_data(self) -> tuple[str, ...]:
        return self.describe_tokenizer(), f"training: {self.describe_labels()}"

    def size(self) -> Size:
        lengths = [len(row) for row in self.ids["train"]]
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(lengths), max(lengths))

    def run_layers(self, model: Classifier) -> None:
        model.encoder(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def build(self, settings: ResolvedSettings) -> Classifier:
        """Returns an untrained model whose first prediction is the frequency of each label."""
        tokenizer, labels = self.preprocessor.tokenizer, len(self.labels)
        counts = torch.from_numpy(np.bincount(self.targets["train"], minlength=labels))
        return Classifier(settings, len(tokenizer), labels, tokenizer.unknown, counts)

    def token_counts(self) -> dict[str, torch.Tensor]:
        ids = np.concatenate(self.ids["train"])
        return {"text": torch.from_numpy(np.bincount(ids, minlength=len(self.preprocessor.tokenizer)))}

    @cached_property
    def train_lengths(self) -> list[int]:
        return [min(len(row), self.max_length) for row in self.ids["train"]]

    def collate_train(self, indices: np.ndarray) -> TextBatch:
        rows = [self.ids["train"][index][: self.max_length] for index in indices]
        return collate(rows, self.targets["train"][indices], indices)

    def validate(
        self, model: Classifier, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns loss, accuracy and macro-F1 on the validation split, computed by all processes.

        The best weights are those with the best accuracy, or the best macro-F1 with balanced class weights; the loss
        decides between equal ones.
        """
        chosen, size = spread_indices(len(self.ids["valid"]), share), len(self.labels)
        rows, targets = [self.ids["valid"][index] for index in chosen], self.targets["valid"][chosen]
        scores = score_texts(model, rows, targets, self.max_length, world.rank, world.size)
        nats, *cells = world.sum(scores.nats, *scores.confusion.flatten().tolist())
        confusion = np.array(cells).reshape(size, size)
        loss = nats / max(1, len(rows))
        metrics = {"loss": loss, "accuracy": compute_accuracy(confusion), "macro_f1": compute_macro_f1(confusion)}
        criterion = "macro_f1" if settings.classify.class_weights == "balanced" else "accuracy"
        tie_break = loss / (1 + loss) / max(1, len(rows))  # smaller than the effect of one text on the accuracy
        return metrics | {"goal": 1 - metrics[criterion] + tie_break}

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return fit_baselines(self.ids, self.targets, len(self.labels)), {}

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Classifier:
        tokenizer = preprocessor.tokenizer
        return Classifier(settings, len(tokenizer), len(preprocessor.facts["labels"]), tokenizer.unknown)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns accuracy, macro-F1, and which labels are confused."""
        check_output_path(options.out)
        settings, labels = bundle.settings, bundle.preprocessor.facts["labels"]
        splits, examples, description = cls.select_examples(bundle, data, split)
        reject_unknown_labels(examples, labels, splits.findings)
        splits.findings.raise_errors()
        rows, max_length = encode(bundle.preprocessor.tokenizer, examples), settings.data.max_length
        with Stopwatch() as watch:
            targets = label_ids(examples, labels)
            scores = score_texts(bundle.model, rows, targets, max_length, progress=options.progress)
        predictions = [labels[label] for label in scores.predicted]
        if options.out is not None:
            rows_out = zip(examples, predictions, scores.probabilities.tolist())
            write_predictions(options.out, ({"input": e.text, "expected": e.label, "predicted": p, "probability": value}
                                            for e, p, value in rows_out))  # fmt: skip
        warnings, truncated = splits.findings.warning_messages(), sum(len(row) > max_length for row in rows)
        if truncated:
            warnings.append(f"{truncated:,} texts of more than {max_length:,} tokens were truncated.")
        metrics = {
            "accuracy": compute_accuracy(scores.confusion),
            "macro_f1": compute_macro_f1(scores.confusion),
            "loss": scores.nats / len(rows),
            "examples": len(rows),
        }
        tokenizer = bundle.preprocessor.tokenizer
        token = tokenizer.kind if tokenizer.kind in ("words", "characters") else "tokens"
        baselines = compute_baselines(bundle.training, rows, targets, labels, token)
        evaluation = Evaluation(
            metrics,
            DEFINITIONS,
            description,
            method=f"{settings.classify.pooling} pooling over the states of the {settings.model}; {len(labels)} labels",
            tables=(label_table(scores.confusion, labels), confusion_table(scores.confusion, labels)),
            warnings=tuple(warnings),
            seconds=watch.seconds,
            examples=score_examples(examples, predictions) if options.examples else None,
            primary_metric="accuracy",
        )
        return cls.add_training_facts(
            evaluation, bundle, examples, lambda: score_examples(examples, predictions), baselines
        )

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the most probable label of each input with its probability, then the next ones."""
        tokenizer, max_length = bundle.preprocessor.tokenizer, bundle.settings.data.max_length
        labels: list[str] = bundle.preprocessor.facts["labels"]
        for start in range(0, len(inputs), CHUNK):
            texts = inputs[start : start + CHUNK]
            rows = tokenizer.encode_many([text.strip() for text in texts])
            probabilities = np.zeros((len(texts), len(labels)))
            for indices, log_probabilities in predict_log_probabilities(bundle.model, rows, max_length):
                probabilities[indices] = np.exp(log_probabilities)
            for text, ids, row in zip(texts, rows, probabilities):
                ranking = {labels[label]: float(row[label]) for label in np.argsort(-row, kind="stable")}
                yield format_prediction(text, ranking, options.top, bool((ids != tokenizer.unknown).any()))


def train_tokenizer(
    examples: Sequence[LabelledText], settings: Settings, log: LogFunction, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """Chooses the kind of tokeniser unless it is set, and learns the vocabulary from the training split."""
    text = settings.text
    if text.tokenizer is None:
        sample = examples[:: -(-len(examples) // 1_000)]
        chunks = " ".join(example.text for example in sample).split()
        text.tokenizer, reason = "words", ""
        if settings.vectors is not None:
            reason = ", because --vectors has vectors of words"
        elif sum(map(len, chunks)) >= MIN_UNSPACED * max(1, len(chunks)):
            text.tokenizer, reason = "characters", ", because the texts have hardly any spaces"
        elif len(chunks) <= MAX_WORDS_OF_NAMES * len(sample):
            text.tokenizer, reason = "characters", ", because the texts are single words"
        log(f"tokeniser: {text.tokenizer}{reason}.")
    size = text.vocabulary or (MAX_WORDS if text.tokenizer in ("words", "spaces", "characters") else None)
    texts = (example.text for example in examples)
    tokenizer = Tokenizer.train(text.tokenizer, texts, size, text.min_count, text.lowercase, (PAD,), extra_words)
    text.vocabulary = len(tokenizer)
    return tokenizer


def encode(tokenizer: Tokenizer, examples: Sequence[LabelledText]) -> list[np.ndarray]:
    return tokenizer.encode_many([example.text for example in examples])


def label_ids(examples: Sequence[LabelledText], labels: Sequence[str]) -> np.ndarray:
    """Returns the label id of each example, (N,)."""
    ids = {label: index for index, label in enumerate(labels)}
    return np.array([ids[example.label] for example in examples], dtype=np.int64)


@dataclass
class LabelScores:
    """Predictions for rows with known labels. Rows of other ranks have probability 0."""

    nats: float  # summed negative log likelihood of the true labels
    confusion: np.ndarray  # (K, K): true labels in rows, predicted ones in columns
    predicted: np.ndarray  # (N,): most probable label of each row
    probabilities: np.ndarray  # (N,): its probability


def score_texts(
    model: Classifier,
    rows: Sequence[np.ndarray],
    targets: np.ndarray,
    max_length: int,
    rank: int = 0,
    world_size: int = 1,
    progress: ProgressCallback = no_progress,
) -> LabelScores:
    """Predicts the labels of the rows that belong to a rank."""
    size, num_done = model.head.output.out_features, 0
    scores = LabelScores(0.0, np.zeros((size, size), np.int64), np.zeros(len(rows), np.int64), np.zeros(len(rows)))
    for indices, log_probabilities in predict_log_probabilities(model, rows, max_length, rank, world_size):
        scores.nats -= float(log_probabilities[range(len(indices)), targets[indices]].sum())
        scores.predicted[indices] = log_probabilities.argmax(-1)
        scores.probabilities[indices] = np.exp(log_probabilities.max(-1))
        scores.confusion += confusion_matrix(targets[indices], scores.predicted[indices], size)
        num_done += len(indices)
        progress(num_done, len(rows))
    return scores
