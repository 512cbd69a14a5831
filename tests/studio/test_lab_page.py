"""The lab in the studio: a guess, then a run, then the verdict."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

TIMEOUT = 60_000  # milliseconds; the worker process imports PyTorch first


# In the page, because a quick experiment takes less time than a click from outside. One has been run, others wait.
STOP_AFTER_ONE = """() => {
    const [, stop] = document.querySelectorAll(".lab-chapter-run button");
    const status = document.querySelector(".lab-chapter-run .lab-status");
    if (stop.hidden || !/^[1-5] of 6 run/.test(status.textContent)) return false;
    stop.click();
    return true;
}"""


def run(tab, identifier: str) -> None:
    """Runs an experiment and waits for its end; the verdict of an earlier run stays until then."""
    tab.click(f"#{identifier} .primary")
    tab.wait_for_selector(f"#{identifier} .primary:visible", timeout=TIMEOUT)
    tab.wait_for_selector(f"#{identifier} .verdict", timeout=TIMEOUT)


def test_a_guess_is_followed_by_a_run_and_its_verdict(open_tab):
    opened = open_tab()
    tab = opened.open("lab", "?id=C2")
    assert tab.locator(".verdict, figure, .lab-panel:visible").count() == 0
    assert tab.locator(".statement").count() == 11
    tab.click("#C2 [data-guess=depends]")
    assert tab.locator("#C2 .verdict").count() == 0  # not before the run
    assert tab.inner_text(".lab-score") == "1 to run, 89 left"
    run(tab, "C2")
    assert tab.inner_text("#C2 .feedback") == "Right. You guessed: Depends."
    assert tab.inner_text("#C2 .verdict-text") == "W is normal, or nearly so."
    tab.wait_for_selector("#C2 .figures figure .plot path")
    tab.wait_for_selector("#C2 .live figure .plot path")
    assert tab.inner_text("#C2 .details .command pre") == "seqwise lab run C2 --coupling 0"
    assert tab.inner_text(".lab-score") == "1 of 1 guess right, 89 left"
    assert tab.inner_text(".index [href$='id=C2']") == "C2 ✓"
    tab.reload()
    tab.wait_for_selector("html[data-ready=lab]")
    assert tab.inner_text(".lab-score") == "1 of 1 guess right, 89 left"
    run(tab, "C2")  # the server remembers the result
    tab.click("text=Start again")
    assert tab.inner_text(".lab-score") == "No guess yet"
    assert tab.locator(".verdict").count() == 0


def test_parameters_can_be_changed_and_are_part_of_the_command(open_tab):
    opened = open_tab()
    tab = opened.open("lab", "?id=C2")
    tab.click("#C2 .lab-skip")
    tab.click("#C2 summary")
    tab.locator("#C2").get_by_label("coupling", exact=True).fill("0")
    assert tab.inner_text("#C2 .lab-parameters pre") == "seqwise lab run C2 --coupling 0"
    assert tab.inner_text("#C2 summary") == "Parameters (1 changed)"
    run(tab, "C2")
    assert tab.inner_text("#C2 .verdict-name").endswith("Holds")
    assert "coupling 0," in tab.inner_text("#C2 .details")
    tab.locator("#C2").get_by_label("units", exact=True).fill("0")
    tab.click("#C2 .primary")
    tab.wait_for_selector("#C2 .error")
    assert "C2, units: expected 1 to 200; received 0." in tab.inner_text("#C2 .error")
    assert tab.locator("#C2 .verdict").count() == 1  # of the last run
    assert [error for error in opened.errors if "status of 400" not in error] == []
    opened.errors.clear()  # Chromium reports the refused request
    tab.click("#C2 .lab-parameters >> text=Reset")
    run(tab, "C2")
    assert tab.inner_text(".lab-score") == "No guess yet"


def test_a_run_can_be_cancelled_and_another_one_follows(open_tab):
    tab = open_tab().open("lab", "?chapter=C")
    tab.click("#C10 [data-guess=true]")
    tab.click("#C10 [data-choice=full]")
    tab.click("#C10 .primary")
    tab.wait_for_selector("#C10 .lab-status:has-text('Running')", timeout=TIMEOUT)
    tab.click("#C10 >> text=Cancel")
    tab.wait_for_selector("#C10 .primary:visible")
    assert tab.locator("#C10 .verdict, #C10 .error").count() == 0
    tab.click("#C11 [data-guess=true]")
    run(tab, "C11")


def test_a_chapter_is_run_without_revealing_verdicts_and_can_be_stopped(open_tab):
    tab = open_tab().open("lab", "?chapter=E")
    tab.click("text=Run all 6 (quick)")
    tab.wait_for_function(STOP_AFTER_ONE, timeout=TIMEOUT)
    tab.wait_for_selector(".lab-chapter-run button:has-text('Run the other')")
    assert tab.locator(".verdict").count() == 0
    tab.wait_for_selector("#E1 .lab-ready")
    tab.click("#E1 [data-guess=true]")
    tab.wait_for_selector("#E1 .verdict")  # without another run


def test_statements_are_found_and_chapters_are_part_of_the_address(open_tab):
    opened = open_tab(390, "dark")
    tab = opened.open("lab", "?chapter=D")
    assert tab.inner_text(".lab-chapter h2") == "D LSTM"
    tab.click(".lab-contents a >> nth=0")
    tab.wait_for_selector("h2:has-text('Sequences and their shapes')")
    tab.go_back()
    tab.wait_for_selector("h2:has-text('LSTM')")
    tab.fill("[type=search]", "padding")
    found = tab.locator(".statement h3").all_inner_texts()
    assert found
    assert tab.inner_text(".lab-chapter h2").startswith(f"{len(found)} statement")
    assert tab.url.endswith("#/lab?search=padding")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_style_of_statements_does_not_change_other_pages(open_tab):
    opened = open_tab()
    boxes = "[...document.querySelectorAll('.top, .top nav, .top nav a')].map((one) => one.getBoundingClientRect())"
    measure = f"JSON.stringify({boxes})"
    before = json.loads(opened.open("vectors").evaluate(measure))
    tab = opened.open("lab")
    tab.click(".top nav a[data-page=vectors]")
    tab.wait_for_selector("html[data-ready=vectors]")
    after = json.loads(tab.evaluate(measure))
    assert before == after
