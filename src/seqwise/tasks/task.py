"""`Task`: the interface of all tasks for training, evaluation and prediction, and the types of its arguments.

An *instance* is a task on its training data: it builds the vocabularies, the batches and an untrained model, and
validates. *Class methods* use a trained model without that data: restore, evaluate, predict. `ExampleTask` is the base
class of tasks whose examples fit into memory; `seqwise.tasks.register` adds a task of your own.
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
from seqwise.config import Settings
from seqwise.data.batch import Batches
from seqwise.data.in_memory import save_data
from seqwise.data.records import Data
from seqwise.data.tables import split_commas
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions, check_option_types
from seqwise.digests import add_digest, read_object
from seqwise.errors import RunError, UsageError
from seqwise.families import get_family
from seqwise.files import write_text
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.options import TextEvaluationOptions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.checks import check_family, check_memory, check_output, check_precision
from seqwise.tasks.defaults import DefaultsContext, SetDefault, set_fallback_defaults
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import measure_median_seconds
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.text.tokenizer import Tokenizer

ATTRIBUTES_FILE = "task.json"
MAX_UNKNOWN = 0.05  # share of unknown tokens in held-out text above which there is a warning
DAMAGED_RUN_FIX = "Copy the folder again from where it was made, or train again."


@dataclass
class Preprocessor:
    """What a run saves of the training split besides weights: tokenisers by name, and attributes such as labels.

    Attributes are JSON values: labels, tags, scales, columns. The tokeniser called "text" is saved as `tokenizer.json`,
    one called "de" as `tokenizer.de.json`, the attributes as `task.json`.
    """

    tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    extra_words: Sequence[str] = ()  # added to a vocabulary that is built later; not saved

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokeniser of the input text."""
        if "text" not in self.tokenizers:
            raise RunError(f"the run has no {_get_tokenizer_file('text')}.", fix=DAMAGED_RUN_FIX)
        return self.tokenizers["text"]

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.tokenizers.items():
            tokenizer.save(folder / _get_tokenizer_file(name))
        if self.attributes:
            content = json.dumps(add_digest(self.attributes), indent=1, ensure_ascii=False)
            write_text(folder / ATTRIBUTES_FILE, content + "\n")

    @classmethod
    def load(cls, folder: Path) -> Preprocessor:
        names = {path: path.name.removeprefix("tokenizer.").removesuffix("json").rstrip(".") or "text"
                 for path in sorted(folder.glob("tokenizer*.json"))}  # fmt: skip
        attributes = {}
        if (folder / ATTRIBUTES_FILE).exists():
            try:
                attributes = read_object(folder / ATTRIBUTES_FILE)
            except (OSError, ValueError) as error:
                problem, path = f"the file is damaged: {error}.", folder / ATTRIBUTES_FILE
                raise RunError(problem, file=path, fix=DAMAGED_RUN_FIX) from None
        return cls({name: Tokenizer.load(path) for path, name in names.items()}, attributes)


def _get_tokenizer_file(name: str) -> str:
    return "tokenizer.json" if name == "text" else f"tokenizer.{name}.json"


@dataclass(frozen=True)
class Size:
    """The size of a split of the data."""

    num_tokens: int
    vocabulary_size: int = 0
    num_examples: int = 0
    max_length: int = 0  # tokens of the longest example
    num_labels: int = 0  # of classify


@dataclass(frozen=True)
class ModelBundle:
    """A trained model with everything that inference needs: its settings and its preprocessor."""

    model: Any
    settings: ResolvedSettings
    preprocessor: Preprocessor
    training_fingerprint: str = ""  # fingerprint of the training data
    training: TrainingSummary | None = None  # None for runs of versions that did not save it
    target: str | None = None  # translate: the language that is inspected; the first unless set
    training_data: str = ""  # the training data as the user named it; "" if it is not known

    def choose_metric(self, options: InferenceOptions, default: str) -> str:
        """Returns the primary metric: of the options if they name one, else of the training data, else `default`."""
        return options.primary_metric or (default if self.training is None else self.training.metric)


@dataclass(frozen=True)
class InferenceOptions(TextEvaluationOptions):
    """Options of `evaluate` and `predict` for all tasks; each task reads those that apply to it."""

    beam_search: BeamSearchOptions = BeamSearchOptions()
    sampling: SamplingOptions | None = None  # sample instead of searching with a beam
    seed: int = 0
    max_length: int | None = None
    target: str | None = None  # translate: languages, separated by commas
    top: int = 5  # masked, classify: alternatives shown
    out: Path | None = None  # evaluate: the file to which input, expected and predicted values are written
    examples: bool = False  # evaluate: also return what each example adds to the primary metric
    primary_metric: str | None = None  # evaluate: overrides the primary metric of a task that has several
    progress: ProgressCallback = no_progress  # evaluate: called with the number of examples done and their total
    start_phase: LogFunction = no_log  # evaluate: called with the name of each further part of the work

    def __post_init__(self) -> None:
        check_option_types(self)
        super().__post_init__()
        if self.max_length is not None and self.max_length < 1:
            raise UsageError(f"the maximum length must be at least 1; received {self.max_length}.")

    def describe_decoding(self) -> str:
        """Returns a description of how sequences are generated."""
        if self.sampling is not None:
            return f"sampled, seed {self.seed}"
        beam = self.beam_search.beam
        return "greedy search" if beam == 1 else f"beam {beam}, length penalty {self.beam_search.length_penalty:g}"


@dataclass(frozen=True)
class Prediction:
    """One prediction."""

    text: str  # for printing
    values: dict[str, Any]  # for `--json`


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

    name: ClassVar[str] = ""  # name of a user-defined task, for `--task`
    unit: ClassVar[str] = "tokens"  # unit of speeds and budgets
    example: ClassVar[str] = "the "  # an input for the model card, unless `preprocessor.attributes` has an "example"
    row_columns: ClassVar[tuple[str, ...]] = ()  # column names of data that is passed from Python as tuples
    outputs: ClassVar[tuple[str, ...]] = ("full",)  # supported values of `network.output`, the softmax
    beam_search: ClassVar[BeamSearchOptions] = BeamSearchOptions()  # default options
    primary_metric: tuple[str, str] = ("loss", "loss")  # key and short name of the validation metric that is shown

    reading_seconds: float = 0.0  # how long `prepare` took
    fingerprint: str
    split_rule: str
    preprocessor: Preprocessor

    # Training: the task on some data

    @classmethod
    def save_data(cls, data: Data, columns: str | None = None) -> str:
        """Saves data that is passed from Python to a file, and returns its path; `columns` is the setting."""
        return save_data(data, split_commas(columns) or cls.row_columns)

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
        """Reads and checks the data; builds the vocabularies from the training split unless `preprocessor` has them.

        Choices that are made here, such as the kind of tokeniser, are also written into `settings`.
        """

    @abstractmethod
    def size(self) -> Size:
        """Returns the size of the training data, on which default rules depend."""

    @staticmethod
    def set_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault, /) -> None:
        """Chooses the settings that the user has not set, by calling `set_default(name, value)` for each."""
        set_fallback_defaults(settings, context, set_default)

    def check(self, settings: ResolvedSettings) -> None:
        """Raises an error for settings that cannot work with this data or machine, before anything is written."""
        check_family(settings)
        check_output(settings, self.outputs)
        self.check_settings(settings)
        if get_family(settings.model).has_gradients:
            self.batches(settings)
            check_precision(settings)
            model = check_memory(lambda: self.restore(settings, self.preprocessor), settings)
            self.check_shapes(model.eval())

    def check_settings(self, settings: ResolvedSettings) -> None:  # noqa: B027
        """Raises an error for settings that this task does not support."""

    def check_shapes(self, model: Any) -> None:  # noqa: B027
        """Runs a model once on the meta device, where tensors take no memory, so that layers check their shapes."""

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

        The best weights are those with the smallest `objective`, or `loss` if there is none. With a `share` below 1,
        only that share of the split is evaluated: always the same examples, evenly spaced.
        """

    def valid_size(self) -> Size:
        """Returns the size of the validation split; one of size 0 is always evaluated as a whole."""
        return Size(0)

    def embeddings(self, model: Any) -> dict[str, Embedding]:
        """Returns the embedding layers by the name of their vocabulary, for `--vectors`."""
        return {"text": model.embedding}

    def token_counts(self) -> dict[str, Tensor]:
        """Returns how often each token occurs in the training split, (V,), by the name of its vocabulary."""
        return {}

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        """Returns the entropy of the targets' frequencies in the training split, in nats; None where it has no meaning.

        It is the training loss of a model that knows the frequencies and ignores its input, with label smoothing unless
        `is_smoothed` is false, as in validation.
        """
        return None

    @cached_property
    def training_summary(self) -> TrainingSummary | None:
        """Hashes of the training split and fitted baselines, which are saved with the run for `evaluate`."""
        return None

    # What `seqwise check` reports about the data

    @abstractmethod
    def count_data(self) -> dict[str, dict[str, int]]:
        """Returns counts of each split, such as its examples and tokens, by the name of their column."""

    def describe_data(self) -> tuple[str, ...]:
        """Returns sentences about the data."""
        return ()

    def describe_tokenizer(self) -> str:
        """Returns a sentence about the tokeniser of the text."""
        tokenizer = self.preprocessor.tokenizer
        return f"tokeniser: {tokenizer.kind}, vocabulary {len(tokenizer):,} (from the training split)"

    def notes(self) -> list[str]:
        """Returns notes on how unusual but correct data was read, such as text that is not UTF-8."""
        return []

    def warnings(self) -> list[str]:
        """Returns warnings about data that is valid, but may distort results."""
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
        sizes = ", ".join(f"{split} {len(examples):,}" for split, examples in splits.items())
        rule = f"{self.split_rule[0].upper()}{self.split_rule[1:]}"
        log(f"{unit}: {'; '.join([sizes, *details])}. {rule}")

    def log_findings(self, log: LogFunction) -> None:
        """Logs the notes and warnings about the data."""
        for note in self.notes():
            log(f"note: {note}")
        for warning in self.warnings():
            log(f"warning: {warning}")

    # Inference with a trained model, without the training data

    @classmethod
    @abstractmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> nn.Module:
        """Returns a model into which trained weights can be loaded."""

    @classmethod
    @abstractmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns metrics with their definitions.

        They are of `split`; by default of the test split if `data` is the training data or has its own splits, else of
        all data.
        """

    @classmethod
    @abstractmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields one prediction per input, in their order."""

    @classmethod
    def measure_latency(
        cls, bundle: ModelBundle, data: str, split: str = "valid", num_predictions: int = 20
    ) -> Callable[[], float]:
        """Returns a function that measures the median seconds per prediction, for single inputs of a split.

        The data is read once, here; the function can be called repeatedly.
        """
        inputs, predict = cls.latency_inputs(bundle, data, split)
        weight = next(bundle.model.parameters(), None)
        return lambda: measure_median_seconds(
            inputs, predict, num_predictions, None if weight is None else weight.device
        )

    @classmethod
    @abstractmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns inputs of a split, and a function that makes the prediction for one of them."""

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        """Returns an input of the user, as `predict` takes it, for the views of `seqwise.lens`."""
        raise build_inspection_error(cls, "inspect_text(bundle, text)")

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        """Returns at most `count` examples, evenly spread over a split of the data, for the views of `seqwise.lens`."""
        raise build_inspection_error(cls, "inspect_split(bundle, data, split, count, progress)")

    @classmethod
    def save_input(cls, value: Any) -> str | None:
        """Returns an input of `predict` that is passed from Python as a text or a path; None for other values."""
        return value if isinstance(value, str) else None

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """Returns the inputs in a file that `seqwise predict` is called with; None for text and files of lines."""
        return None


def build_inspection_error(task: type[Task], method: str) -> UsageError:
    """Returns the error for a task that lacks a method for the views of `seqwise.lens`."""
    name = task.name or task.__name__
    return UsageError(
        f"runs of the task {name!r} cannot be inspected: {task.__name__} does not say how its inputs are read.",
        fix=f"Add the class method {method} to {task.__name__}; seqwise/tasks/inspection.py has its types.",
    )
