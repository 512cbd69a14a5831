"""Live figures: what the browser computes is what this package computes, and every control changes the figure.

`REFERENCES` has, for each experiment with a live figure, several sets of values and a function that computes the same
numbers with this package. Where no Chromium is installed, the tests that need it are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from chromium import launch_chromium, open_file
from lab_pages import wait_for, wait_until_drawn
from lab_records import make_records

from seqwise.lab.page import build_lab_page
from seqwise.page.script import list_modules
from seqwise.training.optimizers import clip_gradients

LIVE = Path(build_lab_page.__code__.co_filename).parent / "live"
TOLERANCE = 1e-6

Values = Mapping[str, Any]
Numbers = Mapping[str, Any]


def compute_clipping(values: Values) -> Numbers:
    gradient = torch.tensor([values["first"], values["second"]], dtype=torch.float64)
    clipped = {}
    for method in ("norm", "value"):
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        parameter.grad = gradient.clone()
        norm = clip_gradients([parameter], method, values["threshold"])
        clipped[method] = parameter.grad

    def compute_cosine(vector: torch.Tensor) -> float | None:
        return float(torch.cosine_similarity(gradient, vector, dim=0)) if gradient.any() else None

    return {
        "norm": float(norm),
        "by_norm": clipped["norm"].tolist(),
        "by_value": clipped["value"].tolist(),
        "norm_by_norm": float(clipped["norm"].norm()),
        "norm_by_value": float(clipped["value"].norm()),
        "cosine_by_norm": compute_cosine(clipped["norm"]),
        "cosine_by_value": compute_cosine(clipped["value"]),
    }


REFERENCES: dict[str, tuple[Sequence[Values], Callable[[Values], Numbers]]] = {
    "C6": (
        [
            {"first": 4.5, "second": 1.5, "threshold": 2.0},
            {"first": -3.0, "second": 0.4, "threshold": 0.5},
            {"first": 0.2, "second": 0.1, "threshold": 5.0},  # short enough to stay as it is
            {"first": 0.0, "second": -5.0, "threshold": 0.1},
            {"first": 0.0, "second": 0.0, "threshold": 1.0},  # no direction
        ],
        compute_clipping,
    ),
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of the lab with a record for each live figure, all of them revealed."""
    sample = make_records()[0]
    path = tmp_path_factory.mktemp("live") / "lab.html"
    path.write_text(build_lab_page([{**sample, "id": identifier} for identifier in REFERENCES]), encoding="utf-8")
    with launch_chromium() as chromium:
        page = open_file(chromium, path)
        wait_until_drawn(page.tab)
        page.tab.check("#reveal")
        wait_for(page.tab, f"document.querySelectorAll('.live-figures figure').length >= {len(REFERENCES)}")
        yield page.tab
        assert page.errors == []


def assert_close(actual: Any, expected: Any, name: str) -> None:
    """Compares numbers, texts and nested lists of them; None and NaN are the same."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(actual, list), name
        assert len(actual) == len(expected), name
        for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_close(one, other, f"{name}[{index}]")
    elif isinstance(expected, (bool, str)) or expected is None or expected != expected:
        assert actual == (None if expected != expected else expected), name
    else:
        assert actual == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), name


@pytest.mark.parametrize(
    ("identifier", "at"), [(identifier, at) for identifier, (sets, _) in REFERENCES.items() for at in range(len(sets))]
)
def test_the_browser_computes_what_python_computes(tab: Any, identifier: str, at: int):
    sets, compute = REFERENCES[identifier]
    expected = compute(sets[at])
    actual = tab.evaluate("([id, values]) => window.seqwiseLive.compute(id, values)", [identifier, sets[at]])
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert_close(actual[name], value, name)


def test_every_live_figure_has_a_reference(tab: Any):
    listed = tab.evaluate("window.seqwiseLive.list()")
    assert {each["id"] for each in listed} == set(REFERENCES)
    for each in listed:
        for values in REFERENCES[each["id"]][0]:
            assert set(values) <= {control["name"] for control in each["controls"]}


READ_FIGURES = """(id) => [...document.querySelectorAll(`#${id} .live-figures figure`)].map((figure) =>
  figure.innerHTML.replace(/figure-\\d+/g, "") +
  [...figure.querySelectorAll("canvas")].map((canvas) => canvas.toDataURL()).join()).join()"""
FIND_INVALID = """(id) => [...document.querySelectorAll(`#${id} .live svg *, #${id} .live [style]`)].flatMap(
  (element) =>
  [...element.attributes]).filter(({ value }) => /NaN|undefined|Infinity/.test(value)).length"""


def move(tab: Any, selector: str, control: Mapping[str, Any]) -> None:
    """Changes a control as a user would."""
    element = tab.locator(selector)
    if control["kind"] == "range":
        element.locator("input").focus()
        is_high = control["value"] > (control["min"] + control["max"]) / 2
        tab.keyboard.press("Home" if is_high else "End")
    elif control["kind"] == "text":
        element.locator("input").fill(control["value"] + " again")
    else:
        element.locator("button[aria-pressed=false]").first.click()


@pytest.mark.parametrize("identifier", REFERENCES)
def test_moving_a_control_changes_the_figure_and_keeps_the_focus(tab: Any, identifier: str):
    listed = {each["id"]: each for each in tab.evaluate("window.seqwiseLive.list()")}
    assert listed[identifier]["title"]
    for control in listed[identifier]["controls"]:
        selector = f"#{identifier} [data-control={control['name']}]"
        before = tab.evaluate(READ_FIGURES, identifier)
        move(tab, selector, control)
        assert tab.evaluate(READ_FIGURES, identifier) != before, control["name"]
        assert tab.evaluate("(selector) => document.querySelector(selector).contains(document.activeElement)", selector)
        assert not re.search("NaN|undefined|Infinity", tab.locator(f"#{identifier} .live").inner_text())
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("identifier", REFERENCES)
def test_extreme_values_of_all_controls_are_drawn(tab: Any, identifier: str):
    for control in next(each for each in tab.evaluate("window.seqwiseLive.list()") if each["id"] == identifier)[
        "controls"
    ]:
        for end in ("Home", "End") if control["kind"] == "range" else ():
            tab.locator(f"#{identifier} [data-control={control['name']}] input").focus()
            tab.keyboard.press(end)
            assert tab.evaluate(FIND_INVALID, identifier) == 0


def test_every_file_with_a_live_figure_is_collected():
    assert sorted(path.name for path in list_modules(LIVE / "index.js") if path.parent == LIVE) == sorted(
        path.name for path in LIVE.glob("*.js")
    )
