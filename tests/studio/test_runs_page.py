"""The page of runs: search, sort, select, curves, tags and notes, and deleting with undo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_folders import make_rows, write_comparison, write_rows, write_run
from studio_server import StudioServer, StudioTab, wait_until

pytestmark = pytest.mark.slow

LOSSES = [3.0, 2.0, 1.5, 1.25]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three seeds of one run, another run, one that failed, one that was stopped, and a comparison."""
    runs = tmp_path / "runs"
    for seed in range(3):
        write_run(runs / f"book-lstm-{seed}", [loss + seed / 10 for loss in LOSSES], seed=seed)
    write_run(runs / "tags-gru", LOSSES, task="tag", model="gru", training={"learning_rate": 0.5})
    failed = write_run(runs / "failed", LOSSES, model="rnn", is_finished=False)
    (failed / "failure.json").write_text(json.dumps({"problem": "the disk <b>is</b> full."}))
    write_run(runs / "stopped", LOSSES, model="transformer", is_finished=False)
    write_comparison(runs / "demo")
    return runs


@pytest.fixture
def open_runs(chromium: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """(query, width) → the page of runs in a tab."""
    tabs: list[StudioTab] = []
    with StudioServer(folder) as server:

        def open_runs(query: str = "", width: int = 1300) -> Any:
            tabs.append(StudioTab(chromium, server.address, width))
            return tabs[-1].open("runs", query)

        yield open_runs
        for tab in tabs:
            tab.check()
            tab.close()


def list_names(page: Any) -> list[str]:
    """Returns the names of all rows, read at once: the table may be drawn again between two reads.

    The text of a row is empty until the first frame with it.
    """
    links = page.locator(".runs-table tbody .runs-link")
    page.wait_for_function("() => [...document.querySelectorAll('.runs-link')].every(each => each.innerText)")
    return links.evaluate_all("links => links.map(each => each.innerText)")


def get_row(page: Any, name: str) -> Any:
    return page.locator(".runs-table tbody tr").filter(has=page.locator(f".runs-link bdi:text-is('{name}')"))


def test_the_table_shows_searches_and_sorts(open_runs):
    page = open_runs()
    page.get_by_role("button", name="Name").click()
    assert list_names(page) == ["book-lstm-0", "book-lstm-1", "book-lstm-2", "demo", "failed", "stopped", "tags-gru"]
    row = get_row(page, "failed")
    assert "the disk <b>is</b> full." in row.locator(".runs-cell-state").inner_text()
    assert "perplexity ↓" in get_row(page, "book-lstm-0").locator(".runs-cell-metric").inner_text()
    metric = get_row(page, "demo").locator(".runs-cell-metric").inner_text()
    assert "(gru)" in metric
    assert "mean of 2 seeds" in metric
    page.keyboard.press("/")
    page.keyboard.type("model:lstm -book-lstm-1")
    # The comparison has trials with this model, which are shown below it.
    assert list_names(page) == ["book-lstm-0", "book-lstm-2", "demo"]
    page.get_by_label("Search the runs").fill("state:failed")
    assert list_names(page) == ["failed"]
    page.reload()
    page.wait_for_selector(".runs-table tbody tr")
    assert list_names(page) == ["failed"]


def test_models_and_data_are_not_cut_off_and_forecasts_count_values(open_runs, folder):
    write_run(folder / "series", task="forecast", model="attentive-rnn", run={"data": "multi30k-en-de-lowercase"})
    page = open_runs()
    assert "series" in list_names(page)
    for column, text in (("model", "attentive-rnn"), ("data", "multi30k-en-de-lowercase"), ("step", "2.00 k values")):
        cell = get_row(page, "series").locator(f".runs-cell-{column} span").last
        assert cell.inner_text() == text
        assert cell.evaluate("each => each.scrollWidth <= each.clientWidth && each.scrollHeight <= each.clientHeight")
    assert "4.00 k tokens" in get_row(page, "book-lstm-0").locator(".runs-cell-step").inner_text()


def test_the_trials_of_a_comparison_unfold_by_keyboard(open_runs):
    page = open_runs("?q=demo&sort=name-up")
    page.get_by_label("Search the runs").press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert list_names(page) == ["demo", "gru/seed-0", "gru/seed-1", "lstm/seed-0", "lstm/seed-1"]
    assert get_row(page, "demo").get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    assert page.locator("tr[aria-selected=true] .runs-link").all_inner_texts() == ["gru/seed-0", "gru/seed-1"]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert list_names(page) == ["demo"]


def test_seeds_are_one_line_and_different_settings_are_listed(open_runs):
    page = open_runs("?sort=name-up")
    for name in ("book-lstm-0", "book-lstm-1", "book-lstm-2", "tags-gru"):
        get_row(page, name).locator("input").click()
    page.wait_for_selector(".runs-curves .legend button >> nth=1")
    assert page.locator(".runs-curves .legend button").all_inner_texts() == ["book-lstm", "tags-gru"]
    assert page.locator(".runs-curves path.interval").count() == 1
    assert page.locator(".runs-curves path.behind").count() == 3
    table = page.get_by_label("Table of the settings that differ")
    lines = table.locator("tbody tr").all()
    rows = {line.locator("th").inner_text(): line.locator("td").all_inner_texts() for line in lines}
    assert rows["seed"] == ["0, 1, 2", "0"]
    assert rows["training.learning_rate"] == ["0.01", "0.5"]
    assert "run.data" not in rows  # it is equal
    page.get_by_label("What the curves show").select_option("valid.perplexity")
    page.get_by_role("button", name="time", exact=True).click()
    page.wait_for_selector(".runs-curves [data-chart=lines][aria-label*='validation perplexity against time']")
    page.reload()
    page.wait_for_selector(".runs-curves [data-chart=lines][aria-label*='validation perplexity against time']")
    assert "4 runs selected" in page.locator(".runs-selection").inner_text()


def test_a_curve_grows_while_its_run_is_written(open_runs, folder):
    page = open_runs("?run=runs/stopped")
    line = page.locator(".runs-curves path.line").first
    line.wait_for()
    before = line.get_attribute("d")
    rows = make_rows([*LOSSES, 1.1, 1.0])[-2:]
    write_rows(folder / "stopped" / "metrics.jsonl", rows, "a")
    page.wait_for_selector(".runs-cell-step:has-text('60')")
    wait_until(lambda: page.locator(".runs-curves path.line").first.get_attribute("d") != before, 20, "another curve")


def test_a_hidden_page_is_not_connected_and_receives_what_it_missed(open_runs, folder):
    page = open_runs()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    hide = """isHidden => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    write_rows(folder / "stopped" / "metrics.jsonl", make_rows([*LOSSES, 1.1, 1.0])[-2:], "a")
    page.wait_for_timeout(2500)
    assert page.locator(".runs-cell-step:has-text('60')").count() == 0
    assert requests == []
    page.evaluate(hide, False)
    page.wait_for_selector(".runs-cell-step:has-text('60')")
    [request] = requests
    assert "/api/events?last=" in request
    assert request.rpartition("-")[2].isdecimal()  # it names the last event


def test_a_zoomed_curve_has_every_point(open_runs, folder):
    write_run(folder / "long", [1 + (number % 97) / 97 for number in range(5000)])
    page = open_runs("?run=runs/long")
    note = page.locator(".runs-curves .note")
    note.filter(has_text="Lowest and highest").wait_for()
    page.locator(".runs-curves .plot").focus()
    for _ in range(6):
        page.keyboard.press("+")
    note.filter(has_text="All points").wait_for()
    page.keyboard.press("0")
    note.filter(has_text="Lowest and highest").wait_for()


def test_tags_and_a_note_are_edited_in_the_row_and_stay(open_runs, folder):
    page = open_runs("?q=tags-gru")
    page.get_by_label("Search the runs").press("ArrowDown")
    page.keyboard.press("e")
    page.get_by_label("Tags", exact=True).fill("<i>new</i>, second")
    page.get_by_label("Note", exact=True).fill("try <script>alert(1)</script>")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector(".runs-tag >> nth=1")
    assert page.locator(".runs-tag").all_text_contents() == ["<i>new</i>", "second"]
    saved = json.loads((folder / "tags-gru" / "notes.json").read_text())
    assert saved == {"tags": ["<i>new</i>", "second"], "note": "try <script>alert(1)</script>"}
    page.locator(".runs-tag").nth(1).click()
    assert page.get_by_label("Search the runs").input_value() == "tag:second"
    other = open_runs("?q=tag:second")
    assert list_names(other) == ["tags-gru"]


def test_a_deleted_run_can_be_restored(open_runs, folder):
    page = open_runs("?q=name:stopped")
    get_row(page, "stopped").get_by_label("Actions for stopped").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Undo").wait_for()
    wait_until(lambda: list_names(page) == [], 10, "the row is gone")
    assert not (folder / "stopped").exists()
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector(".runs-link bdi:text-is('stopped')")
    assert (folder / "stopped" / "config.yaml").is_file()
    get_row(page, "stopped").locator("input").click()
    page.locator(".runs-selection").get_by_role("button", name="Delete").click()
    wait_until(lambda: not (folder / "stopped").exists(), 10, "deleted again")
    page.get_by_role("button", name="Trash").click()
    page.get_by_role("button", name="Restore stopped").click()
    wait_until(lambda: (folder / "stopped").exists(), 10, "restored")
    page.locator("dialog .hint").wait_for()


def test_two_runs_are_opened_side_by_side(open_runs):
    page = open_runs("?run=runs/book-lstm-0&run=runs/tags-gru")
    link = page.get_by_role("link", name="Look inside both")
    assert link.get_attribute("href") == "#/inside?id=runs%2Fbook-lstm-0&id=runs%2Ftags-gru"


def test_a_run_is_deleted_and_restored_from_its_page(open_runs, folder):
    page = open_runs("?q=name:stopped")
    page.locator(".runs-link").click()
    page.wait_for_selector("html[data-ready=run]")
    assert page.evaluate("document.activeElement.id") == "main"  # not lost with the link
    page.get_by_role("button", name="Delete the run").click()
    page.wait_for_selector("html[data-ready=runs]")
    assert not (folder / "stopped").exists()
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("html[data-ready=run]")
    assert (folder / "stopped" / "config.yaml").is_file()
    assert page.locator(".message > div").all_inner_texts() == ["stopped restored."]


def test_cards_at_390_pixels(open_runs):
    page = open_runs("?run=runs/book-lstm-0&run=runs/tags-gru", 390)
    page.wait_for_selector(".runs-curves path.line")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    cell, head = page.locator(".runs-cell-state").nth(1), page.locator(".runs-table thead")
    assert cell.bounding_box()["width"] > 60
    assert head.bounding_box()["height"] <= 1
    page.get_by_label("Sort by").select_option("name")
    assert list_names(page)[0] == "book-lstm-0"


def test_without_runs_the_page_says_how_to_start_one(chromium, tmp_path):
    (tmp_path / "runs").mkdir()
    with StudioServer(tmp_path / "runs") as server:
        tab = StudioTab(chromium, server.address)
        page = tab.open("runs")
        assert "seqwise train" in page.locator(".empty").inner_text()
        write_run(tmp_path / "runs" / "first")
        page.wait_for_selector(".runs-link bdi:text-is('first')")
        assert page.locator(".empty").count() == 0
        tab.check()
        tab.close()
