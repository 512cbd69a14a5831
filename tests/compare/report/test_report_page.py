"""The page of a report: one file without external resources, every chart drawn, every number that of the report.

The page is opened in the Chromium of the system; where there is none, those tests are skipped.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chromium import launch_chromium
from lab_pages import TWO_FRAMES
from report_numbers import BYTES, COUNTS, READ_NUMBERS, TIMES, find_mismatches, parse_number
from sample_report import HOSTILE, SAMPLES, Values, complete, failed, family, parse, report

from seqwise.compare.report.page.page import make_page, make_title
from seqwise.compare.report.schema import SeedValue, to_json
from seqwise.page.palette import DASHES, SHAPES
from seqwise.page.script import COMPONENTS, list_modules

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "src" / "seqwise" / "compare" / "report" / "page"
MODULES = sorted(path.name for path in FOLDER.glob("*.js"))

# --- without a browser


def page(values: Values) -> str:
    return make_page(parse(values))


def parse_embedded_data(text: str) -> Any:
    """Returns the data inside the page, delimited as a browser would."""
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_holds_the_whole_report(name: str):
    values = SAMPLES[name]()
    data = parse_embedded_data(page(values))
    assert data.pop("styles")
    assert data == {"title": make_title(parse(values)), "report": json.loads(to_json(parse(values)))}


def test_a_model_family_has_its_style_and_a_variant_the_next_free_one():
    expected = {"lstm-wide": 2, "lstm": 1, "deep": 4, "gru": 0, "rnn": 3}
    values = report("classify", "accuracy", [family(name, "accuracy", [0.5]) for name in expected])
    data = parse_embedded_data(page(values))
    for each, style in zip(data["report"]["families"], data["styles"], strict=True):
        index = expected[each["name"]]
        assert style == {"colour": f"var(--c{index})", "shape": SHAPES[index], "dash": DASHES[index]}


def test_every_placeholder_is_filled():
    assert "{{" not in page(SAMPLES["normal"]())


def test_the_title_names_the_task_and_the_data():
    assert "<title>Language modelling on builtin:docs</title>" in page(SAMPLES["normal"]())


def test_text_that_looks_like_markup_or_a_placeholder_stays_text():
    text = page(SAMPLES["hostile"]())
    assert text.count("<script") == text.count("</script>") == 2
    assert "<b>" not in text.partition("<body>")[2]


def test_the_page_names_no_external_resource():
    text = page(SAMPLES["normal"]())
    assert set(re.findall(r"\bhttps?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert re.findall(r"<link|<img|<iframe|\bsrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", text) == []
    assert "default-src 'none'" in text


@pytest.mark.parametrize("name", MODULES)
def test_a_script_sets_text_only_as_text(name: str):
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc", text) == []


def test_every_file_of_the_page_is_used_installed_and_short():
    files = [path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js")]
    assert {path.name for path in files} == {*MODULES, "page.html", "style.css"}
    used = list_modules(FOLDER / "assemble.js")
    assert sorted(path.name for path in used if path.parent == FOLDER) == MODULES
    assert {path.parent for path in used} == {FOLDER, COMPONENTS}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["seqwise"]
    for path in files:
        assert any(fnmatch(path.relative_to(ROOT / "src" / "seqwise").as_posix(), pattern) for pattern in patterns)
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_numbers_that_json_cannot_hold_become_null():
    values = SAMPLES["normal"]()
    best = parse(values).families[0]
    best = replace(best, values=(SeedValue(0, math.inf),), metrics={"loss": math.nan})
    best = parse_embedded_data(make_page(replace(parse(values), families=(best,))))["report"]["families"][0]
    assert best["values"][0]["value"] is None
    assert best["metrics"]["loss"] is None


# --- in a browser


class OpenPage(NamedTuple):
    tab: Any
    report: Values
    address: str
    requests: list[str]
    errors: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_chromium() as chromium:
        yield chromium.new_context(viewport={"width": 1280, "height": 900})


def open_page(browser: Any, values: Values, folder: Path) -> OpenPage:
    file = folder / "report.html"
    file.write_text(page(values), encoding="utf-8")
    tab = browser.new_page()
    requests: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())
    return OpenPage(tab, values, file.as_uri(), requests, errors)


@pytest.fixture(scope="module", params=list(SAMPLES))
def sample(
    request: pytest.FixtureRequest, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenPage]:
    """Each sample, opened once in a wide window in light mode; a test that changes this restores it."""
    browser_page = open_page(browser, SAMPLES[request.param](), tmp_path_factory.mktemp("page"))
    yield browser_page
    browser_page.tab.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    tabs: list[Any] = []

    def open_in_tab(values: Values) -> OpenPage:
        browser_page = open_page(browser, values, tmp_path)
        tabs.append(browser_page.tab)
        return browser_page

    yield open_in_tab
    for tab in tabs:
        tab.close()


# What is wrong with the visible charts of the page: a list of sentences.
CHARTS = """() => [...document.querySelectorAll("svg.chart")].flatMap((svg) => {
  if (!svg.getClientRects().length) return [];
  const name = svg.dataset.chart + " " + (svg.dataset.family ?? ""), box = svg.getBoundingClientRect(), wrong = [];
  const marks = [...svg.querySelectorAll(".mark")];
  if (!marks.length) wrong.push(name + ": no marks");
  if (box.width < 100 || box.height < 15) wrong.push(name + ": no room");
  if (svg.getAttribute("role") !== "img" || !svg.getAttribute("aria-label")) wrong.push(name + ": no label");
  for (const mark of marks) {
    const own = mark.getBoundingClientRect();
    if (![own.left, own.right, own.top, own.bottom].every(Number.isFinite)) wrong.push(name + ": not a number");
    if (own.width + own.height === 0 && !mark.matches(".line, .faint, .frontier")) wrong.push(name + ": an empty mark");
    if (own.left < box.left - 3 || own.right > box.right + 3 || own.top < box.top - 3 || own.bottom > box.bottom + 3)
      wrong.push(name + ": a mark outside");
  }
  for (const element of svg.querySelectorAll("*"))
    for (const { value } of element.attributes)
      if (/NaN|undefined|Infinity/.test(value) && !value.includes("<")) wrong.push(name + ": " + value);
  return wrong;
})"""


def count_charts(browser_page: OpenPage) -> Counter[str]:
    return Counter(browser_page.tab.eval_on_selector_all("svg.chart", "all => all.map(svg => svg.dataset.chart)"))


def select_finished(values: Values) -> list[dict[str, Any]]:
    return [each for each in values["families"] if each["mean"] is not None]


def test_the_page_has_no_errors_and_requests_nothing_but_the_file(sample: OpenPage):
    assert sample.errors == []
    assert sample.requests == [sample.address]


def test_every_chart_is_drawn_inside_its_box(sample: OpenPage):
    assert sample.tab.evaluate(CHARTS) == []
    expected: Counter[str] = Counter({"axis": 1, "interval": len(select_finished(sample.report))})
    if select_finished(sample.report):
        expected += Counter({"curves-tokens": 1, "curves-seconds": 1, "tradeoff": 1})
        expected += Counter({"rates": any(len(each["lr_trials"]) > 1 for each in sample.report["families"])})
        expected += Counter({"forecast": sum(bool(example["actual"]) for example in sample.report["examples"])})
    else:
        del expected["axis"]
    assert count_charts(sample) == +expected


def test_every_family_has_its_line_and_its_point(sample: OpenPage):
    families = select_finished(sample.report)
    get_families = "all => [...new Set(all.map(mark => mark.dataset.family))].filter(Boolean)"
    for chart in ("curves-tokens", "curves-seconds"):
        lines = sample.tab.eval_on_selector_all(f"svg[data-chart={chart}] .mark", get_families)
        assert set(lines) == {each["name"] for each in families if any(curve["points"] for curve in each["curves"])}
    points = sample.tab.eval_on_selector_all("svg[data-chart=tradeoff] .mark", get_families)
    assert set(points) == {each["name"] for each in families if each["latency"] is not None}


def cells(values: Values) -> Counter[tuple[str, str, float]]:
    """Counts (family, key, value) of every number in a table that belongs to a family."""
    numbers: list[tuple[str, str, float | None]] = []
    for each in values["families"]:
        name, training = each["name"], each["training"] or {}
        costs = {
            "cost.tokens_per_second": None if each["is_baseline"] else training.get("tokens_per_second"),
            "cost.memory": each["memory"],
            "cost.weights": each["weights"],
            "cost.latency": each["latency"],
            "cost.evaluation_seconds": each["evaluation_seconds"],
        }
        rates = {f"lr-{number}": trial["validation"] for number, trial in enumerate(each["lr_trials"], start=1)}
        board = {"tokens_per_second": costs["cost.tokens_per_second"]}
        board |= {key: training.get(key) for key in ("seconds", "tokens")}
        board |= {key: each[key] for key in ("mean", "parameters", "memory", "latency", "learning_rate")}
        metrics = {f"metrics.{key}": value for key, value in each["metrics"].items()}
        ranked = {**board, **metrics} if each["mean"] is not None else {}
        numbers += [(name, key, value) for key, value in {**ranked, **costs, **rates}.items()]
    for pair in values["pairs"]:
        numbers += [(pair["a"], "difference", pair["difference"]), (pair["b"], "difference", -pair["difference"])]
        keys = ("difference", "low", "high", "p", "adjusted_p")
        numbers += [(pair["a"], f"pair.{key}", pair[key]) for key in keys]
    for example in values["examples"]:
        numbers += [(name, "example", answer["value"]) for name, answer in example["answers"].items()]
    return Counter((name, key, float(value)) for name, key, value in numbers if value is not None)


def test_every_number_of_the_tables_is_that_of_the_report(sample: OpenPage):
    read = sample.tab.eval_on_selector_all("[data-family][data-value]", READ_NUMBERS)
    assert Counter((name, key, float(value)) for name, key, value, _ in read) == cells(sample.report)


def test_accessible_numbers_are_those_of_the_report(sample: OpenPage):
    assert find_mismatches(sample.tab, sample.report) == []
    bare = "all => all.filter(one => /NaN|undefined|null|Infinity|object/.test(one.innerText)).length"
    assert sample.tab.eval_on_selector_all(".value", bare) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("family.text[key] + suffix", "family.text[key].replace(/\\d+/, (digits) => 2 * digits) + suffix"),
        ("family.text[key] + suffix", "family.text[key].replace('ms', 'µs') + suffix"),
        ('make("b", {}, family.text.mean)', 'make("b", {}, report.families[0].text.mean)'),
        ("pair.text[key], tag);", "negate(pair.text[key]), tag);"),
        ("family.text.latency_range);", "family.text.latency_range.replace(/\\d/, (digit) => 9 - digit));"),
    ],
)
def test_a_wrong_number_on_the_page_is_detected(browser: Any, tmp_path: Path, right: str, wrong: str):
    values = SAMPLES["normal"]()
    text = page(values)
    assert text.count(right) == 1
    (tmp_path / "wrong.html").write_text(text.replace(right, wrong), encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "wrong.html").as_uri())
    assert find_mismatches(tab, values) != []
    tab.close()


@pytest.mark.parametrize(
    ("text", "units", "value", "half"),
    [
        ("412,001", COUNTS, 412_001, 0.5), ("84.2 %", COUNTS, 0.842, 0.0005), ("−0.21", COUNTS, -0.21, 0.005),
        ("1 h 3 min", TIMES, 3780, 30), ("2 min 5 s", TIMES, 125, 0.5), ("820 µs", TIMES, 820e-6, 0.5e-6),
        ("1.75 T", COUNTS, 1.75e12, 0.005e12), ("3.1 × 10⁻⁹", COUNTS, 3.1e-9, 0.05e-9), ("512 B", BYTES, 512, 0.5),
    ],
)  # fmt: skip
def test_formatted_numbers_parse_back(text: str, units: dict[str, float], value: float, half: float):
    assert parse_number(text, units) == (pytest.approx(value), pytest.approx(half))


def test_every_trial_is_listed(sample: OpenPage):
    read = sample.tab.eval_on_selector_all("[data-trial][data-value]", READ_NUMBERS)
    keys = ("rate", "updates", "tokens", "seconds", "validation")
    expected = [(each["name"], key, each[key]) for each in sample.report["trials"] for key in keys]
    assert [(name, key, float(value)) for name, key, value, _ in read] == [
        each for each in expected if each[2] is not None
    ]


@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_page_does_not_scroll_sideways(sample: OpenPage, width: int):
    sample.tab.set_viewport_size({"width": width, "height": 800})
    sample.tab.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    sample.tab.evaluate(TWO_FRAMES)  # in which the charts are drawn again
    try:
        assert sample.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert sample.tab.evaluate(CHARTS) == []
        assert sample.errors == []
    finally:
        sample.tab.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.parametrize("width", [390, 1280])
def test_every_section_of_the_bar_is_visible(sample: OpenPage, width: int):
    sample.tab.set_viewport_size({"width": width, "height": 844})
    try:
        ends = sample.tab.eval_on_selector_all("nav a", "all => all.map(one => one.getBoundingClientRect().right)")
        assert len(ends) == 8
        assert max(ends) <= width
    finally:
        sample.tab.set_viewport_size({"width": 1280, "height": 900})


def test_the_learning_rate_search_is_drawn_with_a_ring_around_the_chosen_rate(show: Any):
    values = SAMPLES["normal"]()
    tab = show(values).tab
    marks = tab.eval_on_selector_all(
        "svg[data-chart=rates] .mark:not(.line)", "all => all.map(one => one.dataset.family)"
    )
    searched = [each["name"] for each in values["families"] if each["lr_trials"]]
    assert Counter(marks) == Counter(dict.fromkeys(searched, 3))
    assert tab.locator("svg[data-chart=rates] .chosen").count() == len(searched)
    tab.click("#fairness [data-toggle=gru]")
    assert tab.locator("svg[data-chart=rates] [data-family=gru]").count() == 0


def test_forecasts_are_drawn_as_curves_with_the_actual_values(show: Any):
    values = SAMPLES["one_seed"]()
    tab = show(values).tab
    (example,) = [each for each in values["examples"] if each["actual"]]
    lines = tab.eval_on_selector_all("svg[data-chart=forecast] .line", "all => all.map(one => one.dataset.family)")
    assert lines == list(example["answers"])
    path = tab.get_attribute("svg[data-chart=forecast] .actual", "d")
    # A missing value is left out.
    assert path.count("L") + 1 == sum(value is not None for value in example["history"] + example["actual"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_light_and_dark_mode(sample: OpenPage, scheme: str):
    sample.tab.emulate_media(color_scheme=scheme)
    colours = sample.tab.evaluate(
        """(which) => [...document.querySelectorAll(which)].map((element) => {
            const style = getComputedStyle(element), svg = element instanceof SVGElement;
            let behind = element, back = "rgba(0, 0, 0, 0)";
            while (behind && /rgba\\(.*, 0\\)|transparent|color\\(/.test(back)) {
              back = getComputedStyle(behind).backgroundColor; behind = behind.parentElement;
            }
            return [element.className.baseVal ?? element.className, svg ? style.fill : style.color, back];
          })""",
        "body, .note, .label, .lead, thead th, .pill, .field b, .judged, text.end, summary",
    )
    sample.tab.emulate_media(color_scheme="light")
    backs = {back for _, _, back in colours}
    assert all((luminance(back) < 0.2) == (scheme == "dark") for back in backs)
    assert {which: (ink, back) for which, ink, back in colours if contrast(ink, back) < 4.4} == {}


def luminance(colour: str) -> float:
    """Relative luminance, as the accessibility guidelines of the W3C define it."""
    parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, background: str) -> float:
    light, dark = sorted((luminance(ink), luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_tables_and_controls_have_accessible_names(sample: OpenPage):
    assert sample.tab.eval_on_selector_all("th:not([scope])", "all => all.length") == 0
    assert sample.tab.eval_on_selector_all("table:not(:has(caption))", "all => all.length") == 0
    nameless = "all => all.filter(one => !(one.textContent.trim() || one.getAttribute('aria-label'))).length"
    assert sample.tab.eval_on_selector_all("button, a, summary", nameless) == 0
    ids = sample.tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_hostile_text_stays_text(show: Any):
    tab = show(SAMPLES["hostile"]()).tab
    assert tab.title() == f"Classification on {HOSTILE}"
    assert tab.eval_on_selector_all("script", "all => all.length") == 2
    for place in (
        "h1",
        ".winner bdi",
        ".sentences-box p",
        "#command",
        ".quoted .passage",
        "td.text .passage",
        "td[data-failed]",
    ):
        assert HOSTILE in tab.text_content(place), place
    assert tab.text_content("td[data-key=reason]") == f"Failed. {HOSTILE}"


def test_the_verdict_comes_first(show: Any):
    values = SAMPLES["normal"]()
    tab = show(values).tab
    assert tab.text_content(".winner") == "gru"
    sentences = tab.eval_on_selector_all(".sentences-box p", "all => all.map(one => one.textContent)")
    assert [each.replace("\u00a0", " ") for each in sentences] == values["verdict"]["sentences"]
    assert tab.evaluate("document.querySelector('.sentences-box').getBoundingClientRect().bottom < innerHeight")
    sizes = tab.evaluate(
        "['.winner', 'h1'].map(one => parseFloat(getComputedStyle(document.querySelector(one)).fontSize))"
    )
    assert sizes[0] > 2 * sizes[1]


def test_numbers_are_formatted_for_reading(show: Any):
    family_values = family(
        "gru",
        "accuracy",
        [0.9111, 0.9213, 0.9312],
        parameters=412_001,
        memory=512_400_000,
        latency=0.0021,
        learning_rate=0.006,
        training={"tokens": 812_345, "seconds": 150.0, "tokens_per_second": 54_012.3, "updates": 790},
    )
    tab = show(report("classify", "accuracy", [family_values, family("rnn", "accuracy", [0.5, 0.51, 0.52])])).tab
    texts = {
        key: tab.text_content(f"#leaderboard td[data-family=gru][data-key={key}]")
        for key in (
            "mean",
            "parameters",
            "tokens_per_second",
            "seconds",
            "tokens",
            "memory",
            "latency",
            "learning_rate",
        )
    }
    # The half interval is 2.5 points, so that one decimal is shown and no more.
    assert texts == {
        "mean": "92.1 %89.6 to 94.6 %",
        "parameters": "412,001",
        "tokens_per_second": "54,012/s",
        "seconds": "2 min 30 s",
        "tokens": "812,345",
        "memory": "512 MB",
        "latency": "2.1 ms1.9 to 2.7 ms",
        "learning_rate": "0.006",
    }


def test_tied_families_are_named(show: Any):
    values = SAMPLES["normal"]()
    tab = show(values).tab
    row_texts = tab.eval_on_selector_all(
        "#leaderboard tbody tr", "all => Object.fromEntries(all.map(row => [row.dataset.row, row.textContent]))"
    )
    for each in values["families"]:
        assert ("tied with the best" in row_texts[each["name"]]) == (each["rank"] == "tied")
    words = tab.eval_on_selector_all("#pairs td.outcome", "all => all.map(one => one.textContent)")
    templates = {
        "significant": "{} is better",
        "probable": "{} is probably better",
        "inconclusive": "may be chance",
    }
    decided = {True: "the adjustment decides", False: ""}
    # The first of a pair is always the better one here.
    assert words == [
        templates[each["outcome"]].format(each["a"]) + decided[each["p"] < 0.05 <= each["adjusted_p"]]
        for each in values["pairs"]
    ]
    assert {word.partition(" is ")[2] for word in words} == {"better", "probably betterthe adjustment decides", ""}


def test_probably_worse_families_are_named(show: Any):
    values = SAMPLES["with_failures"]()
    assert values["verdict"]["unsure"] == ["feedforward"]
    tab = show(values).tab
    assert tab.eval_on_selector_all(".pill.unsure", "all => all.map(one => one.closest('tr').dataset.row)") == [
        "feedforward"
    ]
    assert tab.text_content("tr[data-row=feedforward] .pill.unsure") == "behind, but not certainly"
    assert tab.eval_on_selector_all(".equals", "all => all.map(one => one.textContent)") == [
        "tied: lstm",
        "behind, but not certainly: feedforward",
    ]
    fields = tab.eval_on_selector_all(
        "#pairs td.unsure", "all => all.map(one => [one.dataset.family, one.querySelector('small').textContent])"
    )
    assert fields == [["gru", "probably better"], ["lstm", "probably better"], *[["feedforward", "probably worse"]] * 2]
    tab.click("#pairs td[data-family=feedforward][data-other=gru] button")
    details = tab.text_content(".pair-details")
    assert details.startswith("feedforward is probably worse than gru: difference −4.2 (95 % interval ")
    assert details.endswith("p 0.021, but 0.064 adjusted for 3 pairs.")
    lead, note = tab.text_content("#pairs .lead"), tab.locator("#pairs .note").last.text_content()
    assert lead == "No pair certainly differs; 2 of 3 pairs probably differ."
    assert "probably differ, but not certainly" in note
    clear = show(report("classify", "accuracy", [family(name, "accuracy", [0.1 * len(name)]) for name in ("a", "bbb")]))
    assert "not certain" not in clear.tab.text_content("#pairs")


def test_a_family_trained_once_is_only_probably_worse_and_its_whiskers_are_explained(show: Any):
    values = report(
        "classify",
        "accuracy",
        [
            family("gru", "accuracy", [0.84, 0.85, 0.86]),
            family("rnn", "accuracy", [0.5], status="partly", reason="seeds 1 and 2: killed."),
            family("lstm", "accuracy", [0.55, 0.56, 0.57]),
        ],
    )
    for each in values["pairs"]:
        if "rnn" in (each["a"], each["b"]):
            each |= {"covers": "examples", "significant": False}
    values = complete(values)
    assert values["verdict"]["unsure"] == ["rnn"]
    tab = show(values).tab
    sources = tab.eval_on_selector_all("#pairs [data-covers]", "all => all.map(one => one.textContent)")
    assert sources == ["seeds, examples", "examples alone", "examples alone"]
    outcomes = tab.eval_on_selector_all("#pairs td.outcome", "all => all.map(one => one.textContent)")
    assert outcomes == ["gru is better", "gru is probably better", "lstm is probably better"]
    tab.click("#pairs td[data-family=gru][data-other=rnn] button")
    assert tab.text_content(".pair-details").endswith(", by the test examples alone.")
    note = "rnn was tested with a single training run: its whiskers, dashed, are over the test examples"
    assert note in tab.text_content("#leaderboard .note")
    assert note not in show(SAMPLES["normal"]()).tab.text_content("#leaderboard .note")


def test_equal_seeds_and_equal_families_are_described_in_words(show: Any):
    families = [family("gru", "accuracy", [1.0, 1.0, 1.0]), family("lstm", "accuracy", [1.0, 1.0, 1.0])]
    families += [
        family("rnn", "accuracy", [0.9975, 0.9987, 0.9999]),
        family("transformer", "accuracy", [0.7, 0.8, 0.6]),
    ]
    tab = show(report("classify", "accuracy", families)).tab
    means = tab.eval_on_selector_all("#leaderboard td[data-key=mean]", "all => all.map(one => one.textContent)")
    assert means[:3] == ["100.0 %the same for all seeds", "100.0 %the same for all seeds", "99.87 %99.57 to 100.17 %"]
    label = tab.get_attribute("svg[data-chart=interval][data-family=gru]", "aria-label")
    assert label == "gru: 100.0 %, the same for all seeds"
    assert tab.text_content("#pairs td[data-family=lstm][data-other=gru]") == "0equal"
    assert "equal to the best" in tab.text_content("tr[data-row=lstm]")
    places = tab.eval_on_selector_all("#leaderboard tr[data-row] .place", "all => all.map(one => one.textContent)")
    assert places == ["1", "1", "3", "4"]


def read_axis_labels(tab: Any, chart: str) -> list[str]:
    return tab.eval_on_selector_all(f"svg[data-chart={chart}] text", "all => all.map(one => one.textContent)")


def test_a_task_that_all_families_solve(show: Any):
    points = [{"tokens": at, "seconds": at / 9, "value": 1.0, "loss": 0.1} for at in (100, 200, 400)]
    families = [
        family(
            name, "accuracy", [1.0] * 3, curves=[{"seed": 0, "points": points}], latency=latency,
            latencies=[0.0014, latency, 0.0057], sampling={"low": 1.0, "high": 1.0},
            lr_trials=[{"rate": rate, "validation": 1.0, "status": "done", "reason": ""} for rate in (0.01, 0.004)],
        )
        for name, latency in (("gru", 0.0043), ("lstm", 0.0042))
    ]  # fmt: skip
    tab = show(report("classify", "accuracy", families, num_disagreements=0)).tab
    assert tab.text_content(".winner-box .label") == "Solved by all"
    assert tab.text_content(".winner-box .winner") == "gru, lstm"
    assert "tied:" not in tab.text_content(".winner-box")
    for chart in ("axis", "curves-tokens", "tradeoff", "rates"):
        labels = [float(text[:-2]) for text in read_axis_labels(tab, chart) if text.endswith(" %")]
        assert max(labels) == 100, chart
    assert tab.text_content("#examples .lead") == "Nowhere: all families are right on every test example."
    tradeoff = tab.text_content("#tradeoff")
    assert "Cheapest first by the median: lstm, gru. The ranges of lstm and gru overlap" in tradeoff
    assert tab.locator("svg[data-chart=tradeoff] .mark[style*='var(--card)']").count() == 0  # no family is beaten


@pytest.mark.parametrize(("value", "expected"), [(1.0, 100), (0.97, 100), (0.5, 54)])
def test_no_axis_of_a_ratio_exceeds_its_bounds(show: Any, value: float, expected: int):
    families = [family(name, "accuracy", [value] * 3, curves=[]) for name in ("gru", "lstm")]
    for each in families:
        each["sampling"] = None
    labels = read_axis_labels(show(report("classify", "accuracy", families)).tab, "tradeoff")
    assert max(float(text[:-2]) for text in labels if text.endswith(" %")) == expected


def test_families_that_are_equal_but_solve_nothing(show: Any):
    families = [family(name, "accuracy", [0.9, 0.9, 0.9]) for name in ("gru", "lstm")]
    families.append(family("rnn", "accuracy", [0.3, 0.3, 0.3]))
    tab = show(report("classify", "accuracy", families, num_disagreements=9)).tab
    assert tab.text_content(".winner-box .label") == "Exactly equal"
    assert "None selected" in tab.text_content("#examples")


def test_a_busy_machine_is_mentioned_with_the_costs(show: Any):
    values = SAMPLES["normal"]()
    warning = "The machine was busy: waiting for processor cores took 40 % of the training time."
    assert "busy" not in show(values).tab.text_content("#costs")
    tab = show(values | {"waiting": {"training": 0.4, "latency": 0.0, "text": warning}}).tab
    assert warning in tab.text_content("#costs").replace("\u00a0", " ")


def test_a_winner_within_the_noise_is_not_called_the_best(show: Any):
    assert show(SAMPLES["normal"]()).tab.text_content(".winner-box .label") == "Ahead by little"
    clear = [family("gru", "accuracy", [0.9, 0.9, 0.9]), family("rnn", "accuracy", [0.5, 0.5, 0.5])]
    assert show(report("classify", "accuracy", clear)).tab.text_content(".winner-box .label") == "Best"
    probable = [family("gru", "accuracy", [0.85, 0.85, 0.85]), family("rnn", "accuracy", [0.808, 0.808, 0.808])]
    assert report("classify", "accuracy", probable)["verdict"]["unsure"] == ["rnn"]
    assert (
        show(report("classify", "accuracy", probable)).tab.text_content(".winner-box .label")
        == "Ahead, but not certainly"
    )


def test_one_seed_is_noted_and_its_whiskers_are_over_the_examples(show: Any):
    count_dashed = "all => all.filter(one => one.getAttribute('stroke-dasharray')).length"
    tab = show(SAMPLES["one_seed"]()).tab
    assert "One seed: the noise of training was not measured" in tab.text_content("#leaderboard .note")
    assert tab.eval_on_selector_all("svg[data-chart=interval] .whisker", count_dashed) == 3
    several = show(SAMPLES["with_failures"]()).tab
    assert "over the seeds" in several.text_content("#leaderboard .note")
    assert several.eval_on_selector_all("svg[data-chart=interval] .whisker", count_dashed) == 0


def test_a_failed_family_is_last_with_its_reason(show: Any):
    values = SAMPLES["with_failures"]()
    tab = show(values).tab
    last = tab.locator("#leaderboard .cards tbody tr[data-row]").last
    assert last.get_attribute("data-row") == "transformer"
    assert "the loss became infinite at update 212" in last.text_content()
    assert "seed 2: the process was killed." in tab.text_content("tr[data-row=gru]")
    failures = [each["name"] for each in values["trials"] if each["status"] == "failed"]
    assert tab.eval_on_selector_all("td[data-failed]", "all => all.map(one => one.dataset.failed)") == failures


def test_a_family_with_an_infinite_value_is_not_called_unfinished(show: Any):
    reason = "its accuracy on the test split is not a finite number."
    infinite = {**failed("rnn", reason), "status": "done"}
    values = report("classify", "accuracy", [family("gru", "accuracy", [0.8, 0.81]), infinite])
    assert show(values).tab.text_content("tr[data-row=rnn] .reason") == f"Not ranked. {reason}"
    assert f"rnn cannot be ranked ({reason[:-1]})." in values["verdict"]["sentences"]


def test_sizes_are_in_bytes_where_a_family_has_no_parameters(show: Any):
    families = [family("gru", "accuracy", [0.84, 0.86, 0.85]), family("ngram", "accuracy", [0.849], baseline=True)]
    families[1] |= {"parameters": None, "weights": 1_000_000}
    values = report("classify", "accuracy", families)
    assert values["verdict"]["smallest"] == "ngram"
    prizes = show(values).tab.eval_on_selector_all(".prizes dd", "all => all.map(one => one.textContent)")
    assert prizes[-1] == "ngram 1.0 MB of weights"


def test_the_range_of_latencies_is_drawn_beside_their_median(show: Any):
    values = SAMPLES["normal"]()
    values["families"][0] |= {"latencies": [0.001, 0.002, 0.004], "latency": 0.002}
    values = complete(values)
    tab = show(values).tab
    name = values["families"][0]["name"]
    longest = max(max(each["latencies"]) for each in values["families"])
    row = tab.locator("#costs figure", has_text="One prediction").locator("tr", has_text=name)
    bar, line = (
        row.locator(which).evaluate("one => one.getBoundingClientRect().toJSON()") for which in (".bar", ".range")
    )
    full_width = row.locator(".bar-box").evaluate("one => one.getBoundingClientRect().width")
    assert bar["width"] == pytest.approx(full_width * 0.002 / longest, abs=1.5)
    assert (line["left"] - bar["left"], line["width"]) == pytest.approx((bar["width"] / 2, 1.5 * bar["width"]), abs=1.5)
    assert tab.locator("#costs .range").count() == len(values["families"])  # of this measure alone
    lines = "all => all.map(one => one.getBoundingClientRect()).filter(({ width }) => width > 9).length"
    assert tab.eval_on_selector_all("svg[data-chart=tradeoff] .whisker", lines) >= len(values["families"])
    tab.click("[data-choice=memory]")
    assert tab.eval_on_selector_all("svg[data-chart=tradeoff] .whisker", lines) == 0


def test_a_note_says_that_answers_are_of_the_first_seed(show: Any):
    words = "An answer is that of the first seed; the value beside it is the mean over all seeds."
    assert words in show(SAMPLES["with_failures"]()).tab.text_content("#examples .lead")
    assert words not in show(SAMPLES["one_seed"]()).tab.text_content("#examples .lead")


def test_the_page_says_when_the_test_split_was_read(show: Any):
    values = SAMPLES["normal"]()
    values["rules"]["tested"] = "Some trials were repeated after others had been tested."
    lead = show(values).tab.text_content("#leaderboard .lead")
    assert lead == "Measured on the test split. Some trials were repeated after others had been tested."


def test_right_and_wrong_answers_are_marked(show: Any):
    tab = show(SAMPLES["with_failures"]()).tab
    first = tab.locator(".example").first
    assert first.locator("tr.wrong").all_text_contents() == ["feedforwardnegative✗ wrong"]
    assert first.locator("tr.right").count() == 2


def test_answers_without_right_or_wrong_show_their_metric(show: Any):
    tab = show(SAMPLES["normal"]()).tab
    assert tab.locator(".example").first.locator("tr:has(.top) th").text_content() == "gru"  # 2.1 is the lowest
    assert tab.locator("tr.wrong, tr.right").count() == 0


def test_a_report_without_examples_says_so(show: Any):
    values = SAMPLES["normal"]()
    tab = show({**values, "examples": []}).tab
    assert "None selected" in tab.text_content("#examples")


def test_right_to_left_text_has_its_direction(show: Any):
    tab = show(SAMPLES["twelve_families"]()).tab
    directions = "all => all.map(one => getComputedStyle(one).direction)"
    assert set(tab.locator(".example").first.locator("td.text .passage").evaluate_all(directions)) == {"rtl"}
    assert tab.locator(".example").first.locator(".quoted .passage").evaluate_all(directions) == ["ltr", "rtl"]


def test_the_legend_hides_a_family_in_every_chart(show: Any):
    tab = show(SAMPLES["normal"]()).tab
    marks = "#curves .plot [data-family=lstm], #tradeoff .plot [data-family=lstm]"
    assert tab.locator(marks).count() > 3
    tab.click("[data-toggle=lstm]")
    assert tab.locator(marks).count() == 0
    assert tab.get_attribute("[data-toggle=lstm]", "aria-pressed") == "false"
    tab.click("[data-toggle=lstm]")
    assert tab.locator(marks).count() > 3


def test_switches_redraw_the_charts(show: Any):
    browser_page = show(SAMPLES["normal"]())
    line = "svg[data-chart=curves-tokens] .line"
    log = browser_page.tab.get_attribute(line, "d")
    browser_page.tab.click("[aria-label=perplexity] [data-choice=linear]")
    assert browser_page.tab.get_attribute(line, "d") != log
    faint = browser_page.tab.locator("svg[data-chart=curves-tokens] .faint")
    assert faint.count() == 15  # five families, three seeds
    browser_page.tab.click("[data-choice=hidden]")
    assert faint.count() == 0
    for price in ("seconds", "parameters", "memory", "weights", "latency"):
        browser_page.tab.click(f"[data-choice={price}]")
        assert browser_page.tab.evaluate(CHARTS) == [], price
    assert browser_page.errors == []


def test_the_frontier_holds_the_families_that_no_other_dominates(show: Any):
    costs = {"gru": (3.0, 0.004), "lstm": (3.1, 0.002), "rnn": (3.5, 0.003), "transformer": (4.0, 0.001)}
    families = [family(name, "perplexity", [value], latency=latency) for name, (value, latency) in costs.items()]
    tab = show(report("language", "perplexity", families)).tab
    assert "Cheapest first: transformer, lstm, gru." in tab.text_content("#tradeoff")  # lstm beats rnn in both


def test_pointing_at_a_curve_shows_the_values_there(show: Any):
    flat = [{"tokens": tokens, "seconds": tokens / 100, "value": 2.0, "loss": 0.7} for tokens in (100, 500, 1000)]
    falling = [
        {"tokens": tokens, "seconds": tokens / 100, "value": 9 - tokens / 200, "loss": 1.0} for tokens in (100, 1000)
    ]
    families = [
        family("gru", "perplexity", [2.0], curves=[{"seed": 0, "points": flat}]),
        family("rnn", "perplexity", [4.0], curves=[{"seed": 0, "points": falling}]),
    ]
    tab = show(report("language", "perplexity", families)).tab
    chart = tab.locator("svg[data-chart=curves-tokens]")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 60, box["y"] + 100)  # beyond the end, where the names are
    tip = tab.locator("#curves .tip").first
    assert tip.locator("div").all_text_contents() == ["gru2.00", "rnn4.00"]
    tab.mouse.move(5, 5)
    assert not tip.is_visible()
    chart.focus()
    for _ in range(26):
        tab.keyboard.press("ArrowLeft")
    number = float(re.search(r"rnn([\d.]+)", tip.text_content())[1])
    assert 5.5 < number < 7.5  # the middle of a line from 8.5 to 4


def test_a_cell_of_the_matrix_shows_its_interval(show: Any):
    tab = show(SAMPLES["normal"]()).tab
    tab.click("#pairs td[data-family=gru][data-other=ngram] button")
    assert tab.text_content(".pair-details") == (
        "gru is better than ngram: difference −1.78 (95 % interval −1.94 to −1.62), p < 0.001 adjusted for 15 pairs."
    )


def test_the_command_can_be_copied(show: Any):
    browser_page = show(SAMPLES["normal"]())
    browser_page.tab.click(".copy")
    text = browser_page.tab.locator(".copy", has_text=re.compile("Copied|Selected")).text_content()  # for a moment
    selection = browser_page.tab.evaluate("String(getSelection())")
    assert text == "Copied" or selection == browser_page.report["command"]


def test_settings_that_differ_are_listed_together(show: Any):
    values = SAMPLES["normal"]()
    tab = show(values).tab
    keys = tab.eval_on_selector_all("[data-setting]", "all => [...new Set(all.map(one => one.dataset.setting))]")
    assert set(keys) == {"model", "network.width", "training.rate"}  # not the depth, which is the same for all
    assert tab.text_content("[data-family=gru][data-setting='network.width']") == str(
        next(each for each in values["families"] if each["name"] == "gru")["settings"]["network"]["width"]
    )


def test_printing_unfolds_all_sections(show: Any):
    tab = show(SAMPLES["normal"]()).tab
    closed = tab.locator("details:not([open])")
    before = closed.count()
    assert before > 0
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert closed.count() == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert closed.count() == before


def test_missing_values_and_failed_families_are_drawn(show: Any):
    bare = {**failed("gru", ""), "values": [], "lr_trials": []}
    browser_page = show(report("tag", "accuracy", [family("rnn", "accuracy", [0.5]), bare]))
    assert browser_page.errors == []
    assert "No training run finished." in browser_page.tab.text_content("#leaderboard")


def test_curves_of_different_length_are_averaged(show: Any):
    """On a busy machine one training run may end before another is first validated."""
    curves = [
        {"seed": 0, "points": [{"tokens": 100, "seconds": 1.0, "value": 9.0, "loss": 2.0}]},
        {"seed": 1, "points": [{"tokens": n, "seconds": n / 100, "value": 6.0, "loss": 1.8} for n in (500, 1000)]},
    ]
    families = [family("gru", "perplexity", [9.0, 6.0], curves=curves), family("rnn", "perplexity", [4.0, 4.1])]
    tab = show(report("language", "perplexity", families)).tab
    for chart in ("curves-tokens", "curves-seconds"):
        assert tab.locator(f"svg[data-chart={chart}] path.mark.line[data-family=gru]").count() == 1


def test_baselines_are_below_the_families(show: Any):
    values = SAMPLES["with_failures"]()
    tab = show(values).tab
    (row,) = tab.locator("#leaderboard tr.baseline").all()
    assert row.locator("th").text_content() == "most frequent labelbaseline, not ranked"
    assert row.locator("td").all_text_contents() == ["–", "55.2 %", "It always answers 'positive'."]
    assert row.locator("[data-value]").get_attribute("data-value") == "0.5523"
    assert tab.locator("#leaderboard tbody tr").last.get_attribute("class") is None  # of the table of every metric
    assert tab.locator("#leaderboard .cards tbody tr").last.get_attribute("class") == "baseline"


@pytest.mark.parametrize("old", [{}, {"baselines": []}])
def test_a_report_without_baselines_has_no_such_row(show: Any, old: dict[str, Any]):
    values = {key: value for key, value in SAMPLES["with_failures"]().items() if key != "baselines"}
    browser_page = show({**values, **old})
    assert browser_page.errors == []
    assert browser_page.tab.locator(".baseline").count() == 0
    assert browser_page.tab.locator("#leaderboard .cards tbody tr").count() == len(values["families"])


@pytest.mark.parametrize(
    ("name", "metric", "count"),
    [
        ("normal", "perplexity", 1),
        ("one_seed", "mse", 1),
        ("with_failures", "accuracy", 0),
        ("twelve_families", "BLEU", 0),
    ],
)
def test_only_errors_and_perplexities_have_a_logarithmic_axis(show: Any, name: str, metric: str, count: int):
    assert show(SAMPLES[name]()).tab.locator(f"#curves [aria-label={metric}] [data-choice=log]").count() == count


def test_ratios_are_drawn_on_a_linear_axis(show: Any):
    families = [family("gru", "accuracy", [0.9]), family("rnn", "accuracy", [0.1]), family("lstm", "accuracy", [0.5])]
    tab = show(report("classify", "accuracy", families)).tab
    positions = {
        name: tab.locator(f"svg[data-chart=interval][data-family={name}] circle").get_attribute("cx")
        for name in ("gru", "rnn", "lstm")
    }
    assert float(positions["lstm"]) == pytest.approx((float(positions["gru"]) + float(positions["rnn"])) / 2, abs=0.1)


def test_line_breaks_are_marked(show: Any):
    tab = show(SAMPLES["normal"]()).tab
    passage = tab.locator(".example .quoted .passage").nth(1)
    assert passage.evaluate("one => one.textContent") == "2.3.4. Formatted string literals↵\n↵\n    f_string: ..."
    assert passage.evaluate("one => getComputedStyle(one).whiteSpace") in ("pre-wrap", "break-spaces")
    assert show(SAMPLES["with_failures"]()).tab.locator(".example .break").count() == 0
