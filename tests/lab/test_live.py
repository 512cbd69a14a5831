"""Live figures: what the browser computes is what this package computes, and every control changes the figure.

`SETS` has, for each experiment with a live figure, several sets of values of its controls; tests/support/
live_references.py computes the same numbers with this package. Where no Chromium is installed, the tests that need it
are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from chromium import launch_chromium, open_file
from lab_pages import wait_for, wait_until_drawn
from lab_records import make_records
from live_references import COMPUTE, Values

from seqwise.lab.page import build_lab_page
from seqwise.page.script import list_modules

LIVE = Path(build_lab_page.__code__.co_filename).parent / "live"
TOLERANCE = 1e-6


def make_lstm_values(*values: float) -> Values:
    names = ("x", "h", "c", "input_bias", "forget_bias", "candidate_bias", "output_bias")
    return dict(zip(names, values, strict=True))


def list_gru_cells() -> list[Values]:
    return [
        {"convention": convention, "reset_place": place}
        for convention in ("keeps", "replaces")
        for place in ("after", "before")
    ]


SENTENCE = "the singer sings while the dancer dances to the song"

# Values of controls by id; those that are missing have their defaults.
SETS: dict[str, Sequence[Values]] = {
    "B8": [
        {"weight": 0.9, "amplitude": 0.5, "steps": 40, "activation": "tanh"},
        {"weight": -2.0, "amplitude": 3.0, "steps": 20, "activation": "tanh"},
        {"weight": 1.0, "amplitude": 1.0, "steps": 100, "activation": "identity"},  # all states are equal
        {"weight": 1.2, "amplitude": 0.0, "steps": 5, "activation": "identity"},
        {"weight": 0.0, "amplitude": 1.0, "steps": 10, "activation": "tanh"},  # no influence at all
    ],
    "C2": [
        {"radius": 0.9, "coupling": 0.5, "units": 10, "steps": 200},
        {"radius": 0.5, "coupling": 1.0, "units": 12, "steps": 300},
        {"radius": 1.1, "coupling": 0.05, "units": 2, "steps": 300},
        {"radius": 0.97, "coupling": 0.0, "units": 5, "steps": 10},  # diagonal
    ],
    "C5": [
        {"a": 0.5, "weight": 1.2, "layers": 20},
        {"a": -6.0, "weight": 4.0, "layers": 50},
        {"a": 6.0, "weight": 4.0, "layers": 50},
        {"a": 0.0, "weight": 0.1, "layers": 2},
    ],
    "C6": [
        {"first": 4.5, "second": 1.5, "threshold": 2.0},
        {"first": -3.0, "second": 0.4, "threshold": 0.5},
        {"first": 0.2, "second": 0.1, "threshold": 5.0},  # short enough to stay as it is
        {"first": 0.0, "second": -5.0, "threshold": 0.1},
        {"first": 0.0, "second": 0.0, "threshold": 1.0},  # no direction
    ],
    "D1": [
        make_lstm_values(1.0, 0.2, 1.5, 0.0, 1.0, 0.0, -1.0),
        make_lstm_values(-6.0, -1.0, -3.0, -8.0, 8.0, -8.0, 8.0),
        make_lstm_values(6.0, 1.0, 3.0, 8.0, 8.0, 8.0, 8.0),
        make_lstm_values(0.0, 0.0, 0.0, 0.3, -0.4, 2.5, 0.1),
    ],
    "D6": [
        {"forget_bias": 3.0, "input_bias": -2.0, "weight": 1.0, "steps": 100},
        {"forget_bias": 8.0, "input_bias": -10.0, "weight": 0.5, "steps": 200},
        {"forget_bias": -2.0, "input_bias": 4.0, "weight": -4.0, "steps": 30},
        {"forget_bias": 1.0, "input_bias": 0.0, "weight": 0.0, "steps": 50},  # the direct path alone
    ],
    "E2": [
        {"x": 0.5, "h": -0.8, "update_bias": 3.0, "reset_bias": 0.0, "recurrent_bias": 0.5, **cell}
        for cell in list_gru_cells()
    ]
    + [
        {"x": -3.0, "h": 1.0, "update_bias": -8.0, "reset_bias": 8.0, "recurrent_bias": -2.0, **cell}
        for cell in list_gru_cells()
    ],
    "F1": [
        {"text": SENTENCE, "temperature": 1.0, "scaling": "scaled", "mask": "none"},
        {"text": SENTENCE, "temperature": 2.5, "scaling": "scaled", "mask": "causal"},
        {"text": "  Ünïcode   naïve\t東京 🦊 a ", "temperature": 0.2, "scaling": "unscaled", "mask": "none"},
        {"text": " ".join("abcdefghijklmnop"), "temperature": 5.0, "scaling": "unscaled", "mask": "causal"},
        {"text": "alone", "temperature": 1.0, "scaling": "scaled", "mask": "causal"},
        {"text": " ", "temperature": 1.0, "scaling": "scaled", "mask": "none"},
    ],
    "F6": [
        {"d": 64, "temperature": 1.0, "seed": 0},
        {"d": 512, "temperature": 0.1, "seed": 7},
        {"d": 1, "temperature": 5.0, "seed": 20},
    ],
    "F7": [
        {"scale": 8.0, "lead": 0.3},
        {"scale": 60.0, "lead": 2.0},
        {"scale": 60.0, "lead": 0.0},  # a tie
        {"scale": 0.0, "lead": 1.0},  # all weights are equal
    ],
    "G2": [
        {"width": 24, "length": 32, "first": 10, "second": 20},
        {"width": 64, "length": 64, "first": 63, "second": 0},
        {"width": 2, "length": 4, "first": 50, "second": 3},  # there is no position 50
    ],
    "G3": [
        {"position": 7, "shift": 5, "pair": 2},
        {"position": 100, "shift": 60, "pair": 1},
        {"position": 0, "shift": 0, "pair": 8},
    ],
    "G10": [
        *({"the": 0.4, "dog": 0.4, "rains": 0.55, "sing": 0.95, "beam": beam} for beam in (1, 2, 3)),
        {"the": 0.99, "dog": 0.01, "rains": 0.3, "sing": 0.01, "beam": 2},
        {"the": 0.01, "dog": 0.99, "rains": 0.2, "sing": 0.4, "beam": 1},
    ],
    "H3": [
        {"steps": 200, "rate": 1.0, "seed": 0},
        {"steps": 400, "rate": 2.0, "seed": 3},
        {"steps": 0, "rate": 0.1, "seed": 20},
    ],
    "H8": [
        {"sun": 5.0, "rain": 3.0, "snow": 1.0, "wind": 1.0, "fog": 0.5, "word": "rain"},
        {"sun": 1.0, "rain": 1.0, "snow": 1.0, "wind": 1.0, "fog": 1.0, "word": "fog"},  # uniform
        {"sun": 10.0, "rain": 10.0, "snow": 10.0, "wind": 0.1, "fog": 10.0, "word": "wind"},
    ],
    "H15": [
        {"model": 0.95, "data": 0.3, "others": 9},
        {"model": 0.5, "data": 0.0, "others": 1},
        {"model": 0.01, "data": 1.0, "others": 50},
    ],
}
REFERENCES = {identifier: (sets, COMPUTE[identifier]) for identifier, sets in SETS.items()}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page of the lab with a record for each live figure, all of them revealed."""
    records = {record["id"]: record for record in make_records()}
    path = tmp_path_factory.mktemp("live") / "lab.html"
    shown = [{**records.get(identifier, records["B8"]), "id": identifier} for identifier in REFERENCES]
    path.write_text(build_lab_page(shown), encoding="utf-8")
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


def test_every_live_figure_has_a_title_and_a_note_and_fits_a_phone(tab: Any):
    incomplete = """() => [...document.querySelectorAll(".live figure")].filter((figure) =>
      !figure.querySelector("figcaption").textContent || !figure.querySelector(".note")?.textContent).length"""
    assert tab.evaluate(incomplete) == 0
    try:
        tab.set_viewport_size({"width": 390, "height": 900})
        wait_until_drawn(tab)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        tab.set_viewport_size({"width": 1300, "height": 900})


def test_both_figures_of_c2_have_the_same_names_and_colours(tab: Any):
    coupling = tab.locator("#C2 [data-control=coupling] input")
    coupling.focus()
    tab.keyboard.press("End")
    read = "all => all.map(one => one.textContent + one.querySelector('[style]').getAttribute('style'))"
    static, live = (tab.eval_on_selector_all(f"#C2 {place} .legend button", read) for place in (".figures", ".live"))
    assert static == live
    assert len(static) == 3
    tab.keyboard.press("Home")
    assert "diagonal W" in tab.locator("#C2 .live .legend").inner_text()  # without coupling it is normal too


def test_every_file_with_a_live_figure_is_collected():
    assert sorted(path.name for path in list_modules(LIVE / "index.js") if path.parent == LIVE) == sorted(
        path.name for path in LIVE.glob("*.js")
    )
