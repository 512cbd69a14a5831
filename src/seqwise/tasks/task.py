"""`Task`: what training, evaluation and prediction need of any task, and the nouns they exchange.

A task has two faces. An *instance* is the task on some data: vocabularies are learned, examples are read, a model can
be built, trained and validated. The *class* can use a trained model without that data: restore, evaluate, predict.
The pages beside this one implement it; `seqwise.tasks.get_task` finds them by name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from seqwise.config import DYNAMIC_RATE, Settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import RunError
from seqwise.files import write_text
from seqwise.layers.embedding import Embedding
from seqwise.metrics.evaluation import Baseline, Evaluation
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.latency import median_seconds
from seqwise.text.tokenizer import Tokenizer

LogFunction = Callable[[str], None]
ProgressCallback = Callable[[int, int], None]

FACTS = "task.json"
_COPY = "Copy the folder again from where it was made, or train again."


def no_log(message: str) -> None:
    """Where nobody listens."""


@dataclass
class Preprocessor:
    """What was learned from the training split besides weights: vocabularies by name, and plain facts.

    Facts are what JSON can hold: labels, tags, scales, columns. The tokeniser called "text" is saved as
    `tokenizer.json`, one called "de" as `tokenizer.de.json`, the facts as `task.json`.

    `extra_words` are words that a vocabulary yet to be learned shall have besides; they are not saved.
    """

    tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    extra_words: Sequence[str] = ()

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the text that is read."""
        if "text" not in self.tokenizers:
            raise RunError(f"the run has no {_file('text')}.", repair=_COPY)
        return self.tokenizers["text"]

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.tokenizers.items():
            tokenizer.save(folder / _file(name))
        if self.facts:
            write_text(folder / FACTS, json.dumps(self.facts, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Preprocessor:
        names = {path: path.name.removeprefix("tokenizer.").removesuffix("json").rstrip(".") or "text"
                 for path in sorted(folder.glob("tokenizer*.json"))}  # fmt: skip
        facts = {}
        if (folder / FACTS).exists():
            try:
                facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            except ValueError as error:
                raise RunError(f"the file is damaged: {error}.", file=folder / FACTS, repair=_COPY) from None
        return cls({name: Tokenizer.load(path) for path, name in names.items()}, facts)


def _file(name: str) -> str:
    return "tokenizer.json" if name == "text" else f"tokenizer.{name}.json"


@dataclass(frozen=True)
class Size:
    """What the rules for defaults may know of the training data."""

    tokens: int
    vocabulary: int = 0
    examples: int = 0
    longest: int = 0  # tokens of the longest example
    outputs: int = 0  # labels, tags or values to choose from


@dataclass(frozen=True)
class InferenceOptions:
    """What is asked of a trained model in `evaluate` and `predict`, for all tasks; each reads what concerns it."""

    beam_search: BeamSearchOptions = BeamSearchOptions()
    sampling: SamplingOptions | None = None  # draw at random instead of searching
    seed: int = 0
    max_length: int | None = None
    target: str | None = None  # translate: languages
    top: int = 5  # masked, classify: alternatives shown
    dynamic: bool = False  # language: learn while scoring
    rate: float = DYNAMIC_RATE  # learning rate of that
    out: Path | None = None  # evaluate: where to write the answers; forecast: a picture
    examples: bool = False  # evaluate: also what each example adds to the headline
    primary_metric: str | None = None  # of which metric, where a task has several


@dataclass(frozen=True)
class Prediction:
    """One answer: as it is printed, and as `--json` gives it."""

    text: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Report:
    """What `seqwise check` shows: a table with a row per split, sentences about the data, and warnings."""

    columns: tuple[str, ...]
    rows: dict[str, tuple[int, ...]]  # split → one number per column
    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Batches(Protocol):
    """What the training loop needs of a source of batches."""

    @property
    def steps(self) -> int: ...
    def epoch(self, number: int, start: int = 0) -> Iterator[Any]: ...


class Summing(Protocol):
    """What validation needs to know of the processes (`training/distribution.py`)."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def sum(self, *numbers: float) -> list[float]: ...


class Task(ABC):
    """A task on some data. `fingerprint` and `split_rule` tell which data and how it was split."""

    unit: ClassVar[str] = "tokens"  # what speed and budgets count
    example: ClassVar[str] = "the "  # something to ask a model, where `preprocessor.facts` has no better "example"
    beam_search: ClassVar[BeamSearchOptions] = (
        BeamSearchOptions()
    )  # how answers are searched for unless the user says otherwise
    primary_metric: tuple[str, str] = ("loss", "loss")  # the validation metric to show: its key, and its short name

    fingerprint: str
    split_rule: str
    preprocessor: Preprocessor

    # The task on some data

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
        """Read and check the data; learn the vocabularies from the training split unless `preprocessor` brings them.

        What is learned or chosen here (such as the kind of tokeniser) is also filled into `settings`.
        """

    @abstractmethod
    def size(self) -> Size:
        """What the rules for defaults may look at."""

    @abstractmethod
    def check(self, settings: ResolvedSettings) -> None:
        """Refuse resolved settings that cannot work with this data or machine, before anything is written."""

    @abstractmethod
    def build(self, settings: ResolvedSettings) -> nn.Module:
        """An untrained model, called as `model(batch, carry) → (Loss, carry)`."""

    @abstractmethod
    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> Batches:
        """Training batches."""

    @abstractmethod
    def validate(self, model: Any, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Metrics on the validation split, shared among the processes: `loss`, and `primary_metric`.

        The best weights are those with the smallest `goal`, or `loss` where there is no `goal`.
        """

    def embeddings(self, model: Any) -> dict[str, Embedding]:
        """The layers with a row for each token, by the name of their vocabulary. Word vectors can start them."""
        return {"text": model.embedding}

    def token_counts(self) -> dict[str, Tensor]:
        """How often each token of a vocabulary occurs in the training split, (V,), by the name of the vocabulary."""
        return {}

    def baselines(self, split: str) -> tuple[Baseline, ...]:
        """What needs no model reaches on a split, by the headline; what `evaluate` itself measures is not repeated."""
        return ()

    @abstractmethod
    def report(self) -> Report:
        """What `seqwise check` says."""

    # A trained model, without that data

    @classmethod
    @abstractmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> nn.Module:
        """A model into which trained weights can be loaded."""

    @classmethod
    @abstractmethod
    def evaluate(
        cls,
        model: Any,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Metrics with their definitions. `trained_on` is the fingerprint of the training data."""

    @classmethod
    @abstractmethod
    def predict(
        cls,
        model: Any,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """One answer per input, in their order."""

    @classmethod
    def measure_latency(
        cls,
        model: Any,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str = "valid",
        trained_on: str = "",
        answers: int = 20,
    ) -> Callable[[], float]:
        """What times some answers to inputs of a split, asked for one at a time on the device of the model: each call
        gives the median seconds of one answer. The data is read once, here."""
        inputs, answer = cls.latency_inputs(model, settings, preprocessor, data, split, trained_on)
        device = next(model.parameters()).device if isinstance(model, nn.Module) else None
        return lambda: median_seconds(inputs, answer, answers, device)

    @classmethod
    @abstractmethod
    def latency_inputs(
        cls,
        model: Any,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        """Inputs out of a split, and what gives the answer to one of them."""

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """The inputs that a word on the command line stands for, where it is more than lines of text; None: no more."""
        return None
