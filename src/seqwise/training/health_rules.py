"""Rules that recognise training that goes wrong, from the curve of a run: its losses, gradient norms and validations.

Each rule is a function of a `Curve` and `RunProperties` that returns a `Diagnosis`, or None. Its docstring states it;
the thresholds are the constants here. `RULES` are certain enough to be reported during training (`HealthMonitor`);
those in `health_curve_rules.py` judge a whole curve, for `seqwise inspect --view health`. No rule reads a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from seqwise.training.step import get_objective

Severity = Literal["problem", "warning", "note"]

COLUMNS = ("step", "loss", "gradient_norm", "learning_rate")  # of `metrics.jsonl`, of which a curve consists

STUCK_RANGE = 0.99, 1.1  # loss / entropy of the frequencies: not below it, and above it through noise
MIN_STUCK_VALIDATION = 0.98  # validation loss / entropy; without dropout the loss may be below the entropy
STUCK_UPDATES = 1_000  # for which the loss stays there; models with default settings leave it within 300
STUCK_AT_END = 200
STUCK_UPDATES_MASKED = 5_000  # masked language models take longer (docs/views/health.md)
BLOCK_ROWS = 10  # rows of a curve whose mean is compared
DIVERGED, DIVERGED_WITHOUT_ENTROPY = 2.0, 5.0  # loss / loss before training
EXPLODED = 1_000.0  # gradient norm; ordinary norms of a mean loss are 0.01 to 10
EXPLODED_SHARE = 0.1  # of the recent rows
VANISHED = 1e-6  # gradient norm
MIN_MOVEMENT = 0.02  # of the weights, relative to their size
MIN_IMPROVEMENT = 0.02  # of the loss, relative to its start
MIN_UPDATES = 300  # before any rule about slow learning
CONSTANT_VALIDATIONS = 5  # in a row with the metrics of a constant prediction
CONSTANT_UPDATES = 500


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong, the numbers that show it, and settings that may help."""

    rule: str  # short name: "stuck loss"
    severity: Severity
    text: str  # a clause without a full stop: "the loss has stayed …"
    evidence: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted name → value to try
    advice: str = ""  # in words, where no setting is to be changed

    def format_line(self) -> str:
        """Returns one line for the display of a training run."""
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.settings.items())
        advice = f"try {options}" if options else self.advice
        return f"{self.text}: {advice}" if advice else self.text


@dataclass(frozen=True)
class RunProperties:
    """What the rules need to know of a run besides its curve."""

    task: str
    learning_rate: float  # the peak
    is_adam: bool = True  # the optimiser is adam or adamw
    clip: str = "norm"
    clip_threshold: float = 1.0
    entropy: float | None = None  # of the frequencies of the targets, nats: the loss of a model that ignores its input
    validation_entropy: float | None = None  # the same without label smoothing
    weight_scale: float | None = None  # root mean square of the weights
    weight_norm: float | None = None
    target_name: str = "token"  # what is predicted: a token, label or tag


@dataclass(frozen=True)
class Curve:
    """The lines of `metrics.jsonl`, every tenth update: arrays (N,), and (step, metrics) of each validation."""

    steps: np.ndarray
    losses: np.ndarray
    norms: np.ndarray
    rates: np.ndarray
    validations: Sequence[tuple[int, Mapping[str, float]]]
    progress: float = 0.0  # share of the budget that is spent
    ended: str = ""

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Curve:
        """Returns the curve of lines of `metrics.jsonl`; lines that lack a number are left out."""
        rows = [row for row in rows if is_complete(row)]
        steps, losses, norms, rates = (np.array([row[name] for row in rows], dtype=np.float64) for name in COLUMNS)
        validations = [(int(row["step"]), row["validation"]) for row in rows if row.get("validation")]
        last = rows[-1] if rows else {}
        return cls(
            steps, losses, norms, rates, validations, float(last.get("progress", 0.0)), str(last.get("ended", ""))
        )

    @property
    def saved(self) -> tuple[int, Mapping[str, float]] | None:
        """Returns (step, metrics) of the validation whose weights are saved: the one with the best objective."""
        finite = [each for each in self.validations if math.isfinite(get_objective(each[1]))]
        return min(finite, key=lambda each: get_objective(each[1]), default=None)

    @property
    def validation_losses(self) -> list[tuple[int, float]]:
        """Returns (step, loss) of the validations with a finite loss."""
        losses = [(step, metrics.get("loss", math.nan)) for step, metrics in self.validations]
        return [(step, loss) for step, loss in losses if math.isfinite(loss)]

    @property
    def num_updates(self) -> int:
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def updates_per_row(self) -> float:
        return self.num_updates / max(1, len(self.steps))

    def get_initial_loss(self) -> float:
        """Returns the loss of the first logged batch, which is that of an untrained model; NaN if it is missing."""
        return float(self.losses[0]) if len(self.losses) and self.steps[0] <= 10 else math.nan

    def find_end_of_warmup(self, peak_rate: float) -> float:
        """Returns the first logged step whose learning rate is at least half of the peak; infinity if there is none."""
        return float(self.steps[self.rates >= 0.5 * peak_rate].min(initial=math.inf))

    def average_blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (last step, mean loss) of consecutive blocks of BLOCK_ROWS rows."""
        count = len(self.losses) // BLOCK_ROWS
        rows = slice(0, count * BLOCK_ROWS)
        return self.steps[rows].reshape(count, BLOCK_ROWS)[:, -1], self.losses[rows].reshape(count, BLOCK_ROWS).mean(
            axis=1
        )


def is_complete(row: Mapping[str, Any]) -> bool:
    """Returns whether a line of `metrics.jsonl` has the numbers of a curve."""
    return all(isinstance(row.get(name), (int, float)) for name in COLUMNS)


Rule = Callable[[Curve, RunProperties], Diagnosis | None]


def find_low_rate(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """After MIN_UPDATES the weights cannot have moved by 2 % of their size, and the loss has not fallen by 2 %.

    Since the rate first reached half of its peak, at the end of the warm-up, there were as many updates, and gradients
    have not vanished. With AdamW a weight moves by at most about the learning rate in each update; with SGD the weights
    move by the rate times the norm of the (clipped) gradients.
    """
    share = estimate_movement(curve, properties)
    if share is None or curve.num_updates < MIN_UPDATES or len(curve.losses) < 2 * BLOCK_ROWS or share >= MIN_MOVEMENT:
        return None
    if curve.find_end_of_warmup(properties.learning_rate) > curve.num_updates - MIN_UPDATES:
        return None
    if np.median(curve.norms) < VANISHED:  # no rate would move the weights
        return None
    first, last = curve.losses[:BLOCK_ROWS].mean(), curve.losses[-BLOCK_ROWS:].mean()
    if first - last >= MIN_IMPROVEMENT * abs(first):
        return None
    rate = properties.learning_rate / share
    rate = min(3e-3, rate) if properties.is_adam else rate
    return Diagnosis(
        "low learning rate",
        "problem",
        f"{curve.num_updates:,} updates have hardly changed the weights, because the learning rate "
        f"{properties.learning_rate:g} is too low",
        f"all updates together are at most {share:.2%} of the weights' size; the loss was {first:.3f} and is "
        f"{last:.3f}",
        {"training.learning_rate": f"{rate:.1g}"},
    )


def estimate_movement(curve: Curve, properties: RunProperties) -> float | None:
    """Returns an upper bound of the distance that the weights have moved, relative to their size; None if unknown."""
    if not properties.weight_scale or not properties.weight_norm:
        return None
    if properties.is_adam:
        return float(curve.rates.sum() * curve.updates_per_row / properties.weight_scale)
    norms = np.minimum(curve.norms, properties.clip_threshold) if properties.clip == "norm" else curve.norms
    return float((curve.rates * norms).sum() * curve.updates_per_row / properties.weight_norm)


def find_stuck_loss(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The loss, averaged over 100 updates, stays at the entropy of the targets' frequencies for STUCK_UPDATES.

    So does the validation loss in that time, if there is one: the training loss alone may be high through dropout.
    If training has ended there because validation did not improve, STUCK_AT_END updates suffice. Only updates after the
    warm-up count: those since the rate first reached half of its peak.
    """
    if not properties.entropy or find_low_rate(curve, properties):
        return None
    steps, losses = curve.average_blocks()
    low, high = (factor * properties.entropy for factor in STUCK_RANGE)
    is_near = (losses >= low) & (losses <= high) & (steps > curve.find_end_of_warmup(properties.learning_rate))
    first, last = find_longest_run(is_near)
    needed = STUCK_UPDATES_MASKED if properties.task == "masked" else STUCK_UPDATES
    if curve.ended.startswith("validation") and last == len(steps) - 1:
        needed = STUCK_AT_END
    if first is None or steps[last] - steps[first] < needed:
        return None
    validations = [metrics["loss"] for step, metrics in curve.validations if steps[first] <= step <= steps[last]]
    if min(validations, default=math.inf) < MIN_STUCK_VALIDATION * (
        properties.validation_entropy or properties.entropy
    ):
        return None
    num_updates = int(steps[last] - steps[first])
    ended = "" if last == len(steps) - 1 else f", until update {int(steps[last]):,}"
    return Diagnosis(
        "stuck loss",
        "problem" if not ended else "warning",
        f"the loss has stayed at the entropy of the {properties.target_name} frequencies ({properties.entropy:.2f} "
        f"nats) for {num_updates:,} updates{ended}",
        f"mean loss {losses[first : last + 1].mean():.3f} from update {int(steps[first]):,} on: the model has learned "
        "the frequencies and ignores its input",
        {"training.learning_rate": f"{properties.learning_rate / 3:.1g}"},
    )


def find_longest_run(mask: np.ndarray) -> tuple[int | None, int]:
    """Returns the first and the last index of the longest run of True; (None, 0) if there is none."""
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    if not len(starts):
        return None, 0
    longest = int(np.argmax(stops - starts))
    return int(starts[longest]), int(stops[longest]) - 1


def find_divergence(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The median of the last 10 losses is more than twice the loss before training, and than the entropy.

    Where there is no entropy, as for forecasts, it is five times: the loss of one batch may be low by chance.
    """
    initial = curve.get_initial_loss()
    if len(curve.losses) < BLOCK_ROWS + 3 or not initial > 0:
        return None
    recent, reference = float(np.median(curve.losses[-BLOCK_ROWS:])), max(initial, properties.entropy or 0.0)
    if recent <= (DIVERGED if properties.entropy else DIVERGED_WITHOUT_ENTROPY) * reference:
        return None
    return Diagnosis(
        "divergence",
        "problem",
        f"training diverges at the learning rate {properties.learning_rate:g} (the loss has risen from {initial:.3g} "
        f"to {recent:.3g})",
        f"median of the last {BLOCK_ROWS} logged updates {recent:.3g}, before training {initial:.3g}",
        {"training.learning_rate": f"{properties.learning_rate / 10:.1g}"},
    )


def find_exploding_gradients(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """At least 10 % of the last 50 logged gradient norms, and at least three, are above 1,000.

    Clipping by the norm limits the effect, so that it is a warning then.
    """
    norms = curve.norms[-50:]
    num_exploded = int((norms > EXPLODED).sum())
    if num_exploded < max(3, EXPLODED_SHARE * len(norms)):
        return None
    is_clipped = properties.clip == "norm"
    fix: dict[str, Any] = {"training.learning_rate": f"{properties.learning_rate / 3:.1g}"}
    return Diagnosis(
        "exploding gradients",
        "warning" if is_clipped else "problem",
        f"the gradients explode (their norm exceeds {EXPLODED:,.0f} in {num_exploded} of the last {len(norms)} logged "
        "updates)" + (", which clipping hides" if is_clipped else ""),
        f"largest norm {norms.max():.3g}, median {np.median(norms):.3g}; clipping: {properties.clip}",
        fix if is_clipped else {"training.clip": "norm"},
    )


def find_vanished_gradients(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The median of the last 20 logged gradient norms is below 1e-6, while the loss is above half of the entropy."""
    reference = properties.entropy or curve.get_initial_loss()
    if len(curve.norms) < 20 or not np.median(curve.losses[-20:]) > 0.5 * reference:
        return None
    norm = float(np.median(curve.norms[-20:]))
    if norm >= VANISHED:
        return None
    return Diagnosis(
        "vanishing gradients",
        "problem",
        f"the gradients have vanished (norm {norm:.1e}) although the loss is still {curve.losses[-1]:.3g}",
        f"median of the last 20 logged gradient norms {norm:.1e}",
        {"training.learning_rate": f"{properties.learning_rate / 10:.1g}"},
    )


def find_constant_predictions(curve: Curve, properties: RunProperties) -> Diagnosis | None:
    """The last five validations have the metrics of a constant prediction, after at least 500 updates.

    A classifier that always predicts one label has accuracy a and macro-F1 2a / (1 + a) / K for K labels; a tagger that
    finds no span at all has a span F1 of 0.
    """
    recent = [metrics for step, metrics in curve.validations if step > CONSTANT_UPDATES][-CONSTANT_VALIDATIONS:]
    if len(recent) < CONSTANT_VALIDATIONS or not all(map(is_constant_prediction, recent)):
        return None
    if "span_f1" in recent[-1]:
        text, evidence = "the model finds no span at all", "span F1 0"
    else:
        text = "the model always predicts the same label"
        evidence = f"accuracy {recent[-1]['accuracy']:.3f}, macro-F1 {recent[-1]['macro_f1']:.3f}"
    return Diagnosis(
        "majority class",
        "problem",
        text,
        f"{evidence} in each of the last {len(recent)} validations",
        {"training.learning_rate": f"{properties.learning_rate / 3:.1g}"},
    )


def is_constant_prediction(metrics: Mapping[str, float]) -> bool:
    """Returns whether the metrics of a validation are those of a prediction that is always the same."""
    if "span_f1" in metrics:
        return metrics["span_f1"] == 0
    accuracy, macro_f1 = metrics.get("accuracy"), metrics.get("macro_f1")
    if accuracy is None or not macro_f1 or accuracy >= 1:
        return False
    num_labels = 2 * accuracy / (1 + accuracy) / macro_f1
    return num_labels > 1.5 and abs(num_labels - round(num_labels)) < 1e-6


# The first that applies is the cause of those after it.
RULES: tuple[Rule, ...] = (
    find_low_rate,
    find_exploding_gradients,
    find_divergence,
    find_vanished_gradients,
    find_stuck_loss,
    find_constant_predictions,
)
