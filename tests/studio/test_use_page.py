"""The page "Use": an input for each task, alternatives to branch from, and what changes when a word is edited."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

ANSWERS = {  # task → what the page shows once there is an answer
    "language": ".use-token:not(.is-prompt)",
    "masked": ".use-filled mark",
    "classify": ".use-bars .use-bar",
    "tag": ".use-word",
    "translate": ".use-aligned .use-token",
    "caption": ".use-image",
    "forecast": "figure[data-kind=LineChart]",
}
TASKS = {  # run → task
    "book-lstm": "language",
    "book-gru": "language",
    "book-transformer": "language",
    "fill-transformer": "masked",
    "labels-gru": "classify",
    "tags-lstm": "tag",
    "translate-attention": "translate",
    "translate-transformer": "translate",
    "captions-lstm": "caption",
    "series-gru": "forecast",
}
UNNAMED = """
    [...document.querySelectorAll('main button, main [role=button]')]
        .filter((element) => !(element.ariaLabel || element.textContent.trim())).length +
    [...document.querySelectorAll('main input, main select, main textarea')]
        .filter((element) => !element.labels?.length && !element.ariaLabel).length
"""
IDLE = ".use-body[aria-busy=false]"


def open_run(open_tab: Any, name: str, width: int = 1300, scheme: str = "light", **parameters: Any) -> Any:
    """Opens the page of a run and waits for its first answer."""
    tab = open_tab(width, scheme).open("use", "?" + urlencode({"id": f"runs/{name}", **parameters}))
    tab.wait_for_selector(ANSWERS[TASKS[name]])
    tab.wait_for_selector(IDLE)
    return tab


def read_generated(tab: Any) -> list[str]:
    return tab.locator(".use-token:not(.is-prompt)").all_text_contents()


@pytest.mark.parametrize("name", TASKS)
def test_a_run_of_every_task_answers_at_once(name, open_tab):
    for width, scheme in ((1300, "light"), (390, "dark")):
        tab = open_run(open_tab, name, width, scheme)
        assert tab.locator("main h1").count() == 1
        assert tab.locator(".error").count() == 0
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(UNNAMED) == 0


def test_a_branch_keeps_the_words_before_it_and_the_first_text_can_be_returned_to(open_tab):
    tab = open_run(open_tab, "book-lstm", text="the cat", length=12)
    first = read_generated(tab)
    assert len(first) == 12
    tab.locator(".use-token:not(.is-prompt)").nth(3).click()
    chosen = tab.locator(".use-alternatives li button").last
    word = chosen.locator("bdi").text_content()
    chosen.click()
    tab.wait_for_selector(".use-branches ol .use-branch[aria-current]")
    tab.wait_for_selector(IDLE)
    branch = read_generated(tab)
    assert branch[:3] == first[:3]
    assert branch[3].strip() == word
    assert word != first[3].strip()
    assert tab.evaluate("document.activeElement.textContent") == word  # the keyboard continues there
    tab.locator(".use-branches > li > .use-branch").click()
    assert read_generated(tab) == first


def test_the_alternatives_are_reached_with_the_keyboard(open_tab):
    tab = open_run(open_tab, "book-gru", text="the cat sat", length=5)
    tab.locator(".use-token").first.focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".use-alternatives h3").text_content() == "“cat” in your text"
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator(".use-token[aria-pressed=true]").count() == 1
    assert tab.locator(".use-alternatives h3").text_content().startswith("Token 2")


# In the page, because the last token may come before a click from outside. The button above the text: that below would
# move with every line.
STOP_AFTER_TEN_TOKENS = """() => {
    const stop = document.querySelector(".use-above .use-stop");
    if (!stop.checkVisibility() || document.querySelectorAll(".use-token:not(.is-prompt)").length < 10) return false;
    stop.click();
    return true;
}"""


def test_a_long_continuation_can_be_stopped(open_tab):
    tab = open_run(open_tab, "book-transformer", text="the", length=5)
    tab.get_by_label("Tokens").fill("500")
    tab.wait_for_function(STOP_AFTER_TEN_TOKENS)
    tab.wait_for_selector(IDLE)
    assert 10 <= len(read_generated(tab)) < 500


def test_an_edited_word_shows_what_changes(open_tab):
    tab = open_run(open_tab, "labels-gru", text="the film is dull")
    assert tab.locator(".use-changes").is_hidden()
    tab.get_by_label("Text", exact=True).fill("the film is lovely")
    tab.wait_for_selector(".use-changes del")
    assert tab.locator(".use-changes del").first.text_content() == "dull"
    assert tab.locator(".use-changes ins").first.text_content() == "lovely"
    assert tab.locator(".use-changes tbody tr").count() == 3
    assert "text=the+film+is+lovely" in tab.url
    tab.get_by_role("button", name="Compare with this from now on").click()
    assert tab.locator(".use-changes").is_hidden()


def test_the_words_that_decide_a_label_are_marked(open_tab):
    tab = open_run(open_tab, "labels-gru", text="the film is dull")
    tab.locator("[data-action=explain]").click()
    tab.wait_for_selector("figure[data-kind=TokenText] .token")
    assert tab.locator("figure[data-kind=TokenText] .token").all_text_contents() == ["the", "film", "is", "dull"]


def test_a_word_fills_its_mask(open_tab):
    tab = open_run(open_tab, "fill-transformer", text="the [MASK] sat on the [MASK]")
    choice = tab.locator(".use-columns .card").last.locator("button.use-bar").nth(1)
    word = choice.locator("bdi").text_content()
    choice.click()
    tab.wait_for_selector(".use-columns .card:nth-child(2)", state="detached")
    assert tab.locator("textarea").input_value() == f"the [MASK] sat on the {word}"


def test_each_word_shows_the_probabilities_of_its_tags(open_tab):
    tab = open_run(open_tab, "tags-lstm", text="Ann lives in Rome .")
    tab.locator(".use-word", has_text="Rome").click()
    assert tab.locator(".use-alternatives h3").text_content() == "Rome"
    assert set(tab.locator(".use-alternatives bdi").all_text_contents()[1:]) == {"no span", "PER", "LOC"}


@pytest.mark.parametrize("name", ["translate-attention", "translate-transformer"])
def test_attention_links_words_and_an_alternative_starts_another_search(name, open_tab):
    tab = open_run(open_tab, name, text="1 2 3")
    target = tab.locator(".use-tokens[aria-label=Translation] .use-token")
    target.first.hover()
    assert tab.locator(".use-links path").count() > 0
    tab.get_by_text("The beam search as a tree").click()
    tab.wait_for_selector("figure[data-kind=Tree] .node")
    target.first.click()
    other = tab.locator(".use-alternatives li button").first
    word = other.locator("bdi").text_content()
    other.click()
    tab.wait_for_selector(".use-token.is-forced")
    assert tab.get_by_label("It must begin with").input_value() == word
    assert tab.locator(".use-best").text_content().startswith(word)


def test_a_dropped_image_gets_a_caption_with_regions(open_tab, tmp_path):
    path = tmp_path / "green.png"
    Image.fromarray(np.full((20, 30, 3), (30, 180, 50), np.uint8)).save(path)
    tab = open_run(open_tab, "captions-lstm")
    assert tab.locator(".use-truth").is_visible()
    tab.locator("input[type=file]").set_input_files(path)
    tab.wait_for_selector(".use-truth", state="detached")
    read_image = "document.querySelector('.use-image').toDataURL()"
    before = tab.evaluate(read_image)
    tab.locator(".use-tokens .use-token").first.hover()
    assert tab.evaluate(read_image) != before


def test_an_edited_table_shows_the_forecast_before_and_after(open_tab, runs_folder):
    tab = open_run(open_tab, "series-gru")
    tab.locator("input[type=file]").set_input_files(runs_folder.parent / "data" / "series-gru" / "long.csv")
    tab.wait_for_selector("text=the file (150 steps)")
    tab.wait_for_selector(IDLE)
    area = tab.locator(".use-csv")
    lines = area.input_value().splitlines()
    last = max(at for at, line in enumerate(lines) if line.split(",")[1])
    fields = lines[last].split(",")
    area.fill("\n".join([*lines[:last], ",".join([fields[0], fields[1], "9", *fields[3:]]), *lines[last + 1 :]]))
    tab.wait_for_selector("[data-toggle=before]")
    assert "before" in tab.locator("figure[data-kind=Table] thead").text_content()


def test_a_problem_is_shown_beside_the_answer(open_tab):
    tab = open_run(open_tab, "fill-transformer", text="the [MASK] sat")
    tab.locator("textarea").fill("the cat sat")
    tab.wait_for_selector(".use-problem .error")
    assert "[MASK]" in tab.locator(".use-problem .error").text_content()
    tab.locator("textarea").fill("the [MASK] lay")
    tab.wait_for_selector(".use-problem .error", state="detached")


def test_markup_in_a_text_stays_text(open_tab):
    tab = open_run(open_tab, "book-lstm", text="<img src=x onerror=alert(1)> the", length=3)
    assert tab.locator("main img").count() == 0
    assert "<img" in tab.locator(".use-warnings").text_content() or "“<”" in tab.locator(".use-warnings").text_content()
