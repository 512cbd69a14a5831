"""The page Inside in the browser: views of runs of several families, linked by pins, and two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_pages import TWO_FRAMES

pytestmark = pytest.mark.slow

READY = ".inside-result[data-state=ready]"


def wait_for_view(tab, view: str, count: int = 1) -> None:
    """Waits until a view is drawn in so many columns; it has figures and no error."""
    columns = tab.locator(f".inside-view[data-view={view}] {READY}")
    columns.nth(count - 1).wait_for(timeout=60_000)  # the first one starts a process that imports PyTorch
    assert columns.count() == count
    assert tab.locator(".inside-view .error").all_text_contents() == []
    assert columns.locator("figure").count() > 0


@pytest.mark.parametrize(
    ("run", "view", "missing"),
    [
        ("book-lstm", "gates", "book-lstm has no attention."),
        ("translate-transformer", "attention", "translate-transformer has no recurrent layer."),
        ("captions-lstm", "attention", "captions-lstm does not read sentences: its task is caption."),
    ],
)
def test_a_run_opens_with_a_view_that_suits_it(run, view, missing, open_tab):
    tab = open_tab().open("inside", f"?id=runs/{run}")
    wait_for_view(tab, view)
    assert missing in tab.locator(".inside-missing li span").all_text_contents()
    assert tab.locator(".inside-shown").inner_text().startswith("Shown: ")
    assert f"--view {view}" in tab.locator(".inside-footer pre").inner_text()
    assert tab.locator(f".inside-list li[data-view={view}]").get_attribute("class") == "is-shown"


def test_a_token_that_is_selected_in_one_view_is_selected_in_all(open_tab):
    tab = open_tab().open("inside", "?id=runs/book-lstm&text=the+cat+sat&view=gates&view=attribution")
    wait_for_view(tab, "gates")
    wait_for_view(tab, "attribution")
    tab.locator(".inside-view[data-view=attribution] .token", has_text="cat").first.click()
    assert "cat (unk) [1]" in tab.locator(".pin-bar").inner_text()
    heatmap = tab.locator(".inside-view[data-view=gates] .heatmap").first
    heatmap.locator(".pinned text", has_text="cat").wait_for()
    bars = tab.locator(".inside-view[data-view=attribution] [data-chart=bars] .pinned-row")
    assert bars.count() == 1, "in a list, the token is named with its position"
    assert tab.locator(".inside-shown .token.is-pinned").all_text_contents() == ["cat (unk)"]
    tab.locator(".inside-list li[data-view=units] .inside-add").click()
    wait_for_view(tab, "units")
    assert tab.locator(".inside-view").count() == 3
    tab.locator(".inside-list li[data-view=gradients] .inside-choose").click()
    wait_for_view(tab, "gradients")
    assert tab.locator(".inside-view").count() == 1
    assert tab.locator(".pin-bar").is_visible(), "switching to another view keeps the selection"
    tab.keyboard.press("Escape")
    tab.locator(".pin-bar").wait_for(state="hidden")


def test_two_runs_are_side_by_side_on_the_same_text(open_tab):
    tab = open_tab(1500).open("inside", "?id=runs/book-lstm&id=runs/book-gru&view=gates&view=gradients")
    wait_for_view(tab, "gates", 2)
    wait_for_view(tab, "gradients")
    assert tab.locator(".inside-result h3").all_text_contents() == ["book-lstm", "book-gru"]
    first, second = (tab.locator(".inside-view[data-view=gates] .inside-result").nth(at) for at in (0, 1))
    assert first.bounding_box()["y"] == second.bounding_box()["y"]
    token = tab.locator(".inside-shown .token").nth(2)
    token.click()
    for column in (first, second):
        column.locator(".pinned text", has_text=token.inner_text()).first.wait_for()
    tab.set_viewport_size({"width": 390, "height": 900})
    tab.evaluate(TWO_FRAMES)  # in which the figures get their new width
    assert first.bounding_box()["y"] < second.bounding_box()["y"]
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_option_computes_the_view_again_and_stays_in_the_address(open_tab):
    tab = open_tab().open("inside", "?id=runs/book-lstm&text=the+cat+sat&view=gates")
    wait_for_view(tab, "gates")
    tab.get_by_label("unit", exact=True).fill("5")
    tab.locator(".inside-view figcaption", has_text="Unit 5").first.wait_for()
    assert "--unit 5" in tab.locator(".inside-footer pre").inner_text()
    calls = []
    tab.on("request", lambda request: calls.append(request.url) if "/api/" in request.url else None)
    tab.get_by_label("unit", exact=True).fill("")
    tab.locator(".inside-view figcaption", has_text="forget gate").first.wait_for()
    assert calls == [], "the former result is in memory"
    tab.get_by_label("unit", exact=True).fill("999")
    tab.locator(".inside-view .error").wait_for()
    tab.get_by_label("unit", exact=True).fill("7")
    tab.locator(".inside-view figcaption", has_text="Unit 7").first.wait_for()
    tab.reload()
    tab.locator(".inside-view figcaption", has_text="Unit 7").first.wait_for()
    assert tab.get_by_label("Text", exact=True).input_value() == "the cat sat"


def test_a_pinned_unit_becomes_an_option(open_tab):
    tab = open_tab().open("inside", "?id=runs/book-lstm&text=the+cat+sat&view=gates")
    wait_for_view(tab, "gates")
    heatmap = tab.locator(".inside-view .heatmap").first
    heatmap.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    button = tab.locator(".inside-pinned button", has_text="unit")
    name = button.inner_text()
    button.click()
    tab.locator(".inside-view figcaption", has_text=name.replace("unit", "Unit")).first.wait_for()


def test_a_view_is_saved_as_a_file(open_tab, tmp_path: Path):
    tab = open_tab().open("inside", "?id=runs/book-lstm&text=the+cat+sat&view=gates")
    wait_for_view(tab, "gates")
    for kind, start in (("html", b"<!"), ("png", b"\x89PNG"), ("svg", b"<svg"), ("json", b"{")):
        with tab.expect_download() as download:
            tab.locator(f"[data-format={kind}]").click()
        assert download.value.suggested_filename == f"gates-book-lstm.{kind}"
        download.value.save_as(tmp_path / kind)
        assert (tmp_path / kind).read_bytes().startswith(start)
    assert json.loads((tmp_path / "json").read_text())["view"] == "gates"


def test_an_image_of_the_user_is_described(open_tab, tmp_path: Path):
    from PIL import Image

    Image.new("RGB", (24, 24), "red").save(tmp_path / "red.png")
    tab = open_tab().open("inside", "?id=runs/captions-lstm&view=attribution")
    wait_for_view(tab, "attribution")
    tab.locator("input[type=file]").set_input_files(tmp_path / "red.png")
    tab.get_by_role("button", name="Show a validation example").wait_for()
    wait_for_view(tab, "attribution")
    assert "red.png --view attribution" in tab.locator(".inside-footer pre").inner_text()


def test_what_takes_long_is_cancelled(open_tab):
    opened = open_tab()
    opened.tab.route("**/api/call/compute_view", lambda route: None)  # it never ends
    tab = opened.open("inside", "?id=runs/book-lstm&text=the+cat+sat&view=cost")
    tab.get_by_role("button", name="Cancel").click()
    tab.get_by_text("Cancelled.").wait_for()
    tab.unroute("**/api/call/compute_view")
    tab.locator(".inside-list li[data-view=training] .inside-choose").click()
    wait_for_view(tab, "training")


def test_text_from_the_address_is_only_text(open_tab):
    tab = open_tab(390, "dark").open("inside", "?id=runs/book-lstm&view=gates&text=%3Cimg+src=x+onerror=alert(1)%3E")
    wait_for_view(tab, "gates")
    assert tab.locator("main img").count() == 0
    assert "img (unk)" in tab.locator(".inside-shown").inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
