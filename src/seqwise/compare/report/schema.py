"""The report of a comparison as frozen dataclasses: the one schema of `report.json`, the page and the terminal table.

`to_json` writes and `from_json` reads any dataclass. Keys of version 0.1 are accepted when reading (`accept_old_key`),
also in the saved results of training, test and latency measurement (`compare/run/jobs.py`). A number that does not
exist, or is infinite, is None. This module computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, AliasPath, BeforeValidator, Field, TypeAdapter

FORMAT = 2  # 1 was written by version 0.1

Number = float | None
Rank = Literal["best", "tied", "unsure", "worse", "failed"]
Significance = Literal["significant", "probable", "inconclusive"]
NoiseSource = Literal["seeds", "examples"]
IncludedNoise = Literal["seeds and examples", "examples"]
T = TypeVar("T")


def to_json(value: Any) -> str:
    """Returns a dataclass as JSON text; numbers that JSON cannot hold, such as an infinite perplexity, become null."""
    return _get_adapter(value.__class__).dump_json(value, indent=1).decode() + "\n"


def from_json(kind: type[T], text: str | bytes) -> T:
    """Returns the dataclass in a JSON text. Raises ValueError where the text is not JSON or a field is missing."""
    return _get_adapter(kind).validate_json(text)  # type: ignore[arg-type]  # a class is hashable


@cache
def _get_adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def accept_old_key(name: str, *old: str | AliasPath) -> Any:
    """Returns the metadata of a field that had another key in version 0.1."""
    return Field(validation_alias=AliasChoices(name, *old))


_OLD_EVALUATION_SECONDS = accept_old_key("evaluation_seconds", AliasPath("evaluation", "seconds"))
# Version 0.1 called an inconclusive outcome "level".
_RENAME_LEVEL = BeforeValidator(lambda outcome: "inconclusive" if outcome == "level" else outcome)


# Families


@dataclass(frozen=True)
class Range:
    """The two ends of an interval."""

    low: Number
    high: Number


@dataclass(frozen=True)
class SeedValue:
    """The metric of the training run with one seed on the test split."""

    seed: int
    value: Number


@dataclass(frozen=True)
class LearningRateTrial:
    """A short training run with one of the learning rates of the search."""

    rate: Number
    validation: Number  # primary metric on the validation split
    status: str  # done, failed (or not finished)
    reason: str  # why it failed
    rate_text: str = ""
    validation_text: str = ""


@dataclass(frozen=True)
class TrainingCost:
    """What one training run took, mean over the seeds."""

    tokens: float
    seconds: float
    updates: float
    tokens_per_second: float  # mean tokens / mean seconds


@dataclass(frozen=True)
class CurvePoint:
    """One validation; `training_loss` is the mean training loss since the validation before."""

    tokens: Number  # trained on so far
    seconds: Number  # of training so far
    value: Number  # primary metric on the validation split
    loss: Number = None  # on the validation split
    training_loss: Annotated[Number, accept_old_key("training_loss", "trained")] = None


@dataclass(frozen=True)
class Curve:
    """The validations of the training run with one seed."""

    seed: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True)
class Family:
    """One model family or variant: its quality, what it costs, its learning curves and settings."""

    name: str
    model: str | None
    status: str  # done; partly: only some seeds were trained and tested; failed
    reason: str  # why it is not done, or has no mean
    mean: Number  # of the metric on the test split, over the seeds
    low: Number  # 95 % interval of the mean over seeds
    high: Number
    parameters: int | None = None
    # Fitted by counting n-grams, without a budget. Such a family is ranked and tested, unlike `Report.baselines`.
    is_baseline: Annotated[bool, accept_old_key("is_baseline", "baseline")] = False
    learning_rate: Number = None
    lr_trials: Annotated[tuple[LearningRateTrial, ...], accept_old_key("lr_trials", "tries")] = ()
    values: tuple[SeedValue, ...] = ()
    # 95 % bootstrap interval of the mean over the seeds; test examples are resampled.
    sampling: Range | None = None
    metrics: dict[str, Number] = field(default_factory=dict)  # all metrics on the test split, mean over the seeds
    training: TrainingCost | None = None
    memory: Number = None  # peak of the bytes that training added, median over the seeds
    weights: Number = None  # bytes of the weights file
    latency: Annotated[Number, accept_old_key("latency", "answer")] = None  # median of `latencies`
    # Median seconds of one prediction in each measurement round.
    latencies: Annotated[tuple[float, ...], accept_old_key("latencies", "answers")] = ()
    # To predict the whole test split in batches, median over the seeds.
    evaluation_seconds: Annotated[Number, _OLD_EVALUATION_SECONDS] = None
    curves: tuple[Curve, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    run: str | None = None  # folder of the run with the lowest validation objective, relative to the comparison
    rank: Rank = "failed"
    text: dict[str, Any] = field(default_factory=dict)  # what is shown → its text; "metrics" is itself a mapping

    @property
    def interval(self) -> tuple[float, float, NoiseSource] | None:
        """Low end, high end and source of the interval: of the mean over the seeds, or else (`sampling`) over the test
        examples."""
        if self.low is not None and self.high is not None:
            return self.low, self.high, "seeds"
        sampling = self.sampling
        if sampling is None or sampling.low is None or sampling.high is None:
            return None
        return sampling.low, sampling.high, "examples"

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width; None without an interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2


# Pairs, trials, examples


@dataclass(frozen=True)
class Pair:
    """The difference between two families: metric(a) − metric(b), its 95 % interval, and its p-values.

    `p` is of this pair alone; `adjusted_p` is corrected for all pairs. `covers` names the sources of noise that are
    included in the interval and the p-values: with a single run of a family the noise of seeds is missing, and no
    difference is called significant. An n-gram family is deterministic: its single run has no noise of seeds.
    `larger_noise` is the larger source, or the missing one: more seeds or more examples separate the families best.
    """

    a: str
    b: str
    difference: Number
    low: Number
    high: Number
    p: Number
    adjusted_p: Annotated[Number, accept_old_key("adjusted_p", "adjusted")]
    significant: bool
    covers: IncludedNoise
    larger_noise: Annotated[NoiseSource, accept_old_key("larger_noise", "larger")]
    # Significant: `adjusted_p` < 0.05. Probable: only `p` < 0.05, or a family was trained only once.
    outcome: Annotated[Significance, _RENAME_LEVEL] = "inconclusive"
    text: dict[str, str] = field(default_factory=dict)

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width; None without an interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class TrialSummary:
    """One training run, of the learning-rate search or with one seed."""

    name: str
    family: str
    kind: str  # lr: learning-rate trial; train: training run of a seed
    seed: int
    status: str  # done, failed (or not finished)
    reason: str  # why it failed
    rate: Number = None
    tokens: Number = None
    seconds: Number = None
    updates: Number = None
    validation: Number = None  # primary metric on the validation split
    text: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a family predicted for an example, and its metric on that example."""

    text: str  # prediction of the first seed
    value: Number  # metric, mean over the seeds
    value_text: str = ""
    values: tuple[Number, ...] = ()  # the prediction as numbers, of a forecast


@dataclass(frozen=True)
class Example:
    """A test example on which the families disagree."""

    input: str
    expected: str
    answers: dict[str, Answer]  # by family
    history: tuple[Number, ...] = ()  # of a series: the values before the forecast
    actual: tuple[Number, ...] = ()  # of a series: the true values of the steps that are forecast


# The report


@dataclass(frozen=True)
class Metric:
    """The primary metric of the task."""

    key: str
    name: str
    definition: str
    lower_is_better: bool
    example_unit: Annotated[str, accept_old_key("example_unit", "examples")] = ""  # what a test example is, plural
    num_examples: Annotated[int | None, accept_old_key("num_examples", "count")] = None
    on: str = ""  # which data was evaluated, in words
    warnings: Annotated[tuple[str, ...], accept_old_key("warnings", "remarks")] = ()
    split: str = "test"  # whose examples "test examples" are; or validation


@dataclass(frozen=True)
class Rules:
    """The conditions that were equal for all families."""

    budget: str  # of each family per seed, with its unit
    match: str  # what was made equal: parameters, time or tokens
    parameters: int | None  # for which widths were solved; None: sizes were not matched
    seeds: tuple[int, ...]
    lr_trials: Annotated[int, accept_old_key("lr_trials", "tries")]
    lr_trial_budget: Annotated[str | None, accept_old_key("lr_trial_budget", "try")]
    training_budget: Annotated[str, accept_old_key("training_budget", "training")]
    sentences: tuple[str, ...]
    tested: str = ""  # a sentence: when the models were evaluated on the test split
    parameters_text: str = ""


@dataclass(frozen=True)
class BaselineResult:
    """The metric of a baseline, such as the most frequent label; neither ranked nor part of the significance tests."""

    name: str
    value: Number
    about: str
    value_text: str = ""


@dataclass(frozen=True)
class Waiting:
    """For which share of their time the processes of a comparison waited for a core; None: not known.

    `text` is a warning if that was long enough to change the measured times, otherwise empty.
    """

    training: Number = None  # mean over the training runs
    latency: Number = None  # while latencies were measured
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """The best family, those close to it (`tied`) and those behind it (`unsure`), none of them significantly worse.

    `fastest` and `smallest` are chosen among the best, those equal to it, and the tied that did not diverge; None where
    no family is clearly faster or smaller. Of the tied, those with exactly the mean of the best are `equal` to it.
    `solved`: the best has the best possible value.
    """

    best: str | None
    tied: tuple[str, ...]
    unsure: tuple[str, ...]
    fastest: str | None
    smallest: str | None
    sentences: tuple[str, ...]
    fastest_text: Annotated[str | None, accept_old_key("fastest_text", AliasPath("shown", "fastest"))] = None
    smallest_text: Annotated[str | None, accept_old_key("smallest_text", AliasPath("shown", "smallest"))] = None
    equal: tuple[str, ...] = ()
    solved: bool = False


@dataclass(frozen=True)
class Report:
    """All results of a comparison. `families` are sorted, best first."""

    seqwise: str  # version
    task: str
    data: str
    split_rule: Annotated[str, accept_old_key("split_rule", "split")]
    about: tuple[str, ...]  # sentences about the data
    command: str
    unit: str  # what is counted as a token
    # `environment.describe()` of the first trial; under "in_words" as text, of a cluster for all of its machines.
    machine: dict[str, Any]
    rules: Rules
    metric: Metric
    families: tuple[Family, ...]
    pairs: tuple[Pair, ...]
    examples: tuple[Example, ...]
    trials: tuple[TrialSummary, ...]
    baselines: Annotated[tuple[BaselineResult, ...], accept_old_key("baselines", "yardsticks")] = ()
    verdict: Verdict | None = None
    num_disagreements: int | None = None  # test examples on which the metric differs between families; None: not known
    waiting: Waiting = Waiting()
    format: int = FORMAT

    def family(self, name: str) -> Family:
        """Returns the family of that name."""
        return next(family for family in self.families if family.name == name)
