"""The page of a run, for runs of every task and for one that trains."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from urllib.parse import quote

import pytest
from lab_pages import TWO_FRAMES
from run_folders import make_rows, write_rows, write_run
from studio_server import StudioServer, StudioTab, wait_until

from conftest import RUNS

pytestmark = pytest.mark.slow

PARTS = {
    "settings": "[data-setting='network.width']",
    "samples": ".run-timeline li",
    "model": ".run-card h2",
}


@pytest.mark.parametrize("name", RUNS)
def test_the_page_of_a_run_shows_curves_samples_settings_and_model(name, open_tab):
    studio = open_tab()
    tab = studio.open("run", f"?id=runs/{name}")
    assert tab.locator("main h1").inner_text() == name
    tab.wait_for_selector("[data-chart-title=Loss] svg path.line")
    assert tab.locator(".run-header .state").inner_text().startswith("finished")
    assert re.search(r"\d", tab.locator(".run-result b").inner_text())
    assert tab.locator(".run-facts dd").all_inner_texts()[:2] == list(RUNS[name])
    for part, selector in PARTS.items():
        tab.click(f"[data-part={part}]")
        tab.wait_for_selector(selector)
        assert f"part={part}" in tab.url
    assert tab.locator(".run-card").inner_text().startswith(f"{RUNS[name][1]}, {RUNS[name][0]}")


def test_another_run_and_back(open_tab):
    studio = open_tab()
    tab = studio.open("run", "?id=runs/book-gru&part=settings")
    tab.evaluate("location.hash = '#/run?id=runs/series-gru&part=model'")
    tab.wait_for_selector("h1 bdi:text-is('series-gru')")
    tab.wait_for_selector(".run-card")
    tab.evaluate("location.hash = '#/run?id=runs/missing'")
    tab.wait_for_selector(".error >> text=there is no run")
    assert tab.locator("main h1").count() == 1
    assert [text for text in studio.errors if "status of 400" not in text] == [], "only the answer of the server"
    studio.errors.clear()
    tab.go_back()
    tab.go_back()
    tab.wait_for_selector("h1 bdi:text-is('book-gru')")
    tab.wait_for_selector("[data-part=settings][aria-current]")
    # Runs whose answers come after the next change of the address are not shown.
    answers = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/api/run?')).length"
    num_answers = tab.evaluate(answers)
    tab.evaluate("""() => {
        const names = ["series-gru", "book-gru", "series-gru", "book-lstm"];
        for (const name of names) {
            location.hash = `#/run?id=runs/${name}`;
            window.dispatchEvent(new HashChangeEvent("hashchange"));
        }
    }""")
    tab.wait_for_selector("h1 bdi:text-is('book-lstm')")
    tab.wait_for_function(f"(expected) => {answers} >= expected", arg=num_answers + 4)
    tab.evaluate(TWO_FRAMES)
    assert tab.locator("main h1").count() == 1


def test_settings_are_searched_and_say_why_they_were_chosen(open_tab):
    tab = open_tab().open("run", "?id=runs/book-lstm&part=settings")
    row = tab.locator("[data-setting='training.learning_rate']")
    assert "chosen by rule" in row.inner_text()
    assert "found for lstm, at width 16 and depth 1" in row.inner_text()
    assert tab.locator("[data-setting='network.width'] .run-origin").inner_text() == "set"
    assert tab.locator("[data-setting='transformer.heads']").count() == 0
    tab.fill("input[type=search]", "learning rate")
    names = tab.locator("[data-setting]").evaluate_all("rows => rows.map((row) => row.dataset.setting)")
    assert "training.learning_rate" in names
    assert "network.width" not in names
    tab.fill("input[type=search]", "")
    tab.click("[data-choice=all]")
    assert tab.locator("[data-setting='transformer.heads']").count() == 1


def test_health_is_checked_by_the_curve_and_on_request_by_data_and_model(open_tab):
    tab = open_tab().open("run", "?id=runs/labels-gru&part=health")
    tab.wait_for_selector(".finding", timeout=60_000)
    quick = tab.locator(".findings").inner_text()
    tab.click("text=Check the data and the model too")
    tab.wait_for_selector("text=Everything was checked.", timeout=60_000)
    assert len(tab.locator(".findings").inner_text()) > len(quick)


def test_zooming_fetches_the_points_of_the_range_and_the_axis_is_kept(open_tab):
    studio = open_tab()
    tab = studio.open("run", "?id=runs/book-gru")
    box = tab.locator("[data-chart-title=Loss] .plot")
    box.wait_for()
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    tab.mouse.move(place["x"] + 0.3 * place["width"], place["y"] + 100)
    tab.mouse.down()
    tab.mouse.move(place["x"] + 0.7 * place["width"], place["y"] + 100, steps=4)
    with tab.expect_request(lambda request: "start=" in request.url and "y=loss" in request.url):
        tab.mouse.up()
    tab.click("[data-chart-title=Loss] >> text=Whole")
    tab.click("[data-choice=tokens]")
    assert "x=tokens" in tab.evaluate("location.hash")
    tab.reload()
    tab.wait_for_selector("[data-chart-title=Loss] svg path.line")
    assert tab.locator("[data-choice=tokens]").get_attribute("aria-pressed") == "true"


def test_the_page_fits_a_phone_and_has_an_accessible_name_for_each_chart(open_tab):
    tab = open_tab(390, "dark").open("run", "?id=runs/translate-attention")
    for part in ("curves", *PARTS):
        tab.click(f"[data-part={part}]")
        tab.wait_for_selector(PARTS.get(part, "[data-chart-title=Loss] svg path.line"))
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, part
        assert tab.locator("main h1").count() == 1
    tab.click("[data-part=curves]")
    tab.wait_for_selector("[data-chart=lines] >> nth=4")
    labels = tab.locator("[data-chart=lines]").evaluate_all(
        "boxes => boxes.map((box) => box.getAttribute('aria-label'))"
    )
    assert len(labels) == 5
    assert all(labels)


def test_a_model_card_and_samples_with_markup_stay_text(runs_folder, chromium, tmp_path):
    folder = tmp_path / "runs"
    shutil.copytree(runs_folder / "labels-gru", folder / "bad<img src=x onerror=alert(1)>")
    evil = folder / "bad<img src=x onerror=alert(1)>"
    text = "<script>alert(1)</script><img src=x onerror=alert(1)> [click](javascript:alert(1)) ![](http://example.com/x.png)"
    (evil / "README.md").write_text(f"# {text}\n\n{text}\n\n- {text}\n\n| a | b |\n|---|---|\n| {text} | 1 |\n")
    (evil / "samples.jsonl").write_text(
        '{"step": 1, "seconds": 1.0, "cost": 0.1, "samples": [{"input": "<img src=x onerror=alert(1)>", "output": '
        '"<script>alert(1)</script>", "expected": "a"}]}\n'
    )
    with StudioServer(folder) as server:
        studio = StudioTab(chromium, server.address)
        tab = studio.open("run", f"?id={quote('runs/' + evil.name)}&part=model")
        tab.wait_for_selector(".run-card table")
        assert tab.locator(".run-card :is(script, img, a)").count() == 0
        assert "<script>alert(1)</script>" in tab.locator(".run-card h2").inner_text()
        assert "click" in tab.locator(".run-card li").inner_text()
        tab.click("[data-part=samples]")
        assert "<script>" in tab.locator(".run-timeline").inner_text()
        studio.check()
        studio.close()


def test_a_run_that_trains_is_shown_live_until_it_ends(chromium, book, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    arguments = ["train", str(book), "--task", "language", "--model", "gru", "--budget", "10m", "--device", "cpu"]
    options = ["--network.width", "16", "--training.validate-every", "40", "--out", str(folder / "live")]
    with StudioServer(folder) as server:
        studio = StudioTab(chromium, server.address)
        process = subprocess.Popen(
            [sys.executable, "-m", "seqwise", *arguments, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: (folder / "live/metrics.jsonl").exists(), what="the run starts")
            tab = studio.open("run", "?id=runs/live")
            tab.wait_for_selector(".run-header .state.is-running")
            tab.wait_for_selector(".run-bar")
            assert tab.locator("text=Stop").count() == 1
            tab.wait_for_selector("[data-chart-title=Loss] svg path.line")
            steps = tab.locator(".run-facts > div", has=tab.locator("dt:text-is('steps')")).locator("dd")
            first = steps.inner_text()
            wait_until(lambda: steps.inner_text() != first, what="the number of steps grows")
            tab.wait_for_selector(".run-progress:has-text('left')")
            tab.wait_for_selector("[data-chart-title='Validation perplexity'] svg path.line")
            process.send_signal(signal.SIGINT)
            tab.wait_for_selector(".run-header .state.is-stopped")
            tab.wait_for_selector("text=Resume")
        finally:
            process.kill()
            process.wait()
        studio.check()
        studio.close()


def test_a_new_row_of_metrics_is_one_request(chromium, tmp_path):
    write_run(tmp_path / "runs/a", [3.0, 2.0])
    with StudioServer(tmp_path / "runs") as server:
        studio = StudioTab(chromium, server.address)
        tab = studio.open("run", "?id=runs/a")
        line = tab.locator("[data-chart-title=Loss] svg path.line").first
        line.wait_for()
        first = line.get_attribute("d")
        studio.requests.clear()
        write_rows(tmp_path / "runs/a/metrics.jsonl", make_rows([3.0, 2.0, 1.0])[-1:], "a")
        wait_until(lambda: line.get_attribute("d") != first, what="the curve grows")
        [request] = studio.requests
        assert "/api/run?id=runs%2Fa&x=step&y=loss&y=valid.loss" in request
        studio.check()
        studio.close()


def test_a_run_that_was_created_while_no_page_was_open_is_found(chromium, tmp_path):
    write_run(tmp_path / "runs/a")
    with StudioServer(tmp_path / "runs") as server:
        studio = StudioTab(chromium, server.address)
        studio.open("runs")
        studio.tab.goto("about:blank")
        studio.tab.wait_for_timeout(1500)  # the server notices that the page is closed
        write_run(tmp_path / "runs/b")
        tab = studio.open("run", "?id=runs/b")
        assert tab.locator("h1").inner_text() == "b"
        studio.check()
        studio.close()


def test_a_comparison_opens_on_its_own_page_and_its_runs_link_to_it(chromium, runs_folder, tmp_path):
    folder = tmp_path / "runs"
    trial = folder / "both/trials/gru/seed-0"
    shutil.copytree(runs_folder / "book-gru", trial)
    (folder / "both/compare.yaml").write_text("task: language\nfamilies: [gru]\n")
    with StudioServer(folder) as server:
        studio = StudioTab(chromium, server.address)
        tab = studio.open("run", "?id=runs/both/trials/gru/seed-0")
        assert "id=runs" in tab.locator(".run-parent a").get_attribute("href")
        assert tab.locator("text=Delete").count() == 0
        studio.open("run")
        assert tab.locator("h1").inner_text() == "Run"
        tab.goto("about:blank")
        tab.goto(f"{server.address}#/run?id=runs/both")
        tab.wait_for_selector("html[data-ready=compare]")
        assert tab.url.endswith("#/compare?id=runs%2Fboth")
        studio.close()
