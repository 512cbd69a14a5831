"""Slides: question before answer, keys and buttons, figures that fit, one slide per printed page.

Where no Chromium is installed, these tests are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import OpenPage, launch_chromium, open_file
from lab_pages import wait_for, wait_until_drawn
from lab_records import make_records

from seqwise.lab.page import build_slides

TITLE = "C. Vanishing & exploding <gradients>"
# A title; then for B1, B8, C2, C6 and H1 a question, an answer and, where there is a second figure, that.
NUM_SLIDES = 1 + 3 + 2 + 2 + 3 + 2
FIND_OUTSIDE = """() => {
  const stage = document.querySelector(".is-current .stage"), area = stage.getBoundingClientRect();
  return [...stage.querySelectorAll("*")].filter((one) => !one.closest(".unseen, .tip, defs")).filter((one) => {
    const { width, left, right, top, bottom } = one.getBoundingClientRect();
    return width && (left < area.left - 1 || right > area.right + 1 || top < area.top - 1 || bottom > area.bottom + 1);
  }).map((one) => one.outerHTML.slice(0, 200));
}"""

Show = Callable[..., OpenPage]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Show]:
    opened: list[OpenPage] = []

    def show_slides(width: int = 1280, height: int = 720, scheme: str = "light", address: str = "") -> OpenPage:
        path = tmp_path / "slides.html"
        path.write_text(build_slides(make_records(), TITLE), encoding="utf-8")
        opened.append(open_file(chromium, path, width, scheme))
        tab = opened[-1].tab
        tab.set_viewport_size({"width": width, "height": height})
        if address:
            tab.goto(path.as_uri() + address)
            tab.reload()
        wait_until_drawn(tab)
        return opened[-1]

    yield show_slides
    for page in opened:
        page.tab.close()
        assert page.errors == []
        assert {address.partition("#")[0] for address in page.requests} == {page.address}


def read_number(tab: Any) -> int:
    """Returns the number of the slide that is shown, which the address has too."""
    shown, _, total = tab.inner_text("#controls span").partition(" / ")
    assert int(total) == NUM_SLIDES
    assert tab.evaluate("location.hash").removeprefix("#") == shown
    assert tab.locator(".slide:visible").count() == 1
    return int(shown)


def test_the_first_slide_has_the_title(show: Show):
    tab = show().tab
    assert read_number(tab) == 1
    assert tab.inner_text("h1") == TITLE
    assert "5 statements" in tab.inner_text(".title-slide")
    assert tab.title() == TITLE


def test_keys_lead_from_slide_to_slide(show: Show):
    tab = show().tab
    keys = [("ArrowRight", 2), ("PageDown", 3), ("Space", 4), ("ArrowLeft", 3), ("PageUp", 2), ("Shift+Space", 1)]
    keys += [("ArrowLeft", 1), ("End", NUM_SLIDES), ("ArrowRight", NUM_SLIDES), ("Home", 1), ("ArrowDown", 2)]
    for key, expected in keys:
        tab.keyboard.press(key)
        assert read_number(tab) == expected, key


def test_buttons_lead_from_slide_to_slide(show: Show):
    tab = show(390, 844).tab
    assert tab.locator("[aria-label='Previous slide']").is_disabled()
    tab.click("[aria-label='Next slide']")
    tab.click("[aria-label='Next slide']")
    assert read_number(tab) == 3
    tab.click("[aria-label='Previous slide']")
    assert read_number(tab) == 2


def test_an_address_leads_to_a_slide(show: Show):
    tab = show(address="#6").tab
    assert read_number(tab) == 6
    tab.evaluate("location.hash = '#3'")
    wait_for(tab, "document.querySelector('#controls span').textContent.startsWith('3 ')")
    tab.evaluate("location.hash = '#999'")
    wait_for(tab, f"document.querySelector('#controls span').textContent.startsWith('{NUM_SLIDES} ')")


def test_the_question_comes_before_the_answer(show: Show):
    tab = show(address="#7").tab
    question = tab.locator(".slide:visible").inner_text()
    assert "Growth follows the largest |eigenvalue|" in question
    assert "‖Wⁿ‖ = ρ(W)ⁿ" in question
    assert re.findall("True|False|Depends", question) == ["True", "False", "Depends"]
    assert "Holds" not in question
    tab.keyboard.press("ArrowRight")
    answer = tab.locator(".slide:visible").inner_text()
    assert re.search(r"Holds if …\s+W is normal, or nearly so\.", answer)
    evidence = next(record["evidence"] for record in make_records() if record["id"] == "C2")
    assert evidence in answer.replace("\u00a0", " ")
    assert tab.locator("figure:visible").count() == 1


@pytest.mark.parametrize("choice", ["True", "False", "Depends"])
def test_a_guess_reveals_the_verdict(show: Show, choice: str):
    tab = show(address="#7").tab
    tab.click(f".slide:visible button:text-is('{choice}')")
    assert read_number(tab) == 8
    assert "W is normal" in tab.locator(".slide:visible .verdict").inner_text()
    tab.keyboard.press("ArrowLeft")
    tab.focus(f".slide:visible button:text-is('{choice}')")
    tab.keyboard.press("Enter")
    assert read_number(tab) == 8
    tab.keyboard.press("Space")  # the button that was pressed is gone
    assert read_number(tab) == 9


def test_a_slide_with_a_further_figure_names_the_statement(show: Show):
    tab = show(address="#4").tab
    assert "figure-slide" in tab.locator(".slide:visible").get_attribute("class")
    assert tab.inner_text(".slide:visible .head").startswith("B1 The gradient of a shared weight is the sum")


def test_the_number_of_the_slide_can_be_read_from_afar(show: Show):
    tab = show(1920, 1080).tab
    size = tab.eval_on_selector("#controls span", "one => parseFloat(getComputedStyle(one).fontSize)")
    assert size / 1080 > 0.025


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1024, 768), (1920, 1080), (2560, 1080)])
def test_all_slides_fit_the_screen_with_readable_type(show: Show, width: int, height: int):
    tab = show(width, height).tab
    for _ in range(NUM_SLIDES):
        wait_until_drawn(tab)
        assert tab.evaluate(FIND_OUTSIDE) == []
        # Claims and verdicts are at least a fortieth of the height of the slide, as with 27 points on 1080 lines.
        sizes = tab.eval_on_selector_all(
            ".is-current h1, .is-current h2, .is-current .verdict-text",
            "all => all.map(one => parseFloat(getComputedStyle(one).fontSize) / 540)",
        )
        assert all(size >= 0.031 for size in sizes)
        tab.keyboard.press("ArrowRight")


def test_a_figure_on_a_slide_can_be_explored(show: Show):
    tab = show(1920, 1080, address="#8").tab
    box = tab.locator("[data-chart=lines]:visible").bounding_box()
    tab.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + box["height"] / 2)
    cursor = tab.evaluate("document.querySelector('.is-current .cursor').getBoundingClientRect().x")
    assert abs(cursor - (box["x"] + 0.55 * box["width"])) < 6  # the scale of the slide is taken into account
    tab.focus("[data-chart=lines]:visible")
    tab.keyboard.press("ArrowRight")
    assert read_number(tab) == 8  # the arrow keys belong to the figure until Escape
    tab.keyboard.press("Escape")
    tab.keyboard.press("Escape")
    tab.keyboard.press("ArrowRight")
    assert read_number(tab) == 9


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_slides_as_pages(show: Show, scheme: str):
    tab = show(390, 844, scheme).tab
    for _ in range(NUM_SLIDES):
        wait_until_drawn(tab)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tab.click("[aria-label='Next slide']", force=True)


def test_print_has_one_slide_per_page(show: Show):
    tab = show().tab
    pages = re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True))
    assert len(pages) == NUM_SLIDES
    tab.emulate_media(media="print")
    wait_until_drawn(tab)
    assert tab.locator(".slide:visible").count() == NUM_SLIDES
    assert tab.locator("figure:visible").count() == 7
    assert tab.locator("#controls").is_hidden()
