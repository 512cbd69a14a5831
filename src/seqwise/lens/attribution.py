"""`attribution`: which tokens, values or image regions decide an answer of a model.

Three methods divide the score of the answer, in most tasks a log-probability in nats, among the positions of the
input. Their equations are in `attribution_methods.py`. Where they agree, the picture can be trusted; the rank
correlation says how much they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError, capitalize, suggest
from seqwise.lens.attention_layers import get_image_side
from seqwise.lens.attribution_methods import (
    TOLERANCE,
    IntegratedGradients,
    Score,
    integrate_gradients,
    leave_one_out,
    multiply_gradient_by_input,
)
from seqwise.lens.attribution_ngrams import describe_ngrams, divide_logits, draw_ngrams
from seqwise.lens.features import InputVectors, find_vectors
from seqwise.lens.subject import Subject, evaluation_mode, open_subject
from seqwise.lens.view import View
from seqwise.page.figures import BarChart, Figure, ImageOverlay, LineChart, Reference, Series, Table, TokenText
from seqwise.vectors.evaluation import compute_ranks

BASELINES = ("mean", "zero")
MAX_BARS = 20  # positions in the bar chart: those that contribute most
MIN_CONTRIBUTION = 1e-6  # in nats, or relative to a value; smaller ones are rounding errors
SATURATED = -0.01  # log-probability of an answer above which gradients say little
NUM_NAMED = 3  # positions that the summary names
METHODS = {
    "integrated_gradients": "integrated gradients",
    "gradient_times_input": "gradient × input",
    "leave_one_out": "leave-one-out",
}


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer of a model as a function of its input vectors."""

    name: str  # such as "label: positive"
    score: Score
    is_value: bool  # a predicted number, otherwise a log-probability
    label: int | None = None  # its index, if it is a label of the whole input


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    if subject.inspected is None:
        return None
    if not subject.inspected.answers:
        return f"{subject.name} gives no answer to this input."
    if next(subject.module.parameters(), None) is None:
        return f"{subject.name} has no input vectors: it predicts from counts."
    return None


def attribution(
    model: Any,
    text: Any = None,
    *,
    answer: int | str | None = None,
    baseline: str = "mean",
    target: str | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns how much each position of the input contributes to an answer, by three methods.

    answer: its number, from 1, or its name; the first unless set. Of a plain module: the unit, from 0, of its last
        output; the largest unless set
    baseline: "mean", an input without information: the mean vector of the vocabulary, of the regions or of the series;
        or "zero", the zero vector
    target: the language of a translator that has several; the first unless set

    `data`: `answer`, `answers` (the names of all), `score`, `tokens`, a method → contributions (tokens,):
    `integrated_gradients`, `gradient_times_input`, `leave_one_out`; `completeness_error` and `num_points` of the
    integrated gradients; `agreement`, the rank correlation of each two methods; `baseline` and `replacement`; of a
    classifier with n-grams `ngrams`: `labels`, and the parts that sum to their logits (K,): `names`, `counts` and
    `contributions` (n-grams, K), `bias` and `network`.
    """
    return attribute(open_subject(model, text, progress, target), text, answer=answer, baseline=baseline)


def attribute(subject: Subject, inputs: Any = None, *, answer: int | str | None = None, baseline: str = "mean") -> View:
    """Returns the view of a model with its input; `inputs` are the tensors of a plain module."""
    if baseline not in BASELINES:
        raise UsageError(f"there is no baseline {baseline!r}.", fix=suggest(str(baseline), BASELINES))
    if reason := explain_inapplicable(subject):
        raise UsageError(reason, fix="Choose another view, or a run of a neural model.")
    with evaluation_mode(subject.module):
        vectors = find_vectors(subject, inputs)
        chosen = choose_answer(subject, vectors, answer)
        baseline_vectors = (
            torch.zeros_like(vectors.values) if baseline == "zero" else vectors.mean.expand_as(vectors.values)
        )
        replacement = baseline_vectors if vectors.unknown is None else vectors.unknown.expand_as(vectors.values)
        score, values = chosen.score, vectors.values
        integrated = integrate_gradients(score, values, baseline_vectors)
        methods = {
            "integrated_gradients": integrated.contributions,
            "gradient_times_input": multiply_gradient_by_input(score, values),
            "leave_one_out": leave_one_out(score, values, replacement),
        }
        with torch.no_grad():
            value = float(score(values))
    baseline_name = vectors.mean_name if baseline == "mean" else "the zero vector"
    replacement_name = baseline_name if vectors.unknown is None else "the vector of <unk>"
    if vectors.has_ngrams:
        baseline_name, replacement_name = f"{baseline_name}, no n-grams", f"{replacement_name}, without its n-grams"
    data: dict[str, Any] = {
        "answer": chosen.name,
        "answers": [one.name for one in subject.inspected.answers] if subject.inspected else [chosen.name],
        "score": value,
        "tokens": vectors.name_positions(subject),
        **methods,
        "completeness_error": integrated.error,
        "num_points": integrated.num_points,
        "agreement": {
            f"{METHODS[first]} / {METHODS[second]}": correlate_ranks(methods[first], methods[second])
            for first, second in combinations(methods, 2)
        },
        "baseline": baseline_name,
        "replacement": replacement_name,
    }
    summary, figures = describe(chosen, data, integrated), draw(subject, chosen, data, methods)
    parts = divide_logits(subject) if chosen.label is not None else None
    if parts is not None and chosen.label is not None and subject.inspected is not None:
        labels = {one.label: one.name for one in subject.inspected.answers if one.label is not None}
        summary = (*summary, describe_ngrams(parts, chosen.name, chosen.label))
        figures.append(draw_ngrams(parts, labels, chosen.label))
        data["ngrams"] = {"labels": [labels[index] for index in sorted(labels)], **asdict(parts)}
    title = f"What decides “{chosen.name}” in {subject.name}"
    return View("attribution", title, summary, tuple(figures), data)


def choose_answer(subject: Subject, vectors: InputVectors, answer: int | str | None) -> ScoredAnswer:
    """Returns the answer with a number or name; of a plain module, a unit of its last output."""
    if subject.inspected is None:
        return _choose_unit(vectors, answer)
    answers = subject.inspected.answers
    names = [one.name for one in answers]
    # A label may be called "1": the name of an answer, also its last part ("label: 1"), goes before its number.
    named = [index for index, name in enumerate(names) if str(answer) in (name, name.rpartition(": ")[2])]
    number = 1 if answer is None else named[0] + 1 if len(named) == 1 else answer
    if isinstance(number, str) and number.isdecimal():
        number = int(number)
    if not isinstance(number, int) or not 1 <= number <= len(answers):
        listed = ", ".join(f"{index} ({name})" for index, name in enumerate(names, start=1))
        raise UsageError(f"there is no answer {answer!r}.", fix=f"Choose from: {listed}.")
    chosen = answers[number - 1]

    def score(values: Tensor) -> Tensor:
        with vectors.replace(values):
            return chosen.score(subject.module)

    return ScoredAnswer(chosen.name, score, chosen.is_value, chosen.label)


def _choose_unit(vectors: InputVectors, answer: int | str | None) -> ScoredAnswer:
    """Returns a unit of a plain module's output at the last position; the largest unless `answer` is its number."""
    with torch.no_grad():
        outputs = vectors.call(vectors.values)
    unit = int(outputs.argmax()) if answer is None else answer
    if not isinstance(unit, int) or not 0 <= unit < len(outputs):
        raise UsageError(f"the output has no unit {answer!r}.", fix=f"Choose a number from 0 to {len(outputs) - 1}.")
    return ScoredAnswer(f"unit {unit} of the last output", lambda values: vectors.call(values)[unit], is_value=True)


def correlate_ranks(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Spearman's rank correlation; NaN if all contributions of a method are equal."""
    first, second = compute_ranks(first), compute_ranks(second)
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def format_probability(log_probability: float) -> str:
    """Returns a probability with three digits; one that would be rounded to 1 as a bound."""
    probability = float(np.exp(log_probability))
    return f"{probability:.3g}" if probability < 0.9995 else "above 0.999"


def describe(answer: ScoredAnswer, data: dict[str, Any], integrated: IntegratedGradients) -> tuple[str, ...]:
    """Returns sentences with the most important numbers."""
    size = f"{data['score']:.4g}" if answer.is_value else f"probability {format_probability(data['score'])}"
    order = np.argsort(-np.abs(integrated.contributions), kind="stable")[:NUM_NAMED]
    named = ", ".join(f"{data['tokens'][at]!r} ({integrated.contributions[at]:+.3g})" for at in order)
    points = f"{integrated.num_points} points, baseline: {data['baseline']}"
    exact = f"The contributions sum to the change from the baseline, up to {integrated.error:.2%} ({points})."
    smallest = MIN_CONTRIBUTION * abs(data["score"]) if answer.is_value else MIN_CONTRIBUTION
    if np.abs(integrated.contributions).max(initial=0.0) < smallest:
        exact = "All contributions are below the precision of the numbers: this answer does not depend on the input."
    elif integrated.error > TOLERANCE:
        exact = (
            f"Their sum is wrong by {integrated.error:.1%} even with {points}: the answer is not smooth between them, "
            "so rely on leave-one-out."
        )
    known = [value for value in data["agreement"].values() if not np.isnan(value)]
    sentences = [f"{answer.name}: {size}. By integrated gradients it depends most on {named}.", exact]
    if not answer.is_value and data["score"] > SATURATED:
        sentences.append("The answer is almost certain: single positions hardly move it. Mind the scales.")
    if known:
        sentences.append(f"The lowest rank correlation between two methods is {min(known):.2f}.")
    return tuple(sentences)


def draw(subject: Subject, answer: ScoredAnswer, data: dict[str, Any], methods: dict[str, np.ndarray]) -> list[Figure]:
    """Returns a figure of the input per method, the positions that contribute most, and how the methods agree."""
    value_label = "contribution to the value" if answer.is_value else "contribution to the log-probability (nats)"
    figures = draw_input(subject, answer, data["tokens"], methods, value_label)
    integrated = methods["integrated_gradients"]
    largest = np.argsort(-np.abs(integrated), kind="stable")[:MAX_BARS]
    figures.append(
        BarChart(
            title="Positions that contribute most",
            note=f"Integrated gradients; positive contributions support “{answer.name}”, negative ones oppose it. "
            "Positions in brackets are counted from 0.",
            names=[f"{data['tokens'][at]} [{at}]" for at in largest],
            values=integrated[largest],
            value_label=value_label,
            roles=["negative" if integrated[at] < 0 else "positive" for at in largest],
        )
    )
    figures.append(
        Table(
            title="Agreement of the methods",
            note=f"Leave-one-out replaces a position by {data['replacement']}.",
            columns=("methods", "rank correlation"),
            rows=[(names, None if np.isnan(value) else value) for names, value in data["agreement"].items()],
        )
    )
    return figures


def draw_input(
    subject: Subject, answer: ScoredAnswer, tokens: Sequence[str], methods: dict[str, np.ndarray], value_label: str
) -> list[Figure]:
    """Returns the input coloured by contribution: an image, the lines of a series, or a text per method."""
    image = None if subject.inspected is None else subject.inspected.image
    side = get_image_side(len(tokens))
    if image is not None and side is not None:
        return [
            ImageOverlay(
                title=f"Regions that decide “{answer.name}”",
                note="Without sign: a region may support or oppose the answer.",
                image=image,
                weights=np.stack([np.abs(values).reshape(side, side) for values in methods.values()]),
                captions=[METHODS[name] for name in methods],
                value_label=f"size of the {value_label}",
            )
        ]
    if answer.is_value:
        return [
            LineChart(
                title=f"Contributions to “{answer.name}”",
                series=[
                    Series(name=METHODS[name], x=np.arange(len(tokens)), y=values) for name, values in methods.items()
                ],
                x_label="position",
                y_label=value_label,
                x_names=tokens,
                references=[Reference(axis="y", value=0.0, label="none")],
            )
        ]
    return [
        TokenText(
            title=f"{capitalize(METHODS[name])} for “{answer.name}”",
            tokens=tokens,
            values=values,
            value_label=value_label,
        )
        for name, values in methods.items()
    ]
