"""Every page opens, in light and dark mode, wide and at 390 pixels, without an error and without network."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PAGES = ("runs", "new", "use", "inside", "compare", "lab", "vectors")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens(page, open_tab):
    for width, scheme in ((1300, "light"), (390, "dark")):
        tab = open_tab(width, scheme).open(page)
        assert tab.locator("main h1").count() == 1
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_an_unknown_page_is_reported(open_tab):
    tab = open_tab().open("runs")
    tab.evaluate("location.hash = '#/nonsense'")
    tab.wait_for_selector("main [role=alert]")
    assert "no page “nonsense”" in tab.inner_text("main")
    tab.click("nav a[data-page=runs]")
    tab.wait_for_selector(".runs-table")
