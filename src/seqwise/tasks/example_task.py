"""`ExampleTask`: the base class of tasks whose examples fit into memory. The module knows no model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from seqwise.callbacks import LogFunction, ProgressCallback, no_log, no_progress
from seqwise.config import Settings
from seqwise.data.batch import Batch, BucketLoader, spread_indices
from seqwise.data.examples import Splits, select_evaluation_examples
from seqwise.data.hub import fetch_if_hub
from seqwise.data.limits import limited
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import SUFFIXES, read_input_column
from seqwise.metrics.evaluation import LOWER_IS_BETTER, Baseline, Evaluation, ExampleScores, compute_metric
from seqwise.metrics.predictions import write_predictions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.inspection import InspectedInput, choose_evenly, describe_example
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import (
    InferenceOptions,
    LatencyInputs,
    ModelBundle,
    Preprocessor,
    ProcessGroup,
    Size,
    Task,
    build_inspection_error,
)
from seqwise.tasks.training_summary import TrainingSummary, hash_texts, measure_overlap

INSPECTED_TOGETHER = 32  # examples, after which `inspect_split` reports its progress


class ExampleTask(Task):
    """A task on `splits`. A subclass reads the examples, builds a vocabulary from them and defines the model."""

    example_unit: ClassVar[str] = "examples"  # what the examples are called, plural
    input_columns: ClassVar[tuple[str, ...]] = ()  # columns of its tables, the input first, where that is a text
    definitions: ClassVar[dict[str, str]] = {}  # metric → how it is computed

    def __init__(self, splits: Splits[Any], preprocessor: Preprocessor, settings: Settings):
        self.splits, self.preprocessor = splits, preprocessor
        self.fingerprint, self.split_rule = splits.fingerprint, splits.split_rule

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        splits = cls.open_splits(fetch_if_hub(data), settings, progress)
        task = cls(splits, cls.fit_preprocessor(splits, settings, log, preprocessor or Preprocessor()), settings)
        task.log_data(log)
        return task

    @classmethod
    @abstractmethod
    def open_splits(cls, data: str, settings: Settings, progress: ProgressCallback | None) -> Splits[Any]:
        """Reads the data; holds out the fractions of the settings unless the data has its own splits."""

    @classmethod
    def fit_preprocessor(cls, splits: Any, settings: Settings, log: LogFunction, initial: Preprocessor) -> Preprocessor:
        """Returns the vocabularies and attributes of `initial`; what it lacks is computed from the training split."""
        return initial

    def log_data(self, log: LogFunction) -> None:
        """Logs the sizes of the splits, and the notes and warnings about the data."""
        self.log_sizes(log, self.example_unit, self.splits.parts, *self.describe_sizes())
        self.log_findings(log)

    def describe_sizes(self) -> tuple[str, ...]:
        """Returns further sizes that are logged when the data is read, such as that of the vocabulary."""
        return ()

    @cached_property
    def train_lengths(self) -> list[int]:
        """The number of tokens of each training example, by which examples are batched."""
        texts = [self.input_text(example) for example in self.splits.parts["train"]]
        return [len(ids) for ids in self.preprocessor.tokenizer.encode_many(texts)]

    def size(self) -> Size:
        lengths = self.train_lengths
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(lengths), max(lengths))

    def valid_size(self) -> Size:
        """Returns the examples of the validation split, and their tokens if they are as long as those of training."""
        train, examples = self.size(), len(self.splits.parts["valid"])
        return Size(round(train.num_tokens / max(1, train.num_examples) * examples), num_examples=examples)

    def notes(self) -> list[str]:
        return self.splits.findings.note_messages()

    def warnings(self) -> list[str]:
        return self.splits.findings.warning_messages()

    def count_data(self) -> dict[str, dict[str, int]]:
        return {split: {self.example_unit: len(examples)} for split, examples in self.splits.parts.items()}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> BucketLoader[Any]:
        """Returns training batches of examples of similar length."""
        batch_size, max_tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(
            self.train_lengths, self.collate_train, batch_size, max_tokens, settings.seed, rank, world_size
        )

    def collate_train(self, indices: np.ndarray) -> Batch:
        """Returns these training examples as a batch."""
        raise NotImplementedError

    def validate(
        self, model: Any, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        chosen = spread_indices(len(self.splits.parts["valid"]), share)[world.rank :: world.size]
        examples = [self.splits.parts["valid"][index] for index in chosen]
        scores = self.score_examples(self.bundle(model, settings), examples, InferenceOptions())
        value = float(compute_metric(scores.metric, np.array(world.sum(*scores.sums.sum(axis=0)))))
        return {"loss": value if scores.metric in LOWER_IS_BETTER else -value, scores.metric: value}

    @cached_property
    def training_summary(self) -> TrainingSummary:
        hashes = hash_texts(map(self.identify, self.splits.parts["train"]))
        return TrainingSummary.create(self.primary_metric[0], hashes, *self.fit_baselines())

    def fit_baselines(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns arrays and attributes (JSON values) from which `evaluate` computes the baselines of any data."""
        return {}, {}

    # Inference with a trained model, without the training data

    @classmethod
    def score_examples(cls, bundle: ModelBundle, examples: Sequence[Any], options: InferenceOptions) -> ExampleScores:
        """Returns what each example contributes to the primary metric; the default metrics are computed from it."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        splits, examples, description = cls.select_examples(bundle, data, split)
        with Stopwatch() as watch:
            scores = cls.score_examples(bundle, examples, options)
        if options.out is not None:
            write_predictions(options.out, ({"input": text.input, "expected": text.expected, "predicted": text.answer}
                                            for text in scores.texts))  # fmt: skip
        evaluation = Evaluation(
            {scores.metric: float(compute_metric(scores.metric, scores.sums.sum(axis=0)))},
            cls.definitions,
            description,
            warnings=tuple(splits.findings.warning_messages()),
            data_notes=tuple(splits.findings.note_messages()),
            seconds=watch.seconds,
            examples=scores if options.examples else None,
            primary_metric=scores.metric,
        )
        return cls.add_baselines_and_overlap(evaluation, bundle, examples, lambda: scores)

    @classmethod
    def add_baselines_and_overlap(
        cls,
        evaluation: Evaluation,
        bundle: ModelBundle,
        examples: Sequence[Any],
        get_scores: Callable[[], ExampleScores],
        baselines: Sequence[Baseline] = (),
    ) -> Evaluation:
        """Returns the evaluation with its baselines, and with the number of examples that occur in the training split.

        `get_scores` is called if there are any, for the primary metric of the others.
        """
        evaluation = replace(evaluation, baselines=tuple(baselines))
        if bundle.training is None:
            return evaluation

        def compute(others: np.ndarray) -> float:
            scores = get_scores()
            return float(compute_metric(scores.metric, scores.sums[others].sum(axis=0)))

        masks = bundle.training.find(hash_texts(map(cls.identify, examples)))
        return replace(evaluation, overlap=measure_overlap(*masks, cls.example_unit, compute))

    @classmethod
    def select_examples(cls, bundle: ModelBundle, data: str, split: str | None) -> tuple[Any, list[Any], str]:
        """Reads the data and returns its splits, the examples to evaluate on, and which these are, in words."""
        path = fetch_if_hub(data)

        def open_data(valid_fraction: float, test_fraction: float) -> Splits[Any]:
            fractions = {"valid_fraction": valid_fraction, "test_fraction": test_fraction}
            data_settings = bundle.settings.data.model_copy(update=fractions)
            return cls.open_splits(path, bundle.settings.model_copy(update={"data": data_settings}), None)

        fractions = bundle.settings.data.valid_fraction, bundle.settings.data.test_fraction
        splits, examples, part = select_evaluation_examples(open_data, fractions, split, bundle.training_fingerprint)
        return splits, examples, f"{data}, {part}"

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        splits, examples, description = cls.select_examples(bundle, data, split)
        indices = choose_evenly(len(examples), count)
        descriptions = [describe_example(index, len(examples), description) for index in indices]
        inspected: list[InspectedInput] = []
        for start in range(0, len(indices), INSPECTED_TOGETHER):
            part = slice(start, start + INSPECTED_TOGETHER)
            chosen = [examples[index] for index in indices[part]]
            inspected += cls.inspect_examples(bundle, splits, chosen, descriptions[part])
            progress(start + len(chosen), len(indices))
        return inspected

    @classmethod
    def inspect_examples(
        cls, bundle: ModelBundle, splits: Any, examples: Sequence[Any], descriptions: Sequence[str]
    ) -> list[InspectedInput]:
        """Returns examples of the data for the views of `seqwise.lens`; each has a description, such as its number."""
        raise build_inspection_error(cls, "inspect_examples(bundle, splits, examples, descriptions)")

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        _, examples, _ = cls.select_examples(bundle, data, split)
        options = InferenceOptions(cls.beam_search)
        texts = [cls.input_text(example) for example in examples]
        return texts, lambda text: list(cls.predict(bundle, [text], options))

    @classmethod
    @limited
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Returns the first of `input_columns` of a table; any other file is read line by line."""
        path = Path(text)
        if not cls.input_columns or text == "-" or get_format_suffix(path) not in SUFFIXES or not path.is_file():
            return None
        return read_input_column(path, cls.input_columns, settings.columns, settings.data.encoding)

    @classmethod
    def input_text(cls, example: Any) -> str:
        """Returns the input of an example, as `predict` takes it."""
        return example.text

    @classmethod
    def identify(cls, example: Any) -> str:
        """Returns the content by which an example is recognised as one of the training split."""
        return cls.input_text(example)
