"""The page of the lab: verdicts appear only after a guess, everything appears in print, nothing is loaded.

Where no Chromium is installed, the tests that need it are skipped.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from chromium import OpenPage, launch_chromium, open_file
from lab_pages import wait_for, wait_until_drawn
from lab_records import HOSTILE, make_all_records, make_records

from seqwise.lab.page import build, build_lab_page
from seqwise.lab.page.build import NUM_STATEMENTS, begin_sentence, make_title, split_command
from seqwise.page import script
from seqwise.page.script import list_modules

ROOT = Path(__file__).parents[2]
FOLDER = Path(build.__file__).parent
MODULES = sorted(FOLDER.rglob("*.js"))
VERDICT_WORDS = re.compile(r"\b(holds|refuted)\b", re.IGNORECASE)
MAX_BYTES = 8_000_000

Show = Callable[..., OpenPage]


# --- the file


def read_data(page: str) -> Any:
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def test_the_page_has_the_statements_in_the_order_of_the_textbook():
    chapters = read_data(build_lab_page(make_records()))["chapters"]
    assert "".join(chapter["letter"] for chapter in chapters) == "ABCDEFGH"
    assert [record["id"] for chapter in chapters for record in chapter["records"]] == ["B1", "B8", "C2", "C6", "H1"]
    ids = [
        record["id"]
        for chapter in read_data(build_lab_page(make_all_records()))["chapters"]
        for record in chapter["records"]
    ]
    assert len(ids) == NUM_STATEMENTS
    assert ids[-2:] == ["H15", "H16"]


def test_arrays_are_stored_once_in_the_figures():
    record = read_data(build_lab_page(make_records()))["chapters"][1]["records"][0]
    assert record["numbers"] == {"mean_of_the_numbers": pytest.approx(0.5, abs=0.1), "count": 100, "is_even": True}


def test_a_page_of_all_statements_is_below_8_megabytes_and_names_no_external_resource():
    page = build_lab_page(make_all_records())
    assert len(page.encode()) < MAX_BYTES
    assert set(re.findall(r"\bhttps?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"<link|<img|<iframe|\bsrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", page) == []
    assert "default-src 'none'" in page
    assert "{{" not in page.replace("{{TITLE}}", "")  # which hostile texts contain


def test_a_page_without_results_can_be_built():
    assert read_data(build_lab_page([]))["total"] == NUM_STATEMENTS


@pytest.mark.parametrize(
    ("text", "command", "hint"),
    [
        ("seqwise lab run C2 --coupling 0: without it.", "seqwise lab run C2 --coupling 0", "Without it."),
        ("seqwise lab run F6 --d 1024 --samples 9", "seqwise lab run F6 --d 1024 --samples 9", ""),
        ("seqwise lab run F6 --rate 0.5, then more.", "seqwise lab run F6 --rate 0.5", "Then more."),
        ("seqwise lab run F6 --is-deep and compare.", "seqwise lab run F6 --is-deep", "And compare."),
        ("Try seqwise lab run F6 --d 8.", "seqwise lab run F6 --d 8", "Try seqwise lab run F6 --d 8."),
        ("seqwise lab run F6 --shift -2: it falls.", "seqwise lab run F6 --shift -2", "It falls."),
        ("seqwise lab run F6 --rates 0.5 1 1.25: near 1.", "seqwise lab run F6 --rates 0.5 1 1.25", "Near 1."),
        ("seqwise lab run F6 --d 0: f = 0 holds.", "seqwise lab run F6 --d 0", "f = 0 holds."),
        ("Read the file.", "", "Read the file."),
    ],
)
def test_the_command_of_a_sentence_is_found(text: str, command: str, hint: str):
    assert split_command(text, {"is_deep": True, "d": 4, "rates": [1]}) == (command, hint)


@pytest.mark.parametrize(
    "text", ["f = 0 closes it", "tanh' is 1", "exp(x) is 1", "h_t is 0", "x-axis", "a is 0", "", "Var"]
)
def test_a_variable_at_the_start_of_a_sentence_stays_as_it_is(text: str):
    assert begin_sentence(text) == text


@pytest.mark.parametrize("text", ["the gate", "a gate", "tanh saturates", "self-attention", "so, it grows", "so"])
def test_a_word_at_the_start_of_a_sentence_has_a_capital(text: str):
    assert begin_sentence(text) == text[0].upper() + text[1:]


def test_what_is_true_instead_keeps_its_variables():
    record = {**make_records()[0], "verdict": "refuted", "instead": "f = 0 closes it"}
    chapters = read_data(build_lab_page([record]))["chapters"]
    assert [each["instead"] for chapter in chapters for each in chapter["records"]] == ["f = 0 closes it"]


@pytest.mark.parametrize(
    ("ids", "title"),
    [
        ([f"E{number}" for number in range(1, 7)], "GRU: 6 statements"),
        (["E2"], "GRU: 1 of 6 statements"),
        (["E2", "F1"], "The lab: 2 statements about sequence models, put to the test"),
        ([], "The lab: 90 statements about sequence models, put to the test"),
    ],
)
def test_the_title_says_what_the_page_has(ids: Sequence[str], title: str):
    assert make_title(ids) == title


def test_every_file_is_used_installed_and_short():
    used = {path for entry in ("lab.js", "slides.js") for path in list_modules(FOLDER / entry)}
    assert set(MODULES) <= used
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["seqwise"]
    for path in (*FOLDER.glob("*.html"), *FOLDER.glob("*.css"), *MODULES):
        assert any(fnmatch(path.relative_to(ROOT / "src" / "seqwise").as_posix(), pattern) for pattern in patterns)
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_uses_all_that_it_imports_and_sets_text_only_as_text(path: Path):
    text = path.read_text(encoding="utf-8")
    imported = {each.strip() for names, _ in script._IMPORT.findall(text) for each in names.strip("{}").split(",")}
    body = script._IMPORT.sub("", text)
    assert {each for each in imported if not re.search(rf"\b{re.escape(each)}\b", body)} == set()
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc", text) == []


# --- in the browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Show]:
    opened: list[OpenPage] = []

    def show_records(records: Sequence[Mapping[str, Any]], width: int = 1300, scheme: str = "light") -> OpenPage:
        path = tmp_path / "lab.html"
        path.write_text(build_lab_page(records), encoding="utf-8")
        opened.append(open_file(chromium, path, width, scheme))
        wait_until_drawn(opened[-1].tab)
        return opened[-1]

    yield show_records
    for page in opened:
        page.tab.close()
        assert page.errors == []
        assert set(page.requests) == {page.address}


def guess(tab: Any, identifier: str, choice: str) -> None:
    tab.click(f"#{identifier} [data-guess={choice}]")
    wait_until_drawn(tab)


def test_no_verdict_is_in_the_page_before_the_guess(show: Show):
    tab = show(make_records()).tab
    text = tab.evaluate("document.body.innerText + document.querySelector('.columns').innerHTML")
    assert VERDICT_WORDS.findall(text) == []
    assert tab.locator("figure, .verdict, .is-true, .is-false, .is-conditional").count() == 0
    looks = tab.eval_on_selector_all(
        ".index a, nav a", "all => all.map(one => one.className + getComputedStyle(one).color)"
    )
    assert len(set(looks[:5])) == 1  # the index does not show it either
    records = {record["id"]: record for record in make_records()}
    for identifier in ("B1", "C2", "C6"):
        assert records[identifier]["evidence"] not in text


@pytest.mark.parametrize(
    ("identifier", "choice", "is_right", "verdict"),
    [
        ("B1", "true", True, "The statement holds as it stands."),
        ("B1", "depends", False, "The statement holds as it stands."),
        ("B8", "false", True, "The influence falls with the distance, by a factor of about 0.8 per step."),
        ("B8", "true", False, "The influence falls with the distance, by a factor of about 0.8 per step."),
        ("C2", "depends", True, "W is normal, or nearly so."),
        ("C2", "false", False, "W is normal, or nearly so."),
    ],
)
def test_a_guess_reveals_the_verdict_with_its_evidence(
    show: Show, identifier: str, choice: str, is_right: bool, verdict: str
):
    tab = show(make_records()).tab
    record = next(record for record in make_records() if record["id"] == identifier)
    guess(tab, identifier, choice)
    tab.wait_for_selector(f"#{identifier} figure")
    section = tab.locator(f"#{identifier}")
    text = section.inner_text()
    assert ("Right." if is_right else "Wrong.") in text
    assert section.locator(".verdict-text").inner_text() == verdict
    assert section.locator(".verdict-evidence").text_content().replace("\u00a0", " ") == record["evidence"]
    assert record["rule"] in text.replace("\u00a0", " ")
    assert section.locator(".figures figure").count() == len(record["figures"])
    assert section.locator(".question").is_hidden()
    assert tab.locator(".verdict").count() == 1
    assert tab.locator(".score").inner_text() == f"{int(is_right)} of 1 guess right, 4 left"
    assert tab.locator(f".index a[href='#{identifier}']").inner_text() == f"{identifier} {'✓' if is_right else '✗'}"


def test_numbers_parameters_and_the_command_are_shown(show: Show):
    tab = show(make_records()).tab
    guess(tab, "B8", "true")
    rows = tab.locator("#B8 .numbers tr").all_inner_texts()
    assert [row.partition("\t")[0] for row in rows] == ["mean of the numbers", "count", "is even"]
    assert rows[1].endswith("100")
    assert tab.locator("#B8 .command pre").inner_text() == "seqwise lab run B8 --no-is-deep"
    assert "Parameters: seed 0, samples 100, is deep yes." in tab.locator("#B8").inner_text()
    tab.click("#B8 .copy")
    wait_for(tab, "['Copied', 'Selected'].includes(document.querySelector('#B8 .copy').textContent)")


def test_guesses_are_kept_when_the_page_is_loaded_again_and_can_be_forgotten(show: Show):
    tab = show(make_records()).tab
    guess(tab, "C2", "true")
    tab.reload()
    wait_until_drawn(tab)
    assert tab.locator("#C2 .verdict").count() == 1
    assert tab.locator(".score").inner_text().startswith("0 of 1 guess right")
    tab.click("text=Start again")
    assert tab.locator(".verdict").count() == 0
    assert tab.locator(".score").inner_text() == "No guess yet"


def test_guesses_are_kept_without_storage_while_the_tab_is_open(chromium: Any, tmp_path: Path):
    path = tmp_path / "lab.html"
    path.write_text(build_lab_page(make_records()), encoding="utf-8")
    tab = chromium.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })")
    tab.goto(path.as_uri())
    wait_until_drawn(tab)
    guess(tab, "B1", "true")
    assert tab.locator("#B1 .verdict").count() == 1
    tab.click(".index a[href='#C2']")
    wait_for(tab, "history.state !== null")
    tab.reload()
    wait_until_drawn(tab)
    assert tab.locator(".verdict").count() == 1
    assert tab.evaluate("location.hash") == "#C2"
    tab.click("text=Start again")
    tab.reload()
    wait_until_drawn(tab)
    assert tab.locator(".verdict").count() == 0
    assert errors == []
    tab.close()


def test_the_switch_reveals_all_and_the_filter_chooses_among_them(show: Show):
    tab = show(make_records()).tab
    assert tab.locator(".switches .choice").is_hidden()
    tab.check("#reveal")
    assert tab.locator(".verdict").count() == 5
    wait_for(tab, "document.querySelectorAll('figure').length >= 8")  # in the background
    assert tab.locator("#B1 .feedback").inner_text() == "You have not guessed this one."
    tab.click(".switches [data-choice=refuted]")
    assert [one.get_attribute("id") for one in tab.locator(".statement:visible").all()] == ["B8"]
    tab.uncheck("#reveal")
    assert tab.locator(".statement:visible").count() == 5
    assert tab.locator(".verdict").count() == 0
    assert tab.locator("figure").count() == 0


def test_a_page_of_few_statements_says_so(show: Show):
    assert show(make_records()).tab.locator("#count").inner_text() == "This page has 5 of the 90 statements."


@pytest.mark.parametrize("width", [390, 1300])
def test_a_page_of_one_chapter_is_named_after_it_and_has_no_list_of_chapters(show: Show, width: int):
    tab = show([record for record in make_all_records() if record["id"].startswith("E")], width).tab
    assert tab.inner_text("h1") == tab.title() == "GRU: 6 statements"
    assert tab.locator("nav").is_hidden()
    left = [tab.locator(selector).bounding_box()["x"] for selector in ("h1", "#E1")]
    assert abs(left[0] - left[1]) < 2


def test_a_page_of_all_statements_opens_and_draws_what_is_on_the_screen(show: Show):
    tab = show(make_all_records()).tab
    assert tab.locator("#count").count() == 0
    assert not re.search("undefined|null|NaN|^(true|false)$", tab.inner_text("body"), re.MULTILINE)
    assert tab.locator(".statement").count() == NUM_STATEMENTS
    assert tab.locator("nav a").count() == 8
    tab.evaluate("location.hash = '#H16'")
    guess(tab, "H16", "true")
    tab.wait_for_selector("#H16 figure")
    tab.click("nav a >> nth=3")
    wait_for(tab, "document.querySelector('nav a[aria-current]')?.textContent.startsWith('D')")
    assert abs(tab.locator("#chapter-D").bounding_box()["y"]) < 80


def test_an_address_leads_to_a_statement(show: Show):
    page = show(make_all_records())
    page.tab.goto("about:blank")
    page.tab.goto(page.address + "#F12")
    wait_until_drawn(page.tab)
    wait_for(page.tab, "Math.abs(document.getElementById('F12').getBoundingClientRect().y) < 100")
    page.requests[:] = [page.address]


def test_print_shows_all_verdicts_and_figures_and_then_hides_them_again(show: Show):
    tab = show(make_records(), scheme="dark").tab
    guess(tab, "B1", "true")
    tab.emulate_media(media="print")
    wait_until_drawn(tab)
    assert tab.locator(".verdict:visible").count() == 5
    assert tab.locator("figure:visible").count() == 11  # four of them live
    empty = """() => [...document.querySelectorAll("figure .plot")].filter(
      (plot) => !plot.querySelector("path, rect, text, canvas, td, .token")).length"""
    assert tab.evaluate(empty) == 0
    assert tab.locator(".legend:visible").count() > 0
    assert tab.locator("nav:visible, .question:visible, .switches:visible").count() == 0
    tab.emulate_media(media="screen")
    wait_until_drawn(tab)
    assert tab.locator(".verdict").count() == 1


def test_printing_prepares_the_page(show: Show):
    tab = show(make_records()).tab
    assert len(tab.pdf(format="A4")) > 50_000
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator(".verdict").count() == 5
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator(".verdict").count() == 0


def test_the_page_can_be_used_with_the_keyboard(show: Show):
    tab = show(make_records()).tab
    tab.focus("#C2 [data-guess=depends]")
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Verdict on C2"
    tab.focus("#reveal")
    tab.keyboard.press("Space")
    assert tab.locator(".verdict").count() == 5
    tab.wait_for_selector("#C2 .figures [data-chart=lines]")
    tab.focus("#C2 .figures [data-chart=lines]")
    tab.keyboard.press("ArrowRight")
    assert "power n" in tab.locator("#C2 .figures .tip").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1300, "dark")])
def test_nothing_overflows_and_every_control_has_a_name(show: Show, width: int, scheme: str):
    tab = show(make_records(), width, scheme).tab
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.check("#reveal")
    wait_for(tab, "document.querySelectorAll('figure').length >= 8")
    wait_until_drawn(tab)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    nameless = "all => all.filter(one => !(one.textContent.trim() || one.ariaLabel || one.labels?.length)).length"
    assert tab.eval_on_selector_all("button, input, a, [tabindex='0']", nameless) == 0
    ids = tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))
    assert tab.eval_on_selector_all("th:not([scope]), table:not(:has(caption))", "all => all.length") == 0


def test_a_title_of_an_axis_that_a_phone_cuts_is_written_below_the_figure(show: Show):
    record = next(record for record in make_records() if record["id"] == "B8")
    long = "share of the present state that depends on an earlier one (relative to the largest)"
    figures = [{**figure, "y_label": long} for figure in record["figures"]]
    tab = show([{**record, "figures": figures}], 390).tab
    guess(tab, "B8", "false")
    tab.wait_for_selector("#B8 .figures figure")
    wait_for(tab, "document.querySelector('#B8 .figures .axis-title:not([hidden])') !== null")
    assert tab.locator("#B8 .figures .axis-title:visible").all_inner_texts() == [f"y axis: {long}"]
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.set_viewport_size({"width": 1300, "height": 900})
    wait_for(tab, "document.querySelector('#B8 .figures .axis-title:not([hidden])') === null")


def test_the_bar_of_chapters_does_not_cover_a_statement_on_a_phone(show: Show):
    tab = show(make_all_records(), 390).tab
    tab.click("nav a >> nth=5")
    wait_until_drawn(tab)
    bar = tab.locator("nav").bounding_box()
    assert bar["height"] < 60
    assert tab.locator("#chapter-F h2").bounding_box()["y"] >= bar["y"] + bar["height"]
    assert tab.eval_on_selector_all("nav a", "all => all.every(one => one.getBoundingClientRect().right <= innerWidth)")


def test_hostile_text_stays_text(show: Show):
    tab = show(make_records()).tab
    tab.check("#reveal")
    assert tab.locator("#H1 h3 > span").text_content() == HOSTILE + "."
    assert tab.locator("#H1 .verdict-evidence").text_content() == HOSTILE
    assert tab.locator("script").count() == 2
    assert tab.locator("[onclick]").count() == 0
