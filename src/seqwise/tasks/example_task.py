"""`ExampleTask`: the base of tasks whose examples fit into memory, in three splits. It knows nothing of any model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from seqwise.config import Settings
from seqwise.data.examples import Splits, select_evaluation_examples
from seqwise.metrics.evaluation import LOWER_IS_BETTER, Evaluation, ExampleScores, compute_metric
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.summary import describe_splits
from seqwise.tasks.task import (
    InferenceOptions,
    LatencyInputs,
    LogFunction,
    ModelBundle,
    Preprocessor,
    ProgressCallback,
    Report,
    Size,
    Summing,
    Task,
    no_log,
)


class ExampleTask(Task):
    """A task over `splits`. A subclass reads the examples, learns a vocabulary from them and defines the model."""

    example_unit: ClassVar[str] = "examples"  # what the examples are called, plural
    definitions: ClassVar[dict[str, str]] = {}  # metric → how it is computed

    def __init__(self, splits: Splits[Any], preprocessor: Preprocessor):
        self.splits, self.preprocessor = splits, preprocessor
        self.fingerprint, self.split_rule = splits.fingerprint, splits.split_rule

    @classmethod
    @abstractmethod
    def open_splits(cls, data: str, settings: Settings, valid_fraction: float, test_fraction: float) -> Splits[Any]:
        """Reads the data; holds out these fractions unless the data has its own validation and test split."""

    @classmethod
    def learn(cls, splits: Splits[Any], settings: Settings, log: LogFunction) -> Preprocessor:
        """Learns vocabularies and facts from the training split."""
        return Preprocessor()

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        splits = cls.open_splits(data, settings, settings.data.valid_fraction, settings.data.test_fraction)
        task = cls(splits, preprocessor or cls.learn(splits, settings, log))
        task.introduce(log)
        return task

    def introduce(self, log: LogFunction, *details: str) -> None:
        """Logs the sizes of the splits with `details`, and the warnings about the data."""
        sizes = {split: len(examples) for split, examples in self.splits.parts.items()}
        log(describe_splits(self.example_unit, sizes, self.split_rule, *details))
        for warning in self.warnings():
            log(f"note: {warning}")

    @cached_property
    def train_lengths(self) -> list[int]:
        """The number of tokens in the input of each training example."""
        texts = [self.input_text(example) for example in self.splits.parts["train"]]
        return [len(ids) for ids in self.preprocessor.tokenizer.encode_many(texts)]

    def size(self) -> Size:
        lengths = self.train_lengths
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(lengths), max(lengths))

    def warnings(self) -> list[str]:
        """Returns what is no error, but makes a result worse or too good."""
        return self.splits.findings.warning_messages()

    def report(self) -> Report:
        rows: dict[str, tuple[int, ...]] = {split: (len(examples),) for split, examples in self.splits.parts.items()}
        return Report((self.example_unit,), rows, (f"split: {self.split_rule}",), tuple(self.warnings()))

    def validate(self, model: Any, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        examples = self.splits.parts["valid"][world.rank :: world.size]
        scores = self.score_examples(self.bundle(model, settings), examples, InferenceOptions())
        value = float(compute_metric(scores.metric, np.array(world.sum(*scores.sums.sum(axis=0)))))
        return {"loss": value if scores.metric in LOWER_IS_BETTER else -value, scores.metric: value}

    # A trained model, without that data

    @classmethod
    def score_examples(cls, bundle: ModelBundle, examples: Sequence[Any], options: InferenceOptions) -> ExampleScores:
        """Returns what each example contributes to the primary metric; the default metrics are computed from it."""
        raise NotImplementedError

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        splits, examples, on = cls.select_examples(bundle, data, split)
        with Stopwatch() as watch:
            scores = cls.score_examples(bundle, examples, options)
        return Evaluation(
            {scores.metric: float(compute_metric(scores.metric, scores.sums.sum(axis=0)))},
            cls.definitions,
            on,
            warnings=tuple(splits.findings.warning_messages()),
            seconds=watch.seconds,
            examples=scores if options.examples else None,
        )

    @classmethod
    def select_examples(cls, bundle: ModelBundle, data: str, split: str | None) -> tuple[Any, list[Any], str]:
        """Reads the data and returns its splits, the examples to evaluate on, and which these are, in words."""
        settings, read = bundle.settings, list[Splits[Any]]()

        def open_with(valid_fraction: float, test_fraction: float) -> Splits[Any]:
            read.append(cls.open_splits(data, settings, valid_fraction, test_fraction))
            return read[-1]

        fractions = settings.data.valid_fraction, settings.data.test_fraction
        examples, name = select_evaluation_examples(open_with, fractions, split, bundle.trained_on)
        return read[-1], examples, f"{data}, {name}"

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        _, examples, _ = cls.select_examples(bundle, data, split)
        options = InferenceOptions(cls.beam_search)
        texts = [cls.input_text(example) for example in examples]
        return texts, lambda text: list(cls.predict(bundle, [text], options))

    @classmethod
    def input_text(cls, example: Any) -> str:
        """Returns the input of an example, as `predict` takes it."""
        return example.text
