"""`Evaluation`: metrics with the definition that makes each comparable. `ExampleScores`: sums of a metric by example.

The sums of examples are additive: a paired bootstrap draws examples, adds their sums, and `compute_metric` gives the
metric of that resample. The tasks compute the numbers; this module knows nothing of models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from seqwise.digests import PLACEHOLDER, add_digest, check_digest, insert_digest_into, read_object
from seqwise.errors import RunError
from seqwise.files import explain_write_errors, remove, write_bytes, write_text
from seqwise.metric_names import METHOD_OPTIONS, TEXT_METRICS

SCORES_FILE = "scores.safetensors"
TEXTS_FILE = "examples.json"
BLOCK_TOKENS = 128  # tokens of one example where the text is one long stream
MAX_TEXT_LENGTH = 400  # characters of a saved text
BLEU_ORDERS = 4  # BLEU counts n-grams of up to this many words

LOWER_IS_BETTER = frozenset({
    "perplexity", "word_perplexity", "bits_per_character", "unknown_tokens", "loss", "bidirectional_perplexity",
    "forward_perplexity", "backward_perplexity", "mse", "mae", "mase", "quantile_loss",
    *(f"{name}_{metric}" for name in ("naive", "seasonal_naive", "linear") for metric in ("mse", "mae", "mase")),
    *(f"{method}_{metric}" for method in METHOD_OPTIONS for metric in TEXT_METRICS),
})  # fmt: skip
MIN_OVERLAP = 0.01  # share of examples that also occur in training, from which a note says so
EXP_LIMIT = 700  # exp of a larger number is treated as infinite: float64 ends near e^709

DEFINITIONS = {
    "perplexity": "exp(N / tokens): per token, depends on the tokeniser",
    "word_perplexity": "exp(N / words): words separated by whitespace plus one line end per line, as published for PTB",
    "bits_per_character": "N / ln 2 / characters: comparable between tokenisers",
    "tokens": "predicted tokens, all but the first. N is their summed negative log likelihood in nats",
    "unknown_tokens": "tokens outside the vocabulary; their spelling was not predicted",
}


@dataclass(frozen=True)
class Table:
    """Numbers that belong together, such as a confusion matrix: one row per name."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Baseline:
    """The primary metric of a simple method, such as always predicting the most frequent label."""

    name: str
    value: float
    about: str  # a sentence that describes the method


@dataclass(frozen=True)
class TrainingOverlap:
    """How many of the evaluated examples occur in the training split of the run."""

    count: int  # examples that do
    total: int  # all evaluated examples
    unit: str  # what an example is, plural
    value: float | None  # the primary metric of the other examples, if there are any


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of a model on some data."""

    metrics: dict[str, float]
    definitions: dict[str, str]  # metric → how it is computed
    data: str  # which data was evaluated, in words
    method: str = ""  # how the model was used, such as its beam, in words
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = field(default=(), kw_only=True)  # how data was read; edges of searches
    seconds: float = 0.0  # inference time, without reading the data
    examples: ExampleScores | None = field(default=None, compare=False, repr=False)  # None unless requested
    primary_metric: str = ""
    baselines: tuple[Baseline, ...] = ()
    overlap: TrainingOverlap | None = None

    def is_beaten_by(self, baseline: Baseline) -> bool:
        """Returns whether a baseline is better than the model."""
        value = self.metrics[self.primary_metric]
        return baseline.value < value if self.primary_metric in LOWER_IS_BETTER else baseline.value > value

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that qualify the primary metric: baselines that are better, and examples that occur in training."""
        notes, metric, overlap = [], self.primary_metric, self.overlap
        better = [f"of the {each.name} {each.value:,.3f}" for each in self.baselines if self.is_beaten_by(each)]
        if better:
            which = "a baseline" if len(better) == 1 else f"{len(better)} baselines"
            values = f"its {metric} is {self.metrics[metric]:,.3f}, that {', '.join(better)}"
            notes.append(f"The model is worse than {which}: {values}.")
        if overlap is not None and overlap.count >= max(1, MIN_OVERLAP * overlap.total):
            total, where = f"{overlap.total:,} {overlap.unit}", "in the training split of the run"
            if overlap.value is None:
                notes.append(f"All {total} occur {where}: the {metric} says nothing about new data.")
            else:
                share, others = f"{overlap.count / overlap.total:.1%}", f"without them the {metric} is"
                notes.append(f"{overlap.count:,} of {total} ({share}) occur {where}; {others} {overlap.value:,.3f}.")
        return tuple(notes)

    def __repr__(self) -> str:
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"<Evaluation {metrics}; {self.data}>"

    def as_dict(self) -> dict[str, Any]:
        """Returns the metrics by name, with their definitions, tables and warnings; for JSON."""
        tables = {
            table.title: {name: dict(zip(table.columns, row)) for name, row in table.rows.items()}
            for table in self.tables
        }
        baselines = [asdict(each) | {"metric": self.primary_metric, "better": self.is_beaten_by(each)}
                     for each in self.baselines]  # fmt: skip
        warnings = [*self.notes, *self.warnings]
        return {
            **self.metrics,
            "on": self.data,
            "how": self.method,
            "definitions": {name: self.definitions[name] for name in self.metrics if name in self.definitions},
            **({"baselines": baselines} if baselines else {}),
            **({"in_training": asdict(self.overlap)} if self.overlap is not None else {}),
            **({"tables": tables} if tables else {}),
            **({"warnings": warnings} if warnings else {}),
            **({"notes": list(self.data_notes)} if self.data_notes else {}),
        }


@dataclass(frozen=True)
class Perplexity:
    """The counts from which the metrics of a language model are computed."""

    nats: float  # summed negative log likelihood of the predicted tokens
    tokens: int  # predicted tokens
    words: int  # in the text of these tokens
    characters: int
    unknown: int = 0  # tokens that are <unk>

    @property
    def loss(self) -> float:
        """Mean nats per token."""
        return self.nats / self.tokens

    def compute_metrics(self) -> dict[str, float]:
        """Returns the metrics that DEFINITIONS explains."""
        return {
            "perplexity": exp_or_inf(self.loss),
            "word_perplexity": exp_or_inf(self.nats / self.words),
            "bits_per_character": self.nats / math.log(2) / self.characters,
            "tokens": self.tokens,
            "unknown_tokens": self.unknown,
        }


def compute_entropy(counts: np.ndarray, smoothing: float = 0.0) -> float:
    """Returns the entropy in nats of the frequencies (V,), mixed with the uniform distribution by label smoothing."""
    frequencies = counts / max(1, counts.sum())
    frequencies = (1 - smoothing) * frequencies + smoothing / len(counts)
    present = frequencies[frequencies > 0]
    return float(-(present * np.log(present)).sum())


def exp_or_inf(value: float) -> float:
    """Returns e^value, or infinity from EXP_LIMIT on."""
    return math.exp(value) if value < EXP_LIMIT else math.inf


@dataclass(frozen=True)
class ExampleText:
    """The input of an example, its reference and the model's answer, for display; "" where there is none."""

    input: str
    expected: str = ""
    answer: str = ""
    # The values of a series, for a curve: "input", "expected" and "answer"; None where one is missing.
    values: dict[str, list[float | None]] = field(default_factory=dict, hash=False, kw_only=True)

    @classmethod
    def single_line(cls, *texts: str) -> Self:
        """Returns texts with whitespace collapsed to single spaces, long ones truncated, and surrogates replaced."""
        return cls(*(_truncate(" ".join(text[: 2 * MAX_TEXT_LENGTH].split()), len(text)) for text in texts))

    @classmethod
    def multi_line(cls, *texts: str) -> Self:
        """Returns texts like `single_line`, but keeps line breaks and spaces, which a language model predicts too."""
        return cls(*(_truncate(text[: 2 * MAX_TEXT_LENGTH], len(text)) for text in texts))


def _truncate(text: str, full_length: int) -> str:
    """Returns at most MAX_TEXT_LENGTH characters of `text`, the beginning of a text of `full_length` characters."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    fits = len(text) <= MAX_TEXT_LENGTH and full_length <= 2 * MAX_TEXT_LENGTH
    return text if fits else f"{text[: MAX_TEXT_LENGTH - 1]}…"


@dataclass(frozen=True, eq=False)
class ExampleScores:
    """For each example the sums from which a metric is computed, in the same order for every model on the same data.

    A metric that is a mean over several targets has the sums of each target side by side.
    """

    metric: str  # key in `Evaluation.metrics`
    unit: str  # what an example is, plural
    sums: np.ndarray  # (examples, sums per example) float64; `_FORMULAS` says what they are
    texts: tuple[ExampleText, ...]

    def __post_init__(self) -> None:
        if self.sums.ndim != 2 or len(self.sums) != len(self.texts):
            raise ValueError(f"sums {self.sums.shape} do not belong to {len(self.texts)} texts")

    def save(self, folder: Path) -> None:
        """Writes two files, TEXTS_FILE last: where it exists, both are complete."""
        content = {"metric": self.metric, "unit": self.unit, "texts": [asdict(text) for text in self.texts]}
        scores = insert_digest_into(save({"sums": np.ascontiguousarray(self.sums, dtype=np.float64)}, PLACEHOLDER))
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            remove(folder / TEXTS_FILE, folder)
            write_bytes(folder / SCORES_FILE, scores, concurrent=True)
            write_text(folder / TEXTS_FILE, json.dumps(add_digest(content), ensure_ascii=False), concurrent=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` wrote; version 0.1 called the texts "shown"."""
        try:
            content = read_object(folder / TEXTS_FILE)
            check_digest(folder / SCORES_FILE)
            sums = load((folder / SCORES_FILE).read_bytes())["sums"]
            texts = content["texts"] if "texts" in content else content["shown"]
            return cls(content["metric"], content["unit"], sums, tuple(ExampleText(**text) for text in texts))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            problem = f"the scores of examples are missing or damaged: {error}."
            raise RunError(problem, fix="Evaluate again.", file=folder) from None


class ScoreSums:
    """Accumulates (sum, count) per example; the order of the additions does not matter."""

    def __init__(self, num_examples: int):
        self.sums = np.zeros((num_examples, 2))

    def add(self, examples: np.ndarray, amounts: np.ndarray, counts: np.ndarray | float = 1.0) -> None:
        """Adds amounts[i] to the sum and counts[i] to the count of the example examples[i]."""
        np.add.at(self.sums[:, 0], examples, amounts)
        np.add.at(self.sums[:, 1], examples, counts)


def count_correct(is_correct: Iterable[bool]) -> np.ndarray:
    """Returns the sums (N, 2) of an accuracy: 1 or 0 correct, out of 1."""
    values = np.fromiter(is_correct, dtype=np.float64)
    return np.stack([values, np.ones_like(values)], axis=1)


def compute_metric(metric: str, sums: np.ndarray) -> np.ndarray:
    """Returns the metric (…) of the sums of some examples, added up, (…, sums per example); for many resamples at once.

    With the sums of several targets, it is the mean over the targets.
    """
    if metric not in _FORMULAS:
        raise ValueError(f"{metric!r} is not computed from sums; these are: {', '.join(_FORMULAS)}")
    num_sums, formula = _FORMULAS[metric]
    sums = np.asarray(sums, dtype=np.float64)
    if not sums.shape[-1] or sums.shape[-1] % num_sums:
        raise ValueError(f"{metric} is computed from {num_sums} sums for each target; received {sums.shape[-1]}")
    return formula(sums.reshape(*sums.shape[:-1], -1, num_sums)).mean(axis=-1)


def _compute_mean(sums: np.ndarray) -> np.ndarray:
    """Returns total / count; 0 where the count is 0."""
    total, count = sums[..., 0], sums[..., 1]
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0)


def _compute_perplexity(sums: np.ndarray) -> np.ndarray:
    """Returns exp(nats / tokens), or infinity from EXP_LIMIT on."""
    loss = _compute_mean(sums)
    return np.where(loss < EXP_LIMIT, np.exp(np.minimum(loss, EXP_LIMIT)), np.inf)


def _compute_f1(sums: np.ndarray) -> np.ndarray:
    """Returns 2 · precision · recall / (precision + recall)."""
    correct, predicted, true = sums[..., 0], sums[..., 1], sums[..., 2]
    return _compute_mean(np.stack([2 * correct, predicted + true], axis=-1))


def _compute_bleu(sums: np.ndarray) -> np.ndarray:
    """Returns corpus BLEU as sacreBLEU computes it (Post 2018).

    The k-th n-gram order without a match counts as 1 / 2^k matches. Without any match, or any 4-gram, BLEU is 0.
    """
    matches, ngrams = sums[..., :BLEU_ORDERS], sums[..., BLEU_ORDERS : 2 * BLEU_ORDERS]
    output_length, reference_length = sums[..., -2], sums[..., -1]
    is_unmatched = matches == 0
    smoothed = np.where(is_unmatched, 0.5 ** np.cumsum(is_unmatched, axis=-1), matches)
    is_scored = (matches > 0).any(axis=-1) & (ngrams > 0).all(axis=-1)
    precision = np.divide(smoothed, ngrams, out=np.ones_like(ngrams), where=ngrams > 0)
    ratio = np.divide(reference_length, output_length, out=np.ones_like(output_length), where=output_length > 0)
    log_brevity = np.minimum(0.0, 1 - ratio)
    return np.where(is_scored, 100 * np.exp(log_brevity + np.log(precision).mean(axis=-1)), 0.0)


Formula = Callable[[np.ndarray], np.ndarray]

# Metric → number of sums for each target, and the formula. The comments name the sums in their order.
_FORMULAS: dict[str, tuple[int, Formula]] = {
    "perplexity": (2, _compute_perplexity),  # nats, tokens
    "accuracy": (2, _compute_mean),  # correct, all
    "token_accuracy": (2, _compute_mean),
    "exact_match": (2, _compute_mean),
    "span_f1": (3, _compute_f1),  # correct, predicted, true
    "bleu": (2 * BLEU_ORDERS + 2, _compute_bleu),  # matching 1- to 4-grams, all of them, output and reference length
    "mse": (2, _compute_mean),  # squared errors, values
    "mean": (2, _compute_mean),  # sum, count
}
