"""No page has a serious finding of axe-core, in light and in dark mode."""

from __future__ import annotations

from importlib.resources import files

import pytest

pytestmark = pytest.mark.slow

PAGES = ("runs", "new", "use", "inside", "compare", "lab", "vectors", "run?id=runs/book-lstm")
CONTENTS = {
    "use": ".use-output h2, .use-output figure",
    "inside": ".inside-body figure",
}  # shown after a model is loaded
SERIOUS = ("serious", "critical")
# Without its copies of style sheets, which the content security policy forbids.
RUN = "axe.run(document, { resultTypes: ['violations'], preload: false })"


@pytest.fixture(scope="module")
def axe() -> str:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: make install")
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_accessible(page, axe, open_tab):
    name, _, query = page.partition("?")
    for width, scheme in ((1300, "light"), (390, "dark")):
        tab = open_tab(width, scheme).open(name, f"?{query}" if query else "")
        if name in CONTENTS:
            tab.wait_for_selector(CONTENTS[name], timeout=90_000)  # a worker imports PyTorch first
        tab.evaluate(axe)
        findings = tab.evaluate(RUN)["violations"]
        serious = {
            finding["id"]: [node["html"][:200] for node in finding["nodes"][:5]]
            for finding in findings
            if finding["impact"] in SERIOUS
        }
        assert serious == {}, (page, width, scheme)
