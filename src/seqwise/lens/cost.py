"""`cost`: operations, memory, sequential steps and time of one or several models against length and width.

    M  length of the source, or of the only sequence     N  length of the target     k  width

The operations of attention grow with M², M·N and N², those of every other layer with M or N: above some length, the
*crossover*, attention dominates. What is counted is in `cost_counts.py`, what is measured in `cost_measure.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError, check_type
from seqwise.lens.cost_counts import ATTENTION, FEEDFORWARD, KINDS, PROJECTIONS, RECURRENT, SELF_ATTENTION, Component
from seqwise.lens.cost_figures import draw_figures, format_amount, format_bytes
from seqwise.lens.cost_inputs import build_call
from seqwise.lens.cost_measure import (
    MAX_VALUES,
    Timing,
    describe_load,
    find_position_limit,
    list_measurable,
    measure_activations,
    measure_call,
    measure_reuse,
    measure_times,
    profile_operations,
)
from seqwise.lens.cost_models import CountedModel, count_model
from seqwise.lens.cost_polynomials import ZERO
from seqwise.lens.subject import Subject, list_models, name_models
from seqwise.lens.view import View
from seqwise.training.api import TrainedModel

DEFAULT_LENGTH, DEFAULT_MODULE_LENGTH = 32, 128  # where a run has no window
MIN_LENGTH, MIN_MAX_LENGTH, MAX_LENGTH = 8, 1024, 1 << 16  # of the lengths that are counted
MAX_MEASURED_LENGTH = 512  # unless max_length is set
PROFILED_LENGTH = 32
TARGET_COUNTS = (1, 2, 4, 8)  # decoded over one source
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)  # widths, as multiples of the model's
ATTENTION_KINDS = (SELF_ATTENTION, *ATTENTION.values())


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    try:
        count_model(subject.trained or subject.module)
    except UsageError as error:
        return error.problem
    return None


def cost(
    models: Any, *, max_length: int | None = None, measure: bool = True, progress: ProgressCallback = no_progress
) -> View:
    """Returns what models cost: operations, memory and sequential steps, counted and measured.

    models: a trained model, a module of `seqwise.layers`, or several of them
    max_length: the longest sequence that is counted and measured; chosen unless set
    measure: whether to measure time and memory, and to compare the count with PyTorch's profiler
    progress: called with the number of models done and their total

    `data`: per model `length` (the reference), `unit` (of lengths), `width`, `fixed_source` and `fixed_target` (lengths
    that the model fixes, or None), `formulas` (kind of component → formula), `components` (label, kind, formula,
    operations and steps at the reference length), `lengths`, `operations` (kind → array over lengths), `steps`,
    `activations` (bytes), `parameters` (bytes), `widths` and `operations_by_width`, `crossover` (lengths), `reference`
    (totals at the reference length), `longest` (where learned positions end, or None), `uncounted` (classes); of models
    with a decoder `reuse`; and with `measure` `measured` (lengths, median and minimum seconds, bytes) and `profiler`.
    """
    if max_length is not None and max_length < MIN_LENGTH:
        problem = f"max_length must be at least {MIN_LENGTH}; received {max_length}."
        raise UsageError(problem, fix="For example: --max-length 1024")
    several = list_models(models)
    for model in several:
        check_type("models", model, (TrainedModel, nn.Module), "trained models or modules")
    counted, names = [count_model(model) for model in several], name_models(several)
    length = min(get_reference_length(each) for each in counted)  # one for all, so that their numbers can be compared
    longest = max_length or max(choose_max_length(each) for each in counted)
    data: dict[str, dict[str, Any]] = {}
    summary: list[str] = []
    timings: list[Timing] = []
    for number, (name, each) in enumerate(zip(names, counted)):
        progress(number, len(names))
        data[name] = collect_counts(each, list_measurable(each, [length])[-1], longest)
        if measure:
            timings += add_measurements(each, data[name], max_length)
        summary += describe(name, data[name])
    if len(counted) > 1:
        summary.append(compare_operations(data))
    if load := describe_load(timings):
        summary.append(load)
    title = f"Cost of {names[0]}" if len(names) == 1 else f"Cost of {len(names)} models"
    return View("cost", title, tuple(summary), draw_figures(data), data)


def get_reference_length(counted: CountedModel) -> int:
    """Returns the length at which numbers are given: the window of a run where it has one, if the model can read it."""
    length = DEFAULT_LENGTH
    if counted.trained is None:
        length = DEFAULT_MODULE_LENGTH
    elif counted.trained.settings.task in ("language", "masked"):
        window = counted.trained.settings.data.window
        length = window if isinstance(window, int) else DEFAULT_LENGTH
    return list_measurable(counted, [length])[-1]


def choose_max_length(counted: CountedModel) -> int:
    """Returns a length, a power of 2, up to which a figure shows the crossover."""
    crossover = max(find_crossovers(counted).values(), default=0)
    wanted = max(MIN_MAX_LENGTH, 4 * get_reference_length(counted), 2 * crossover)
    return min(MAX_LENGTH, 2 ** math.ceil(math.log2(wanted)))


def list_lengths(longest: int) -> list[int]:
    """Returns powers of 2, and the longest length."""
    lengths = [2**power for power in range(int(math.log2(MIN_LENGTH)), int(math.log2(longest)) + 1)]
    return sorted({*lengths, longest})


def find_crossovers(counted: CountedModel) -> dict[str, int]:
    """Returns the lengths from which attention needs more operations than its projections, and than all layers."""
    totals = counted.sum_by_kind()

    def add(kinds: Iterable[str], length: int) -> float:
        return sum(totals[kind].evaluate(*counted.get_lengths(length)) for kind in kinds if kind in totals)

    crossovers = {}
    for name, kinds in (("projections", (PROJECTIONS,)), ("layers", (PROJECTIONS, FEEDFORWARD, RECURRENT))):
        low, high = 1, 1 << 24
        if not add(ATTENTION_KINDS, high) > add(kinds, high) > 0 or add(ATTENTION_KINDS, low) > add(kinds, low):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if add(ATTENTION_KINDS, middle) <= add(kinds, middle) else (low, middle)
        crossovers[name] = low  # the last length at which attention needs no more
    return crossovers


def collect_counts(counted: CountedModel, length: int, longest: int) -> dict[str, Any]:
    """Returns what is counted, by the keys of `data`."""
    lengths, totals, at_length = list_lengths(longest), counted.sum_by_kind(), counted.get_lengths(length)
    kinds = [kind for kind in KINDS if kind in totals and totals[kind].terms]
    widths = [round(scale * counted.width) for scale in SCALES if scale * counted.width >= 1]
    size = next((each.element_size() for each in counted.module.parameters()), 4)
    values: dict[str, Any] = {
        "length": length,
        "unit": counted.unit,
        "width": counted.width,
        "formulas": {kind: totals[kind].format(counted.width) for kind in kinds},
        "fixed_source": counted.fixed_source,
        "fixed_target": counted.fixed_target,
        "components": list_components(counted, length),
        "lengths": np.array(lengths),
        "operations": {
            kind: np.array([totals[kind].evaluate(*counted.get_lengths(each)) for each in lengths]) for kind in kinds
        },
        "steps": np.array([counted.count_steps(each) for each in lengths]),
        "activations": np.array([size * counted.count_activations(each) for each in lengths]),
        "parameters": sum(each.numel() * each.element_size() for each in counted.module.parameters()),
        "widths": np.array(widths),
        "operations_by_width": {
            kind: np.array([totals[kind].evaluate(*at_length, each / counted.width) for each in widths])
            for kind in kinds
        },
        "crossover": find_crossovers(counted),
        "reference": {
            "operations": counted.count_operations(length),
            "steps": counted.count_steps(length),
            "activations": size * counted.count_activations(length),
        },
        "longest": None if counted.fixed_target else find_position_limit(counted),
        "uncounted": list(counted.uncounted),
    }  # fmt: skip
    if counted.decoder:
        values["reuse"] = count_reuse(counted, length)
    return values


def list_components(counted: CountedModel, length: int) -> list[dict[str, Any]]:
    """Returns the components with operations; those of one layer and kind together."""
    groups: dict[tuple[str, str], list[Component]] = {}
    for each in counted.components:
        if each.operations.terms:
            groups.setdefault((each.label, each.kind), []).append(each)
    lengths = counted.get_lengths(length)
    return [
        {
            "label": label,
            "kind": kind,
            "formula": sum((each.operations for each in group), ZERO).format(counted.width),
            "operations": sum(each.count(*lengths) for each in group),
            "steps": round(sum(each.steps.evaluate(*lengths) for each in group)),
        }
        for (label, kind), group in groups.items()
    ]


def count_reuse(counted: CountedModel, length: int) -> dict[str, Any]:
    """Returns the operations of several targets over one source, encoded once or again for each."""
    lengths = counted.get_lengths(length)
    encode = sum(each.count(*lengths) for each in counted.encoder)
    decode = sum(each.count(*lengths) for each in counted.decoder)
    numbers = np.array(TARGET_COUNTS)
    return {
        "targets": numbers,
        "encode": encode,
        "decode": decode,
        "shared": encode + numbers * decode,
        "repeated": numbers * (encode + decode),
    }


def add_measurements(counted: CountedModel, values: dict[str, Any], max_length: int | None) -> list[Timing]:
    """Adds what is measured to the values of a model; returns the timings."""
    limit = max_length or MAX_MEASURED_LENGTH
    lengths = list_measurable(counted, [each for each in values["lengths"].tolist() if each <= limit])
    profiled = min(lengths, key=lambda each: abs(each - PROFILED_LENGTH))
    values["profiler"] = {
        "length": profiled,
        "counted": counted.count_operations(profiled),
        "profiled": profile_operations(counted, profiled),
    }
    times = measure_times(counted, lengths)
    small = [each for each in times if counted.count_activations(each) < MAX_VALUES]
    values["measured"] = {
        "lengths": np.array(list(times)),
        "median": np.array([each.median for each in times.values()]),
        "minimum": np.array([each.minimum for each in times.values()]),
        "activation_lengths": np.array(small),
        "activations": np.array([measure_activations(counted, each) for each in small]),
    }
    timings = list(times.values())
    reference = measure_call(counted, build_call(counted, values["length"]))
    values["measured"]["reference"] = reference.minimum
    if counted.decoder:
        shared, repeated = measure_reuse(counted, values["length"], TARGET_COUNTS)
        values["reuse"]["shared_seconds"] = np.array([each.minimum for each in shared])
        values["reuse"]["repeated_seconds"] = np.array([each.minimum for each in repeated])
        timings += [*shared, *repeated]
    return timings


# Sentences


def describe(name: str, values: dict[str, Any]) -> list[str]:
    """Returns sentences with the most important numbers of a model."""
    length, unit, reference = values["length"], values["unit"], values["reference"]
    by_kind: dict[str, float] = {}
    for each in values["components"]:
        by_kind[each["kind"]] = by_kind.get(each["kind"], 0.0) + each["operations"]
    largest = max(by_kind, key=lambda kind: by_kind[kind])
    share = by_kind[largest] / reference["operations"]
    sentences = [
        f"{name}: one sequence of {length:,} {unit} needs {format_amount(reference['operations'])} operations, "
        f"{share:.0%} of them in the {largest}, in {reference['steps']:,} sequential "
        f"steps, and {format_bytes(reference['activations'])} of activations beside "
        f"{format_bytes(values['parameters'])} of weights."
    ]
    crossover = values["crossover"]
    if crossover:
        parts = [
            f"{what} at {crossover[key]:,} {unit}"
            for key, what in (("projections", "its projections"), ("layers", "all products with weights in the layers"))
            if key in crossover
        ]
        sentences.append(f"Its attention needs as many operations as {', and as '.join(parts)}.")
    if "reuse" in values:
        sentences.append(describe_reuse(values["reuse"]))
    if "measured" in values:
        sentences += describe_measured(values)
    if values["longest"] is not None and values["longest"] < values["lengths"][-1]:
        end = f"{values['longest']:,} {unit}"
        sentences.append(f"Its learned positions end at {end}: longer lengths are counted, but it cannot read them.")
    if values["uncounted"]:
        sentences.append(f"Not counted: {', '.join(values['uncounted'])}, whose products are not known.")
    return sentences


def describe_reuse(reuse: dict[str, Any]) -> str:
    number = int(reuse["targets"][-1])
    share = reuse["shared"][-1] / reuse["repeated"][-1]
    sentence = f"Encoding once and decoding {number} targets needs {share:.0%} of the operations of encoding each time"
    if "shared_seconds" in reuse:
        sentence += f", and {reuse['shared_seconds'][-1] / reuse['repeated_seconds'][-1]:.0%} of the time"
    return f"{sentence}."


def describe_measured(values: dict[str, Any]) -> list[str]:
    """Returns sentences about time, and about the agreement of the count with the profiler."""
    profiler, measured = values["profiler"], values["measured"]
    difference = profiler["counted"] / profiler["profiled"] - 1
    seconds = measured["reference"]
    rate = values["reference"]["operations"] / seconds
    return [
        f"Reading {values['length']:,} {values['unit']} takes {1000 * seconds:.3g} ms here, at "
        f"{format_amount(rate)} operations per second.",
        f"PyTorch's profiler counts {format_amount(profiler['profiled'])} operations at length {profiler['length']}: "
        f"this count differs by {abs(difference):.1%}.",
    ]


def compare_operations(data: dict[str, dict[str, Any]]) -> str:
    """Returns a sentence about which model needs the fewest operations, at short and at long sequences."""
    names, lengths = list(data), next(iter(data.values()))["lengths"]
    best = np.argmin([sum(values["operations"].values()) for values in data.values()], axis=0)
    if (best == best[0]).all():
        return f"{names[best[0]]} needs the fewest operations at every length shown."
    last_of_first, first_of_last = np.flatnonzero(best != best[0])[0] - 1, np.flatnonzero(best != best[-1])[-1] + 1
    return (
        f"{names[best[0]]} needs the fewest operations up to a length of {lengths[last_of_first]:,}, "
        f"{names[best[-1]]} from {lengths[first_of_last]:,} on."
    )
