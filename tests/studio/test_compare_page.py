"""The page of comparisons: a finished one with its report, and one that is watched while its trials end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_numbers import find_mismatches
from sample_report import SAMPLES
from small_comparison import finished_comparison
from studio_server import StudioServer, StudioTab, wait_until
from unfinished_comparison import copy_outcome, cut_comparison

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import LATENCY_JOB, Job
from seqwise.locks import lock_folder

pytestmark = pytest.mark.slow

SECTIONS = ["leaderboard", "curves", "tradeoff", "costs", "pairs", "examples", "trials", "fairness", "settings"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with a finished comparison, a half-finished one, and one whose report has hostile texts."""
    folder = tmp_path_factory.mktemp("compare") / "runs"
    finished_comparison(folder / "done")
    cut_comparison(folder / "half", missing=["gru/seed-1"], partly=["rnn/seed-1"])
    hostile = folder / "hostile"
    hostile.mkdir()
    shutil.copy(folder / "done" / "compare.yaml", hostile)
    (hostile / "report.json").write_text(json.dumps(SAMPLES["hostile"]()))
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with StudioServer(folder) as server:
        yield server.address


@pytest.fixture
def compare(chromium: Any, address: str) -> Iterator[Any]:
    """(query, width, scheme) → the page of comparisons; its console must show no error."""
    tabs: list[StudioTab] = []

    def open_compare(query: str = "", width: int = 1300, scheme: str = "light") -> Any:
        tabs.append(StudioTab(chromium, address, width, scheme))
        return tabs[-1].open("compare", query)

    yield open_compare
    for tab in tabs:
        tab.check()
        tab.close()


def list_sections(tab: Any) -> list[str]:
    return tab.eval_on_selector_all(".report section", "all => all.map(one => one.id)")


def test_the_list_names_every_comparison(compare: Any):
    tab = compare()
    cards = {card.get_attribute("data-id"): card for card in tab.locator(".compare-card").all()}
    assert set(cards) == {"runs/done", "runs/half", "runs/hostile"}
    assert "finished" in cards["runs/done"].text_content()
    assert "ahead so far, by mean validation" in cards["runs/half"].text_content()
    cards["runs/done"].locator("a").click()
    tab.wait_for_selector("#leaderboard")
    tab.go_back()
    tab.wait_for_selector(".compare-card")


def test_the_report_of_a_finished_comparison_has_all_parts_and_numbers(compare: Any, folder: Path):
    tab = compare("?id=runs/done")
    assert list_sections(tab) == SECTIONS
    report = json.loads((folder / "done" / "report.json").read_text())
    sentence = tab.locator(".sentences-box p").first.text_content()
    assert sentence.replace("\xa0", " ") == report["verdict"]["sentences"][0]
    assert tab.locator("[data-value]").count() > 50
    assert find_mismatches(tab, report) == []
    assert tab.locator("main h1").all_text_contents() == [f"Language modelling on {report['data']}"]


def test_trials_link_to_their_pages_and_failed_ones_show_why(compare: Any):
    tab = compare("?id=runs/done")
    row = tab.locator("[data-trial-row='gru/seed-0']")
    links = row.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    query = "?id=runs%2Fdone%2Ftrials%2Fgru%2Fseed-0"
    assert links == [f"#/run{query}", f"#/use{query}", f"#/inside{query}"]
    failed = tab.locator("[data-trial-row='too-fast/seed-0']")
    assert failed.get_attribute("data-state") == "failed"
    assert failed.locator(".compare-reason").text_content()


@pytest.mark.parametrize("name", ["done", "half", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(compare: Any, name: str, scheme: str):
    tab = compare(f"?id=runs/{name}", 390, scheme)
    tab.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_texts_stay_texts(compare: Any):
    tab = compare("?id=runs/hostile")
    tab.wait_for_selector("#leaderboard")
    assert tab.title() == "Compare – Seqwise studio"
    assert tab.locator(".report script").count() == 0


def test_a_part_has_an_address(compare: Any):
    tab = compare("?id=runs/done&part=fairness")
    assert tab.evaluate("document.activeElement.id") == "fairness"
    tab.click("nav[aria-label='parts of this report'] a:has-text('Learning curves')")
    wait_until(lambda: tab.evaluate("document.activeElement.id") == "curves")
    tab.go_back()
    wait_until(lambda: tab.evaluate("document.activeElement.id") == "fairness")


def test_the_report_is_downloaded_and_never_a_page(compare: Any, folder: Path):
    tab = compare("?id=runs/done")
    for name in ("report.html", "report.json"):
        with tab.expect_download() as waiting:
            tab.click(f"a[href*='{name}']")
        assert waiting.value.suggested_filename == f"done-{name}"
        assert Path(waiting.value.path()).read_bytes() == (folder / "done" / name).read_bytes()
    answer = tab.request.get(tab.url.partition("#")[0] + "api/comparison/file?id=runs/done&name=report.html")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    missing = tab.request.get(tab.url.partition("#")[0] + "api/comparison/file?id=runs/done&name=compare.yaml")
    assert missing.status == 404


def test_a_comparison_that_is_gone_is_explained(chromium: Any, address: str):
    opened = StudioTab(chromium, address)
    tab = opened.open("compare", "?id=runs/other")
    assert "there is no run 'runs/other'" in tab.locator("main .error").text_content()
    assert tab.locator("main h1").count() == 1
    tab.click("main a:has-text('All comparisons')")
    tab.wait_for_selector(".compare-card")
    opened.close()


def test_trials_are_followed_until_the_verdict(compare: Any, folder: Path):
    done, live = folder / "done", cut_comparison(folder / "live", missing=["gru/seed-1"], partly=["rnn/seed-1"])
    with lock_folder(live), lock_folder(live / "trials" / "rnn" / "seed-1"):
        tab = compare("?id=runs/live")
        assert list_sections(tab) == ["ranking", "curves", "trials", "fairness", "settings"]
        assert "provisional" in tab.locator(".winner-box .label").text_content()
        assert tab.locator("[data-trial-row='rnn/seed-1']").get_attribute("data-state") == "running"
        assert tab.locator("[data-trial-row='gru/seed-1']").get_attribute("data-state") == "waiting"
        assert tab.locator(".compare-actions").all_text_contents() == ["Stop"]
        tab.locator("#curves [data-toggle=gru]").click()  # stays hidden when the curves are drawn again
        faint = "svg[data-chart=curves-tokens] .faint[data-family=rnn]"
        before = tab.locator(faint).last.get_attribute("d")
        mean = tab.locator("svg[data-chart=curves-tokens] .line[data-family=rnn]")
        assert mean.get_attribute("d") == tab.locator(faint).first.get_attribute("d")  # of the seed that is trained
        for trial in ("rnn/seed-1", "gru/seed-1"):
            copy_outcome(done, live, Job("train", trial))
        tab.wait_for_selector("[data-trial-row='gru/seed-1'][data-state=finished]")
        wait_until(lambda: tab.locator(faint).last.get_attribute("d") != before)
        assert tab.locator("#curves [data-toggle=gru]").get_attribute("aria-pressed") == "false"
        copy_outcome(done, live, Job("test", "gru/seed-0"))
        tab.wait_for_selector("#leaderboard")
        assert "Provisional: 1 of 7 models" in tab.locator(".compare-head").text_content()
        trials = [trial for trial in Plan.open(live).list_training_trials() if trial.family != "too-fast"]
        for trial in trials:
            copy_outcome(done, live, Job("test", trial.name))
        copy_outcome(done, live, LATENCY_JOB)
        shutil.copy(done / "report.json", live)
    tab.wait_for_selector(".sentences-box")
    assert list_sections(tab) == SECTIONS
    assert "provisional" not in tab.locator(".winner-box .label").text_content().lower()
