"""Pages in Chromium: every mark shows its number, clicks pin across figures, panels open, nothing overflows.

Where no Chromium is installed, these tests are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import OpenPage, launch_chromium, open_file
from page_figures import (
    HOSTILE,
    HOSTILE_SHOWN,
    TOKENS,
    attention_grid,
    attention_head,
    attribution,
    beam,
    confusion,
    contributions,
    gate,
    gradients,
    head_roles,
    health,
    horizon,
    masked_scores,
    page_figures,
    regions,
    states,
    time_constants,
)

from seqwise.page.figures import (
    BarChart,
    Figure,
    Findings,
    Heatmap,
    HeatmapGrid,
    LineChart,
    Reference,
    ScatterPlot,
    Series,
    Table,
    TokenText,
    Tree,
    TreeNode,
)
from seqwise.page.html import build_fragment, build_page

SUMMARY = ("Units forget over 8.3 tokens.", "Head 1 attends to the previous token.")
READY = "html[data-ready=true]"
NUM_TOKENS = len(TOKENS)
FIND_INVALID = """() => [...document.querySelectorAll("svg *, [style]")].flatMap((element) => [...element.attributes])
  .filter(({ value }) => /NaN|undefined|Infinity/.test(value)).map(({ value }) => value)"""

Show = Callable[..., OpenPage]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Show]:
    opened: list[OpenPage] = []

    def show_figures(*figures: Figure, width: int = 1300, scheme: str = "light") -> OpenPage:
        path = tmp_path / "page.html"
        path.write_text(build_page("Inside of runs/lstm", SUMMARY, figures), encoding="utf-8")
        opened.append(open_file(chromium, path, width, scheme))
        wait_until_drawn(opened[-1].tab)
        return opened[-1]

    yield show_figures
    for page in opened:
        page.tab.close()
        assert page.errors == []


@pytest.fixture(scope="module", params=[(390, "light"), (1300, "dark")], ids=["390-light", "1300-dark"])
def samples(request: pytest.FixtureRequest, chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> OpenPage:
    """A page with figures of every kind."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(build_page("Inside of runs/lstm", SUMMARY, page_figures()), encoding="utf-8")
    page = open_file(chromium, path, *request.param)
    wait_until_drawn(page.tab)
    return page


def wait_until_drawn(tab: Any) -> None:
    """Waits until all figures are there, and for two frames, in which they get their width."""
    tab.wait_for_selector(READY, state="attached")
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def locate_cell(tab: Any, selector: str, row: int, column: int, shape: tuple[int, int]) -> tuple[float, float]:
    """Returns the position on the screen of a cell of a matrix that fills an element."""
    element = tab.locator(selector).first
    element.scroll_into_view_if_needed()
    tab.evaluate("(selector) => document.querySelector(selector).scrollIntoView({ block: 'center' })", selector)
    box = element.bounding_box()
    return box["x"] + (column + 0.5) / shape[1] * box["width"], box["y"] + (row + 0.5) / shape[0] * box["height"]


def read_tip(tab: Any) -> str:
    return tab.locator(".tip:not([hidden])").inner_text().replace("\n", " ")


def read_number(text: str) -> float:
    """Returns the first number of a text as the page writes it, such as −1,234.5 or 3.2 × 10⁻⁷."""
    match = re.search(r"(−?[\d,]+(?:\.\d+)?)(?: × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    assert match is not None, text
    power = (match[2] or "0").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return float(match[1].replace("−", "-").replace(",", "")) * 10.0 ** int(power)


def read_value(tab: Any) -> float:
    return read_number(tab.locator(".tip:not([hidden]) .tip-value").inner_text())


def read_pixels(tab: Any, positions: list[tuple[int, int]]) -> list[list[int]]:
    """Returns red, green and blue at positions of the first heatmap."""
    read = """(positions) => {
      const canvas = document.querySelector("canvas.cells"), copy = document.createElement("canvas");
      Object.assign(copy, { width: canvas.width, height: canvas.height });
      const pen = copy.getContext("2d", { willReadFrequently: true });
      pen.drawImage(canvas, 0, 0);
      return positions.map(([x, y]) => [...pen.getImageData(x, y, 1, 1).data].slice(0, 3));
    }"""
    return tab.evaluate(read, positions)


# --- the whole page


def test_a_page_has_no_errors_and_requests_nothing_but_the_file(samples: OpenPage):
    assert samples.errors == []
    assert samples.requests == [samples.address]
    assert samples.tab.locator("figure").count() == len(page_figures())


def test_a_page_does_not_scroll_sideways(samples: OpenPage):
    assert samples.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = """() => [...document.querySelectorAll("figure")].filter((figure) => {
      const end = figure.getBoundingClientRect().right + 1;
      const parts = [...figure.querySelectorAll("canvas, svg, p, button, .plot")];
      return parts.some((one) => !one.closest(".scroller") && one.getBoundingClientRect().right > end);
    }).map((figure) => figure.innerText)"""
    assert samples.tab.evaluate(wide) == []


def test_no_drawing_contains_an_invalid_number(samples: OpenPage):
    assert samples.tab.evaluate(FIND_INVALID) == []


def test_every_figure_and_control_has_an_accessible_name(samples: OpenPage):
    nameless = "all => all.filter(one => !(one.textContent.trim() || one.getAttribute('aria-label'))).length"
    assert samples.tab.eval_on_selector_all("button", nameless) == 0
    assert (
        samples.tab.eval_on_selector_all(
            "[tabindex='0']:not(button)", "all => all.filter(one => !one.ariaLabel).length"
        )
        == 0
    )
    assert (
        samples.tab.eval_on_selector_all(
            "figure", "all => all.filter(one => !one.querySelector('figcaption').textContent).length"
        )
        == 0
    )
    ids = samples.tab.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))
    assert samples.tab.eval_on_selector_all("th:not([scope]), table:not(:has(caption))", "all => all.length") == 0


def test_every_chart_can_be_reached_and_read_with_the_keyboard(samples: OpenPage):
    tab = samples.tab
    for index in range(tab.locator("[data-chart][tabindex='0']").count()):
        plot = tab.locator("[data-chart][tabindex='0']").nth(index)
        if plot.get_attribute("data-chart") == "table":
            continue
        plot.focus()
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowDown")
        assert re.search(r"\d|no value", plot.locator(".tip").inner_text()), plot.get_attribute("aria-label")
        tab.keyboard.press("Escape")
        assert plot.locator(".tip").is_hidden()


def compute_contrast(ink: str, background: str) -> float:
    """Returns the contrast ratio that the accessibility guidelines of the W3C define."""

    def compute_luminance(colour: str) -> float:
        parts = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((compute_luminance(ink), compute_luminance(background)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_has_enough_contrast(samples: OpenPage):
    colours = samples.tab.evaluate(
        """(which) => [...document.querySelectorAll(which)].map((element) => {
            let behind = element, back = "rgba(0, 0, 0, 0)";
            while (behind && /rgba\\(.*, 0\\)|transparent/.test(back)) {
              back = getComputedStyle(behind).backgroundColor; behind = behind.parentElement;
            }
            return [element.className, getComputedStyle(element).color, back];
          })""",
        "body, .note, .label, .hint, thead th, .severity, .token, figcaption",
    )
    assert {name: (ink, back) for name, ink, back in colours if compute_contrast(ink, back) < 4.4} == {}


def test_dark_pages_are_printed_on_white(show: Show):
    tab = show(attention_head(), scheme="dark").tab
    assert max(read_pixels(tab, [(300, 3)])[0]) < 80
    tab.emulate_media(media="print")
    wait_until_drawn(tab)
    assert min(read_pixels(tab, [(300, 3)])[0]) > 200
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_text_stays_text(show: Show):
    tokens = [HOSTILE, *TOKENS[1:]]
    figures: list[Figure] = [
        attention_head(title=HOSTILE, rows=tokens, columns=tokens, note=HOSTILE),
        replace(attribution(), tokens=tokens, details=[HOSTILE] * NUM_TOKENS),
        Table(title=HOSTILE, columns=(HOSTILE, "b"), rows=[(HOSTILE, 1.0)]),
    ]
    tab = show(*figures).tab
    assert tab.locator("script").count() == 2
    assert tab.locator("figcaption").first.text_content() == HOSTILE_SHOWN
    assert tab.locator("[onclick]").count() == 0
    tab.locator("[data-index='0']").first.hover()
    assert HOSTILE_SHOWN in tab.locator(".tip:not([hidden])").text_content()


def make_heatmap(values: np.ndarray, **fields: Any) -> Heatmap:
    rows, columns = ([f"{letter}{at}" for at in range(size)] for letter, size in zip("rc", values.shape))
    labels = {"row_label": "row", "column_label": "column", "value_label": "value"}
    return Heatmap(title="matrix", values=values, rows=rows, columns=columns, **(labels | fields))


def make_lines(*lines: tuple[list[float], list[float]], **fields: Any) -> LineChart:
    series = [Series(name=f"run {at}", x=np.array(x), y=np.array(y)) for at, (x, y) in enumerate(lines)]
    return LineChart(title="lines", series=series, x_label="x", y_label="y", **fields)


EMPTY: list[Figure] = [
    make_heatmap(np.zeros((0, 4))),
    HeatmapGrid(title="grid", panels=(), num_columns=3),
    make_lines(([], [])),
    ScatterPlot(title="points", x=np.zeros(0), y=np.zeros(0), names=(), x_label="x", y_label="y"),
    BarChart(title="bars", names=(), values=np.zeros(0), value_label="value"),
    TokenText(title="text", tokens=(), values=np.zeros(0), value_label="value"),
    Table(title="table", columns=("a", "b"), rows=()),
    Tree(title="tree", nodes=(), value_label="value"),
    Findings(title="findings", findings=()),
]
DEGENERATE: list[Figure] = [
    make_heatmap(np.zeros((1, 1))),
    make_heatmap(np.full((2, 3), np.nan)),
    make_heatmap(np.full((3, 3), 5.0), scale="diverging"),
    make_heatmap(np.linspace(0, 1, 300)[None, :]),
    make_heatmap(np.linspace(-1e9, 1e-9, 900).reshape(300, 3)),
    HeatmapGrid(title="grid", panels=[make_heatmap(np.eye(3))], num_columns=5),
    make_lines(([3.0], [2.0]), x_log=True, y_log=True),
    make_lines(([0.0, 1.0, 2.0], [0.0, 1.0, 10.0]), ([0.0, 1.0, 2.0], [np.nan] * 3), x_log=True, y_log=True),
    make_lines(([3.0, 1.0, 2.0], [0.0, 1.0, 10.0])),
    ScatterPlot(title="points", x=np.ones(2), y=np.array([np.nan, 1]), names=("a", "b"), x_label="x", y_label="y"),
    BarChart(title="bars", names=("a", "b"), values=np.array([np.nan, 0.0]), value_label="value"),
    BarChart(title="bars", names=[f"bar {at}" for at in range(90)], values=np.arange(90.0) - 40, value_label="value"),
    TokenText(title="text", tokens=("a", " ", "\n"), values=np.full(3, np.nan), value_label="value"),
    TokenText(title="text", tokens=("שלום", "עולם"), values=np.zeros(2), value_label="value", scale="sequential"),
    Table(title="table", columns=("a", "b"), rows=[(None, "x" * 300), ("", None)]),
    Tree(title="tree", nodes=[TreeNode(parent=at - 1, label=f"t{at}", value=-at) for at in range(40)], value_label="v"),
]


def test_a_figure_without_content_says_so(show: Show):
    tab = show(*EMPTY).tab
    assert tab.locator("figure >> text=There is nothing to show.").count() == len(EMPTY)


def test_degenerate_figures_are_drawn_and_explored_without_errors(show: Show):
    tab = show(*DEGENERATE, width=390).tab
    assert tab.locator("figure").count() == len(DEGENERATE)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for plot in tab.locator("[data-chart][tabindex='0']").all():
        plot.focus()
        for key in ("ArrowRight", "ArrowDown", "Enter", "+", "ArrowLeft", "-", "0", "Enter", "Escape"):
            tab.keyboard.press(key)
    assert tab.evaluate(FIND_INVALID) == []


# --- the number behind every mark


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (9, 7), (18, 18)])
def test_a_cell_of_a_heatmap_shows_its_value_and_names(show: Show, width: int, row: int, column: int):
    figure = attention_head()
    tab = show(figure, width=width).tab
    tab.mouse.move(*locate_cell(tab, "canvas.cells", row, column, (NUM_TOKENS, NUM_TOKENS)))
    assert read_value(tab) == pytest.approx(figure.values[row, column], rel=6e-3)
    assert f"{TOKENS[row]} [{row}]" in read_tip(tab)
    assert f"{TOKENS[column]} [{column}]" in read_tip(tab)
    box = tab.locator(".tip:not([hidden])").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_a_cell_without_a_value_says_so_and_whole_numbers_stay_whole(show: Show):
    tab = show(masked_scores(), confusion()).tab
    tab.mouse.move(*locate_cell(tab, "figure:nth-of-type(1) canvas", 0, 3, (6, 6)))
    assert "no value" in read_tip(tab)
    tab.mouse.move(*locate_cell(tab, "figure:nth-of-type(2) canvas", 1, 2, (3, 3)))
    assert tab.locator(".tip:not([hidden]) .tip-value").inner_text() == "9"


def test_the_colour_of_a_cell_follows_its_value(show: Show):
    values = np.linspace(0, 1, 25).reshape(5, 5)
    names = list("abcde")
    figure = Heatmap(
        title="ramp", values=values, rows=names, columns=names, row_label="row", column_label="column", value_label="v"
    )
    tab = show(figure).tab
    size = tab.locator("canvas.cells").bounding_box()["width"] / 5
    centres = [(int((column + 0.5) * size), int((row + 0.5) * size)) for row in range(5) for column in range(5)]
    brightness = [sum(pixel) for pixel in read_pixels(tab, centres)]
    assert brightness == sorted(brightness, reverse=True)
    assert len(set(brightness)) == 25


def test_a_line_chart_shows_all_values_at_a_position(show: Show):
    figure = gradients()
    tab = show(figure).tab
    tab.focus("[data-chart=lines]")
    for _ in range(7):
        tab.keyboard.press("ArrowRight")
    rows = tab.locator(".tip:not([hidden]) > div").all_inner_texts()
    assert "river [7]" in read_tip(tab)
    for row, series in zip(rows, figure.series, strict=True):
        assert row.startswith(series.name)
        assert read_number(row) == pytest.approx(series.y[7], rel=6e-3)
        assert read_number(row.partition("(")[2]) == pytest.approx(series.low[7], rel=6e-3)


def test_pointing_at_a_line_chart_finds_the_nearest_point(show: Show):
    figure = horizon()
    tab = show(figure).tab
    mark = tab.locator("path.mark[data-series=lstm]").nth(4).bounding_box()
    tab.mouse.move(mark["x"] + mark["width"] / 2 + 3, mark["y"] + 40)
    rows = tab.locator(".tip:not([hidden]) > div").all_inner_texts()
    assert [read_number(row) for row in rows] == pytest.approx([series.y[4] for series in figure.series], rel=6e-3)


def test_values_between_points_are_marked_as_interpolated(show: Show):
    lines = [
        Series(name="a", x=np.array([0.0, 2.0]), y=np.array([1.0, 3.0])),
        Series(name="b", x=np.array([0.0, 1.0, 2.0]), y=np.array([1.0, np.nan, 5.0])),
    ]
    tab = show(LineChart(title="t", series=lines, x_label="x", y_label="y")).tab
    tab.focus("[data-chart=lines]")
    tab.keyboard.press("ArrowRight")
    assert tab.locator(".tip:not([hidden]) > div").all_inner_texts() == ["a\n≈ 2.00"]


def test_a_line_is_interrupted_where_there_is_no_value(show: Show):
    ys = np.array([1.0, 2.0, np.nan, 3.0, 4.0])
    tab = show(LineChart(title="t", series=[Series(name="a", x=np.arange(5.0), y=ys)], x_label="x", y_label="y")).tab
    assert tab.get_attribute("path.line", "d").count("M") == 2


def test_a_long_line_keeps_its_peak(show: Show):
    ys = np.zeros(50_000)
    ys[31_234] = 7.0
    tab = show(
        LineChart(title="t", series=[Series(name="a", x=np.arange(50_000.0), y=ys)], x_label="x", y_label="y")
    ).tab
    path = tab.get_attribute("path.line", "d")
    heights = [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]
    assert len(heights) < 5000
    assert min(heights) < max(heights) - 150


def test_a_point_of_a_scatter_plot_shows_its_coordinates(show: Show):
    figure = states()
    page = show(figure)
    page.tab.focus("[data-chart=scatter]")
    assert page.tab.locator(".tip:not([hidden]) .tip-title").inner_text().startswith(TOKENS[0])
    rows = page.tab.locator(".tip:not([hidden]) > div").all_inner_texts()
    assert [read_number(row.partition("\n")[2]) for row in rows[:2]] == pytest.approx(
        [figure.x[0], figure.y[0]], abs=6e-3
    )
    assert rows[2] == f"group\n{figure.groups[0]}"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_bar_shows_its_value(show: Show, index: int):
    figure = contributions()
    tab = show(figure).tab
    tab.locator("rect.mark").nth(index).hover(force=True)
    assert read_value(tab) == pytest.approx(figure.values[index], rel=6e-3)
    assert figure.names[index] in read_tip(tab)


def test_a_token_shows_its_value_and_details(show: Show):
    figure = attribution()
    tab = show(figure).tab
    tab.locator(".token").nth(7).hover()
    assert read_value(tab) == pytest.approx(1.32)
    assert "river [7]" in read_tip(tab)
    assert "over 57 steps" in read_tip(tab)
    is_negative = tab.eval_on_selector_all(".token", "all => all.map(one => one.matches('.negative'))")
    assert is_negative == [bool(value < 0) for value in figure.values]


def test_tokens_are_joined_as_a_text(show: Show):
    words = replace(attribution(), tokens=("good", "##ness", "me"), values=np.ones(3), details=(), selected=())
    pieces = replace(words, tokens=("Hel", "lo wor", "ld\n"))
    tab = show(words, pieces).tab
    texts = tab.locator(".token-text p").all_inner_texts()
    assert [text.strip() for text in texts] == ["good##ness me", "Hello world⏎"]


def test_a_node_of_a_tree_shows_its_value_and_reason(show: Show):
    figure = beam()
    tab = show(figure).tab
    tab.locator("g.node[data-index='3']").hover()
    assert read_value(tab) == pytest.approx(-3.1)
    assert "pruned" in read_tip(tab)
    assert "not among the best 2" in read_tip(tab)
    assert tab.locator("g.node").count() == len(figure.nodes)
    tab.click("[data-choice=hidden]")
    assert tab.locator("g.node").count() == sum(node.state != "pruned" for node in figure.nodes)


def test_a_region_of_an_image_shows_its_weight(show: Show):
    figure = regions()
    tab = show(figure).tab
    tab.mouse.move(*locate_cell(tab, ".image-panel[data-index='6'] canvas", 3, 6, (6, 8)))
    assert read_value(tab) == pytest.approx(figure.weights[6, 3, 6], rel=6e-3)
    assert "blue" in read_tip(tab)
    assert "row 4, column 7" in read_tip(tab)
    largest = [read_number(text.removeprefix("0 to ")) for text in tab.locator(".panel-range").all_inner_texts()]
    assert largest == pytest.approx(figure.weights.max(axis=(1, 2)), rel=6e-3)


def test_findings_have_severity_evidence_and_command(show: Show):
    figure = health()
    tab = show(figure).tab
    texts = tab.locator("li.finding").all_inner_texts()
    for text, finding in zip(texts, figure.findings, strict=True):
        assert finding.severity.capitalize() in text
        assert finding.text in text.replace("\u00a0", " ")
        assert finding.evidence in text.replace("\u00a0", " ")
    assert tab.locator("li.finding pre").all_inner_texts() == [figure.findings[0].command]


def test_a_table_is_sorted_by_its_columns(show: Show):
    figure = head_roles()
    tab = show(figure).tab
    entropies = [row[2] for row in figure.rows]

    def read_column() -> list[float]:
        return tab.eval_on_selector_all("tbody tr", "all => all.map(row => Number(row.children[2].dataset.value))")

    assert read_column() == pytest.approx(entropies)
    for order in (sorted(entropies, reverse=True), sorted(entropies), entropies):
        tab.click("th:nth-child(3) button")
        assert read_column() == pytest.approx(order)
    tab.click("th:nth-child(5) button")  # empty cells are last
    assert tab.locator("tbody tr td:last-child").all_inner_texts() == ["12,346"] * 9 + [""] * 3
    assert tab.get_attribute("th:nth-child(5)", "aria-sort") == "descending"


# --- pins, panels and zooming


def test_a_pinned_token_is_highlighted_in_every_figure_until_escape(show: Show):
    tab = show(attribution(), gate(), gradients(), attention_head()).tab
    tab.locator(".token").nth(8).click()  # the second "bank"
    assert tab.locator(".pinned-item").all_inner_texts() == ["bank [8]"]
    assert tab.eval_on_selector_all(
        ".token", "all => all.flatMap((one, at) => one.matches('.is-pinned') ? [at] : [])"
    ) == [8]
    assert tab.locator("figure:nth-of-type(2) .pinned text.strong").all_text_contents() == ["bank"]
    assert tab.locator("figure:nth-of-type(2) .pinned .frame-line").count() == 1
    assert tab.locator("figure:nth-of-type(3) .pinned-rule").count() == 1
    assert tab.locator("figure:nth-of-type(4) .pinned .frame-line").count() == 2  # as a query and as a key
    column = tab.locator("figure:nth-of-type(2) .pinned .frame-line").bounding_box()
    canvas = tab.locator("figure:nth-of-type(2) canvas").bounding_box()
    middle = (column["x"] + column["width"] / 2 - canvas["x"]) / canvas["width"] * NUM_TOKENS
    assert middle == pytest.approx(8.5, abs=0.2)
    tab.keyboard.press("Escape")
    assert tab.locator(".is-pinned, .pinned .frame-line, .pinned-rule").count() == 0
    assert tab.locator(".pin-bar").is_hidden()


def test_a_unit_is_the_same_under_its_number_and_its_name(show: Show):
    heatmap, bars = gate(), time_constants()
    tab = show(heatmap, bars).tab
    tab.mouse.click(*locate_cell(tab, "canvas.cells", 4, 2, (40, NUM_TOKENS)))
    unit = f"unit {heatmap.rows[4]}"
    assert tab.locator(".pinned-item").all_inner_texts() == [unit, "raised [2]"]
    assert tab.locator("figure:nth-of-type(2) text.strong").first.text_content() == unit
    tab.locator("figure:nth-of-type(2) rect.mark").nth(6).click(force=True)
    assert tab.locator(".pinned-item").all_inner_texts() == [bars.names[6]]
    tab.locator("figure:nth-of-type(2) rect.mark").nth(7).click(force=True, modifiers=["Shift"])
    assert tab.locator(".pinned-item").all_inner_texts() == [bars.names[6], bars.names[7]]
    assert tab.locator("figure:nth-of-type(1) .pinned .frame-line").count() == 2
    tab.locator(".pinned-item").first.click()
    assert tab.locator(".pinned-item").all_inner_texts() == [bars.names[7]]


def test_a_pinned_query_is_not_highlighted_as_a_key(show: Show):
    tab = show(attention_head(), attention_head(head=1)).tab
    tab.mouse.click(*locate_cell(tab, "canvas.cells", 9, 7, (NUM_TOKENS, NUM_TOKENS)))
    assert tab.locator("figure:nth-of-type(2) .pinned text.strong").all_text_contents() == ["had", "river"]
    assert tab.locator("figure:nth-of-type(2) .pinned .frame-line").count() == 2


def test_a_pinned_mark_keeps_its_number(show: Show):
    figure = attention_head()
    tab = show(figure).tab
    tab.mouse.click(*locate_cell(tab, "canvas.cells", 9, 7, (NUM_TOKENS, NUM_TOKENS)))
    tab.mouse.move(2, 2)
    assert read_value(tab) == pytest.approx(figure.values[9, 7], rel=6e-3)
    tab.keyboard.press("Escape")
    assert tab.locator(".tip:not([hidden])").count() == 0


def test_enter_pins_and_the_arrow_keys_move(show: Show):
    figure = attention_head()
    tab = show(figure).tab
    tab.focus("[data-chart=heatmap]")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    assert read_value(tab) == pytest.approx(figure.values[2, 1], rel=6e-3)
    tab.keyboard.press("Enter")
    assert tab.locator(".pinned-item").all_inner_texts() == ["raised [2]", "bank [1]"]


def test_a_panel_opens_in_full(show: Show):
    figure = attention_grid()
    tab = show(figure).tab
    assert tab.locator(".opened").is_hidden()
    tab.locator("button.panel").nth(6).click()
    assert tab.locator(".opened h3").inner_text() == figure.panels[6].title
    assert tab.locator("button.panel").nth(6).get_attribute("aria-expanded") == "true"
    wait_until_drawn(tab)
    tab.mouse.move(*locate_cell(tab, ".opened canvas.cells", 9, 7, (NUM_TOKENS, NUM_TOKENS)))
    assert read_number(tab.locator(".opened .tip-value").inner_text()) == pytest.approx(
        figure.panels[6].values[9, 7], rel=6e-3
    )
    tab.click("[aria-label='Next panel']")
    assert tab.locator(".opened h3").inner_text() == figure.panels[7].title
    tab.click("text=Close")
    assert tab.locator(".opened").is_hidden()


def test_panels_show_numbers_and_are_reached_with_arrow_keys(show: Show):
    figure = attention_grid()
    tab = show(figure).tab
    tab.mouse.move(*locate_cell(tab, "button.panel:nth-of-type(6) canvas", 4, 3, (NUM_TOKENS, NUM_TOKENS)))
    assert read_value(tab) == pytest.approx(figure.panels[5].values[4, 3], rel=6e-3)
    assert figure.panels[5].title in read_tip(tab)
    tab.locator("button.panel").first.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator(".opened h3").inner_text() == figure.panels[5].title
    assert tab.locator("button.panel[tabindex='0']").count() == 1


def test_names_beside_lines_are_whole_and_labels_of_references_do_not_overlap(show: Show):
    x, names = np.arange(5.0), ["ptb-gru", "ptb-transformer"]
    chart = LineChart(
        title="lines",
        series=[Series(name=name, x=x, y=x * (at + 1)) for at, name in enumerate(names)],
        x_label="x",
        y_label="y",
        references=[Reference(axis="x", value=at, label=f"= part {at}") for at in (3.0, 3.2)],
    )
    wordy = replace(
        chart, series=[replace(one, name=f"{one.name} with a name that is too long") for one in chart.series]
    )
    tab = show(chart, wordy).tab  # side by side
    assert sorted(tab.locator("text.end").all_text_contents()) == names
    box, end = (
        tab.locator(name).first.bounding_box() for name in (".plot svg", "text.end[data-series=ptb-transformer]")
    )
    assert end["x"] + end["width"] <= box["x"] + box["width"]
    first, second = (tab.locator(".reference-label").nth(at).bounding_box() for at in range(2))
    assert second["y"] >= first["y"] + first["height"] - 8  # with their outlines


def test_a_table_with_long_text_has_the_whole_width(show: Show):
    short = Table(title="short", columns=("name", "value"), rows=[("a", 1.0)])
    long = replace(short, rows=[("a sentence that takes several lines in a narrow table", 1.0)])
    tab = show(long, short, short).tab
    assert tab.eval_on_selector_all("figure", "all => all.map(one => one.className)") == ["wide", "half", "half"]


@pytest.mark.parametrize(("width", "captions"), [(1300, ["head 1", "head 2"]), (390, ["1", "2"])])
def test_captions_of_panels_distinguish_the_heads(show: Show, width: int, captions: list[str]):
    grid = attention_grid(2, 8)
    grid = replace(grid, panels=[replace(panel, title=f"encoder, {panel.title.lower()}") for panel in grid.panels])
    tab = show(grid, width=width).tab
    assert tab.locator(".panel-row").all_inner_texts() == ["encoder, layer 1", "encoder, layer 2"]
    assert tab.locator(".panel-title").all_inner_texts()[8:10] == captions
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).length"
    assert tab.eval_on_selector_all(".panel-title", cut) == 0


def test_a_panel_with_a_link_leads_to_that_figure(show: Show):
    grid = replace(attention_grid(1, 2), links=("", "second"))
    tab = show(grid, attribution(), attention_head(head=1, identifier="second")).tab
    tab.locator("button.panel").nth(1).click()
    assert tab.locator(".opened").is_hidden()
    assert tab.evaluate("document.activeElement.querySelector('figcaption').textContent") == "Layer 1, head 2"
    tab.locator("button.panel").nth(0).click()
    assert tab.locator(".opened h3").inner_text() == "Layer 1, head 1"


def test_dragging_enlarges_cells_and_whole_restores_them(show: Show):
    figure = attention_head(300)
    tab = show(figure).tab
    start, end = (locate_cell(tab, "canvas.cells", at, at, (300, 300)) for at in (100, 119))
    tab.mouse.move(*start)
    tab.mouse.down()
    tab.mouse.move(*end, steps=3)
    tab.mouse.up()
    tab.mouse.move(*locate_cell(tab, "canvas.cells", 0, 0, (20, 20)))
    assert f"{figure.rows[100]} [100]" in read_tip(tab)
    assert read_value(tab) == pytest.approx(figure.values[100, 100], rel=6e-3)
    assert tab.locator(".pinned-item").count() == 0
    tab.click("[aria-label='Show the whole matrix']")
    tab.mouse.move(*locate_cell(tab, "canvas.cells", 200, 40, (300, 300)))
    assert "[200]" in read_tip(tab)


def test_a_legend_hides_a_line(show: Show):
    tab = show(gradients()).tab
    tab.click("[data-toggle=gru]")
    assert tab.eval_on_selector_all("path.line", "all => all.map(one => one.dataset.series)") == ["rnn", "lstm"]
    tab.focus("[data-chart=lines]")
    tab.keyboard.press("ArrowRight")
    assert len(tab.locator(".tip:not([hidden]) > div").all_inner_texts()) == 2
    tab.click("[data-toggle=gru]")
    assert tab.locator("path.line").count() == 3


def test_a_logarithmic_axis_can_be_switched_off(show: Show):
    tab = show(gradients()).tab
    before = tab.get_attribute("path.line", "d")
    tab.click("[data-choice=linear]")
    assert tab.get_attribute("path.line", "d") != before


# --- size


@pytest.mark.slow
def test_2000_by_2000_cells_and_144_panels_are_drawn(show: Show):
    large, grid = attention_head(2000), attention_grid(12, 12, 100)
    page = show(large, grid)
    assert Path(page.address.removeprefix("file://")).stat().st_size < 4_000_000
    tab = page.tab
    assert tab.locator("button.panel").count() == 144
    tab.mouse.move(*locate_cell(tab, "canvas.cells", 1000, 999, (2000, 2000)))
    row, column = (int(index) for index in re.findall(r"\[(\d+)\]", read_tip(tab)))
    assert (row, column) == (pytest.approx(1000, abs=3), pytest.approx(999, abs=3))
    assert read_value(tab) == pytest.approx(large.values[row, column], rel=6e-3)


def test_coarser_cells_say_what_they_stand_for(chromium: Any, tmp_path: Path):
    figure = attention_head(200, head=3)
    path = tmp_path / "page.html"
    path.write_text(build_page("title", (), [figure], max_bytes=5_000), encoding="utf-8")
    page = open_file(chromium, path)
    wait_until_drawn(page.tab)
    note = re.search(r"each cell is the mean of (\d+) × (\d+) values", page.tab.locator("figure .note").inner_text())
    assert note is not None
    rows, columns = int(note[1]), int(note[2])
    assert rows * columns > 2
    page.tab.mouse.move(*locate_cell(page.tab, "canvas.cells", 10, 3, (200 // rows, 200 // columns)))
    block = figure.values[10 * rows : 11 * rows, 3 * columns : 4 * columns]
    tip = read_tip(page.tab)
    step = read_number(tip.partition("±")[2])
    assert read_value(page.tab) == pytest.approx(block.mean(), abs=2 * step)
    assert f"[{10 * rows}–{11 * rows - 1}]" in tip
    assert page.errors == []
    page.tab.close()


# --- notebooks


def test_fragments_in_one_notebook_do_not_clash(chromium: Any, tmp_path: Path):
    fragments = [build_fragment(name, SUMMARY, [gate(name, 10)]) for name in ("input", "forget")]
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><meta charset='utf-8'><p>A cell</p>{''.join(fragments)}", encoding="utf-8")
    page = open_file(chromium, path, 800)
    frames = page.tab.frames[1:]
    for frame, name in zip(frames, ("input", "forget"), strict=True):
        wait_until_drawn(frame)
        assert frame.locator("h1").inner_text() == name
        height, needed = frame.evaluate("[window.innerHeight, document.body.scrollHeight]")
        assert height >= needed - 1
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    frames[0].locator("[data-chart=heatmap]").focus()
    page.tab.keyboard.press("Enter")
    assert frames[0].locator(".pinned-item").count() == 2
    assert frames[1].locator(".pinned-item").count() == 0
    assert page.tab.locator("body > *").count() == 3  # nothing is added to the notebook
    assert page.errors == []
    page.tab.close()


def test_all_figures_are_drawn_when_the_page_is_loaded(chromium: Any, tmp_path: Path):
    figures = [gate("input"), gate("forget"), attention_grid(), regions(), states(), time_constants()]
    path = tmp_path / "page.html"
    path.write_text(build_page("Gates", SUMMARY, figures), encoding="utf-8")
    tab = chromium.new_page()
    count = """window.drawn = [...document.querySelectorAll("figure")].filter((figure) =>
      figure.querySelector("svg path, svg rect, svg text") || figure.querySelector("canvas")?.style.width).length"""
    tab.add_init_script(f"document.addEventListener('DOMContentLoaded', () => {{ {count} }})")
    tab.goto(path.as_uri())
    assert tab.evaluate("window.drawn") == len(figures)
    tab.close()
