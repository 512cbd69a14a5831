"""Every experiment: its verdict for four seeds, a wrong variant that is detected, complete texts and figures."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

import pytest
from expected import EXPECTED

from seqwise.lab import CHAPTERS, build_experiment, get_experiment, list_ids
from seqwise.page.figures import BarChart, Heatmap, LineChart, ScatterPlot

SEEDS = (0, 1, 2, 3)
MAX_FAST_SECONDS = {0: 1.5, 1: 0.2, 2: 0.2, 3: 0.2}  # seed → expected time of a full run; longer ones are slow tests
NUM_STATEMENTS = {"A": 6, "B": 9, "C": 11, "D": 11, "E": 6, "F": 20, "G": 11, "H": 16}
MAX_MINUTES = 25  # of all experiments on two cores
# Parameters of a full run that its verdict does not depend on: C10 is judged by its shortest and its longest lag, and
# its models of other lags are trained separately, for a figure.
SHORTER_FULL_RUNS = {"C10": {"lags": (5, 60)}}
TEXTS = ("claim", "equation", "measurement", "rule", "try_next")


def load_chapter(name):
    """Returns the wrong variants of a chapter, and verdicts that the textbook leaves open."""
    return import_module(f"variants_{name[0].lower()}")


def get_expected(name):
    return {**EXPECTED, **load_chapter(name).FOUND}[name]


def mark(name, seed):
    is_slow = get_experiment(name).seconds > MAX_FAST_SECONDS[seed]
    return pytest.param(name, seed, marks=[pytest.mark.slow] if is_slow else [])


def test_all_statements_are_there():
    expected = [f"{letter}{number}" for letter, count in NUM_STATEMENTS.items() for number in range(1, count + 1)]
    assert list_ids() == expected
    assert len(expected) == 90
    assert sum(get_experiment(name).seconds for name in expected) < 60 * MAX_MINUTES


@pytest.mark.parametrize("name", list_ids())
def test_texts_are_complete(name):
    kind = get_experiment(name)
    for text in TEXTS:
        assert getattr(kind, text).strip(), text
    assert kind.claim.endswith(".")
    assert f"seqwise lab run {name}" in kind.try_next
    assert kind.seconds > 0
    assert set(kind.quick) <= set(kind.__dataclass_fields__)


@pytest.mark.parametrize(("name", "seed"), [mark(name, seed) for name in list_ids() for seed in SEEDS])
def test_the_verdict_is_the_same_for_every_seed(name, seed):
    result = build_experiment(get_experiment(name), quick=True, seed=seed).run()
    assert result.verdict.kind == get_expected(name), result.verdict.evidence
    json.dumps(result.to_json(), allow_nan=False)
    check_figures(result.figures)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_ids() if get_experiment(name).quick])
def test_a_full_run_has_the_verdict_of_a_quick_one(name):
    kind, parameters = get_experiment(name), SHORTER_FULL_RUNS.get(name, {})
    for key, ends in parameters.items():
        assert (getattr(kind, key)[0], getattr(kind, key)[-1]) == ends
    result = kind(**parameters).run()
    assert result.verdict.kind == get_expected(name), result.verdict.evidence


def check_figures(figures):
    assert figures
    for figure in figures:
        assert figure.title
        if isinstance(figure, (LineChart, ScatterPlot)):
            assert figure.x_label
            assert figure.y_label
        if isinstance(figure, LineChart):
            assert all(series.name for series in figure.series)
        if isinstance(figure, (BarChart, Heatmap)):
            assert figure.value_label


@pytest.mark.parametrize(("name", "seed"), [mark(name, 0) for name in list_ids()])
def test_a_wrong_variant_is_detected(name, seed):
    variant = load_chapter(name).VARIANTS[name]
    kind = get_experiment(name)
    assert issubclass(variant, kind)
    assert variant.judge is kind.judge, "a variant changes what is measured, not the rule"
    result = build_experiment(variant, quick=True, seed=seed).run()
    assert result.verdict.kind != get_expected(name), result.verdict.evidence


@pytest.mark.parametrize("letter", CHAPTERS)
def test_files_are_lessons(letter):
    for name in list_ids(letter):
        module = inspect.getmodule(get_experiment(name))
        lines = len(inspect.getsource(module).splitlines())
        experiments = sum(part[1:].isdigit() for part in module.__name__.rsplit(".", 1)[1].split("_"))
        assert lines <= 130 * experiments, f"{module.__name__} has {lines} lines"
        assert module.__doc__
        assert name in module.__doc__
