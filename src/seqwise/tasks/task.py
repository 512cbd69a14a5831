"""`Task`: what training, evaluation and prediction need of any task, and the types they exchange.

An *instance* is the task on some data: vocabularies are learned, examples are read, a model can be built, trained and
validated. The *class* uses a trained model without that data: restore, evaluate, predict. `ExampleTask` is the base of
tasks whose examples fit into memory; `seqwise.tasks.register` adds a task of your own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from seqwise.callbacks import LogFunction, ProgressCallback, no_log, no_progress
from seqwise.config import DYNAMIC_RATE, Settings
from seqwise.data.batch import Batches
from seqwise.data.in_memory import Data, save_data
from seqwise.data.tables import parse_columns
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import RunError
from seqwise.families import get_family
from seqwise.files import write_text
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Evaluation
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.checks import check_family, check_memory, check_output, check_precision
from seqwise.tasks.defaults import DefaultsContext, Fill, fill_common
from seqwise.tasks.latency import median_seconds
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.text.tokenizer import Tokenizer

FACTS_FILE = "task.json"
MAX_UNKNOWN = 0.05  # share of unknown tokens in held-out text above which there is a warning
_REPAIR = "Copy the folder again from where it was made, or train again."


@dataclass
class Preprocessor:
    """What is learned from the training split besides weights: tokenisers by name, and facts such as labels.

    Facts are JSON values: labels, tags, scales, columns. The tokeniser called "text" is saved as `tokenizer.json`, one
    called "de" as `tokenizer.de.json`, the facts as `task.json`.

    `extra_words` are added to a vocabulary that is learned later; they are not saved.
    """

    tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    extra_words: Sequence[str] = ()

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the text that is read."""
        if "text" not in self.tokenizers:
            raise RunError(f"the run has no {_tokenizer_file('text')}.", repair=_REPAIR)
        return self.tokenizers["text"]

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.tokenizers.items():
            tokenizer.save(folder / _tokenizer_file(name))
        if self.facts:
            write_text(folder / FACTS_FILE, json.dumps(self.facts, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Preprocessor:
        names = {path: path.name.removeprefix("tokenizer.").removesuffix("json").rstrip(".") or "text"
                 for path in sorted(folder.glob("tokenizer*.json"))}  # fmt: skip
        facts = {}
        if (folder / FACTS_FILE).exists():
            try:
                facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
            except ValueError as error:
                raise RunError(f"the file is damaged: {error}.", file=folder / FACTS_FILE, repair=_REPAIR) from None
        return cls({name: Tokenizer.load(path) for path, name in names.items()}, facts)


def _tokenizer_file(name: str) -> str:
    return "tokenizer.json" if name == "text" else f"tokenizer.{name}.json"


@dataclass(frozen=True)
class Size:
    """The size of the training data, on which default rules depend."""

    tokens: int
    vocabulary: int = 0
    examples: int = 0
    max_length: int = 0  # tokens of the longest example


@dataclass(frozen=True)
class ModelBundle:
    """A trained model with what it needs to be used: its settings and its preprocessor."""

    model: Any
    settings: ResolvedSettings
    preprocessor: Preprocessor
    training_fingerprint: str = ""  # fingerprint of the training data
    training: TrainingSummary | None = None  # what the run keeps of its training split; old runs have none

    def choose_metric(self, options: InferenceOptions, default: str) -> str:
        """Returns the primary metric: that of the options, else that of the training data."""
        return options.primary_metric or (default if self.training is None else self.training.metric)


@dataclass(frozen=True)
class InferenceOptions:
    """Options of `evaluate` and `predict` for all tasks; each task reads those that apply to it."""

    beam_search: BeamSearchOptions = BeamSearchOptions()
    sampling: SamplingOptions | None = None  # sample instead of searching with a beam
    seed: int = 0
    max_length: int | None = None
    target: str | None = None  # translate: languages, separated by commas
    top: int = 5  # masked, classify: alternatives shown
    dynamic: bool = False  # language: dynamic evaluation, which trains on each segment after scoring it
    rate: float = DYNAMIC_RATE  # learning rate of dynamic evaluation
    out: Path | None = None  # evaluate: where to write input, expected and predicted
    examples: bool = False  # evaluate: also return what each example adds to the primary metric
    primary_metric: str | None = None  # the metric of these examples, where a task has several
    progress: ProgressCallback = no_progress  # evaluate: called with the number of examples done, and of all

    def describe_decoding(self) -> str:
        """Returns how sequences are generated, in words."""
        if self.sampling is not None:
            return f"sampled, seed {self.seed}"
        beam = self.beam_search.beam
        return "greedy search" if beam == 1 else f"beam {beam}, length penalty {self.beam_search.length_penalty:g}"


@dataclass(frozen=True)
class Prediction:
    """One prediction: as it is printed, and as `--json` writes it."""

    text: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What `seqwise check` prints: a table with a row per split, sentences about the data, and warnings."""

    columns: tuple[str, ...]
    rows: dict[str, tuple[int, ...]]  # split → one number per column
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


LatencyInputs = tuple[Sequence[Any], Callable[[Any], object]]  # inputs, and a function that predicts for one


class ProcessGroup(Protocol):
    """The processes that train together, as validation uses them. `training/distribution.py` implements it."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def sum(self, *numbers: float) -> list[float]: ...


class Task(ABC):
    """A task on some data. `fingerprint` identifies the data, `split_rule` says how it was split."""

    name: ClassVar[str] = ""  # what `--task` calls a task that is not built in
    unit: ClassVar[str] = "tokens"  # what speed and budgets count
    example: ClassVar[str] = "the "  # an input for the model card, unless `preprocessor.facts` has an "example"
    row_columns: ClassVar[tuple[str, ...]] = ()  # names of the fields of a row, for tuples passed from Python
    outputs: ClassVar[tuple[str, ...]] = ("full",)  # kinds of softmax that its models may have
    beam_search: ClassVar[BeamSearchOptions] = BeamSearchOptions()  # unless the user sets other options
    primary_metric: tuple[str, str] = ("loss", "loss")  # key and short name of the validation metric to show

    reading_seconds: float = 0.0  # how long `prepare` took
    fingerprint: str
    split_rule: str
    preprocessor: Preprocessor

    # Training: the task on some data

    @classmethod
    def save_data(cls, data: Data, columns: str | None = None) -> str:
        """Returns the path of data passed from Python; `columns` are those of the settings."""
        return save_data(data, parse_columns(columns) or cls.row_columns)

    @classmethod
    @abstractmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Reads and checks the data; learns the vocabularies from the training split unless `preprocessor` has them.

        What is learned or chosen here, such as the kind of tokeniser, is also written into `settings`.
        """

    @abstractmethod
    def size(self) -> Size:
        """Returns the size of the training data, on which default rules depend."""

    @staticmethod
    def fill_defaults(settings: ResolvedSettings, context: DefaultsContext, fill: Fill, /) -> None:
        """Chooses the settings that the user left open, by calling `fill(path, value)`."""
        fill_common(settings, context, fill)

    def check(self, settings: ResolvedSettings) -> None:
        """Rejects resolved settings that cannot work with this data or machine, before anything is written."""
        check_family(settings)
        check_output(settings, self.outputs)
        self.check_settings(settings)
        if get_family(settings.model).has_gradients:
            self.batches(settings)
            check_precision(settings)
            model = check_memory(lambda: self.restore(settings, self.preprocessor), settings)
            self.run_layers(model.eval())

    def check_settings(self, settings: ResolvedSettings) -> None:  # noqa: B027
        """Rejects settings for reasons that only this task has."""

    def run_layers(self, model: Any) -> None:  # noqa: B027
        """Runs a model once on the meta device, without memory: some layers reject their sizes only then."""

    def build(self, settings: ResolvedSettings) -> nn.Module:
        """Returns an untrained model, called as `model(batch, state) → (Loss, state)`."""
        return self.restore(settings, self.preprocessor)

    def bundle(self, model: Any, settings: ResolvedSettings) -> ModelBundle:
        """Returns a model with the preprocessor of this data, for `evaluate` and `predict`."""
        return ModelBundle(model, settings, self.preprocessor, self.fingerprint)

    def fit(self, model: Any) -> int:
        """Fits a model of a family without gradients to the training split; returns the number of tokens read."""
        raise NotImplementedError(f"{type(self).__name__} cannot fit a {type(model).__name__} without gradients")

    @abstractmethod
    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> Batches:
        """Returns the training batches of one of `world_size` processes."""

    @abstractmethod
    def validate(
        self, model: Any, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns metrics on the validation split, computed by all processes: `loss`, and the primary metric.

        The best weights are those with the smallest `goal`, or `loss` where there is no `goal`. With a `share` below 1,
        that part of the split is evaluated: always the same, evenly spread.
        """

    def valid_size(self) -> Size:
        """Returns tokens and examples of the validation split; without tokens it is always evaluated as a whole."""
        return Size(0)

    def embeddings(self, model: Any) -> dict[str, Embedding]:
        """Returns the layers with a row for each token, by the name of their vocabulary, for `--vectors`."""
        return {"text": model.embedding}

    def token_counts(self) -> dict[str, Tensor]:
        """Returns how often each token occurs in the training split, (V,), by the name of its vocabulary."""
        return {}

    @cached_property
    def training_summary(self) -> TrainingSummary | None:
        """What `evaluate` needs to know of the training split, saved with the run: hashes and fitted baselines."""
        return None

    def report(self) -> Report:
        """Returns what `seqwise check` prints."""
        counts = self.count_data()
        rows = {split: tuple(numbers.values()) for split, numbers in counts.items()}
        sentences = (*self.describe_data(), f"split: {self.split_rule}")
        return Report(tuple(next(iter(counts.values()))), rows, sentences, tuple(self.warnings()))

    @abstractmethod
    def count_data(self) -> dict[str, dict[str, int]]:
        """Returns numbers about each split, such as its examples and tokens, by the name of their column."""

    def describe_data(self) -> tuple[str, ...]:
        """Returns sentences about the data, for the report."""
        return ()

    def describe_tokenizer(self) -> str:
        """Returns a sentence about the tokeniser of the text, for the report."""
        tokenizer = self.preprocessor.tokenizer
        return f"tokeniser: {tokenizer.kind}, vocabulary {len(tokenizer):,} (from the training split)"

    def warnings(self) -> list[str]:
        """Returns warnings about data that is valid, but makes a result worse or better than it should be."""
        return []

    def warn_about_unknown(self) -> list[str]:
        """Returns a warning for each held-out split with many unknown tokens."""
        warnings = []
        for split, counts in self.count_data().items():
            tokens = sum(count for column, count in counts.items() if column.endswith("tokens"))
            share = counts["unknown"] / max(1, tokens)
            if split != "train" and share > MAX_UNKNOWN:
                warnings.append(f"{share:.1%} of the {split} tokens are <unk>: the vocabulary does not have them.")
        return warnings

    def log_sizes(self, log: LogFunction, unit: str, splits: Mapping[str, Sized], *details: str) -> None:
        """Logs a line such as `texts: train 90, valid 5, test 5; vocabulary 1,000. Examples are held out …`"""
        sizes = ", ".join(f"{split} {len(part):,}" for split, part in splits.items())
        rule = f"{self.split_rule[0].upper()}{self.split_rule[1:]}"
        log(f"{unit}: {'; '.join([sizes, *details])}. {rule}")

    # Inference with a trained model, without the training data

    @classmethod
    @abstractmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> nn.Module:
        """Returns a model into which trained weights can be loaded."""

    @classmethod
    @abstractmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns metrics with their definitions.

        Unless `split` names one, they are of the test split of the training data, or of all of other data.
        """

    @classmethod
    @abstractmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields one prediction per input, in their order."""

    @classmethod
    def measure_latency(
        cls, bundle: ModelBundle, data: str, split: str = "valid", num_predictions: int = 20
    ) -> Callable[[], float]:
        """Returns a function that measures the median seconds of one prediction, one input of a split at a time.

        The data is read once, here; the function can be called repeatedly.
        """
        inputs, predict = cls.latency_inputs(bundle, data, split)
        weight = next(bundle.model.parameters(), None)
        return lambda: median_seconds(inputs, predict, num_predictions, None if weight is None else weight.device)

    @classmethod
    @abstractmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns inputs of a split, and a function that makes the prediction for one of them."""

    @classmethod
    def save_input(cls, value: Any) -> str | None:
        """Returns one input of `predict` that is passed from Python as a text or a path; None if it is none."""
        return value if isinstance(value, str) else None

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Returns the inputs that an argument of `seqwise predict` names, or None if it is text or a file of lines."""
        return None
